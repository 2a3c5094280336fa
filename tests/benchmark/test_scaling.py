"""The suite of growth: exponents of known curves, a row for each size, and points that are processes of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset

from headscope.benchmark import growth_steps, growth_texts
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.growth_fit import LEAST_BEND, bend, exponent, exponents_column, local_exponents, sentence
from headscope.benchmark.growth_point import KINDS, Measured, in_a_process, watched
from headscope.benchmark.growth_point import measure as measure_point
from headscope.benchmark.growth_texts import DataFolder, spelled, write_texts
from headscope.benchmark.page import Table
from headscope.benchmark.process import own_memory
from headscope.benchmark.scaling import measure
from headscope.data.splits import near_duplicate_groups

CPU = torch.device("cpu")
TINY = {
    "texts": 10, "rounds": 1, "d_model": 16, "num_heads": 2, "num_layers": 1, "max_length": 8, "tokens_per_batch": 256,
}  # fmt: skip
SEEDS = ["the licence of the cat", "no warranty is given", "copies may be made and given away"]
SIZES = [2.0**power for power in range(1, 12)]
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_that_power_everywhere(power: float) -> None:
    amounts = [3 * size**power for size in SIZES]
    assert exponent(SIZES, amounts) == pytest.approx(power)
    assert local_exponents(SIZES, amounts) == pytest.approx([power] * (len(SIZES) - 1))
    assert bend(SIZES, amounts) is None


def test_a_curve_that_turns_from_linear_to_square_bends_where_the_two_are_equal() -> None:
    sizes = [2.0**power for power in range(-5, 26)]  # far to both sides of 1024
    assert bend(sizes, [1024 * size + size**2 for size in sizes]) == pytest.approx(1024, rel=0.01)
    assert bend(sizes, [1 / (1 / size + 1 / 1024) for size in sizes]) == pytest.approx(1024, rel=0.01)  # to flat


def test_a_small_change_of_the_exponent_is_no_bend() -> None:
    sizes = [1.0, 10.0, 100.0]
    assert bend(sizes, [1.0, 10.0, 10 * 10 ** (1 + LEAST_BEND * 0.9)]) is None
    assert bend(sizes, [1.0, 10.0, 10 * 10 ** (1 + LEAST_BEND * 1.1)]) is not None


def test_what_has_no_exponent_is_left_empty_and_said() -> None:
    assert exponent([4], [1.0]) is None
    assert exponent([4, 8], [0.0, 1.0]) is None
    assert exponents_column([1, 2, 4], [0.0, 1.0, 2.0]) == ["", "", "1.00"]
    assert bend([1, 2, 4, 8], [0.0, 1.0, 2.0, 16.0]) is None
    assert sentence("Memory", "texts", [1, 2], [0.0, 1.0]) == "Memory: too small somewhere for an exponent."
    assert sentence("Memory", "texts", [1, 2, 4], [1.0, 2.0, 4.0]).startswith("Memory ~ texts^1.00 over all")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Table], list[dict[str, Any]], list[str]]:
    """The suite, measured in this process, the points that it asked for, and what it told."""
    asked: list[dict[str, Any]] = []

    def here(work: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Measured:
        asked.append(dict(work))
        return measure_point(work)

    for module in (growth_steps, growth_texts):
        monkeypatch.setattr(module, "in_a_process", here)
    monkeypatch.setattr(growth_texts, "POWERS", range(3))
    monkeypatch.setattr(growth_texts, "load_licenses", lambda cache: Dataset.from_dict({"text": SEEDS}))
    told: list[str] = []
    return measure(BenchmarkConfig(suite="scaling", **TINY), CPU, told.append), asked, told


def test_every_size_has_a_row_of_numbers(tables: tuple[list[Table], list[dict[str, Any]], list[str]]) -> None:
    found, asked, told = tables
    first_cells = [[row[0] for row in table.rows] for table in found]
    lengths = ["2", "4", "8", "16", "32", "64", "128"]
    assert first_cells == [lengths, ["4", "8", "16", "32", "64"], ["1", "2", "4"], ["10", "100", "1,000"]]
    for table in found:
        assert all(len(row) == len(table.columns) for row in table.rows)
        seconds = table.columns.index("seconds" if "seconds" in table.columns else "seconds a text")
        assert all(float(row[seconds]) > 0 for row in table.rows)
        assert not any("nan" in cell or "inf" in cell for row in table.rows for cell in row)
        assert table.notes
    assert len(asked) == len(told) == sum(map(len, first_cells))


def test_a_step_has_as_many_tokens_at_every_length_but_at_least_one_text(
    tables: tuple[list[Table], list[dict[str, Any]], list[str]],
) -> None:
    found, asked, _ = tables
    steps = [work for work in asked if work["kind"] == "training"]
    assert [(work["length"], work["texts"]) for work in steps[:7]] == [(2**n, 256 // 2**n) for n in range(1, 8)]
    assert {work["length"] * work["texts"] for work in steps[7:]} == {256}
    assert [row[1] for row in found[0].rows] == [str(256 // 2**n) for n in range(1, 8)]
    assert [work["sizes"]["feedforward_size"] // work["sizes"]["d_model"] for work in steps] == [4] * len(steps)


def test_by_counting_length_turns_from_linear_to_square_and_layers_are_linear(
    tables: tuple[list[Table], list[dict[str, Any]], list[str]],
) -> None:
    length, _, layers, _ = tables[0]
    place = length.columns.index("by counting")
    counted = [float(row[place]) for row in length.rows[1:]]
    assert counted == sorted(counted)
    assert counted[0] < 1.1
    assert counted[-1] == 1.49  # 1.5 is at n = 6 D = 96, and this is the exponent of sqrt(64 * 128) = 91
    assert [float(row[place]) for row in layers.rows[1:]] == [1, 1]


def test_long_texts_make_batches_of_one() -> None:
    config = BenchmarkConfig(suite="scaling", **TINY | {"max_length": 64})
    asked: list[Mapping[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth_steps, "in_a_process", lambda work: asked.append(work) or Measured(1.0, 2.0, 1.0, 2.0))
        growth_steps.length_table(config, CPU, lambda doing: None)
    assert [(work["length"], work["texts"]) for work in asked] == [
        (16, 16), (32, 8), (64, 4), (128, 2), (256, 1), (512, 1), (1024, 1),
    ]  # fmt: skip


def test_a_point_is_a_process_of_its_own_whose_memory_is_not_its_parents() -> None:
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 1, "feedforward_size": 64}
    work = {"kind": "training", "length": 8, "texts": 2, "sizes": sizes, "rounds": 1, "device": "cpu"}
    ballast = np.ones(2**28, dtype=np.uint8)  # 256 MiB more than this process needs
    found = in_a_process(work)
    assert found.seconds > 0
    if own_memory("VmHWM"):
        assert 0 < found.rest_mib <= found.peak_mib <= found.resident_mib
        assert found.peak_mib < own_memory("RssAnon")
    assert ballast[-1] == 1


def test_a_point_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'unheard of'"):
        in_a_process({"kind": "unheard of"})
    assert set(KINDS) == {"training", "data"}


@pytest.mark.skipif(own_memory("RssAnon") == 0, reason="the kernel keeps no such account here")
def test_memory_that_came_and_went_is_seen() -> None:
    measured = Measured()
    with watched(measured):
        passing = np.ones(2**27, dtype=np.uint8)
        for _ in range(10):
            passing += 1  # long enough to be looked at
        del passing
    assert 120 < measured.above_rest_mib < 200


def test_repeated_texts_differ_and_are_no_near_duplicates(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.parquet", SEEDS, 20_500)
    rows = pq.read_table(tmp_path / "texts.parquet").to_pydict()
    assert len(rows["text"]) == 20_500
    assert near_duplicate_groups(rows["text"]).tolist() == list(range(20_500))
    assert set(rows["label"]) == {0, 1}
    words = {word for text in rows["text"] for word in text.split()}
    assert len(words) < 700


def test_numbers_are_spelled_each_in_its_own_way() -> None:
    assert [spelled(number) for number in (0, 1, 26, 675, 676, 677, 676**2)] == [
        "aa", "ab", "ba", "zz", "aa ab", "ab ab", "aa aa ab",
    ]  # fmt: skip


def test_a_folder_of_texts_is_gone_when_it_was_measured_and_its_own_file_is_not_counted() -> None:
    with DataFolder(SEEDS, 10) as folder:
        assert folder.bytes_on_disk() == 0
        (folder.path / "made.bin").write_bytes(b"x" * 100)
        assert folder.bytes_on_disk() == 100
        assert Path(folder.env["HF_DATASETS_CACHE"]).parent == folder.path
    assert not folder.path.exists()
