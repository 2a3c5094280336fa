"""The texts that a model is most wrong about: which they are, and what their page shows."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from headscope.config import TrainConfig
from headscope.heads.measures import HeadStatistics
from headscope.heads.report import JOIN, make_probe, run_probe
from headscope.record.pairs import quadrants
from headscope.run import load_run
from headscope.training import heads as module
from headscope.training.heads import MOST_BYTES, most_wrong, tokens_that_fit
from headscope.training.train import train
from pages import Shown, texts_of
from training_runs import HOSTILE, Rows, Trained, reviews

Maker = Callable[..., TrainConfig]


def texts_on(path: Path) -> list[Shown]:
    """Return what the page says of each text."""
    return texts_of(path.read_text("utf-8"))


def hardly_trained(small_config: Maker, rows: Rows | None = None) -> TrainConfig:
    """Return a training that leaves mistakes: two steps, and no word that counting knows already."""
    config = small_config(rows=rows, max_steps=2)
    config.model.evidence = False
    return config


def test_they_are_the_misclassified_texts_of_the_highest_loss() -> None:
    logits = torch.tensor(
        [[2.0, 0, 0], [0, 3, 0], [0, 0, 9], [1, 0, 0], [0, 0, 5], [0, 5, 0]]
    ).double()
    labels = torch.tensor([0, 0, 0, 1, 2, 2])
    found = most_wrong(logits, labels, 3)
    assert list(found) == [2, 5, 1]  # rows 0 and 4 are right, and row 3 is wrong by less
    shares = logits.softmax(dim=-1)
    assert list(found.values()) == pytest.approx(
        [-float(shares[row, labels[row]].log()) for row in found]
    )
    assert list(most_wrong(logits, labels, 10)) == [2, 5, 1, 3]
    assert most_wrong(logits[[0, 4]], labels[[0, 4]], 10) == {}


@pytest.mark.parametrize("maps", [1, 160, 2_880, 10**9])
def test_as_many_tokens_are_shown_as_fit(maps: int) -> None:
    def size(tokens: int) -> float:
        return maps * (tokens**2 + 4 * tokens) * 4 / 3

    tokens = tokens_that_fit(maps)
    assert size(tokens) <= MOST_BYTES or tokens == 2
    assert size(tokens + 1) > MOST_BYTES


def test_a_run_leaves_a_page_of_them(mistaken: Trained) -> None:
    report = mistaken.report
    losses = most_wrong(report.logits.double() / report.temperature, report.targets, 20)
    assert 2 < len(losses) <= 20
    page = report.folder / "most_wrong.html"
    assert report.most_wrong == page
    assert f"most wrong: {page}" in mistaken.screen
    shown = texts_on(page)
    assert len(shown) == len(losses)
    assert any(HOSTILE in one.text["text"] for one in shown)
    assert "alert(1)</script>" not in page.read_text("utf-8")
    for (row, loss), one in zip(losses.items(), shown, strict=True):
        shares = (report.logits[row] / report.temperature).softmax(dim=-1).tolist()
        assert one.text["label"] == report.labels[report.targets[row]]
        assert one.classes == report.labels
        assert one.arrays["probabilities"].tolist() == pytest.approx(shares, abs=1e-4)
        assert report.labels[int(np.argmax(shares))] != one.text["label"]
        assert one.text["notes"]["loss"] == f"{loss:.3f} nats"
        assert one.text["notes"]["row"].startswith(f"{row} of the test split")
        assert [len(one.weights(layer)) for layer in range(2)] == [3, 3]


def test_contributions_are_to_the_prediction_against_the_label(mistaken: Trained) -> None:
    report = mistaken.report
    for one in texts_on(report.folder / "most_wrong.html"):
        shares, text = one.probabilities, one.text
        predicted = max(shares, key=lambda name: shares[name])
        shown = [one.classes[number] for number in one.arrays["contributions/shown"]]
        assert shown == [predicted, text["label"]]
        total = one.arrays["contributions/tokens"].sum(axis=(0, 1, 2))
        total += one.arrays["contributions/feedforward"].sum(axis=0)
        total += one.arrays["contributions/bias"]
        total += one.arrays.get("contributions/rest", np.zeros((1, 1, 2))).sum(axis=(0, 1))
        kept = one.arrays["contributions/classes"].tolist()
        difference = np.subtract(*(total[kept.index(one.classes.index(name))] for name in shown))
        log_odds = np.log(shares[predicted] / shares[text["label"]])
        assert difference == pytest.approx(log_odds, abs=1e-3)


def test_the_maps_are_those_of_the_whole_text_and_numbers_count_all_of_it(
    small_config: Maker,
) -> None:
    config = hardly_trained(small_config)  # which leave mistakes enough
    config.inspection.max_tokens, config.inspection.most_wrong = 5, 4
    config.model.pooling = "additive"
    report = train(config)
    run, shown = load_run(report.folder), texts_on(report.folder / "most_wrong.html")
    assert len(shown) == 4
    one = max(shown, key=lambda one: len(one.text["text"]))
    text = one.text
    output = run_probe(run.model, make_probe(run.tokenizer, (text["text"],), None, 32), run.labels)
    weights, statistics = output.maps[1], HeadStatistics()
    assert weights.shape[-1] > len(text["tokens"]) == 5
    # Few enough to be exact.
    np.testing.assert_allclose(one.weights(1)[2], weights[2, :5, :5], atol=1e-6)
    statistics.update("layer", torch.from_numpy(weights)[None])
    entropy = statistics.summary()["layer"]["entropy"][0][2]
    assert one.numbers["entropy"][1][2] == pytest.approx(entropy, abs=1e-4)
    assert f"5 of {weights.shape[-1]} tokens" in text["notes"]["shown"]
    assert one.arrays["pooling"].shape == (5,)


@pytest.mark.parametrize("are_wanted", [False, True])
def test_without_mistakes_there_is_no_page_nor_where_none_is_wanted(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch, are_wanted: bool
) -> None:
    config, output = hardly_trained(small_config), io.StringIO()
    if are_wanted:
        monkeypatch.setattr(module, "most_wrong", lambda *_: {})
    else:
        config.inspection.most_wrong = 0
    report = train(config, Console(file=output))
    assert report.most_wrong is None
    assert not (report.folder / "most_wrong.html").exists()
    assert "most wrong:" not in output.getvalue()


def test_both_texts_of_a_pair_are_shown(small_config: Maker) -> None:
    rows = [row | {"other": f"second {place}"} for place, row in enumerate(reviews())]
    config = hardly_trained(small_config, rows)
    config.tokenizer.kind, config.inspection.max_tokens = "words", 8
    shown = texts_on(train(config).folder / "most_wrong.html")
    assert all(JOIN + "second " in one.text["text"] for one in shown)
    assert len(shown) > 2
    run_of = load_run(Path(config.outputs_dir) / "run")
    one = max(shown, key=lambda one: len(one.text["text"]))
    text = one.text
    probe = make_probe(run_of.tokenizer, tuple(text["text"].split(JOIN)), None, 32)
    output = run_probe(run_of.model, probe, run_of.labels)
    assert len(probe.text.tokens) > len(text["tokens"]) == 8
    expected = quadrants(output.maps[0][1], probe.text.segments)
    np.testing.assert_allclose(one.arrays["layer_0/quadrants"][1], expected, atol=1e-5)
