"""Whether texts are still like those that a run knows: unknown words, confidence, classes, words.

Shape letters: N texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool
from scipy import stats
from scipy.sparse import csr_array
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import MultinomialNB

from headscope.data.batching import encode_rows
from headscope.data.evidence import Vocabulary
from headscope.runs.abstaining import unknown_share
from headscope.runs.answering import AnswerRule
from headscope.runs.run import Run

TESTS = {"unknown words": stats.mannwhitneyu, "confidence": stats.ks_2samp}  # others are shares
CLASSIFIER = "classifier of new texts"
FOLDS = 5
LEAST_TEXTS = 5  # that have a word which is tested


@dataclass(frozen=True)
class Observed:
    """What a run makes of N texts.

    Attributes:
        measures: columns with a number of each text in [0, 1]: its share of unknown words, its
            confidence, whether the run abstains, and of each class whether it is predicted.
        words: of each text its distinct words; the index is the number of the text.
    """

    measures: pd.DataFrame
    words: pd.Series

    def only(self, rows: Bool[np.ndarray, " N"]) -> "Observed":
        """Return the same of some of the texts."""
        return Observed(self.measures[rows], self.words[rows[self.words.index]])


def observe(run: Run, texts: Sequence[tuple[str, ...]], rule: AnswerRule | None) -> Observed:
    """Predict texts; the run abstains by a rule, without one on unfamiliar texts alone."""
    encoded = run.encode(texts)
    found = run.label(encoded)
    probabilities = np.array([[*each.probabilities.values()] for each in found])  # [N, C]
    confidence = probabilities.max(axis=1)
    abstained = np.array([each.is_unfamiliar for each in found])
    if rule is not None:
        abstained = np.array(rule.answer(probabilities, abstained)[1]) != ""
    shares = unknown_share(run.tokenizer, encoded)
    measures = pd.DataFrame(
        {"unknown words": shares, "confidence": confidence, "abstained": abstained}
        | {f"class {name}": [name in each.labels for each in found] for name in run.labels}
    )
    words = encode_rows(run.tokenizer, texts, Vocabulary()).words
    assert words is not None
    names = np.array([*words.words, ""], dtype=object)[words.word_ids]  # "" of special tokens
    of_texts = np.repeat(np.arange(len(texts)), np.diff(words.starts))
    pairs = pd.DataFrame({"text": of_texts, "word": names}).drop_duplicates()
    is_word = pairs["word"].str.contains(r"\w")  # no sign, and no special token
    return Observed(measures, pairs[is_word].set_index("text")["word"])


def changes(reference: Observed, periods: Mapping[str, Observed], alpha: float) -> pd.DataFrame:
    """Return a row for each measure of a period, and for each word that came or went.

    Shares (abstained, classes, words) are compared by Fisher's exact test, twice the smaller tail;
    unknown words by that of Mann and Whitney, confidence by that of Kolmogorov and Smirnov. The
    measure "words" has the most changed word's shares, and the p of all words by Simes 1986. The
    "classifier of new texts" has the area under the curve of one that tells them from the reference
    (Lopez-Paz and Oquab 2017, Revisiting Classifier Two-Sample Tests). All p of measures are
    adjusted together (Benjamini and Hochberg 1995): where nothing has changed, one of at most
    `alpha` has probability `alpha` or less.

    Returns:
        period, measure, texts, value, low and high (95 % interval; Wilson's of a share), the same
        of the reference, p and adjusted p. "word: ..." are the words whose p, adjusted among those
        of the period, is at most `alpha`.
    """
    rows = []
    listed = []
    for period, texts in periods.items():
        for measure in reference.measures:
            before = reference.measures[measure].to_numpy()
            now = texts.measures[measure].to_numpy()
            row = {"period": period, "measure": measure, "texts": len(now)}
            row |= _summary(now, "value", "low", "high") | {"p": _p(measure, before, now)}
            rows.append(row | _summary(before, "reference", "reference low", "reference high"))
        words = _words(reference, texts).assign(period=period, texts=len(now))
        first = words.head(1).assign(measure="words", p=words["adjusted p"].head(1))
        rows += [*first.to_dict("records"), _told_apart(reference, texts) | {"period": period}]
        listed.append(words[words["adjusted p"] <= alpha])
    table = pd.DataFrame(rows)
    table["adjusted p"] = stats.false_discovery_control(table["p"])
    return pd.concat([table, *listed], ignore_index=True)


def _summary(values: np.ndarray, *names: str) -> dict[str, float]:
    """Return the mean and the ends of its 95 % interval."""
    mean = values.mean()
    error = 1.96 * values.std() / np.sqrt(len(values))
    ends = [max(0.0, mean - error), min(1.0, mean + error)]
    if values.dtype == bool:
        ends = [*stats.binomtest(int(values.sum()), len(values)).proportion_ci(method="wilson")]
    return dict(zip(names, map(float, [mean, *ends]), strict=True))


def _p(measure: str, before: np.ndarray, now: np.ndarray) -> float:
    """Return the probability of as large a difference between texts of one kind."""
    if measure not in TESTS:
        return float(_exact(before.sum(), now.sum(), len(before), len(now)))
    is_constant = len({*before.tolist(), *now.tolist()}) == 1
    return 1.0 if is_constant else float(TESTS[measure](before, now).pvalue)


def _exact(before: Any, now: Any, num_before: int, num_now: int) -> Any:
    """Return the p of Fisher's exact test of numbers of texts: twice the smaller tail."""
    others = (num_before + num_now, before + now, num_now)
    tails = (stats.hypergeom.cdf(now, *others), stats.hypergeom.sf(now - 1, *others))
    return np.minimum(1.0, 2 * np.minimum(*tails))


def _told_apart(reference: Observed, texts: Observed) -> dict[str, Any]:
    """Return how well a classifier of words tells new texts from others it has not seen, as a row.

    Naive Bayes on distinct words, in five folds; by Mann and Whitney's test of its log-odds.
    """
    both = pd.concat([reference.words, texts.words], keys=[False, True])
    numbers, of_texts = pd.factorize(both.index)
    is_new = np.array([side for side, _ in of_texts], bool)
    row = {"measure": CLASSIFIER, "texts": len(texts.measures), "reference": 0.5}
    if min(np.bincount(is_new, minlength=2)) < FOLDS:
        return row | {"value": 0.5, "p": 1.0}
    counts = csr_array((np.ones(len(both)), (numbers, pd.factorize(both)[0])))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    settings = {"cv": folds, "method": "predict_log_proba"}
    scores = cross_val_predict(MultinomialNB(), counts, is_new, **settings) @ [-1, 1]
    found = stats.mannwhitneyu(scores[is_new], scores[~is_new], alternative="greater")
    return row | {"value": found.statistic / (is_new.sum() * (~is_new).sum()), "p": found.pvalue}


def _words(reference: Observed, texts: Observed) -> pd.DataFrame:
    """Return the words of enough texts with their shares, the surest change first."""
    counts = pd.concat([each.words.value_counts() for each in (reference, texts)], axis=1)
    counts = counts[counts.sum(axis=1) >= LEAST_TEXTS].fillna(0).astype(int).sort_index()
    before, now = counts.to_numpy().T
    sizes = (len(reference.measures), len(texts.measures))
    p = _exact(before, now, *sizes)
    table = pd.DataFrame({"measure": "word: " + counts.index, "value": now / sizes[1], "p": p})
    table = table.assign(reference=before / sizes[0])
    table["adjusted p"] = stats.false_discovery_control(p) if len(p) else p
    return table.sort_values("p", kind="stable")
