"""The texts that a model is most wrong about: which they are, and what the page and TensorBoard show of them."""

import base64
import html
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headscope.inspection.measures import HeadStatistics
from headscope.inspection.pairs import quadrants
from headscope.training.config import TrainConfig
from headscope.training.folder import load_run
from headscope.training.most_wrong import MOST_BYTES, clipped, most_wrong, tokens_that_fit
from headscope.training.probes import JOIN, make_probe, read_probe
from headscope.training.run import train
from training_runs import HOSTILE, Trained, events_of, reviews

with warnings.catch_warnings():  # what tensorboard imports warns about itself
    warnings.simplefilter("ignore")
    from tensorboard import plugin_util

Maker = Callable[..., TrainConfig]
CPU = torch.device("cpu")


def texts_on(path: Path) -> list[dict[str, Any]]:
    """Return what the page says of each text."""
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert match
    reports: list[dict[str, Any]] = json.loads(match[1])["reports"]
    return reports


def table_in(folder: Path) -> list[list[str]]:
    """Return the rows of TensorBoard's table as its page shows them."""
    (entry,) = events_of(folder).Tensors("test/most_wrong/text_summary")
    shown = plugin_util.markdown_to_safe_html(entry.tensor_proto.string_val[0])
    assert set(re.findall(r"<(\w+)", shown)) == {"table", "thead", "tbody", "tr", "th", "td"}
    rows = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)]
    return [[html.unescape(cell) for cell in row] for row in rows if row]


def test_they_are_the_misclassified_texts_of_the_highest_loss() -> None:
    logits = torch.tensor([[2.0, 0, 0], [0, 3, 0], [0, 0, 9], [1, 0, 0], [0, 0, 5], [0, 5, 0]]).double()
    labels = torch.tensor([0, 0, 0, 1, 2, 2])
    found = most_wrong(logits, labels, 3)
    assert list(found) == [2, 5, 1]  # rows 0 and 4 are right, and row 3 is wrong by less
    shares = logits.softmax(dim=-1)
    assert list(found.values()) == pytest.approx([-float(shares[row, labels[row]].log()) for row in found])
    assert list(most_wrong(logits, labels, 10)) == [2, 5, 1, 3]
    assert most_wrong(logits[[0, 4]], labels[[0, 4]], 10) == {}


@pytest.mark.parametrize("maps", [1, 160, 2_880, 10**9])
def test_as_many_tokens_are_shown_as_fit(maps: int) -> None:
    def size(tokens: int) -> float:
        return maps * (tokens**2 + 4 * tokens) * 4 / 3

    tokens = tokens_that_fit(maps)
    assert size(tokens) <= MOST_BYTES or tokens == 2
    assert size(tokens + 1) > MOST_BYTES


def test_a_run_leaves_a_page_and_a_table_of_them(mistaken: Trained) -> None:
    report, page = mistaken.report, mistaken.folder / "most_wrong.html"
    found = most_wrong(report.logits.double() / report.temperature, report.targets, 20)
    assert 2 < len(found) <= 20
    assert report.most_wrong == page
    assert f"most wrong: {page}" in mistaken.screen
    assert 0 < report.seconds["most wrong"] < 20
    shown, table = texts_on(page), table_in(report.folder)
    assert len(shown) == len(table) == len(found)
    assert any(HOSTILE in text["text"] for text in shown)
    assert "alert(1)</script>" not in page.read_text("utf-8")
    for (row, loss), text, cells in zip(found.items(), shown, table, strict=True):
        shares = (report.logits[row] / report.temperature).softmax(dim=-1).tolist()
        assert text["label"] == report.labels[report.targets[row]] == cells[2]
        assert [name for name, _ in text["probabilities"]] == report.labels
        assert [share for _, share in text["probabilities"]] == pytest.approx(shares, abs=1e-4)
        prediction = report.labels[int(np.argmax(shares))]
        assert prediction == cells[4] != text["label"]
        assert float(cells[1]) == pytest.approx(loss, abs=1e-3)
        assert [float(cells[3]), float(cells[5])] == pytest.approx([min(shares), max(shares)], abs=1e-3)
        assert cells[6] == clipped(text["text"], 160)
        assert dict(text["notes"])["text"].startswith(f"row {row} ")
        assert len(text["tokens"]) <= 5
        assert [len(layer["heads"]) for layer in text["layers"]] == [3, 3]
        # What spoke for the wrong class, in nats, is what the probabilities say.
        said = dict(text["notes"])["what spoke for it"]
        assert f" nats for {prediction} against {text['label']}" in said
        together = report.temperature * (np.log(max(shares)) - np.log(min(shares)))
        assert float(said.split("together ")[1]) == pytest.approx(together, abs=0.051)
        heads = [head for layer in text["layers"] for head in layer["heads"]]
        assert all(head["spoken"].startswith("put ") for head in heads)
        assert all(isinstance(head["numbers"][text["columns"].index("nats")], float) for head in heads)
    losses = [float(cells[1]) for cells in table]
    assert losses == sorted(losses, reverse=True)


def test_the_maps_are_those_of_the_whole_text_and_numbers_count_all_of_it(mistaken: Trained) -> None:
    run, shown = load_run(mistaken.folder), texts_on(mistaken.folder / "most_wrong.html")
    text = max((one for one in shown if HOSTILE not in one["text"]), key=lambda one: len(one["text"]))
    reading = read_probe(run.model, make_probe(run.tokenizer, (text["text"],), None, 32), run.labels, CPU)
    (_, weights), statistics = list(reading.maps.items())[1], HeadStatistics()
    assert weights.shape[-1] > len(text["tokens"]) == 5
    head = text["layers"][1]["heads"][2]
    levels = np.frombuffer(base64.b64decode(head["levels"]), np.uint8).reshape(5, 5)
    scales = np.frombuffer(base64.b64decode(head["scales"]), "<f4")[:, None]
    np.testing.assert_allclose(levels / 255 * scales, weights[2, :5, :5], atol=3e-3)
    statistics.update("layer", torch.from_numpy(weights)[None])
    entropy = statistics.summary()["layer"]["entropy"][0][2]
    assert head["numbers"][text["columns"].index("entropy")] == pytest.approx(entropy, abs=1e-4)
    assert f"5 of {weights.shape[-1]} tokens" in dict(text["notes"])["shown"]


def test_it_can_be_left_out(small_config: Maker) -> None:
    config = small_config(max_steps=1)
    config.model.evidence, config.inspection.most_wrong = False, None
    report = train(config)
    assert report.test.accuracy < 1
    assert report.most_wrong is None
    assert not (report.folder / "most_wrong.html").exists()
    tags = events_of(report.folder).Tags()
    assert not [tag for tag in tags["tensors"] if "most_wrong" in tag]
    assert "test/reliability" in tags["images"]  # a temperature is fitted in any case


def test_a_model_without_mistakes_leaves_no_page(plain: Trained) -> None:
    assert plain.report.test.accuracy == 1
    assert plain.report.most_wrong is None
    assert not (plain.folder / "most_wrong.html").exists()


def test_both_texts_of_a_pair_are_shown_and_a_pooling_that_attends(small_config: Maker) -> None:
    rows = [{**row, "other": f"second {place}"} for place, row in enumerate(reviews())]
    config = small_config(rows=rows, max_steps=2)
    config.model.evidence, config.model.pooling, config.inspection.max_tokens = False, "additive", 8
    folder = train(config).folder
    run, shown = load_run(folder), texts_on(folder / "most_wrong.html")
    assert len(shown) > 2
    assert all(JOIN + "second " in text["text"] and text["pooling"] is not None for text in shown)
    text = max(shown, key=lambda one: len(one["text"]))
    probe = make_probe(run.tokenizer, tuple(text["text"].split(JOIN)), None, 32)
    reading = read_probe(run.model, probe, run.labels, CPU)
    assert len(probe.tokens) > len(text["tokens"]) == 8
    expected = quadrants(next(iter(reading.maps.values()))[1], probe.segments)
    np.testing.assert_allclose(text["layers"][0]["heads"][1]["quadrants"], expected.ravel(), atol=1e-5)
