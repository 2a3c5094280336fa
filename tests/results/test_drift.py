"""Drift: what was planted is found and named, shares and tests are a library's, and nothing is found where nothing is."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

from headscope.results.drift import Observed, changes, observe
from headscope.runs.answering import AnswerRule
from headscope.runs.run import load_run
from headscope.settings.config import DataConfig
from untrained import LABELS, untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
WORDS = [f"w{number}" for number in range(40)]


def texts(count: int, rng: np.random.Generator, **planted: float) -> Observed:
    """Return what a run might make of texts: of two classes and forty words."""
    share = planted.get("share", 0.3)
    unknown = rng.binomial(12, planted.get("unknown", 0.05), count) / 12
    is_bad = rng.random(count) < share
    measures = pd.DataFrame(
        {
            "unknown words": unknown,
            "confidence": rng.beta(planted.get("confidence", 6.0), 2, count),
            "abstained": unknown > 0.4,
            "class bad": is_bad,
            "class good": ~is_bad,
        }
    )
    has = rng.random((count, len(WORDS))) < np.linspace(0.01, 0.6, len(WORDS))
    has[:, 7] = rng.random(count) < planted.get("word", 0.1)
    rows, columns = has.nonzero()
    return Observed(measures, pd.Series(np.array(WORDS, dtype=object)[columns], rows))


def drifted(table: pd.DataFrame, alpha: float = 0.01) -> set[str]:
    return {*table["measure"][table["adjusted p"] <= alpha]}


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ({"share": 0.6}, {"class bad", "class good"}),
        ({"unknown": 0.15}, {"unknown words"}),
        ({"unknown": 0.35}, {"unknown words", "abstained"}),
        ({"confidence": 3.0}, {"confidence"}),
        ({"word": 0.4}, {"words", "word: w7", "classifier of new texts"}),
    ],
)
def test_what_was_planted_is_named(planted: dict[str, float], found: set[str]) -> None:
    rng = np.random.default_rng(0)
    table = changes(texts(600, rng), {"now": texts(300, rng, **planted)}, 0.01)
    assert drifted(table) >= found
    assert drifted(table) - found <= {"abstained", "classifier of new texts"}


def test_where_nothing_has_changed_false_alarms_are_as_rare_as_alpha_says() -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(200):
        periods = {month: texts(150, rng) for month in ("2026-10", "2026-11")}
        alarms += bool(drifted(changes(texts(300, rng), periods, 0.05)))
    assert alarms <= 17  # of 200, 10 are expected at most; P(more than 17) = 0.01


def test_shares_are_compared_as_fisher_does_and_have_intervals() -> None:
    rng = np.random.default_rng(2)
    before = texts(400, rng)
    now = texts(100, rng, share=0.5)
    table = changes(before, {"now": now}, 0.05).set_index("measure")
    row = table.loc["class bad"]
    counts = [int(each.measures["class bad"].sum()) for each in (now, before)]
    greater = fisher_exact([[counts[0], 100 - counts[0]], [counts[1], 400 - counts[1]]], "greater")
    assert row["p"] == pytest.approx(2 * greater.pvalue)
    assert (row["value"], row["reference"]) == (counts[0] / 100, counts[1] / 400)
    assert row["low"] < row["value"] < row["high"]
    assert row["reference high"] - row["reference low"] < row["high"] - row["low"]
    assert (table["adjusted p"] >= table["p"] - 1e-12).all()
    has = {name: now.words[now.words == name].index.nunique() for name in WORDS}
    assert table.loc["words", "value"] in {count / 100 for count in has.values()}


def test_what_changes_in_many_words_a_little_is_told_apart() -> None:
    rng = np.random.default_rng(4)
    before = texts(400, rng)
    now = texts(400, rng)
    kept = rng.random(len(now.words)) < np.where(now.words.str[1:].astype(int) % 2, 0.8, 1.0)
    table = changes(before, {"now": Observed(now.measures, now.words[kept])}, 0.01)
    row = table.set_index("measure").loc["classifier of new texts"]
    assert row["value"] > 0.55
    assert row["adjusted p"] < 0.01


def test_what_never_varies_has_not_drifted() -> None:
    rng = np.random.default_rng(3)
    both = [texts(50, rng), texts(40, rng)]
    for each in both:
        each.measures["unknown words"] = 0.0
        each.measures["abstained"] = False
    none = [Observed(each.measures, each.words.iloc[:0]) for each in both]
    table = changes(none[0], {"now": none[1]}, 0.01).set_index("measure")
    assert table.loc[["unknown words", "abstained"], "p"].tolist() == [1.0, 1.0]
    assert "words" not in table.index
    assert table.loc["classifier of new texts", ["value", "p"]].tolist() == [0.5, 1.0]


def test_a_run_observes_each_text(tmp_path: Path) -> None:
    known = ["the cat sat", "the dog ran", "a film"]
    run = load_run(untrained(tmp_path, known, DataConfig(max_length=16)))
    given = [("the cat the cat",), ("日本",), ("a FILM",), ("",)]
    found = observe(run, given, AnswerRule([0.9] * 3))
    predictions = run.predict([text for (text,) in given])
    assert found.measures["unknown words"].tolist() == [0.0, 1.0, 0.0, 1.0]
    for label in LABELS:
        assert found.measures[f"class {label}"].tolist() == [
            label in each.labels for each in predictions
        ]
    confidence = [max(each.probabilities.values()) for each in predictions]
    assert found.measures["confidence"].tolist() == pytest.approx(confidence)
    assert found.measures["abstained"].tolist() == [
        each.is_unfamiliar or value < 0.9
        for each, value in zip(predictions, confidence, strict=True)
    ]
    assert [sorted(found.words[[at]]) for at in range(3)] == [
        ["cat", "the"],
        ["日", "本"],
        ["a", "film"],
    ]
    part = found.only(np.array([False, False, True, True]))
    assert (len(part.measures), [*part.words]) == (2, ["a", "film"])
