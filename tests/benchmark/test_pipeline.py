"""The suite that times the data: its tables have a row for each variant, positive numbers and a verdict on each target."""

import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset, is_progress_bar_enabled

from headscope.benchmark import pipeline as module
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
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
