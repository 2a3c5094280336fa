"""Whether texts are still like those that a run knows: unknown words, classes, confidence, words.

Shape letters: N texts, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy import stats

from headscope.data.batching import encode_rows
from headscope.data.evidence import Vocabulary
from headscope.runs.abstaining import unknown_share
from headscope.runs.run import Run

TESTS = {"unknown words": stats.mannwhitneyu, "confidence": stats.ks_2samp}  # of numbers
LEAST_TEXTS = 5  # that have a word which is tested
Values = Float[np.ndarray, " N"] | Bool[np.ndarray, " N"]


@dataclass(frozen=True)
class Observed:
    """What a run makes of N texts.

    Attributes:
        measures: a column for each, one number of each text in [0, 1]: its share of unknown words,
            its confidence, whether the run abstains, and whether each class is predicted.
        words: of each text its distinct words; the index is the number of the text.
    """

    measures: pd.DataFrame
    words: pd.Series

    def only(self, rows: Bool[np.ndarray, " N"]) -> "Observed":
        """Return the same of some of the texts."""
        return Observed(self.measures[rows], self.words[rows[self.words.index]])


def observe(run: Run, texts: Sequence[tuple[str, ...]], least: float | None) -> Observed:
    """Predict texts; `least` is the confidence below which the run abstains, None: never."""
    encoded = run.encode(texts)
    predictions = run.label(encoded)
    confidence = np.array([max(found.probabilities.values()) for found in predictions])
    is_unfamiliar = np.array([found.is_unfamiliar for found in predictions])
    measures: dict[str, Any] = {
        "unknown words": unknown_share(run.tokenizer, encoded),
        "confidence": confidence,
        "abstained": is_unfamiliar | (confidence < (least or 0.0)),
    }
    for label in run.labels:
        measures[f"class {label}"] = np.array([label in found.labels for found in predictions])
    words = encode_rows(run.tokenizer, texts, Vocabulary()).words
    assert words is not None
    names = np.array([*words.words, ""], dtype=object)[words.word_ids]  # the last: -1
    numbers = np.repeat(np.arange(len(texts)), np.diff(words.starts))
    pairs = pd.DataFrame({"text": numbers, "word": names}).drop_duplicates()
    return Observed(pd.DataFrame(measures), pairs[pairs["word"] != ""].set_index("text")["word"])


def changes(reference: Observed, periods: Mapping[str, Observed], alpha: float) -> pd.DataFrame:
    """Return a row for each period and measure, and for each word that came or went.

    Shares (abstained, classes, words) are compared by Fisher's exact test, twice the smaller tail;
    unknown words by Mann and Whitney's, confidence by Kolmogorov and Smirnov's. The p of `words` is
    the least of their p adjusted by Benjamini and Hochberg 1995 (Simes 1986). All p of measures are
    adjusted together, so that without any change a false alarm has probability `alpha` at most.

    Returns:
        period, measure, texts, value, low, high (95 % interval; Wilson's of a share), the same of
        the reference, p and `adjusted`. The rows of words have the measure "word: ..." and their
        own p, adjusted among the words of a period; those of at most `alpha` are listed.
    """
    rows = []
    listed = []
    for period, texts in periods.items():
        words = _word_changes(reference, texts)
        words.insert(0, "period", period)
        first = words.head(1).assign(measure="words", p=words["adjusted"].head(1))
        listed.append(words[words["adjusted"] <= alpha])
        for measure in reference.measures:
            before = reference.measures[measure].to_numpy()
            now = texts.measures[measure].to_numpy()
            rows.append({"period": period, "measure": measure, "texts": len(now)})
            rows[-1] |= (
                _summary(now) | _summary(before, "reference ") | {"p": _p(measure, before, now)}
            )
        rows += first.to_dict("records")
    table = pd.DataFrame(rows)
    table["adjusted"] = stats.false_discovery_control(table["p"])
    return pd.concat([table, *listed], ignore_index=True)


def _summary(values: Values, prefix: str = "") -> dict[str, float]:
    """Return the mean of values in [0, 1] and the ends of its 95 % interval."""
    mean = float(values.mean())
    if values.dtype == bool:
        low, high = stats.binomtest(int(values.sum()), len(values)).proportion_ci(method="wilson")
    else:
        error = 1.96 * float(values.std()) / np.sqrt(len(values))
        low = max(0.0, mean - error)
        high = min(1.0, mean + error)
    return {f"{prefix}value": mean, f"{prefix}low": float(low), f"{prefix}high": float(high)}


def _p(measure: str, before: Values, now: Values) -> float:
    """Return the probability of as large a difference between texts of one kind."""
    if measure not in TESTS:
        return float(_exact(before.sum(), now.sum(), len(before), len(now)))
    if len(np.unique(np.append(before, now))) < 2:
        return 1.0
    return float(TESTS[measure](before, now).pvalue)


def _exact(before: Any, now: Any, num_before: int, num_now: int) -> Any:
    """Return the p of Fisher's exact test for numbers of texts: twice the smaller tail."""
    others = (num_before + num_now, before + now, num_now)
    tails = [stats.hypergeom.cdf(now, *others), stats.hypergeom.sf(now - 1, *others)]
    return np.minimum(1.0, 2 * np.minimum(*tails))


def _word_changes(reference: Observed, texts: Observed) -> pd.DataFrame:
    """Return the words in enough texts, the surest change first."""
    sizes = {"reference ": len(reference.measures), "": len(texts.measures)}
    counts = pd.DataFrame(
        {"reference ": reference.words.value_counts(), "": texts.words.value_counts()}
    )
    counts = counts.fillna(0).astype(int)
    counts = counts[counts.sum(axis=1) >= LEAST_TEXTS].sort_index()
    p = _exact(counts["reference "].to_numpy(), counts[""].to_numpy(), *sizes.values())
    table = pd.DataFrame({"measure": "word: " + counts.index, "texts": sizes[""], "p": p})
    for prefix, size in sizes.items():
        table[f"{prefix}value"] = counts[prefix].to_numpy() / size
    table["adjusted"] = stats.false_discovery_control(p) if len(p) else p
    return table.sort_values("p", kind="stable")
