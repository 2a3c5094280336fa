"""When a run had better not answer: too little confidence, or a text unlike those of training.

What is chosen is chosen on the validation split, by training, and kept in the model's file.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from tokenizers import Tokenizer

from headscope.data.batching import EncodedTexts
from headscope.data.tokenizer import unknown_ids
from headscope.ground.errors import ConfigError
from headscope.runs.answering import share_of_unknown

BEYOND = 0.01  # share of the validation texts that are unfamiliar
MOST_POINTS = 500  # of a curve
Point = tuple[float, int, int]  # a confidence, the texts that reach it, those of them right
Values = Float[np.ndarray, " N"]


def unknown_share(tokenizer: Tokenizer, texts: EncodedTexts) -> Values:
    """Return each text's share of unknown tokens, those around it left out; 1 of an empty text."""
    ends = tokenizer.encode("").ids
    return share_of_unknown(texts.ids, texts.starts, ends, unknown_ids(tokenizer))


def most_unknown(tokenizer: Tokenizer, validation: EncodedTexts) -> float:
    """Return the share of unknown tokens beyond which a text is unfamiliar."""
    share = unknown_share(tokenizer, validation)
    return float(np.quantile(share, 1 - BEYOND, method="higher"))


def accuracy_curve(confidence: Values, is_right: Bool[np.ndarray, " N"]) -> list[Point]:
    """Return points of falling confidence, at most 500: the texts that reach it, and those right.

    The confidence is the probability of the likeliest class. Texts of one confidence are one point.
    """
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    right = np.cumsum(is_right[order])
    if len(ends) > MOST_POINTS:
        ends = ends[np.linspace(0, len(ends) - 1, MOST_POINTS).astype(int)]
    return [(float(ranked[end]), int(end) + 1, int(right[end])) for end in ends]


def least_confidence(points: Sequence[Point], target: float) -> float:
    """Return the least confidence from which `target` of the texts are right.

    `points` are those of `accuracy_curve`.

    Raises:
        ConfigError: if no confidence reaches the target, with the best that one does.
    """
    reached = [point for point in points if point[2] >= target * point[1]]
    if not reached:
        best = max((right / texts for _, texts, right in points), default=0.0)
        raise ConfigError(
            f"target_accuracy: expected at most {best:.4f}, the best on validation, got {target}"
        )
    return reached[-1][0]
