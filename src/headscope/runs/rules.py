"""By which rule a run abstains, and what that does to each class. N texts, C classes."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from rich.console import Console
from torch import Tensor

from headscope.data.rows import read_rows
from headscope.ground.errors import ConfigError, DataError, listed, warn
from headscope.ground.terminal import plain_table, show_line
from headscope.model.objective import MultiLabel
from headscope.runs.abstaining import accuracy_curve, least_confidence
from headscope.runs.answering import AnswerRule
from headscope.runs.folder import load_validation
from headscope.runs.run import Run
from headscope.settings.commands import Abstains

NEVER = 2.0  # no probability reaches it


def rule_of(config: Abstains, run: Run, console: Console) -> AnswerRule | None:
    """Return the rule of the one key that is given; print what it does to the validation texts.

    Raises:
        ConfigError: for a run with several labels a text, or a target out of reach.
        RunError: if the run keeps no logits of its validation texts, and the key needs them.
    """
    if not config.abstains_by():
        return None
    (key,) = config.abstains_by()
    if isinstance(run.objective, MultiLabel):
        raise ConfigError(f"{key}: expected a run with one label a text; {run.folder} has several")
    C = len(run.labels)
    if config.min_confidence is not None:
        return AnswerRule([config.min_confidence] * C)
    logits, labels = load_validation(run.folder)
    shares = run.reading.probabilities(logits.double()).numpy()
    given = labels.numpy()
    if config.costs is not None:
        rule = AnswerRule([0.0] * C, read_costs(config.costs, run.labels))
    elif config.target_accuracy is not None:
        is_right = shares.argmax(axis=1) == given
        curve = accuracy_curve(shares.max(axis=1), is_right)
        least = least_confidence(curve, config.target_accuracy)
        rule = AnswerRule([least] * C)
    else:
        rule = precise(shares, given, config.target_precision, run.labels)
    show_line(console, f"{key}, on {len(given)} validation texts, which chose the rule:")
    show_rule(console, run, rule, logits, labels, np.zeros(len(given), dtype=bool))
    return rule


def precise(
    shares: Float[np.ndarray, "N C"], given: Int[np.ndarray, " N"], targets: Any, labels: list[str]
) -> AnswerRule:
    """Return the least confidence of each class from which its predictions reach its target.

    A class that does not reach it is never answered, and a warning names it.
    """
    by_name = targets if isinstance(targets, dict) else dict.fromkeys(labels, targets)
    if unknown := by_name.keys() - {*labels}:
        expected = f"expected classes of {listed(labels)}"
        raise ConfigError(f"target_precision: {expected}, got {listed(sorted(unknown))}")
    least = dict.fromkeys(labels, 0.0)
    for label, target in by_name.items():
        number = labels.index(label)
        own = shares.argmax(axis=1) == number
        curve = []
        if own.any():
            curve = accuracy_curve(shares[own, number], given[own] == number)
        try:
            least[label] = least_confidence(curve, target)
        except ConfigError:
            least[label] = NEVER
            warn(f"target_precision: no confidence reaches it, so never answered: {label}")
    return AnswerRule([*least.values()])


def read_costs(path: str, labels: list[str]) -> list[list[float]]:
    """Read what answers cost, [C, C], or with rows whose `predicted` is empty [C, C + 1].

    A row whose `given` is empty is of every class but the predicted one. Without a row right
    answers cost 0, others 1.

    Raises:
        DataError: for a class that the run does not know, or a cost that is no number.
    """
    answers = [*labels, ""]
    of_answers = 1 - np.eye(len(labels))
    of_abstaining = np.full(len(labels), np.nan)
    costs = np.column_stack([of_answers, of_abstaining])
    for number, row in enumerate(read_rows(path, keys="")):
        try:
            place = answers.index(str(row["given"]).strip())
            answer = answers.index(str(row["predicted"]).strip())
            of_given = [place]
            if place == len(labels):  # a right answer does not cost that
                of_given = [number for number in range(len(labels)) if number != answer]
            costs[of_given, answer] = float(row["cost"])
        except (KeyError, ValueError, TypeError) as error:
            expected = f"given and predicted of {listed(labels)} or empty, and a number as cost"
            raise DataError(f"costs={path}, row {number}: expected {expected}; {error}") from None
    is_known = np.isfinite(costs)
    if not is_known[:, :-1].all() or is_known[:, -1].any() != is_known[:, -1].all():
        expected = "expected finite costs, and of every class or none what abstaining costs"
        raise DataError(f"costs={path}: {expected}")
    if not is_known.all():
        costs = costs[:, :-1]
    found: list[list[float]] = costs.tolist()
    return found


def show_rule(
    console: Console,
    run: Run,
    rule: AnswerRule,
    logits: Float[Tensor, "N C"],
    labels: Int[Tensor, " N"],
    is_odd: Bool[np.ndarray, " N"],
) -> dict[str, Any]:
    """Print coverage and precision of each class and all, and the mean cost; return them as JSON.

    Of each class: its texts, those answered, its predictions, the right ones.
    """
    shares = run.reading.probabilities(logits.double()).numpy()
    given = labels.numpy()
    chosen, why = rule.answer(shares, is_odd)
    has_answer = np.array(why) == ""
    right = has_answer & (chosen == given)
    counted = (given, given[has_answer], chosen[has_answer], given[right])
    columns = [np.bincount(each, minlength=len(run.labels)) for each in counted]
    counts = np.stack(columns, axis=1)  # [C, 4]
    every = ("all", counts.sum(axis=0).tolist())
    table = [*zip(run.labels, counts.tolist(), strict=True), every]
    rows = [_cells(label, *numbers) for label, numbers in table]
    headings = ["its texts answered", "its answers right", "precision", "95 % interval"]
    console.print(plain_table(["class"], headings, rows))
    content: dict[str, Any] = {"all": table[-1][1], "classes": dict(table[:-1])}
    costs = np.array(rule.costs or np.empty((0, 0)))
    is_counted = has_answer | (costs.shape[1] > len(run.labels))  # abstaining may have no cost
    if len(costs) and is_counted.any():
        of_texts = costs[given][is_counted]
        answers = np.where(has_answer, chosen, -1)[is_counted]
        likeliest = shares.argmax(axis=1)[is_counted]
        numbers = (of_texts, answers, likeliest)
        content["cost"] = _show_cost(console, *numbers)
    return content


def _cells(label: str, texts: int, answered: int, predicted: int, correct: int) -> list[str]:
    """Return a row of the table: the interval is that of Clopper and Pearson (1934)."""
    from scipy.stats import binomtest  # here: its import takes 0.7 s

    row = [
        label,
        f"{answered} of {texts}",
        f"{correct} of {predicted}",
    ]
    if predicted == 0:
        return [*row, "-", "-"]
    found = binomtest(correct, predicted)
    interval = found.proportion_ci(0.95, "exact")
    precision = f"{correct / predicted:.3f}"
    between = f"{interval.low:.3f} to {interval.high:.3f}"
    return [*row, precision, between]


def _show_cost(
    console: Console,
    costs: Float[np.ndarray, "N _"],
    answers: Int[np.ndarray, " N"],
    likeliest: Int[np.ndarray, " N"],
) -> dict[str, float]:
    """Print and return the mean cost of answers, and what they save."""
    rows = np.arange(len(costs))
    own = costs[rows, answers]
    saved = costs[rows, likeliest] - own
    error = saved.std() / len(saved) ** 0.5
    mean = float(own.mean())
    less = float(saved.mean())
    line = f"mean cost {mean:.4f} a text, {less:.4f} ± {1.96 * error:.4f} less than"
    show_line(console, f"{line} if every text got its likeliest class")
    return {"mean": mean, "saved": less}
