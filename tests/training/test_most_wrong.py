"""The texts that a model is most wrong about: which they are, and what the page and TensorBoard show of them."""

import csv
import html
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headscope.config import TrainConfig
from headscope.heads.measures import HeadStatistics
from headscope.heads.report import JOIN, make_probe, run_probe
from headscope.record.pairs import quadrants
from headscope.run import load_run
from headscope.training import most_wrong as module
from headscope.training.most_wrong import MOST_BYTES, most_wrong, tokens_that_fit
from headscope.training.train import train
from pages import Shown, texts_of

with warnings.catch_warnings():  # what tensorboard imports warns about itself
    warnings.simplefilter("ignore")
    from tensorboard import plugin_util

Maker = Callable[..., TrainConfig]
HOSTILE = '<script>alert(1)</script> "quoted" | **bold**'


def texts_on(path: Path) -> list[Shown]:
    """Return what the page says of each text."""
    return texts_of(path.read_text("utf-8"))


def hardly_trained(small_config: Maker) -> TrainConfig:
    """Return a training that leaves mistakes: two steps, and no word that counting knows already."""
    config = small_config(max_steps=2)
    config.model.evidence = False
    return config


def table_in(folder: Path) -> list[list[str]]:
    """Return the rows of TensorBoard's table as its page shows them."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    (entry,) = events.Tensors("test/most_wrong/text_summary")
    shown = plugin_util.markdown_to_safe_html(entry.tensor_proto.string_val[0])
    assert set(re.findall(r"<(\w+)", shown)) == {"table", "thead", "tbody", "tr", "th", "td"}
    rows = [
        re.findall(r"<td>(.*?)</td>", row, re.DOTALL)
        for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)
    ]
    return [[html.unescape(cell) for cell in row] for row in rows if row]


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


def test_a_run_leaves_a_page_and_a_table_of_them(small_config: Maker) -> None:
    config = hardly_trained(small_config)
    put_markup_into(Path(config.data.path))
    output = io.StringIO()
    report = train(config, Console(file=output, width=200))
    found = most_wrong(report.logits.double() / report.temperature, report.targets, 20)
    assert 2 < len(found) <= 20
    page = report.folder / "most_wrong.html"
    assert report.most_wrong == page
    assert f"most wrong: {page}" in output.getvalue()
    assert 0 < report.seconds["most wrong"] < 20
    shown, table = texts_on(page), table_in(report.folder)
    assert len(shown) == len(table) == len(found)
    assert any(HOSTILE in one.text["text"] for one in shown)
    assert "alert(1)</script>" not in page.read_text("utf-8")
    for (row, loss), one, cells in zip(found.items(), shown, table, strict=True):
        text = one.text
        shares = (report.logits[row] / report.temperature).softmax(dim=-1).tolist()
        assert text["label"] == report.labels[report.targets[row]] == cells[2]
        assert one.classes == report.labels
        assert one.arrays["probabilities"].tolist() == pytest.approx(shares, abs=1e-4)
        prediction = report.labels[int(np.argmax(shares))]
        assert prediction == cells[4] != text["label"]
        assert float(cells[1]) == pytest.approx(loss, abs=1e-3)
        assert [float(cells[3]), float(cells[5])] == pytest.approx(
            [min(shares), max(shares)], abs=1e-3
        )
        assert cells[6] == module.clipped(text["text"], 160)
        assert text["notes"]["row"].startswith(f"{row} of the test split")
        assert len(text["tokens"]) <= 16
        assert [len(one.weights(layer)) for layer in range(2)] == [3, 3]
    losses = [float(cells[1]) for cells in table]
    assert losses == sorted(losses, reverse=True)


def test_what_spoke_for_the_wrong_class_is_said(small_config: Maker) -> None:
    config = hardly_trained(small_config)
    config.model.pooling, config.inspection.max_tokens = "first", 5
    report = train(config)
    for one in texts_on(report.folder / "most_wrong.html"):
        shares, text = one.probabilities, one.text
        given = max(shares, key=lambda name: shares[name])
        said = text["notes"]["contributions"]
        assert f" nats to {given} against {text['label']}" in said
        temperature = 1.0 if report.calibration is None else report.calibration.temperature
        together = temperature * (np.log(shares[given]) - np.log(shares[text["label"]]))
        assert float(said.split("together ")[1]) == pytest.approx(together, abs=0.051)
        assert text["answer"] == f"{given} against {text['label']}"
        np.testing.assert_allclose(one.numbers["nats"], one.arrays["nats/heads"], atol=1e-5)


def put_markup_into(path: Path) -> None:
    """Put markup in the place of a word of the texts."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [[text.replace("film", HOSTILE), label] for text, label in csv.reader(file)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def test_the_maps_are_those_of_the_whole_text_and_numbers_count_all_of_it(
    small_config: Maker,
) -> None:
    config = hardly_trained(small_config)  # which leave mistakes enough
    config.inspection.max_tokens, config.inspection.most_wrong, config.model.pooling = (
        5,
        4,
        "additive",
    )
    report = train(config)
    run, shown = load_run(report.folder), texts_on(report.folder / "most_wrong.html")
    assert len(shown) == 4
    one = max(shown, key=lambda one: len(one.text["text"]))
    text = one.text
    output = run_probe(run.model, make_probe(run.tokenizer, (text["text"],), None, 32), run.labels)
    weights, statistics = output.maps[1], HeadStatistics()
    assert weights.shape[-1] > len(text["tokens"]) == 5
    np.testing.assert_allclose(
        one.weights(1)[2], weights[2, :5, :5], atol=1e-6
    )  # few enough to be exact
    statistics.update("layer", torch.from_numpy(weights)[None])
    entropy = statistics.summary()["layer"]["entropy"][0][2]
    assert one.numbers["entropy"][1][2] == pytest.approx(entropy, abs=1e-4)
    assert f"5 of {weights.shape[-1]} tokens" in text["notes"]["shown"]
    assert one.arrays["pooling"].shape == (5,)


@pytest.mark.parametrize(("enabled", "count"), [(False, 20), (True, 0), (True, None)])
def test_it_can_be_left_out(small_config: Maker, enabled: bool, count: int | None) -> None:
    config = hardly_trained(small_config)
    config.inspection.enabled, config.inspection.most_wrong = enabled, count
    output = io.StringIO()
    report = train(config, Console(file=output))
    assert report.most_wrong is None
    assert not (report.folder / "most_wrong.html").exists()
    assert "most wrong:" not in output.getvalue()
    tags = EventAccumulator(str(report.folder)).Reload().Tags()
    assert not [tag for tag in tags["tensors"] if "most_wrong" in tag]
    assert "test/reliability" in tags["images"]  # a temperature is fitted in any case


def test_a_model_without_mistakes_leaves_no_page(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "most_wrong", lambda *_: {})
    report = train(hardly_trained(small_config))
    assert report.most_wrong is None
    assert not (report.folder / "most_wrong.html").exists()


def test_a_long_text_is_cut() -> None:
    assert module.clipped("abcdef", 6) == "abcdef"
    assert module.clipped("abcdefg", 6) == "abcde…"


def test_both_texts_of_a_pair_are_shown(small_config: Maker) -> None:
    config = hardly_trained(small_config)
    path = Path(config.data.path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            [text, f"second {place}", label]
            for place, (text, label) in enumerate(csv.reader(file))
            if place
        ]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "other", "label"], *rows])
    config.data.text_pair_column, config.inspection.max_tokens = "other", 8
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
