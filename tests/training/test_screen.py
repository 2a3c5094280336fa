"""What is printed of a run: whole at 80 columns and at 200, with names as long as they come."""

import io
from collections.abc import Callable

import pytest
from rich.cells import cell_len
from rich.console import Console

from headscope.training.scoring import MultiLabelScores, Scores
from headscope.training.screen import show_confusion, show_scores
from headscope.training.widths import broken

ENGLISH = ["Commercial", "Copyleft", "Copyleft Limited", "Permissive", "Proprietary Free", "Unstated License", "[b]"]
JAPANESE = ["許諾的なライセンス", "制限付きコピーレフト", "商用", "パブリックドメイン"]
RUN = "outputs/rotten_tomatoes_2026-11-21_15-48-30"


def found(classes: int) -> Scores:
    return Scores(
        0.5, 0.25, 1.125, 0.75, [[1000 + row * classes + k for k in range(classes)] for row in range(classes)]
    )


def printed(show: Callable[[Console], None], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show(console)
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize("labels", [ENGLISH, JAPANESE])
def test_classes_have_numbers_above_the_confusion_matrix_where_names_have_no_room(labels: list[str]) -> None:
    lines = printed(lambda console: show_confusion(console, labels, found(len(labels))), 80)
    numbers = [str(number) for number in range(1, len(labels) + 1)]
    assert numbers in [line.split() for line in lines]
    for number, label, counts in zip(numbers, labels, found(len(labels)).confusion, strict=True):
        assert f"{number}: {label} {' '.join(map(str, counts))}" in [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("labels", [ENGLISH, JAPANESE])
def test_classes_have_names_above_the_confusion_matrix_where_there_is_room(labels: list[str]) -> None:
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
    assert "10011" in printed(lambda console: show_confusion(console, twelve, wide), 100)[-2].split()


def test_a_narrow_table_does_not_break_its_title() -> None:
    assert printed(lambda console: show_confusion(console, ["a", "b"], found(2)), 80)[0].startswith(
        "rows: label, columns: prediction"
    )


def test_a_long_name_goes_on_in_a_second_line_between_its_parts() -> None:
    scores = MultiLabelScores(0.5, 0.25, 1.125, 0.75, [], 0.625)
    lines = printed(lambda console: show_scores(console, "test", {RUN: scores}), 80)
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[0] for row in cells] == ["outputs/rotten_", "tomatoes_2026-11-21_", "15-48-30"]
    assert cells[0][1:] == ["0.5000", "0.6250", "0.2500", "1.1250", "0.7500"]
    assert "…" not in "".join(lines)
    assert any(RUN in line for line in printed(lambda console: show_scores(console, "test", {RUN: scores}), 200))


def test_a_name_is_broken_between_words_and_never_within_one() -> None:
    assert broken("TF-IDF (words 1-2) + regression", 12) == "TF-IDF\n(words 1-2)\n+ regression"
    assert broken("商用/許諾的なライセンス", 8) == "商用/\n許諾的なライセンス"
