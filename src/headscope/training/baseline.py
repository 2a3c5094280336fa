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
from headscope.errors import first_line, warn
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.training.scores import Scores, best_thresholds, scores

WITHOUT_SPACES = 0.05  # texts with a smaller share of white space are read by characters
# Every term is a weight for every class, of which the solver keeps some twenty copies: 200,000
# made-up texts of 40 words took 1 GiB and three minutes.
MOST_TEXTS = 200_000
MOST_WEIGHTS = 50_000_000  # 8 GiB with these copies


def baseline_scores(splits: DatasetDict) -> tuple[Scores | None, str, float]:
    """Fit on train, score on test: (scores, name, seconds).

    Without scores, and with a note, if memory cannot hold it.
    """
    start = time.perf_counter()
    try:
        baseline = fitted(splits["train"])
    except MemoryError as error:
        warn(f"the baseline is left out: {first_line(error)}")
        return None, "", time.perf_counter() - start
    if numbers(splits["test"], "label").ndim > 1:  # multi_label
        thresholds = best_thresholds(*_logits(baseline.pipeline, splits["validation"]))
        baseline = replace(baseline, objective=MultiLabel(thresholds))
    return baseline.scores(splits["test"]), baseline.name, time.perf_counter() - start


@dataclass(frozen=True)
class Baseline:
    """TF-IDF and logistic regression, fitted; `name` says which terms, and of how many texts."""

    pipeline: Pipeline
    name: str
    objective: Objective = ONE_CLASS

    def scores(self, split: Dataset) -> Scores:
        """Return the scores of a split."""
        return scores(*_logits(self.pipeline, split), self.objective)


def fitted(split: Dataset, C: float = 10.0) -> Baseline:
    """Fit on a split, at most on 200,000 texts, stratified by class.

    Terms are words and pairs of words, or 1 to 3 characters for text without spaces, in at least
    two texts, with log term frequency. With multi_label there is a regression for each class. C is
    the inverse of the strength of the penalty on squared weights.

    Raises:
        MemoryError: if classes times terms exceed 50 million weights, or the memory.
    """
    train = limited(split, MOST_TEXTS, seed=0)
    labels = numbers(train, "label")
    options, terms = {"analyzer": "word", "ngram_range": (1, 2)}, "words 1-2"
    if is_without_spaces(train):
        options, terms = {"analyzer": "char", "ngram_range": (1, 3)}, "characters 1-3"
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True, **options)
    counts = vectorizer.fit_transform(row_texts(train))
    classifier = LogisticRegression(C=C, max_iter=1000)
    num_classes = len(np.unique(labels))
    if labels.ndim > 1:
        classifier = OneVsRestClassifier(classifier)
        num_classes = 1  # fitted at once
    if num_classes * counts.shape[1] > MOST_WEIGHTS:
        raise MemoryError(
            f"{num_classes:,} classes times {counts.shape[1]:,} terms are more than "
            f"{MOST_WEIGHTS:,} weights"
        )
    with warnings.catch_warnings():
        message = "Label not .* is present in all training examples"
        warnings.filterwarnings("ignore", message=message)
        classifier.fit(counts, labels)
    name = f"TF-IDF ({terms}) + logistic regression"
    if len(train) < len(split):
        name += f" on {len(train):,} of {len(split):,} training texts"
    return Baseline(make_pipeline(vectorizer, classifier), name)


def is_without_spaces(split: Dataset) -> bool:
    """Tell whether the first thousand texts have too little white space to separate words."""
    sample = "".join(islice(row_texts(split), 1000))
    return sum(map(str.isspace, sample)) < WITHOUT_SPACES * max(1, len(sample))


def _logits(pipeline: Pipeline, split: Dataset) -> tuple[Tensor, Tensor]:
    """Return logits [N, C] of the pipeline's probabilities, and the labels."""
    labels = torch.from_numpy(numbers(split, "label"))
    shares = pipeline.predict_proba(row_texts(split))
    # A class that train has no text of has a column of zeros.
    probabilities = np.zeros((len(shares), pipeline.classes_.max() + 1))
    probabilities[:, pipeline.classes_] = shares
    clipped = torch.from_numpy(np.clip(probabilities, 1e-12, 1.0))
    logits = clipped.log() if labels.dim() == 1 else clipped.logit(eps=1e-12)
    return logits.float(), labels
