"""examples/costs.py answers what costs least of the probabilities that predict wrote."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from training_runs import write

Rows = list[dict[str, str]]
OF_BUG = [0.95, 0.9, 0.6, 0.3, 0.04, 0.5]
GIVEN = ["bug", "bug", "security", "security", "security", "bug"]


@pytest.fixture
def decided(tmp_path: Path, recipe: Callable[..., str]) -> Callable[..., tuple[Rows, str]]:
    """Return a function that decides by rows of costs, and returns rows and what is printed."""
    rows = [
        {"text": str(at), "label": GIVEN[at], "probability_of": "mine", "prediction": "bug"}
        | {"probability_bug": share, "probability_security": 1 - share, "abstained": ""}
        for at, share in enumerate(OF_BUG)
    ]
    rows[5]["abstained"] = "unfamiliar"
    write(tmp_path / "answers.csv", rows)

    def decide(*costs: tuple[str, str, float]) -> tuple[Rows, str]:
        names = ("given", "predicted", "cost")
        write(tmp_path / "costs.csv", [dict(zip(names, row, strict=True)) for row in costs])
        printed = recipe("costs.py", "answers.csv", "costs.csv", "out.csv", "--label", "label")
        with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
            return [*csv.DictReader(file)], printed

    return decide


def test_what_costs_least_is_the_answer(decided: Callable[..., tuple[Rows, str]]) -> None:
    rows, printed = decided(("security", "bug", 5), ("", "", 0.45))
    for row, share in zip(rows[:5], OF_BUG, strict=False):
        expected = {"bug": 5 * (1 - share), "security": share, "": 0.45}
        best = min(expected, key=expected.__getitem__)
        assert (row["prediction"], row["abstained"]) == (best, "" if best else "cost")
        assert row["probability_of"] == "mine"
    assert {row["prediction"] for row in rows} == {"bug", "security", ""}
    assert (rows[5]["prediction"], rows[5]["abstained"]) == ("", "unfamiliar")
    # Three answers are right; those of 0.9 and 0.6, and the unfamiliar text, have none.
    assert float(printed.split()[-1]) == pytest.approx(3 * 0.45 / 6)


def test_without_a_cost_of_no_answer_each_familiar_text_has_one(
    decided: Callable[..., tuple[Rows, str]],
) -> None:
    rows, _ = decided(("", "bug", 3))
    assert [row["prediction"] for row in rows[:5]] == ["bug", "bug", *["security"] * 3]


def test_a_class_is_answered_from_the_precision_that_its_costs_ask_for(
    decided: Callable[..., tuple[Rows, str]],
) -> None:
    rows, printed = decided(("", "bug", 1 / (1 - 0.93)), ("", "security", 2), ("", "", 1))
    assert [row["prediction"] for row in rows] == ["bug", "", "", "security", "security", ""]
    answered = [line.split() for line in printed.splitlines() if line.startswith("security")]
    assert answered == [["security", "2", "2", "1.0"]]
