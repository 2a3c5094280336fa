"""What a run is compared with on its test texts: TF-IDF and logistic regression, and a control."""

import re
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from jaxtyping import Bool, Float
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from torch import Tensor, nn

from headscope.data.columns import numbers, row_texts
from headscope.data.splits import limited
from headscope.data.units import CHARACTERS, KATAKANA
from headscope.ground.errors import ConfigError, DataError, first_line, warn
from headscope.heads.answer import paired_interval, points
from headscope.heads.capture import ablate, every_head
from headscope.model.objective import (
    ONE_CLASS,
    Classes,
    MultiLabel,
    Objective,
)
from headscope.results.scores import SCORES, Scores, best_thresholds, predicted_classes, scores

WORDS = "words 1-2"
CHARACTERS_1_3 = "characters 1-3"  # of text without spaces, across signs
WORDS_AND_CHARACTERS = "words 1-2, characters 2-4"
# Read by characters are texts with less white space than this, or with more letters of Chinese,
# Japanese and Korean than this.
FEW_SPACES = 0.05
MANY_CHARACTERS = 0.3
# Every term is a weight for every class, of which the solver keeps some twenty copies: 200,000
# made-up texts of 40 words took 1 GiB and three minutes.
MOST_TEXTS = 200_000
MOST_WEIGHTS = 50_000_000  # 8 GiB with these copies
MOST_TO_CHOOSE = 1_000  # texts of train, and of validation, by which terms and C are chosen
CHARACTERS_TO_CHOOSE = 2_000_000  # of long texts fewer are taken
STRENGTHS = (1.0, 10.0, 100.0)  # of C
MARGIN = 1.05  # plain terms are quicker, and taken unless more lower the loss by a twentieth
RESAMPLES = 1000  # of the test texts: an end of the interval has an error of 3 % of its width
Interval = tuple[float, float, float]  # a difference, and the ends of its 95 % interval


@dataclass
class Compared:
    """A classifier that a run is compared with, on its test texts."""

    name: str  # as tables have it
    scores: Scores
    predicted: Classes  # of each test text
    # Of accuracy and macro-F1, the run's less its own, each with a 95 % interval.
    differences: dict[str, Interval] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, logits: Tensor, labels: Tensor, objective: Objective) -> "Compared":
        """Return what a classifier's logits of the test texts give."""
        predicted = predicted_classes(objective, logits)
        return cls(name, scores(logits, labels, objective), predicted)

    def content(self, labels: list[str]) -> dict[str, Any]:
        """Return the scores as JSON."""
        return {
            "name": self.name,
            "differences": self.differences,
            **self.scores.content(labels),
        }


def above(name: str, differences: dict[str, Interval]) -> str:
    """Return in percentage points how far a run is above what is called `name`."""
    parts = [
        f"{SCORES[score]} {points(mean)} (95 % interval {points(low)} to {points(top)})"
        for score, (mean, low, top) in differences.items()
    ]
    return f"percentage points above {name}: {', '.join(parts)}"


def differences(ours: Classes, theirs: Bool[Tensor, "B K"], truth: Classes) -> dict[str, Interval]:
    """Return accuracy and macro-F1 of our predictions less theirs, with 95 % intervals.

    That of accuracy is `paired_interval`. That of macro-F1 is the bootstrap over texts (Efron and
    Tibshirani 1993, An Introduction to the Bootstrap, chapter 13): texts are drawn with
    replacement, with a fixed seed, both classifiers are scored on the same ones, and the interval
    lies between the 2.5th and 97.5th percentile of the difference. Where both predict the same of
    every text it would have no width, and macro-F1 is left out. An interval says how far other test
    texts might move the difference, not another split or seed.
    """
    theirs = F.pad(theirs, (0, truth.shape[1] - theirs.shape[1]))  # classes that it never learned
    num_texts = len(truth)
    # Of each classifier: which texts are right; true positives; predicted plus actual counts.
    outcomes = [
        (
            (predicted == truth).all(dim=1).double().numpy(),  # [N]
            csr_array((predicted & truth).T.double().numpy()),  # [C, N]
            csr_array((predicted.double() + truth.double()).T.numpy()),  # [C, N]
        )
        for predicted in (ours, theirs)
    ]

    def difference(weights: np.ndarray) -> np.ndarray:
        """Return the difference on texts that count by their weight [N]."""
        scored = []
        for is_right, hits, totals in outcomes:
            total = totals @ weights  # [C]
            f1 = 2 * (hits @ weights) / np.maximum(total, 1)  # 2 TP / (given + had)
            accuracy = weights @ is_right / num_texts
            num_classes = max(1, (total > 0).sum())
            scored.append([accuracy, f1.sum() / num_classes])
        ours, theirs = np.array(scored)
        return ours - theirs  # type: ignore[no-any-return]

    generator = np.random.default_rng(0)
    resampled = []
    for _ in range(RESAMPLES):
        texts = generator.integers(num_texts, size=num_texts)
        weights = np.bincount(texts, minlength=num_texts).astype(float)
        resampled.append(difference(weights)[1])
    interval = np.percentile(resampled, [2.5, 97.5])
    accuracy, macro_f1 = difference(np.ones(num_texts)).tolist()
    is_right, is_other_right = (is_right for is_right, *_ in outcomes)
    gained = int((is_right > is_other_right).sum())
    lost = int((is_right < is_other_right).sum())
    found: dict[str, Interval] = {"accuracy": (accuracy, *paired_interval(gained, lost, num_texts))}
    if not bool((ours == theirs).all()):
        found["macro_f1"] = (macro_f1, *interval.tolist())
    return found


def averages_in_place_of_attention(model: nn.Module) -> AbstractContextManager[None]:
    """Have each head take the plain average over the keys that it may see, until the block is left.

    What makes queries and keys gets no gradient; values and all else learn as they are. ConfigError
    for a model whose heads cannot be changed.
    """
    heads = every_head(model)
    if not heads:
        raise ConfigError(
            "control: expected null with this checkpoint, whose model does not use transformers' "
            "AttentionInterface; leave it out"
        )
    return ablate(model, dict.fromkeys(heads, "uniform"))


def baseline_scores(splits: DatasetDict) -> Compared | None:
    """Fit on train, score on test; None, and a note, without terms or if memory cannot hold it."""
    try:
        baseline = chosen(splits["train"], splits["validation"])
    except (MemoryError, DataError) as error:
        warn(f"no baseline: {first_line(error)}")
        return None
    objective: Objective = ONE_CLASS
    if numbers(splits["test"], "label").ndim > 1:  # multi_label
        objective = MultiLabel(best_thresholds(*baseline.logits(splits["validation"])))
    return Compared.of(baseline.name, *baseline.logits(splits["test"]), objective)


@dataclass(frozen=True)
class Baseline:
    """TF-IDF and logistic regression, fitted; `name` says which terms, and of how many texts."""

    pipeline: Pipeline
    name: str

    def logits(self, split: Dataset) -> tuple[Tensor, Tensor]:
        """Return logits [N, C] of the pipeline's probabilities, and the labels."""
        labels = numbers(split, "label")
        return logits(self.pipeline, [*row_texts(split)], labels), torch.from_numpy(labels)


def logits(pipeline: Pipeline, texts: list[str], labels: np.ndarray) -> Float[Tensor, "N C"]:
    """Return logits of a pipeline's probabilities, with a column for each class of the labels."""
    shares = pipeline.predict_proba(texts)
    # A class that train has no text of has a column of zeros.
    classes = pipeline.classes_
    num_classes = max(classes.max(), labels.max() * (labels.ndim == 1)) + 1
    probabilities = np.zeros((len(shares), num_classes))
    probabilities[:, classes] = shares
    clipped = torch.from_numpy(np.clip(probabilities, 1e-12, 1.0))
    return (clipped.log() if labels.ndim == 1 else clipped.logit(eps=1e-12)).float()


class Regression(LogisticRegression):
    """Logistic regression that raises a MemoryError for more weights than the memory holds."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Regression":
        """Fit, as scikit-learn does."""
        num_classes = len(np.unique(y))
        if num_classes * X.shape[1] > MOST_WEIGHTS:
            raise MemoryError(
                f"{num_classes:,} classes times {X.shape[1]:,} terms are more than "
                f"{MOST_WEIGHTS:,} weights"
            )
        super().fit(X, y, sample_weight)
        return self


def vectorizer(terms: str) -> Any:
    """Return scikit-learn's transformer of texts into TF-IDF, with log term frequency.

    Of several kinds of terms each is scaled to length 1 by itself. Terms are in at least two texts.
    """
    options = {"min_df": 2, "sublinear_tf": True, "dtype": np.float32}
    if terms == CHARACTERS_1_3:
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 3), **options)
    words = TfidfVectorizer(ngram_range=(1, 2), **options)
    if terms == WORDS:
        return words
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **options)
    return FeatureUnion([("words", words), ("characters", characters)])


def chosen(train: Dataset, validation: Dataset) -> Baseline:
    """Return TF-IDF and logistic regression with the terms and C of the lowest validation loss.

    Terms are words and pairs of words or, of text without spaces, 1 to 3 characters; or words and
    2 to 4 characters within them, if they lower the loss by a twentieth. C, the inverse of the
    strength of the penalty on squared weights, is 1, 10 or 100. All are chosen by fits on at most
    1,000 training texts, of long ones fewer; the last fit is on all, 200,000 at most. With
    multi_label there is a regression for each class.

    Raises:
        DataError: if there is no term, as in emoji or letters alone.
        MemoryError: if classes times terms exceed 50 million weights, or the memory.
    """
    plain = CHARACTERS_1_3 if is_without_spaces(train) else WORDS
    begin = "".join(islice(row_texts(train), 100))
    most = min(MOST_TO_CHOOSE, max(100, 100 * CHARACTERS_TO_CHOOSE // max(1, len(begin))))
    terms, C = search(limited(train, most, seed=0), limited(validation, most, seed=0), plain)
    try:
        return fitted(train, terms, C)
    except MemoryError:  # the words alone may fit
        if terms == plain:
            raise
        return fitted(train, plain, C)


def search(train: Dataset, validation: Dataset, plain: str) -> tuple[str, float]:
    """Return the terms and C of the lowest validation loss; plain terms and 1 if none fits.

    Other terms than the plain ones have to lower the loss by a twentieth.
    """
    texts = [*row_texts(train), *row_texts(validation)]
    labels = np.concatenate([numbers(train, "label"), numbers(validation, "label")])
    of_validation = np.repeat([-1, 0], [len(train), len(validation)])
    kinds = {terms: vectorizer(terms) for terms in (plain, WORDS_AND_CHARACTERS)}
    is_multi = labels.ndim > 1
    C = "classifier__estimator__C" if is_multi else "classifier__C"
    found = GridSearchCV(
        pipeline_of(plain, 1.0, is_multi),
        {"terms": [*kinds.values()], C: STRENGTHS},
        scoring=negative_loss,
        cv=PredefinedSplit(of_validation),
        refit=False,  # it would learn validation too
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that fail: there may be a term in the other kind
        try:
            found.fit(texts, labels)
        except ValueError:  # all have failed
            return plain, 1.0
    settings = found.cv_results_["params"]
    margins = [1 if each["terms"] is kinds[plain] else MARGIN for each in settings]
    best = settings[np.nanargmin(-found.cv_results_["mean_test_score"] * margins)]
    terms = next(terms for terms, weigh in kinds.items() if weigh is best["terms"])
    return terms, best[C]


def negative_loss(pipeline: Pipeline, texts: list[str], labels: np.ndarray) -> float:
    """Return what `search` makes as large as it can be."""
    objective: Objective = ONE_CLASS if labels.ndim == 1 else MultiLabel()
    predicted = logits(pipeline, texts, labels)
    return -scores(predicted, torch.from_numpy(labels), objective).loss


def pipeline_of(terms: str, C: float, is_multi: bool) -> Pipeline:
    """Return TF-IDF and logistic regression, one for each class where a text may have several."""
    classifier = Regression(C=C, max_iter=1000)
    if is_multi:
        classifier = OneVsRestClassifier(classifier)
    return Pipeline([("terms", vectorizer(terms)), ("classifier", classifier)])


def fitted(split: Dataset, terms: str, C: float) -> Baseline:
    """Return what is fitted on at most 200,000 texts, stratified by class. Errors: see `chosen`."""
    train = limited(split, MOST_TEXTS, seed=0)
    labels = numbers(train, "label")
    name = f"TF-IDF ({terms}) + logistic regression"
    if len(train) < len(split):
        name += f" on {len(train):,} of {len(split):,} training texts"
    pipeline = pipeline_of(terms, C, labels.ndim > 1)
    with warnings.catch_warnings():
        message = "Label not .* is present in all training examples"
        warnings.filterwarnings("ignore", message=message)
        try:
            pipeline.fit([*row_texts(train)], labels)
        except ValueError as error:  # an empty vocabulary, or none in two texts
            raise DataError("no term is in two training texts") from error
    return Baseline(pipeline, name)


def is_without_spaces(split: Dataset) -> bool:
    """Tell whether white space does not separate words in the first thousand texts.

    Japanese with Latin words in it has spaces, around those words.
    """
    sample = "".join(islice(row_texts(split), 1000))
    characters = re.findall(f"[{CHARACTERS}{KATAKANA}]", sample)
    if len(characters) > MANY_CHARACTERS * max(1, sum(map(str.isalpha, sample))):
        return True
    return sum(map(str.isspace, sample)) < FEW_SPACES * max(1, len(sample))
