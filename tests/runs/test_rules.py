"""Rules by which a run abstains: chosen by class and by costs, and what they do to each class."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from headscope.ground.errors import ConfigError, DataError, RunError
from headscope.runs.answering import AnswerRule
from headscope.runs.folder import load_model, load_validation, model_name, save_model
from headscope.runs.rules import (
    NEVER,
    precise,
    read_costs,
    rule_of,
    show_rule,
)
from headscope.runs.run import Run, load_run
from headscope.settings.checks import check, validate
from headscope.settings.commands import Abstains, EvaluateConfig
from headscope.settings.config import DataConfig
from untrained import LABELS, untrained

TEXTS = ["the cat sat on the mat", "a very long film about other cats", "a lovely book"] * 3
CLASSES = ["bug", "security"]
# Four predicted bug, of which the least sure is wrong; three predicted security, the surest wrong.
OF_BUG = np.array([0.9, 0.8, 0.7, 0.6, 0.2, 0.3, 0.4])
SHARES = np.stack([OF_BUG, 1 - OF_BUG], axis=1)
GIVEN = np.array([0, 0, 0, 1, 0, 1, 1])
FAMILIAR = np.zeros(7, dtype=bool)


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run that keeps the logits of its validation texts: its own answers, one wrong."""
    folder = untrained(tmp_path_factory.mktemp("run"), TEXTS, DataConfig(max_length=16))
    setup, model, chosen = load_model(folder)
    logits = torch.tensor([[3.0, 0, 0], [2, 0, 0], [0, 3, 0], [0, 0, 4], [0, 0, 1]])
    labels = torch.tensor([0, 1, 1, 2, 2])
    save_model(folder, setup, model, chosen, (logits, labels))
    found = load_validation(folder)
    assert (found[0].tolist(), found[1].tolist()) == (logits.tolist(), labels.tolist())
    return load_run(folder)


def test_each_class_has_the_least_confidence_that_reaches_its_target() -> None:
    with pytest.warns(UserWarning, match="never answered: security"):
        rule = precise(SHARES, GIVEN, 0.99, CLASSES)
    assert rule.least == [0.7, NEVER]
    assert precise(SHARES, GIVEN, {"security": 0.6}, CLASSES).least == [0.0, 0.6]
    assert precise(SHARES, GIVEN, {"bug": 0.75}, CLASSES).least == [0.6, 0.0]
    with pytest.raises(
        ConfigError, match="target_precision: expected classes of bug, security, got x"
    ):
        precise(SHARES, GIVEN, {"x": 0.6}, CLASSES)


def test_a_rule_answers_abstains_and_says_why() -> None:
    shares = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.8, 0.2]])
    odd = np.array([False, False, False, True])
    chosen, why = AnswerRule([0.5, 0.7]).answer(shares, odd)
    assert (chosen.tolist(), why) == ([0, 1, 1, 0], ["", "confidence", "", "unfamiliar"])
    # Another runtime's last digits change no answer.
    assert AnswerRule([0.9 + 1e-7, 0]).answer(shares[:1], odd[:1])[1] == [""]
    assert AnswerRule([0.9 + 1e-5, 0]).answer(shares[:1], odd[:1])[1] == ["confidence"]


def test_costs_choose_the_answer_of_least_expected_cost_and_abstain_where_that_is_less() -> None:
    costs = [[0.0, 1.0], [5.0, 0.0]]  # a missed security ticket costs five
    chosen, why = AnswerRule([0.0, 0.0], costs).answer(SHARES, FAMILIAR)
    assert chosen.tolist() == [int(5 * (1 - share) > share) for share in OF_BUG]
    assert set(why) == {""}
    abstaining = [[0.0, 1.0, 0.45], [5.0, 0.0, 0.45]]
    chosen, why = AnswerRule([0.0, 0.0], abstaining).answer(SHARES, FAMILIAR)
    cheapest = [min(5 * (1 - share), share) for share in OF_BUG]
    assert why == ["cost" if cost > 0.45 else "" for cost in cheapest]
    assert {"", "cost"} == {*why}


def table(path: Path, rows: list[tuple[str, str, object]]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("given", "predicted", "cost"), *rows])
    return str(path)


def test_a_file_of_costs_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    rows: list[tuple[str, str, object]] = [("", "", 0.5), ("security", "bug", 20)]
    costs = read_costs(table(tmp_path / "costs.csv", rows), CLASSES)
    assert costs == [[0, 1, 0.5], [20, 0, 0.5]]
    assert read_costs(table(tmp_path / "costs.csv", rows[1:]), CLASSES) == [[0, 1], [20, 0]]
    every = [("", "bug", 5)]
    assert read_costs(table(tmp_path / "costs.csv", every), CLASSES) == [[0, 1], [5, 0]]
    for row, message in (
        (("x", "bug", 1), "row 0: expected given and predicted of bug, security or empty.*'x' is"),
        (("bug", "security", "much"), "and a number as cost; could not convert .* 'much'"),
        (("bug", "security", None), "row 0: expected given"),
        (("bug", "", 1), "of every class or none what abstaining costs"),
        (("bug", "security", "nan"), "expected finite costs"),
    ):
        with pytest.raises(DataError, match=message):
            read_costs(table(tmp_path / "wrong.csv", [row]), CLASSES)
    (tmp_path / "wrong.csv").write_text("given,cost\nbug,1\n")
    with pytest.raises(DataError, match="predicted"):
        read_costs(str(tmp_path / "wrong.csv"), CLASSES)


def test_coverage_precision_and_cost_of_each_class_are_counted(run: Run, tmp_path: Path) -> None:
    logits = 9 * torch.eye(3)[[0, 0, 1, 2, 2]]
    texts = (logits, torch.tensor([0, 1, 1, 2, 2]), np.arange(5) == 4)  # the last is unfamiliar
    out = console()
    found = show_rule(out, run, AnswerRule([0.5] * 3), *texts)
    assert found["all"] == [5, 4, 4, 3]  # texts, answered, predicted, right
    assert found["classes"] == dict(
        zip(LABELS, [[1, 1, 2, 1], [2, 2, 1, 1], [2, 1, 1, 1]], strict=True)
    )
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert "1 of 2" in shown
    assert "0.013 to 0.987" in shown  # Clopper and Pearson: 1 of 2
    costs = read_costs(table(tmp_path / "costs.csv", [("", "", 0.5)]), run.labels)
    found = show_rule(out, run, AnswerRule([0.5] * 3, costs), *texts)
    assert found["cost"]["mean"] == pytest.approx((1 + 0.5) / 5)  # one is wrong, one abstained
    assert found["cost"]["saved"] == pytest.approx(-0.5 / 5)
    without = [row[:-1] for row in costs]  # what abstaining costs is unknown: of answers alone
    assert show_rule(out, run, AnswerRule([0.5] * 3, without), *texts)["cost"]["mean"] == 1 / 4


def test_a_key_chooses_a_rule_on_the_validation_texts_that_a_run_keeps(run: Run) -> None:
    out = console()
    assert rule_of(Abstains(), run, out) is None
    assert rule_of(Abstains(min_confidence=0.3), run, out) == AnswerRule([0.3] * 3)
    rule = rule_of(Abstains(target_accuracy=1.0), run, out)
    surest = torch.tensor([3.0, 0, 0], dtype=torch.float64) / run.temperature
    assert rule is not None
    assert rule.least == pytest.approx([surest.softmax(0)[0].item()] * 3)
    assert "3 of 3" in out.file.getvalue()  # type: ignore[attr-defined]
    rule = rule_of(Abstains(target_precision={LABELS[0]: 1.0}), run, out)
    assert rule is not None
    assert rule.least == pytest.approx([surest.softmax(0)[0].item(), 0, 0])
    assert "on 5 validation texts, which chose the rule" in out.file.getvalue()  # type: ignore[attr-defined]


def test_runs_that_cannot_choose_and_keys_that_exclude_each_other_are_named(
    run: Run, tmp_path: Path
) -> None:
    setup, model, chosen = load_model(run.folder)
    save_model(tmp_path / "older", setup, model, chosen)
    with pytest.raises(RunError, match="keeps no logits of its validation texts"):
        rule_of(Abstains(target_precision=0.9), load_run(tmp_path / "older"), console())
    several = replace(setup, config=replace(setup.config, data=DataConfig(multi_label=True)))
    with pytest.raises(ConfigError, match="costs: expected a run with one label a text"):
        rule_of(Abstains(costs="x.csv"), Run(tmp_path, several, model, chosen), console())
    both = {"run": str(run.folder), "min_confidence": 0.5, "costs": "absent.csv"}
    with pytest.raises(ConfigError, match="costs: expected null with min_confidence"):
        validate(EvaluateConfig, both)
    with pytest.raises(
        ConfigError, match=r"costs: expected a csv file that exists, got 'absent\.csv'"
    ):
        check(EvaluateConfig(run=str(run.folder), costs="absent.csv"))
    digest, day = model_name(run.folder).split()
    assert len(digest) == 12
    assert day.count("-") == 2
