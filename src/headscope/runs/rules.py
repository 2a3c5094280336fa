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
        curve = accuracy_curve(shares.max(axis=1), shares.argmax(axis=1) == given)
        rule = AnswerRule([least_confidence(curve, config.target_accuracy)] * C)
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
        curve = accuracy_curve(shares[own, number], given[own] == number) if own.any() else []
        try:
            least[label] = least_confidence(curve, target)
        except ConfigError:
            least[label] = NEVER
            warn(f"target_precision: no confidence reaches it, so never answered: {label}")
    return AnswerRule([*least.values()])


def read_costs(path: str, labels: list[str]) -> list[list[float]]:
    """Read what answers cost, [C, C], or with rows whose `predicted` is empty [C, C + 1].

    A row whose `given` is empty is of every class. Without a row right answers cost 0, others 1.

    Raises:
        DataError: for a class that the run does not know, or a cost that is no number.
    """
    answers = [*labels, ""]
    costs = np.column_stack([1 - np.eye(len(labels)), np.full(len(labels), np.nan)])
    for number, row in enumerate(read_rows(path, keys="")):
        try:
            place = answers.index(str(row["given"]).strip())
            of_given = place if place < len(labels) else slice(None)
            costs[of_given, answers.index(str(row["predicted"]).strip())] = float(row["cost"])
        except (KeyError, ValueError, TypeError) as error:
            expected = f"given and predicted of {listed(labels)} or empty, and a number as cost"
            raise DataError(f"costs={path}, row {number}: expected {expected}; {error}") from None
    of_abstaining = np.isfinite(costs[:, -1])
    if not np.isfinite(costs[:, :-1]).all() or len({*of_abstaining.tolist()}) > 1:
        expected = "expected finite costs, and of every class or none what abstaining costs"
        raise DataError(f"costs={path}: {expected}")
    found: list[list[float]] = costs[:, : None if of_abstaining.all() else -1].tolist()
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
    from scipy.stats import binomtest  # here: its import takes 0.7 s

    shares = run.reading.probabilities(logits.double()).numpy()
    given = labels.numpy()
    chosen, why = rule.answer(shares, is_odd)
    has_answer = np.array([not reason for reason in why], dtype=bool)
    right = has_answer & (chosen == given)
    counted = (given, given[has_answer], chosen[has_answer], given[right])
    counts = np.stack([np.bincount(each, minlength=len(run.labels)) for each in counted], axis=1)
    table = [*zip(run.labels, counts.tolist(), strict=True), ("all", counts.sum(axis=0).tolist())]
    rows = []
    for label, (texts, answered, predicted, correct) in table:
        row = [label, f"{answered} of {texts}", f"{correct} of {predicted}", "-", "-"]
        if predicted:
            interval = binomtest(correct, predicted).proportion_ci(0.95, "exact")
            row[3:] = [f"{correct / predicted:.3f}", f"{interval.low:.3f} to {interval.high:.3f}"]
        rows.append(row)
    headings = ["answered", "right", "precision", "95 % interval"]
    console.print(plain_table(["class"], headings, rows))
    content: dict[str, Any] = {"all": table[-1][1], "classes": dict(table[:-1])}
    costs = np.array(rule.costs or np.empty((0, 0)))
    counts_in = has_answer | (costs.shape[1] > len(run.labels))  # abstaining may have no cost
    if len(costs) and counts_in.any():
        own = costs[given, np.where(has_answer, chosen, -1)][counts_in]
        saved = costs[given, shares.argmax(axis=1)][counts_in] - own
        margin = 1.96 * saved.std() / len(saved) ** 0.5
        content["cost"] = {"mean": float(own.mean()), "saved": float(saved.mean())}
        line = f"mean cost {own.mean():.4f} a text, {saved.mean():.4f} ± {margin:.4f} less than"
        show_line(console, f"{line} if every text got its likeliest class")
    return content
