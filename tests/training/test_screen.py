"""What is printed of a run and of a sweep: whole at any width, with names as long as they come."""

import csv
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from headscope.cli.sweep import RESULTS, VALIDATION, averaged, by_configuration, write_table
from headscope.training import scores
from headscope.training.console import (
    broken,
    headings,
    ignore_broken_pipe,
    show_confusion,
    show_scores,
    show_sweep,
)
from headscope.training.scores import MultiLabelScores, Scores

ENGLISH = [
    "Commercial",
    "Copyleft",
    "Copyleft Limited",
    "Permissive",
    "Proprietary Free",
    "Unstated License",
    "[b]",
]
JAPANESE = ["許諾的なライセンス", "制限付きコピーレフト", "商用", "パブリックドメイン"]
RUN = "outputs/rotten_tomatoes_2026-11-21_15-48-30"


def found(classes: int) -> Scores:
    return Scores(
        0.5,
        0.25,
        1.125,
        0.75,
        [[1000 + row * classes + k for k in range(classes)] for row in range(classes)],
    )


def test_what_nobody_reads_any_more_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        with ignore_broken_pipe():
            for _ in range(3):
                Console().print("more than nobody reads")
        print("and nothing is left for the end")


def printed(show: Callable[[Console], None], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show(console)
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize("labels", [ENGLISH, JAPANESE])
def test_classes_have_numbers_above_the_confusion_matrix_where_names_have_no_room(
    labels: list[str],
) -> None:
    lines = printed(lambda console: show_confusion(console, labels, found(len(labels))), 80)
    numbers = [str(number) for number in range(1, len(labels) + 1)]
    assert numbers in [line.split() for line in lines]
    for number, label, counts in zip(numbers, labels, found(len(labels)).confusion, strict=True):
        assert f"{number}: {label} {' '.join(map(str, counts))}" in [
            " ".join(line.split()) for line in lines
        ]


@pytest.mark.parametrize("labels", [ENGLISH, JAPANESE])
def test_classes_have_names_above_the_confusion_matrix_where_there_is_room(
    labels: list[str],
) -> None:
    lines = printed(lambda console: show_confusion(console, labels, found(len(labels))), 200)
    assert " ".join(labels) in [" ".join(line.split()) for line in lines]
    assert f"{labels[0]} {' '.join(map(str, found(len(labels)).confusion[0]))}" in [
        " ".join(line.split()) for line in lines
    ]


def test_a_matrix_whose_counts_have_no_room_is_left_out_and_says_so() -> None:
    twelve = [f"kind {number}" for number in range(12)]
    counts = [[10_000 + number for number in range(12)]] * 12
    wide = Scores(0.5, 0.25, 1.125, 0.75, counts)
    no_room = "no room for the confusion matrix in 80 columns; a wider window has it"
    assert printed(lambda console: show_confusion(console, twelve, wide), 80) == [no_room]
    assert (
        "10011" in printed(lambda console: show_confusion(console, twelve, wide), 100)[-2].split()
    )


def test_a_narrow_table_does_not_break_its_title() -> None:
    assert printed(lambda console: show_confusion(console, ["a", "b"], found(2)), 80)[0].startswith(
        "rows: label, columns: prediction"
    )


def test_a_long_name_goes_on_in_a_second_line_between_its_parts() -> None:
    scores = MultiLabelScores(0.5, 0.25, 1.125, 0.75, [], 0.625)
    lines = printed(lambda console: show_scores(console, "test", {RUN: scores}), 80)
    cells = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in lines
        if line.startswith("│")
    ]
    assert [row[0] for row in cells] == ["outputs/rotten_", "tomatoes_2026-11-21_", "15-48-30"]
    assert cells[0][1:] == ["0.5000", "0.6250", "0.2500", "1.1250", "0.7500"]
    assert "…" not in "".join(lines)
    assert any(
        RUN in line
        for line in printed(lambda console: show_scores(console, "test", {RUN: scores}), 200)
    )


def test_a_name_is_broken_between_words_and_never_within_one() -> None:
    assert broken("TF-IDF (words 1-2) + regression", 12) == "TF-IDF\n(words 1-2)\n+ regression"
    assert broken("商用/許諾的なライセンス", 8) == "商用/\n許諾的なライセンス"


# --- a sweep's table: every override in the csv file, and on the screen what differs, whole, at any width ---


CONSTANT = {"data": "files", "data.path": "/home/someone/reviews.csv", "data.label_column": "stars"}
SCORES = {"accuracy": 0.55, "macro_f1": 0.4357, "loss": 1.1165, "calibration_error": 0.4061}


def job(folder: Path, number: int, overrides: dict[str, str], **kept: Any) -> None:
    place = folder / f"{'long' * number}-{number:08x}"
    place.mkdir(parents=True)
    overrides = {"model.num_heads": str(2**number), **overrides}
    (place / "job.json").write_text(
        json.dumps({"number": number, "overrides": overrides, "metric": "macro_f1"})
    )
    (place / "config.yaml").write_text(
        f"name: x\noutputs_dir: y\nseed: {overrides.get('seed', 0)}\n"
    )
    for name, content in kept.items():
        (place / f"{name}.json").write_text(json.dumps(content))


def done(validation: float = 0.5, **more: float) -> dict[str, Any]:
    return {
        "test": {**SCORES, **more},
        "validation": {"macro_f1": validation},
        "seconds": {"everything": 61.5},
    }


def shown(folder: Path, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    rows = write_table(folder)
    show_sweep(
        console, folder, [averaged(group) for group in by_configuration(rows)], rows, RESULTS
    )
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 200])
def test_the_screen_shows_what_differs_with_scores_in_full(tmp_path: Path, width: int) -> None:
    for number in range(3):
        job(
            tmp_path,
            number,
            {**CONSTANT, "model.num_layers": str(number)},
            metrics=done(0.5 - number / 10),
        )
    lines = shown(tmp_path, width).splitlines()
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    found = ["0.5500", "0.4357", "1.1165", "0.4061", "62"]
    assert rows == [[str(2**n), str(n), f"{0.5 - n / 10:.4f}", *found] for n in range(3)]
    assert (
        "all jobs: data=files  data.path=/home/someone/reviews.csv  data.label_column=stars"
        in lines
    )
    assert f"kept in: {tmp_path}/sweep.csv" in lines
    with (tmp_path / "sweep.csv").open(newline="") as file:
        assert all(row.items() > CONSTANT.items() for row in csv.DictReader(file))


def test_results_without_room_are_named_instead_of_cut(tmp_path: Path) -> None:
    for number in range(2):
        job(
            tmp_path,
            number,
            {f"model.some_number_{key}": f"0.0000{number}{key}" for key in "abc"},
            metrics=done(),
        )
    text = shown(tmp_path, 70)
    assert "0.00001c" in text
    assert "0.4357" in text
    assert "…" not in text
    assert "no room for: loss, calibration_error, seconds\n" in text


def test_micro_f1_is_a_score_where_texts_have_any_number_of_labels(tmp_path: Path) -> None:
    job(tmp_path, 0, {}, metrics=done(micro_f1=0.7531))
    job(tmp_path, 1, {}, metrics=done(micro_f1=0.1))
    assert "0.7531" in shown(tmp_path)
    assert write_table(tmp_path)[0]["micro_f1"] == "0.7531"


def test_a_job_that_failed_says_why_below_the_table(tmp_path: Path) -> None:
    job(tmp_path, 0, {}, metrics=done())
    job(
        tmp_path,
        1,
        {},
        failure={"message": "model.num_heads: got 3, takes a divisor of model.d_model=[32]"},
    )
    job(tmp_path, 2, {})
    lines = shown(tmp_path).splitlines()
    assert (
        "long-00000001: failed: model.num_heads: got 3, takes a divisor of model.d_model=[32]"
        in lines
    )
    assert "longlong-00000002: not finished" in lines


def test_jobs_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        job(tmp_path, number, {})
    assert [int(row["job"].split("-")[1], 16) for row in write_table(tmp_path)] == [0, 2, 10]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.json", "{"),
        ("job.json", "{}"),
        ("failure.json", "[" * 100_000),
        ("metrics.json", '{"test": 3}'),
    ],
)
def test_a_damaged_file_of_one_job_does_not_take_the_others_from_the_table(
    tmp_path: Path, name: str, content: str
) -> None:
    job(tmp_path, 0, {})
    job(tmp_path, 1, {})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/job.json").write_text("{}")  # of no job
    (tmp_path / "long-00000001" / name).write_text(content)
    assert [row["status"].split(":")[0] for row in write_table(tmp_path)] == [
        "not finished",
        "damaged",
    ]


def test_a_configuration_has_the_mean_over_its_seeds_and_the_best_of_validation_comes_first(
    tmp_path: Path,
) -> None:
    for number, (heads, seed, validation, accuracy) in enumerate(
        [(2, 0, 0.4, 0.9), (2, 1, 0.5, 0.7), (4, 0, 0.6, 0.6), (4, 1, 0.8, 0.7), (8, 0, 0.9, 0.1)]
    ):
        settings = {"model.num_heads": str(heads), "seed": str(seed)}
        job(tmp_path, number, settings, metrics=done(validation, accuracy=accuracy))
    job(tmp_path, 5, {"model.num_heads": "8", "seed": "1"})  # not finished
    lines = shown(tmp_path, 200).splitlines()
    table = [
        re.split(r"\s{2,}", line.strip())[:4]
        for line in lines
        if line.strip()[:1].isdigit() and "±" in line
    ]
    assert table == [
        ["4", "2", "0.7000 ± 0.1414", "0.6500 ± 0.0707"],
        ["2", "2", "0.4500 ± 0.0707", "0.8000 ± 0.1414"],
    ]
    # One of its seeds is missing, so it is listed and not chosen.
    assert (tmp_path / "best.yaml").read_text() == "defaults:\n- train\n- _self_\nseed: 0\n"
    assert f"best again: headscope train --config-dir {tmp_path} --config-name best" in lines


def test_of_a_loss_less_is_better(tmp_path: Path) -> None:
    for number, loss in enumerate([0.7, 0.3, 0.5]):
        job(
            tmp_path,
            number,
            {},
            metrics={**done(loss=1.0 - loss), "validation": {"loss": loss, "macro_f1": loss}},
        )
        path = next(tmp_path.glob(f"*{number:08x}/job.json"))
        path.write_text(path.read_text().replace("macro_f1", "loss"))
    (tmp_path / f"long-{1:08x}" / "config.yaml").write_text("seed: 17\n")
    rows = [line.split()[:2] for line in shown(tmp_path).splitlines() if line.strip()[:1].isdigit()]
    assert rows == [["2", "0.3000"], ["4", "0.5000"], ["1", "0.7000"]]
    assert "seed: 17" in (tmp_path / "best.yaml").read_text()


def test_the_results_of_a_row_are_the_scores_of_a_run() -> None:
    assert RESULTS[len(VALIDATION) : -1] == tuple(scores.SCORES)


def test_a_key_is_shortened_only_where_it_stays_the_only_one() -> None:
    keys = ["model.num_heads", "data.name", "name", "a.seconds"]
    assert headings(keys[:2], keys) == {"model.num_heads": "num_heads", "data.name": "data.name"}
    assert headings(["a.seconds"], [*keys, *RESULTS]) == {"a.seconds": "a.seconds"}
