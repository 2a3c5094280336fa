"""The suites that train: every row is there, and ours computes what the peers compute."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from headscope.benchmark import layer, memory, operators
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.epochs import epoch
from headscope.benchmark.memory import measure as measure_memory
from headscope.benchmark.peers import TorchClassifier, ours
from headscope.benchmark.timing import Timing
from headscope.benchmark.training import _rows, measure
from headscope.benchmark.variants import BUCKETS, FLOAT, HALF, OURS, PADDED, TORCH, Variant, variants
from headscope.benchmark.workload import Sizes, bucketed, lognormal_lengths, texts_of
from headscope.errors import ConfigError

CPU = torch.device("cpu")
TINY = {"texts": 12, "rounds": 1, "d_model": 16, "num_heads": 2, "num_layers": 1, "max_length": 32}
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def test_every_encoder_has_a_row_in_every_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(layer, "SHAPES", ((2, 5, 16, 2),))
    config = BenchmarkConfig(suite="train", **TINY)
    tables = measure(config, CPU, lambda doing: None)
    rows = variants(config, CPU)
    assert [row[:2] for row in tables[0].rows] == [(row.label, row.batching) for row in rows]
    assert {row.batching for row in rows} == {PADDED, BUCKETS}
    assert all(float(row[3]) > 0 for table in tables[:2] for row in table.rows)
    assert len(tables[2].rows) == 2 * len({row.precision for row in rows})
    assert all(abs(sum(float(row[1].rstrip("%")) for row in table.rows) - 100) < 1 for table in tables[3:])


def test_ratios_say_how_many_times_as_fast_ours_is() -> None:
    rows = [
        Variant(TORCH, ours, PADDED, FLOAT), Variant(TORCH, ours, BUCKETS, FLOAT), Variant("BERT", ours, BUCKETS, FLOAT),
        Variant(OURS, ours, BUCKETS, FLOAT), Variant("BERT", ours, BUCKETS, HALF), Variant(OURS, ours, BUCKETS, HALF),
    ]  # fmt: skip
    taken = {row.name: Timing((seconds,) * 2) for row, seconds in zip(rows, (8, 4, 3, 2, 0.5, 0.25), strict=True)}
    found = _rows(rows, taken, np.array([10, 30]), 80, {FLOAT: 100.0, HALF: 1000.0})
    assert found[3][3:9] == ("50000", "20", "4.00x", "1.50x", "0", "40%")
    assert found[5][5:9] == ("32.00x", "2.00x", "0", "32%")  # the best peer of its own precision
    assert found[0][5:7] == ("1.00x", "0.38x")


def test_peers_can_be_left_out() -> None:
    assert {row.encoder.split(",")[0] for row in variants(BenchmarkConfig(suite="train", peers=False), CPU)} == {
        "headscope"
    }


def test_a_missing_package_is_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    row = next(row for row in variants(BenchmarkConfig(suite="train"), CPU) if "Hugging" in row.encoder)
    with pytest.raises(ConfigError, match=r"pip install -e .\[benchmark\]"):
        row.make(Sizes(16, 2, 1, 32), 32)


@pytest.mark.parametrize("make", [TorchClassifier, ours])
def test_an_epoch_trains(make: type) -> None:
    sizes = Sizes(16, 2, 1, 32)
    batches = bucketed(texts_of(lognormal_lengths(20, longest=32), sizes), 256)
    work = epoch(lambda: make(sizes, 32), batches, FLOAT, CPU)
    before = [weight.detach().clone() for weight in work.model.parameters()]
    work()
    assert any(not torch.equal(old, new) for old, new in zip(before, work.model.parameters(), strict=True))


def test_memory_is_measured_in_processes_of_their_own() -> None:
    config = BenchmarkConfig(suite="memory", peers=False, **TINY)
    (table,) = measure_memory(config, CPU, lambda doing: None)
    assert len(table.rows) == len([row for row in variants(config, CPU) if row.batching == BUCKETS])
    assert all(float(row[2]) > float(row[3]) for row in table.rows)


def test_shares_of_memory_are_of_torchs_and_without_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {TORCH: (300.0, 100.0), OURS: (200.0, 100.0)}
    monkeypatch.setattr(memory, "_seen", lambda variant, *_: made.get(variant.encoder, (400.0, 100.0)))
    (table,) = measure_memory(BenchmarkConfig(suite="memory", **TINY), CPU, lambda doing: None)
    found = {row[0]: row[2:6] for row in table.rows}
    assert found[OURS] == ("200", "100", "0.67x", "0.50x")
    assert found[TORCH] == ("300", "200", "1.00x", "1.00x")


def test_memory_at_rest_is_taken_before_the_epoch_and_the_peak_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    class Work:
        batches = bucketed(texts_of(lognormal_lengths(6, longest=16), Sizes(16, 2, 1, 32)), 64)

        def step(self, batch: object) -> None:
            told.append("step")

        def __call__(self) -> None:
            told.append("epoch")

    monkeypatch.setattr(memory, "epoch", lambda *_: Work())
    monkeypatch.setattr(memory, "memory", lambda device, field: told.append(field) or len(told))
    config = BenchmarkConfig(suite="memory", peers=False, **TINY)
    name = variants(config, CPU)[0].name
    memory.train_and_report(json.dumps({"name": name, "device": "cpu", "config": asdict(config)}))
    assert told == ["step", "VmRSS", "epoch", "VmHWM"]
    assert json.loads(capsys.readouterr().out) == {"rest": 2, "peak": 4}


def test_the_operators_that_take_most_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "SHOWN", 3)
    rows = operators._rows([("a", 1.0, 2), ("b", 7.0, 1), ("c", 2.0, 1), ("d", 0.5, 1)], steps=1)
    assert [row[0] for row in rows] == ["b", "c", "a", "all others"]
