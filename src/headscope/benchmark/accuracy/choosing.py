"""Choosing by the validation split: what scores best there, and that alone, is scored on the test split."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from datasets import Dataset

from headscope.benchmark.accuracy.result import Result, shown_scores, sizes_of_splits
from headscope.data.corpus import Corpus
from headscope.training.scoring import Scores


@runtime_checkable  # for the tests, which check types
class Classifier(Protocol):
    """What was fitted on the training split."""

    @property
    def name(self) -> str:
        """What it is, and what it learned from."""

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""

    def scores(self, split: Dataset) -> Scores:
        """Return the scores of a split."""


Candidates = Mapping[str, Callable[[], Classifier]]  # what may be chosen, in words -> what fits it


@dataclass(frozen=True)
class Tried:
    """A candidate that was fitted and scored on the validation split, and the seconds that took."""

    words: str
    classifier: Classifier
    validation: Scores
    seconds: float


def best_of(candidates: Candidates, chosen: str | None, corpus: Corpus, loading: float) -> Result:
    """Fit the candidates in turn, take the best in validation accuracy (the first of equals), and score the test by it.

    Args:
        candidates: what may be chosen.
        chosen: by another seed; there is then no more to choose.
        corpus: the splits.
        loading: seconds that it took to have them.
    """
    left = candidates if chosen is None else {chosen: candidates[chosen]}
    begun = time.perf_counter()
    # max() keeps the best one and the one at hand, so no more than two are in memory.
    best = max((_tried(words, fit, corpus) for words, fit in left.items()), key=lambda tried: tried.validation.accuracy)
    ended = time.perf_counter()
    test = best.classifier.scores(corpus.splits["test"])
    return Result(
        scores=shown_scores(test, best.validation),
        seconds=loading + best.seconds + time.perf_counter() - ended,
        choosing_seconds=ended - begun if len(left) > 1 else 0.0,
        parameters=best.classifier.parameters,
        chosen=best.words,
        detail=best.classifier.name,
        texts=sizes_of_splits(corpus),
        classes=len(corpus.labels),
    )


def _tried(words: str, fit: Callable[[], Classifier], corpus: Corpus) -> Tried:
    begun = time.perf_counter()
    classifier = fit()
    validation = classifier.scores(corpus.splits["validation"])
    return Tried(words, classifier, validation, time.perf_counter() - begun)
