"""The suite that times the data: its tables have a row for each variant, positive numbers and a verdict on each target."""

import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset, is_progress_bar_enabled

from headscope.benchmark import pipeline as module
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
from headscope.benchmark.timing import Timing
from headscope.data.encoded import encode

TEXTS = ["the licence of the cat", "no warranty is given", "copies may be made and given away"]


def measured(monkeypatch: pytest.MonkeyPatch, **changes: object) -> tuple[list[Table], list[str]]:
    monkeypatch.setattr(module, "load_licenses", lambda cache: Dataset.from_dict({"text": TEXTS}))
    tiny = {"texts": 10, "rounds": 1, "d_model": 16, "num_heads": 2, "num_layers": 1, "max_length": 32}
    config = BenchmarkConfig(suite="pipeline", **(tiny | changes))
    told: list[str] = []
    return module.measure(config, torch.device("cpu"), told.append), told


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.removesuffix("%")) for cell in cells]


def test_each_variant_has_a_row_of_positive_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    (ids, waiting), told = measured(monkeypatch)
    assert [row[0] for row in ids.rows] == [module.YARDSTICK, module.FAST, module.FIRST, module.AGAIN, module.MAP]
    assert [row[0] for row in waiting.rows] == [module.BUILDING, module.TRAINING]
    for table in (ids, waiting):
        for row in table.rows:
            assert len(row) == len(table.columns)
            *figures, spread = numbers(row[1:])
            assert min(figures) > 0
            assert spread == 0  # of one round
    assert ids.rows[0][4] == "1.00"  # the yardstick beside itself
    assert all(any(row[0] in line for line in told) for row in (*ids.rows, *waiting.rows))


def test_notes_give_the_sizes_and_a_verdict_on_each_target(monkeypatch: pytest.MonkeyPatch) -> None:
    (ids, waiting), _ = measured(monkeypatch)
    assert ids.notes[0].startswith("1,000 texts")
    assert waiting.notes[0].startswith("10 texts")
    verdicts = [note for note in (*ids.notes, *waiting.notes) if re.match("Target (met|MISSED): ", note)]
    assert [note.split("wanted ")[1] for note in verdicts] == ["at least 0.85.", "under 1 s.", "under 2%."]


@pytest.mark.parametrize(
    ("first", "again", "verdicts"),
    [
        (1.0, 0.009, ["Target met: first time at 1.00, wanted", "Target met: second time in 0.9 s"]),
        (1.25, 0.011, ["Target MISSED: first time at 0.80, wanted", "Target MISSED: second time in 1.1 s"]),
    ],
)
def test_verdicts_follow_from_the_times(first: float, again: float, verdicts: list[str]) -> None:
    times = {module.YARDSTICK: 1.0, module.FAST: 0.5, module.FIRST: first, module.AGAIN: again}
    timings = {name: Timing((seconds,) * 3) for name, seconds in times.items()}
    table = module._table_of_ids(timings, 1_000, 2.0)
    assert [row[4] for row in table.rows] == ["1.00", "2.00", f"{1 / first:.2f}", f"{1 / again:.2f}"]
    told = [note for note in table.notes if note.startswith("Target")]
    assert [note.startswith(verdict) for note, verdict in zip(told, verdicts, strict=True)] == [True, True]


@pytest.mark.parametrize(("building", "verdict"), [(0.019, "met"), (0.021, "MISSED")])
def test_waiting_is_held_against_the_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, building: float, verdict: str
) -> None:
    made = {module.BUILDING: Timing((building,)), module.TRAINING: Timing((1.0,))}
    monkeypatch.setattr(module, "in_turn", lambda *_: made)
    config = BenchmarkConfig(suite="pipeline", texts=10, d_model=16, num_heads=2, num_layers=1, max_length=32)
    table = module._waiting(config, torch.device("cpu"), tmp_path, lambda doing: None)
    assert table.notes[-1].startswith(f"Target {verdict}: waiting takes {building:.2%}")


def test_peers_can_be_left_out_and_progress_bars_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = is_progress_bar_enabled()
    (ids, _), _ = measured(monkeypatch, peers=False)
    assert module.MAP not in [row[0] for row in ids.rows]
    assert is_progress_bar_enabled() == shown


def test_the_first_time_is_a_first_time_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def watched(tokenizer: object, dataset: Dataset, cache: Path) -> object:
        folders.append(cache)
        return encode(tokenizer, dataset, cache)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "encode", watched)
    measured(monkeypatch, rounds=2, peers=False)
    first = [folder for folder in folders if folder.name.startswith("first")]
    assert len(set(first)) == len(first) == 3  # two rounds and the warming up
    assert len(folders) - len(first) == 4  # made once, then read in as many


def test_no_two_texts_are_alike() -> None:
    texts = module._numbered(TEXTS, 10)["text"][:]
    assert len(set(texts)) == 10
    assert texts[4] == "4 no warranty is given"
