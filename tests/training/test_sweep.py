"""A sweep's table: every override in the csv file, and on the screen what differs, whole, at any width."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headscope.training.sweep import write_table
from headscope.training.sweep_screen import headings, show_sweep

CONSTANT = {"data": "files", "data.path": "/home/someone/reviews.csv", "data.label_column": "stars"}
SCORES = {"accuracy": 0.55, "macro_f1": 0.4357, "loss": 1.1165, "calibration_error": 0.4061}


def job(folder: Path, number: int, overrides: dict[str, str], **kept: Any) -> None:
    place = folder / f"{number}-{'long' * number}"
    place.mkdir(parents=True)
    (place / "job.json").write_text(json.dumps({"overrides": {"model.num_heads": str(2**number), **overrides}}))
    for name, content in kept.items():
        (place / f"{name}.json").write_text(json.dumps(content))


def done(**more: float) -> dict[str, Any]:
    return {"test": {**SCORES, **more}, "seconds": {"everything": 61.5}}


def shown(folder: Path, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    show_sweep(console, folder, write_table(folder))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 200])
def test_the_screen_shows_what_differs_with_scores_in_full(tmp_path: Path, width: int) -> None:
    for number in range(3):
        job(tmp_path, number, {**CONSTANT, "model.num_layers": str(number)}, metrics=done())
    lines = shown(tmp_path, width).splitlines()
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert rows == [[str(n), str(2**n), str(n), "0.5500", "0.4357", "1.1165", "0.4061", "62"] for n in range(3)]
    assert "all jobs: data=files  data.path=/home/someone/reviews.csv  data.label_column=stars" in lines
    assert f"kept in: {tmp_path}/sweep.csv" in lines
    with (tmp_path / "sweep.csv").open(newline="") as file:
        assert all(row.items() > CONSTANT.items() for row in csv.DictReader(file))


def test_results_without_room_are_named_instead_of_cut(tmp_path: Path) -> None:
    for number in range(2):
        job(tmp_path, number, {f"model.some_number_{key}": f"0.0000{number}{key}" for key in "abc"}, metrics=done())
    text = shown(tmp_path, 70)
    assert "0.00001c" in text
    assert "0.4357" in text
    assert "…" not in text
    assert "no room for: calibration_error, seconds\n" in text


def test_micro_f1_is_a_score_where_texts_have_any_number_of_labels(tmp_path: Path) -> None:
    job(tmp_path, 0, {}, metrics=done(micro_f1=0.7531))
    job(tmp_path, 1, {}, metrics=done(micro_f1=0.1))
    assert "0.7531" in shown(tmp_path)
    assert write_table(tmp_path)[0]["micro_f1"] == "0.7531"


def test_a_job_that_failed_says_why_below_the_table(tmp_path: Path) -> None:
    job(tmp_path, 0, {}, metrics=done())
    job(tmp_path, 1, {}, failure={"message": "model.num_heads: got 3, takes a divisor of model.d_model=[32]"})
    job(tmp_path, 2, {})
    lines = shown(tmp_path).splitlines()
    assert "job 1: failed: model.num_heads: got 3, takes a divisor of model.d_model=[32]" in lines
    assert "job 2: not finished" in lines


def test_jobs_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        job(tmp_path, number, {})
    (tmp_path / "10-longlonglonglonglonglonglonglonglonglong").rename(tmp_path / "10-x")
    assert [row["job"].split("-")[0] for row in write_table(tmp_path)] == ["0", "2", "10"]


def test_a_key_is_shortened_only_where_it_stays_the_only_one() -> None:
    keys = ["model.num_heads", "data.name", "name", "a.seconds"]
    assert headings(keys[:2], keys) == {"model.num_heads": "num_heads", "data.name": "data.name"}
    assert headings(["a.seconds"], keys) == {"a.seconds": "a.seconds"}
