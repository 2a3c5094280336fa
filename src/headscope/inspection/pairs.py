"""Pairs of texts: how much of a map stays within a text and how much goes from one to the other. Needs numpy alone.

T positions. Of each token it is known which text it is of: 0 for the first, 1 for the second, and None for special
tokens such as [CLS] and [SEP], which are of neither; for Hugging Face's tokenizers these are `encoding.sequence_ids`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Segments = Sequence[int | None]


def check_segments(segments: Sequence[Any], tokens: int, name: str) -> list[int | None]:
    """Return the segments as plain numbers.

    Raises:
        ValueError: unless there is 0, 1 or None for each of so many tokens; the message begins with the name.
    """
    if len(segments) != tokens or any(segment not in (0, 1, None) for segment in segments):
        raise ValueError(f"{name}: segments has to be 0, 1 or None for each of the {tokens} tokens")
    return [None if segment is None else int(segment) for segment in segments]


def quadrants(weights: np.ndarray, segments: Segments) -> np.ndarray:
    """Return q_xy = mean over the tokens i of text x of sum_j a_ij [j is of text y]: A->A, A->B, B->A, B->B.

    Special tokens are counted apart: they are no queries, and what is given to them is 1 - q_x0 - q_x1. A row is NaN if
    its text has no token. BertViz shows the same four parts of a map (Vig 2019, A Multiscale Visualization of Attention
    in the Transformer Model); the shares are our own.

    Args:
        weights: a_ij [..., T, T], rows summing to 1.
        segments: which text each token is of.

    Returns:
        [..., 2, 2], from x to y.
    """
    of = np.array([[segment == text for segment in segments] for text in (0, 1)], dtype=np.float64)  # [2, T]
    sums = of @ weights.astype(np.float64) @ of.T  # [..., 2, 2]
    tokens = np.broadcast_to(of.sum(axis=1)[:, None], sums.shape)
    shares: np.ndarray = np.divide(sums, tokens, out=np.full_like(sums, np.nan), where=tokens > 0)
    return shares


def between(weights: np.ndarray, segments: Segments) -> np.ndarray:
    """Return the mean over the tokens of both texts of the weight that they give to tokens of the other one.

    That is `headscope.inspection.patterns.crossing_mass` of one pair: weights [..., T, T] give [...]. It is 0 if a text
    has no token.
    """
    first, second = (sum(segment == text for segment in segments) for text in (0, 1))
    shares = np.nan_to_num(quadrants(weights, segments))
    return np.asarray((first * shares[..., 0, 1] + second * shares[..., 1, 0]) / max(1, first + second))


def numbers_of_pair(weights: np.ndarray, segments: Segments | None) -> dict[str, float]:
    """Return what can be said of a head's map [T, T] because its text is a pair; nothing for a single text."""
    return {} if segments is None else {"between": float(between(weights, segments))}
