"""Runs on pairs of texts: what is recorded of them, and that a head learns to look from one text to the other."""

import csv
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headscope.commands.config import InspectConfig
from headscope.commands.inspect import inspect, measure
from headscope.inspection.pairs import quadrants
from headscope.inspection.record import read_index, read_step, weights_from
from headscope.model.config import ModelConfig
from headscope.training.config import TrainConfig
from headscope.training.run import train

Maker = Callable[..., TrainConfig]
NAMES = ["cat", "dog", "owl", "fox", "bee", "ant"]
FILLER = ["the", "a", "one", "this", "that", "my", "our", "his", "her", "no"]


def write_pairs(path: Path, each: int) -> Path:
    """Write pairs of texts whose label is whether both name the same animal: neither text alone tells it."""
    combinations = list(product(FILLER, NAMES, FILLER, NAMES))
    rng = random.Random(0)
    same = rng.sample([words for words in combinations if words[1] == words[3]], each)
    other = rng.sample([words for words in combinations if words[1] != words[3]], each)
    rows = [(f"{a} {first}", f"{b} {second}", first == second) for a, first, b, second in same + other]
    rng.shuffle(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "other", "label"), *rows])
    return path


@pytest.fixture
def pair_config(small_config: Maker, tmp_path: Path) -> Maker:
    """Return a maker of configurations of runs on pairs."""

    def make(name: str = "run", each: int = 120, **trainer: object) -> TrainConfig:
        config = small_config(name, **trainer)
        config.data.path = str(write_pairs(tmp_path / "pairs.csv", each))
        config.data.text_pair_column = "other"
        config.tokenizer.kind = "wordpiece"
        return config

    return make


def test_a_run_on_pairs_records_segments_shares_and_crossing(pair_config: Maker) -> None:
    report = train(pair_config(max_epochs=1))
    folder = report.folder / "heads"
    index = read_index(folder)
    for text in index.texts:
        assert text.segments is not None
        special = [token for token, segment in zip(text.tokens, text.segments, strict=True) if segment is None]
        assert special == ["[CLS]", "[SEP]", "[SEP]"]
        texts = ["".join(t for t, s in zip(text.tokens, text.segments, strict=True) if s == which) for which in (0, 1)]
        assert texts == [part.replace(" ", "") for part in text.text.split(" ⏐ ")]
    events = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload()
    for kept in index.steps:
        arrays = read_step(folder / kept.file)
        weights = weights_from(arrays["text_0/layer_1/levels"], arrays["text_0/layer_1/scales"])
        np.testing.assert_allclose(
            arrays["text_0/layer_1/quadrants"], quadrants(weights, index.texts[0].segments), atol=5e-3
        )
        crossing = arrays["numbers/crossing/mean"]
        assert crossing.shape == (2, 3)
        assert ((crossing > 0) & (crossing < 1)).all()
        (scalar,) = [it.value for it in events.Scalars("heads/layer_1/head_2/crossing") if it.step == kept.step]
        assert crossing[1, 2] == pytest.approx(scalar)


def test_a_run_on_single_texts_has_nothing_of_pairs(small_config: Maker) -> None:
    report = train(small_config(max_steps=2))
    index = read_index(report.folder / "heads")
    assert [text.segments for text in index.texts] == [None, None]
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    assert not [name for name in arrays if "crossing" in name or "quadrants" in name]
    tags = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload().Tags()["scalars"]
    assert not [tag for tag in tags if "crossing" in tag]


def test_a_finished_run_on_pairs_is_measured_and_inspected(pair_config: Maker, tmp_path: Path) -> None:
    folder = train(pair_config(max_steps=4)).folder
    content = measure(InspectConfig(run=str(folder), texts=8, accelerator="cpu")).read_text()
    assert content.count('"crossing"') == 6
    page = tmp_path / "page.html"
    inspect(InspectConfig(run=str(folder), text="the cat", text_pair="a dog", output=str(page), accelerator="cpu"))
    assert '"segments":[null,0,0,null,1,1,null]' in page.read_text()
    (record,) = folder.glob("inspect/*/heads")
    assert read_index(record).texts[0].segments == [None, 0, 0, None, 1, 1, None]


def test_a_head_learns_to_look_at_the_other_text(pair_config: Maker) -> None:
    config = pair_config(each=600, max_epochs=8, ema_decay=None)
    config.data.tokens_per_batch = 512
    config.model = ModelConfig(
        d_model=32, num_heads=2, num_layers=1, feedforward_size=64, dropout=0.0, pooling="mean", evidence=False
    )
    report = train(config)
    assert report.test.accuracy > 0.9
    folder = report.folder / "heads"
    crossings = [read_step(folder / kept.file)["numbers/crossing/mean"] for kept in read_index(folder).steps]
    assert crossings[0].max() < 0.35  # untrained: looks everywhere alike
    assert crossings[-1].max() > crossings[0].max() + 0.1
