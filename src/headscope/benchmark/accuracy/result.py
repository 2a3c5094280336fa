"""What came of one run of the accuracy suite."""

from collections.abc import Mapping
from dataclasses import dataclass

from headscope.data.corpus import Corpus
from headscope.training.scoring import Scores

SPLITS = ("test", "validation")
SHOWN = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class Result:
    """What came of one run.

    Attributes:
        scores: split -> accuracy and macro_f1, from 0 to 1.
        seconds: from the texts to the scores of both splits, with what was chosen.
        choosing_seconds: of everything that was tried on the validation split; 0 where nothing was chosen by it.
        parameters: numbers that were learned.
        chosen: by the validation split, in words that the same row takes for its other seeds.
        detail: what a reader should know of how it was made.
        texts: how many each split has.
        classes: how many there are.
    """

    scores: Mapping[str, Mapping[str, float]]
    seconds: float
    choosing_seconds: float
    parameters: int
    chosen: str
    detail: str
    texts: Mapping[str, int]
    classes: int


def shown_scores(test: Scores, validation: Scores) -> dict[str, dict[str, float]]:
    """Return what is kept of the scores of both splits."""
    both = zip(SPLITS, (test, validation), strict=True)
    return {split: {name: getattr(found, name) for name in SHOWN} for split, found in both}


def sizes_of_splits(corpus: Corpus) -> dict[str, int]:
    """Return how many texts train, validation and test have."""
    return {role: len(corpus.splits[role]) for role in ("train", "validation", "test")}
