"""Two runs side by side: every number is recomputed from the runs alone."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.metrics import f1_score

import headscope
from chromium import PageOpener
from headscope.cli.compare import Comparison, compare
from headscope.cli.evaluate import evaluate
from headscope.ground.errors import ConfigError
from headscope.heads.answer import paired_interval
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.settings.commands import EvaluateConfig
from training_runs import HOSTILE, Trained, reviews

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
ROWS = reviews(40)
TEXTS = [f"{row['text']} {HOSTILE if number == 0 else number}" for number, row in enumerate(ROWS)]
LABELS = [row["label"] for row in ROWS]


@pytest.fixture(scope="module")
def runs(plain: Trained, mistaken: Trained) -> tuple[ShownRun, ShownRun]:
    return load_shown(plain.folder), load_shown(mistaken.folder)


@pytest.fixture(scope="module")
def found(runs: tuple[ShownRun, ShownRun]) -> Comparison:
    return compare(*runs, TEXTS, LABELS)


def test_scores_are_those_of_the_predictions(
    runs: tuple[ShownRun, ShownRun], found: Comparison
) -> None:
    answers = [[each.label for each in run.predict(TEXTS)] for run in runs]
    assert found.answers == tuple(answers)
    right = np.array(
        [[own == given for own, given in zip(of, LABELS, strict=True)] for of in answers]
    )
    gained = int((right[0] & ~right[1]).sum())
    lost = int((right[1] & ~right[0]).sum())
    difference = (right[0].mean() - right[1].mean(), *paired_interval(gained, lost, len(TEXTS)))
    assert found.scores["accuracy"][:2] == tuple(right.mean(axis=1))
    assert found.scores["accuracy"][2] == pytest.approx(difference)
    f1s = [f1_score(LABELS, own, average="macro") for own in answers]
    assert found.scores["macro_f1"][:2] == pytest.approx(tuple(f1s))
    differing = [text for text, *own in zip(TEXTS, *answers, strict=True) if own[0] != own[1]]
    assert found.differing()["text"].tolist() == differing


def test_words_and_heads_are_those_of_each_run(
    runs: tuple[ShownRun, ShownRun], found: Comparison, plain: Trained
) -> None:
    words = [run.report(TEXTS).words.set_index(["class", "word"]) for run in runs]
    own = found.words.set_index(["class", "word"])
    assert set(own.index) == set(words[0].index) & set(words[1].index)
    for row in own.itertuples():
        first, second = (of.loc[[row.Index]].iloc[0] for of in words)
        assert row.difference == pytest.approx(first["mean"] - second["mean"])
        width = np.hypot(first["interval"], second["interval"])
        assert row.interval == pytest.approx(width, nan_ok=True)
    surely = found.most("good")
    assert ((surely["difference"].abs() - surely["interval"]) > 0).all()
    ablation = json.loads((plain.folder / "metrics.json").read_text())["training"]["ablation"]
    assert found.heads[0]["loss"].tolist() == sorted(
        (loss for loss, _ in ablation["heads"].values()), reverse=True
    )
    low, high = found.heads[0][["low", "high"]].iloc[0]
    _, error = ablation["heads"][found.heads[0]["head"][0].replace(" ", "_")]
    assert (high - low) / 2 == pytest.approx(2.0687 * error, rel=1e-4)  # t of 23


def test_a_run_beside_itself_differs_in_nothing_but_its_interval_has_a_width(
    runs: tuple[ShownRun, ShownRun],
) -> None:
    found = headscope.compare(runs[0].folder, runs[0], TEXTS, LABELS)
    assert found.names == ("run (a)", "run (b)")
    assert len(found.differing()) == len(found.most("good")) == 0
    middle, low, high = found.scores["accuracy"][2]
    assert middle == 0
    assert -0.1 < low < 0 < high < 0.1
    assert found.scores["macro_f1"][2] is None


def test_classes_are_compared_by_name(runs: tuple[ShownRun, ShownRun]) -> None:
    first, second = runs
    turned = replace(second, setup=replace(second.setup, labels=["good ", "bad"]))
    assert turned.labels[1] == first.labels[0] == "bad"
    names = {"bad": "good", "good": "bad"}  # of the same numbers
    expected = [names[each.label] for each in second.predict(TEXTS)]
    found = compare(first, turned, TEXTS)
    assert found.answers[1] == expected
    assert {*found.words["class"]} == {"bad", "good"}
    assert found.scores == {}


def test_runs_of_other_kinds_are_refused(
    runs: tuple[ShownRun, ShownRun], of_pairs: Trained
) -> None:
    with pytest.raises(ConfigError, match=r"b: expected a run with data\.text_pair_column as"):
        compare(runs[0], of_pairs.folder, TEXTS)


def test_evaluate_against_a_run_writes_the_page(
    plain: Trained, mistaken: Trained, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path)
    output = io.StringIO()
    config = EvaluateConfig(str(folder), accelerator="cpu", against=str(mistaken.folder))
    evaluate(config, Console(file=output, width=300))
    kept = json.loads((folder / "evaluations/reviews-test.json").read_text())
    page = folder / "evaluations" / kept["against"]["page"]
    assert f"side by side: {page}" in output.getvalue()
    assert "words that differ, good: " in output.getvalue()
    table = pd.read_csv(page.with_suffix(".words.csv"))
    assert list(table) == ["class", "word", "first", "second", "difference", "interval", "n"]


@pytest.mark.slow
def test_the_page_shows_all_of_it_and_texts_cannot_act(
    found: Comparison, open_page: PageOpener, tmp_path: Path
) -> None:
    path = found.save(tmp_path / "compared.html")
    tab = open_page(path.read_text("utf-8"), wait=".compared-texts")
    texts = tab.locator(".compared-texts tbody th").all_text_contents()
    assert texts == found.differing()["text"].tolist()
    assert any(HOSTILE in text for text in [*texts, TEXTS[0]])
    first, second, _ = found.scores["accuracy"]
    row = tab.locator(".report-scores tbody tr").first.inner_text()
    assert f"{100 * first:.1f} %" in row
    assert f"{100 * second:.1f} %" in row
    word = found.most(found.words["class"].unique()[0]).iloc[0]["word"]
    assert tab.locator(".compared-words tbody th").first.text_content() == word
    heads = tab.locator(".compared-heads tbody th").all_text_contents()
    assert heads == [*found.heads[0]["head"], *found.heads[1]["head"]]
