"""When a run had better not answer: too little confidence, or a text unlike those of training.

What is chosen is chosen on the validation split, by training, and kept in metrics.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from pydantic import TypeAdapter
from tokenizers import Tokenizer

from headscope.data.batching import EncodedTexts
from headscope.data.tokenizer import SPECIAL_TOKENS, UNKNOWN
from headscope.errors import ConfigError, RunError, warn
from headscope.files import read_json, reading
from headscope.run_folder import METRICS

SELECTIVE = "selective"  # keys of metrics.json
FAMILIAR = "familiar texts"
SHARE = 0.01  # of the validation texts lie beyond each limit of familiar texts
MOST_POINTS = 500  # of a kept curve
SHOWN = ("0.5", "0.8", "0.9", "1.0")  # coverages on the terminal
Reason = Literal["", "confidence", "unfamiliar"]
Point = tuple[float, int, int]  # a confidence, the texts that reach it, those of them right
Values = Float[np.ndarray, " N"]


@dataclass(frozen=True)
class Limits:
    """Beyond what a text is unfamiliar."""

    unknown_tokens: float  # the highest share
    characters_per_token: float  # the lowest mean


@dataclass(frozen=True)
class Familiarity:
    """Tells texts that are unlike those of training, such as texts in another language.

    Two measures: the share of unknown tokens, and, as subword tokenizers know every character, the
    mean number of characters of a token, an unknown one counted as 0. A text is unfamiliar beyond
    the 99th (1st) percentile of the validation texts, and if it has no token.
    """

    lengths: Float[np.ndarray, " V"]  # characters of each token; 0 if unknown, NaN if special
    limits: Limits

    def is_unfamiliar(self, texts: EncodedTexts) -> Bool[np.ndarray, " N"]:
        """Return which texts are."""
        unknown, characters = _measures(self.lengths, texts)
        is_beyond = unknown > self.limits.unknown_tokens
        result: np.ndarray = is_beyond | (characters < self.limits.characters_per_token)
        return result

    def content(self) -> dict[str, Any]:
        """Return the limits and lengths as JSON holds them; a special token has the length -1."""
        characters = np.nan_to_num(self.lengths, nan=-1).astype(int)
        return asdict(self.limits) | {"characters": characters.tolist()}


def limits_of(tokenizer: Tokenizer, validation: EncodedTexts) -> Limits:
    """Return the limits of familiar texts, by those of the validation split."""
    unknown, characters = _measures(_token_lengths(tokenizer), validation)
    return Limits(
        float(np.quantile(unknown, 1 - SHARE, method="higher")),
        float(np.quantile(characters, SHARE, method="lower")),
    )


def load_familiarity(folder: Path, tokenizer: Tokenizer) -> Familiarity | None:
    """Read the limits from metrics.json; None for an unfinished or an older run."""
    limits = _read(folder, FAMILIAR, Limits)
    return None if limits is None else Familiarity(_token_lengths(tokenizer), limits)


def _token_lengths(tokenizer: Tokenizer) -> np.ndarray:
    vocabulary = tokenizer.get_vocab()
    lengths = np.zeros(max(vocabulary.values()) + 1)
    for token, number in vocabulary.items():
        if token in SPECIAL_TOKENS:
            lengths[number] = 0 if token == UNKNOWN else np.nan
        else:
            lengths[number] = len(token.removeprefix("##").strip("▁Ġ"))
    return lengths


def _measures(lengths: np.ndarray, texts: EncodedTexts) -> tuple[Values, Values]:
    """Return each text's share of unknown tokens and mean characters of a token: 1, 0 of none."""
    of_tokens = lengths[texts.ids]
    is_word = ~np.isnan(of_tokens)

    def sums(values: np.ndarray) -> np.ndarray:
        return np.diff(np.append(0, np.cumsum(values))[texts.starts])

    counts = sums(is_word)
    tokens = np.maximum(counts, 1)
    unknown = np.where(counts > 0, sums(of_tokens == 0) / tokens, 1.0)
    return unknown, sums(np.nan_to_num(of_tokens)) / tokens


# Confidence, the probability of the likeliest class.


def accuracy_curve(confidence: Values, is_right: Bool[np.ndarray, " N"]) -> list[Point]:
    """Return points of falling confidence, at most 500: the texts that reach it, and those right.

    Texts of one confidence are one point.
    """
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    right = np.cumsum(is_right[order])
    if len(ends) > MOST_POINTS:
        ends = ends[np.linspace(0, len(ends) - 1, MOST_POINTS).astype(int)]
    return [(float(ranked[end]), int(end) + 1, int(right[end])) for end in ends]


def aurc(confidence: Values, is_right: Bool[np.ndarray, " N"]) -> float:
    """Return the area under the risk-coverage curve: the mean, over n, of the risk of the n surest.

    The risk is the share of errors (Geifman and El-Yaniv 2017, Selective Classification for Deep
    Neural Networks; Geifman, Uziel and El-Yaniv 2019, section 3). 0 is best.
    """
    is_wrong = ~is_right[np.argsort(-confidence, kind="stable")]
    return float((np.cumsum(is_wrong) / np.arange(1, len(is_wrong) + 1)).mean())


def selective_content(
    test: tuple[Values, Bool[np.ndarray, " N"]],
    validation: tuple[Float[np.ndarray, " V"], Bool[np.ndarray, " V"]],
) -> dict[str, Any]:
    """Return what metrics.json has: AURC, the share right of the surest, and validation's curve."""
    confidence, is_right = test
    ranked = is_right[np.argsort(-confidence, kind="stable")]
    shares = {f"{share / 100:.1f}": _surest(ranked, share) for share in range(10, 101, 10)}
    return {
        "aurc": round(aurc(*test), 6),
        "accuracy by coverage": shares,
        "validation": accuracy_curve(*validation),
    }


def _surest(ranked: Bool[np.ndarray, " N"], percent: int) -> float:
    return round(float(ranked[: max(1, len(ranked) * percent // 100)].mean()), 6)


def selective_line(content: Mapping[str, Any]) -> str:
    """Return a line for the terminal."""
    shares = content["accuracy by coverage"]
    parts = ", ".join(f"{100 * shares[key]:.1f} % of {100 * float(key):.0f} %" for key in SHOWN)
    return f"right of the surest test texts: {parts}; AURC {content['aurc']:.4f} (0 is best)"


def chosen_confidence(folder: Path, target: float) -> float:
    """Return the least confidence from which `target` of the validation texts are right.

    A warning has the threshold, its coverage, and the accuracy with its 95 % interval (Clopper and
    Pearson 1934).

    Raises:
        ConfigError: if no threshold reaches the target, with the best that one does.
        RunError: for a run that kept no curve.
    """
    from scipy.stats import binomtest  # here: its import takes 0.7 s

    content = _read(folder, SELECTIVE, dict[str, Any] | None)
    if content is None:
        raise RunError(
            f"run={folder}: has no curve for target_accuracy, as older runs and those with several "
            "labels a text; give min_confidence=..., or train again"
        )
    with reading(folder / METRICS):
        points = TypeAdapter(list[Point]).validate_python(content["validation"])
        num_texts = points[-1][1]
    reached = [point for point in points if point[2] >= target * point[1]]
    if not reached:
        confidence, texts, right = max(points, key=lambda point: (point[2] / point[1], point[1]))
        raise ConfigError(
            f"target_accuracy: expected at most {right / texts:.4f}, which {texts} of {num_texts} "
            f"validation texts reach at min_confidence={confidence:.4f}, got {target}"
        )
    confidence, texts, right = reached[-1]
    interval = binomtest(right, texts).proportion_ci(0.95, "exact")
    warn(
        f"min_confidence={confidence:.4f}, by target_accuracy={target}: {texts} of {num_texts} "
        f"validation texts reach it, {100 * right / texts:.1f} % of them right (95 % interval "
        f"{100 * interval.low:.1f} to {100 * interval.high:.1f})"
    )
    return confidence


def reasons_to_abstain(
    confidence: Values, is_unfamiliar: Bool[np.ndarray, " N"], least: float
) -> Sequence[Reason]:
    """Return why each text gets no label; "" where it gets one."""
    reasons = np.where(confidence >= least, "", "confidence")
    result: list[Reason] = np.where(is_unfamiliar, "unfamiliar", reasons).tolist()
    return result


def _read(folder: Path, key: str, kind: Any) -> Any:
    path = folder / METRICS
    if not path.exists():
        return None
    content = read_json(path, dict).get(key)
    with reading(path):
        return None if content is None else TypeAdapter(kind).validate_python(content)
