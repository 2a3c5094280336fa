"""What counting words would have reached on the same split: TF-IDF and logistic regression."""

import time
import warnings
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from torch import Tensor

from headscope.data.columns import numbers, tuples
from headscope.data.splits import limited
from headscope.model.objective import ONE_CLASS, AnyClasses, Objective
from headscope.training.scoring import Scores, scores
from headscope.training.thresholds import best_thresholds

WITHOUT_SPACES = 0.05  # texts with a smaller share of white space are read by characters
# Every pair of words is a weight for every class, and the solver keeps some twenty copies of them, so memory and time
# grow with the texts that it learns from: 200,000 made ones of 40 words took 1 GiB and three minutes. What more would
# add to counted words is little but not nothing, so the name of the baseline says that it had a sample.
MOST_TEXTS = 200_000
SCORED_AT_ONCE = 10_000  # texts of the test split


def baseline_scores(splits: DatasetDict) -> tuple[Scores, str, float]:
    """Fit on train, score on test: (scores, what was fitted, seconds).

    Words and pairs of words, or runs of 1 to 3 characters for text without spaces; terms in two texts or more,
    log term frequency; C = 10. Of more than 200,000 training texts so many are drawn, with the shares of the classes.
    Where a text has any number of labels there is a regression for each class, and a threshold chosen on validation.
    """
    start = time.perf_counter()
    train = limited(splits["train"], MOST_TEXTS, seed=0)
    by_characters = _white_space_share(train) < WITHOUT_SPACES
    labels = numbers(train, "label")
    is_one = labels.ndim == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Label not .* is present in all training examples")
        pipeline = _pipeline(by_characters, is_one).fit(_texts(train), labels)
    objective: Objective = ONE_CLASS
    if not is_one:
        objective = AnyClasses(best_thresholds(*_logits(pipeline, splits["validation"])))
    name = f"TF-IDF ({'characters 1-3' if by_characters else 'words 1-2'}) + logistic regression"
    if len(train) < len(splits["train"]):
        name += f" on {len(train):,} of {len(splits['train']):,} training texts"
    return scores(*_logits(pipeline, splits["test"]), objective), name, time.perf_counter() - start


def _logits(pipeline: Pipeline, split: Dataset) -> tuple[Tensor, Tensor]:
    """Return logits [N, C] that give the pipeline's probabilities, and the labels."""
    labels = torch.from_numpy(numbers(split, "label"))
    probabilities = torch.from_numpy(np.clip(_probabilities(pipeline, split), 1e-12, 1.0))
    logits = probabilities.log() if labels.dim() == 1 else probabilities.logit(eps=1e-12)
    return logits.float(), labels


def _texts(split: Dataset) -> Iterator[str]:
    """Yield each row's text, or both texts of a pair on lines of their own, read from disk as they are asked for."""
    columns = [column for column in ("text", "text_pair") if column in split.column_names]
    return map("\n".join, tuples(split, columns))


def _probabilities(pipeline: Pipeline, split: Dataset) -> np.ndarray:
    """Return [N, C], found for some texts at a time. A class that train has no text of has a column of zeros."""
    texts, found = _texts(split), []
    while some := list(islice(texts, SCORED_AT_ONCE)):
        known = pipeline.predict_proba(some)
        found.append(np.zeros((len(some), pipeline.classes_.max() + 1)))
        found[-1][:, pipeline.classes_] = known
    return np.concatenate(found)


def _white_space_share(split: Dataset) -> float:
    sample = "".join(islice(_texts(split), 1000))
    return sum(map(str.isspace, sample)) / max(1, len(sample))


def _pipeline(by_characters: bool, is_one: bool) -> Pipeline:
    analyzer, ngrams = ("char", (1, 3)) if by_characters else ("word", (1, 2))
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, min_df=2, sublinear_tf=True)
    regression = LogisticRegression(C=10, max_iter=1000)
    return make_pipeline(vectorizer, regression if is_one else OneVsRestClassifier(regression))
