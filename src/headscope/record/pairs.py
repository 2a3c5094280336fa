"""How much of a map goes from one text of a pair to the other. Needs numpy alone."""

import numpy as np

from headscope.record.schema import Segments


def quadrants(weights: np.ndarray, segments: Segments) -> np.ndarray:
    """Return q_xy = mean over the tokens i of text x of sum_j a_ij [j in text y]: AA, AB, BA, BB.

    Weights a_ij [..., T, T], whose rows sum to 1, give [..., 2, 2]. Special tokens are no queries,
    and what goes to them is 1 - q_x0 - q_x1. A row is NaN if its text has no token. BertViz shows
    the same four parts of a map (Vig 2019, A Multiscale Visualization of Attention in the
    Transformer Model); the shares are our own.
    """
    members = np.array([[segment == text for segment in segments] for text in (0, 1)], float)
    sums = members @ weights.astype(np.float64) @ members.T  # [2, T] [..., T, T] [T, 2]
    num_tokens = np.broadcast_to(members.sum(axis=1)[:, None], sums.shape)  # [..., 2, 2]
    shares: np.ndarray = np.full_like(sums, np.nan)
    np.divide(sums, num_tokens, out=shares, where=num_tokens > 0)
    return shares


def between(weights: np.ndarray, segments: Segments) -> np.ndarray:
    """Return the mean over the tokens of both texts of the weight that goes to the other text.

    This is `headscope.heads.measures.crossing_mass` of one pair: [..., T, T] give [...]; 0 if a
    text has no token.
    """
    num_first = sum(segment == 0 for segment in segments)
    num_second = sum(segment == 1 for segment in segments)
    shares = np.nan_to_num(quadrants(weights, segments))
    crossing = num_first * shares[..., 0, 1] + num_second * shares[..., 1, 0]
    return np.asarray(crossing / max(1, num_first + num_second))
