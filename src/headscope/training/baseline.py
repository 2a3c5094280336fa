"""What counting words would have reached on the same split: TF-IDF and logistic regression."""

import time
import warnings
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from torch import Tensor

from headscope.data.columns import numbers, row_texts
from headscope.data.splits import limited
from headscope.errors import UserWarningMessage, first_line
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.training.scores import Scores, best_thresholds, scores

WITHOUT_SPACES = 0.05  # texts with a smaller share of white space are read by characters
# Every pair of words is a weight for every class, of which the solver keeps some twenty copies: 200,000 made-up
# texts of 40 words took 1 GiB and three minutes. More would add a little, so the name says that it is a sample.
MOST_TEXTS = 200_000
MOST_WEIGHTS = 50_000_000  # 8 GiB with these copies
SCORED_AT_ONCE = 10_000  # texts of the test split


def baseline_scores(splits: DatasetDict) -> tuple[Scores | None, str, float]:
    """Fit on train, score on test: (scores, what was fitted, seconds); None, with a note, if memory cannot hold it."""
    start = time.perf_counter()
    try:
        baseline = fitted(splits["train"])
    except MemoryError as error:
        warnings.warn(
            UserWarningMessage(f"the baseline is left out: {first_line(error)}"), stacklevel=2
        )
        return None, "", time.perf_counter() - start
    if numbers(splits["test"], "label").ndim > 1:  # a text may have any number of labels
        thresholds = best_thresholds(*_logits(baseline.pipeline, splits["validation"]))
        baseline = replace(baseline, objective=MultiLabel(thresholds))
    return baseline.scores(splits["test"]), baseline.name, time.perf_counter() - start


@dataclass(frozen=True)
class Baseline:
    """TF-IDF and logistic regression, fitted; `name` says what was counted, and on how many texts if not on all."""

    pipeline: Pipeline
    name: str
    objective: Objective = ONE_CLASS

    def scores(self, split: Dataset) -> Scores:
        """Return the scores of a split."""
        return scores(*_logits(self.pipeline, split), self.objective)


def fitted(split: Dataset, C: float = 10.0) -> Baseline:
    """Fit on a split; at most on 200,000 texts, drawn with the shares of the classes.

    Words and pairs of words, or runs of 1 to 3 characters for text without spaces; terms in two texts or more; log
    term frequency. Where a text has any number of labels there is a regression for each class. C is the inverse of the
    strength of the penalty on squared weights.

    Raises:
        MemoryError: if the classes times the terms are more weights than 50 million, or than memory holds.
    """
    train = limited(split, MOST_TEXTS, seed=0)
    by_characters, labels = is_without_spaces(train), numbers(train, "label")
    analyzer, ngrams = ("char", (1, 3)) if by_characters else ("word", (1, 2))
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, min_df=2, sublinear_tf=True)
    regression = LogisticRegression(C=C, max_iter=1000)
    classifier = regression if labels.ndim == 1 else OneVsRestClassifier(regression)
    counted = vectorizer.fit_transform(row_texts(train))
    classes, terms = (
        len(np.unique(labels)) if labels.ndim == 1 else 1,
        counted.shape[1],
    )  # fitted at once
    if classes * terms > MOST_WEIGHTS:
        raise MemoryError(
            f"{classes:,} classes times {terms:,} terms are more than {MOST_WEIGHTS:,} weights"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Label not .* is present in all training examples"
        )
        classifier.fit(counted, labels)
    name = f"TF-IDF ({'characters 1-3' if by_characters else 'words 1-2'}) + logistic regression"
    if len(train) < len(split):
        name += f" on {len(train):,} of {len(split):,} training texts"
    return Baseline(make_pipeline(vectorizer, classifier), name)


def is_without_spaces(split: Dataset) -> bool:
    """Tell whether the first thousand texts have so little white space that their words cannot be told apart by it."""
    sample = "".join(islice(row_texts(split), 1000))
    return sum(map(str.isspace, sample)) < WITHOUT_SPACES * max(1, len(sample))


def _logits(pipeline: Pipeline, split: Dataset) -> tuple[Tensor, Tensor]:
    """Return logits [N, C] that give the pipeline's probabilities, and the labels."""
    labels = torch.from_numpy(numbers(split, "label"))
    probabilities = torch.from_numpy(np.clip(_probabilities(pipeline, split), 1e-12, 1.0))
    logits = probabilities.log() if labels.dim() == 1 else probabilities.logit(eps=1e-12)
    return logits.float(), labels


def _probabilities(pipeline: Pipeline, split: Dataset) -> np.ndarray:
    """Return [N, C], found for some texts at a time. A class that train has no text of has a column of zeros."""
    texts, found = row_texts(split), []
    while some := list(islice(texts, SCORED_AT_ONCE)):
        known = pipeline.predict_proba(some)
        found.append(np.zeros((len(some), pipeline.classes_.max() + 1)))
        found[-1][:, pipeline.classes_] = known
    return np.concatenate(found)
