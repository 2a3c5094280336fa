"""By which rule a run abstains: chosen on its validation texts, and what it does to each class.

Shape letters: N texts, C classes.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from rich.console import Console
from torch import Tensor

from headscope.data.rows import no_column, read_rows
from headscope.ground.errors import ConfigError, DataError, listed, warn
from headscope.ground.terminal import plain_table, show_line
from headscope.model.objective import MultiLabel
from headscope.runs.abstaining import accuracy_curve, chosen_confidence, last_reached
from headscope.runs.answering import AnswerRule
from headscope.runs.folder import load_validation
from headscope.runs.run import Run
from headscope.settings.commands import Abstains

NEVER = 2.0  # no probability reaches it
MOST_SHOWN = 50  # classes in a table
Shares = Float[np.ndarray, "N C"]
Numbers = Int[np.ndarray, " N"]  # of a class for each text


class Labelled(NamedTuple):
    """Texts with one class each: what a run gives them, and what is given."""

    shares: Shares
    given: Numbers


def labelled_of(run: Run, logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Labelled:
    """Return a run's probabilities, by its temperature, beside the labels."""
    return Labelled(run.reading.probabilities(logits.double()).numpy(), labels.numpy())


def rule_of(config: Abstains, run: Run, console: Console) -> AnswerRule | None:
    """Return the rule of the one key that is given, None without one; print what it does.

    Raises:
        ConfigError: for a run with several labels a text, or a target that is out of reach.
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
    texts = labelled_of(run, *load_validation(run.folder))
    if config.costs is not None:
        rule = least_costly(texts, read_costs(config.costs, run.labels))
    elif config.target_accuracy is not None:
        curve = accuracy_curve(texts.shares.max(axis=1), texts.shares.argmax(axis=1) == texts.given)
        rule = AnswerRule([chosen_confidence(curve, config.target_accuracy)] * C)
    else:
        rule = precise(texts, config.target_precision, run.labels)
    show_line(console, f"{key}, on the {len(texts.given)} validation texts that chose the rule:")
    show_rule(console, run, rule, texts, np.zeros(len(texts.given), dtype=bool))
    return rule


def precise(texts: Labelled, targets: Any, labels: list[str]) -> AnswerRule:
    """Return the least confidence of each class from which its predictions reach its target.

    A class that does not reach it at any confidence is never answered, and a warning names it.
    """
    if isinstance(targets, dict):
        if unknown := targets.keys() - {*labels}:
            wrong = f"expected classes of {listed(labels)}, got {listed(sorted(unknown))}"
            raise ConfigError(f"target_precision: {wrong}")
    else:
        targets = dict.fromkeys(labels, targets)
    chosen = texts.shares.argmax(axis=1)
    least = dict.fromkeys(labels, 0.0)
    for label, target in targets.items():
        number = labels.index(label)
        own = chosen == number
        point = None
        if own.any():
            curve = accuracy_curve(texts.shares[own, number], texts.given[own] == number)
            point = last_reached(curve, target)
        least[label] = NEVER if point is None else point[0]
    if never := [label for label, share in least.items() if share == NEVER]:
        warn(f"target_precision: no threshold reaches it, so never answered: {listed(never)}")
    return AnswerRule([*least.values()])


def least_costly(texts: Labelled, costs: Float[np.ndarray, "C C_and_1"]) -> AnswerRule:
    """Return the rule by expected costs, which abstains from where that costs least on validation.

    By theory from where abstaining is expected to cost less (Chow 1970, On Optimum Recognition
    Error and Reject Tradeoff); where probabilities are off, another excess is cheaper.
    """
    C = len(costs)
    least = [0.0] * C
    if np.isnan(costs[:, -1]).all():
        return AnswerRule(least, np.nan_to_num(costs).tolist())
    chosen, excess = AnswerRule(least, costs.tolist()).choose(texts.shares)
    order = np.argsort(excess, kind="stable")
    saved = (costs[texts.given, C] - costs[texts.given, chosen])[order]  # by each answer
    count = int(np.append(0, np.cumsum(saved)).argmax())  # of answers, those surest to be cheap
    ranked = excess[order]
    edges = [ranked[0] - 1.0, *(ranked[1:] + ranked[:-1]) / 2, max(ranked[-1], 0.0)]
    return AnswerRule(least, costs.tolist(), float(edges[count]))


def read_costs(path: str, labels: list[str]) -> Float[np.ndarray, "C C_and_1"]:
    """Read what each answer costs; the last column is of abstaining, NaN if no row has that.

    A row whose `given` is empty is of every class. Right answers cost 0, others 1, unless a row
    has them.

    Raises:
        DataError: for a class that the run does not know, or what is no number.
    """
    C = len(labels)
    costs = np.column_stack([1.0 - np.eye(C), np.full(C, np.nan)])
    for number, row in enumerate(read_rows(path, keys="")):
        where = f"costs={path}, row {number}"
        for column in ("given", "predicted", "cost"):
            if column not in row:
                raise DataError(f"{where}: {no_column(column, 'costs', [*row], keys='')}")
        given = str(row["given"]).strip()
        predicted = str(row["predicted"]).strip()
        if unknown := {given, predicted} - {*labels, ""}:
            expected = f"expected a class of {listed(labels)}, or an empty cell"
            raise DataError(f"{where}: {expected}, got {listed(sorted(unknown))}")
        try:
            cost = float(row["cost"])
        except (TypeError, ValueError):
            cost = np.nan
        if not np.isfinite(cost):
            raise DataError(f"{where}: cost: expected a number, got {row['cost']!r}")
        of_given = labels.index(given) if given else slice(None)
        costs[of_given, labels.index(predicted) if predicted else C] = cost
    if np.isnan(costs[:, C]).sum() not in (0, C):
        rest = [label for label, cost in zip(labels, costs[:, C], strict=True) if np.isnan(cost)]
        raise DataError(f"costs={path}: expected what abstaining costs, too, for {listed(rest)}")
    return costs


def show_rule(
    console: Console,
    run: Run,
    rule: AnswerRule,
    texts: Labelled,
    is_unfamiliar: Bool[np.ndarray, " N"],
) -> dict[str, Any]:
    """Print coverage, precision and cost of a rule, and return them as JSON.

    Of each class and all: how many of its texts are answered, and of its predictions are right.
    """
    C = len(run.labels)
    chosen, why = rule.answer(texts.shares, is_unfamiliar)
    is_answered = np.array([not reason for reason in why], dtype=bool)
    given = texts.given[is_answered]
    answers = chosen[is_answered]
    counted = (texts.given, given, answers, given[given == answers])
    counts = np.stack([np.bincount(numbers, minlength=C) for numbers in counted])  # [4, C]
    names = ("texts", "answered", "predicted", "right")
    rows = {
        label: dict(zip(names, column, strict=True))
        for label, column in zip(run.labels, counts.T.tolist(), strict=True)
    }
    every = dict(zip(names, counts.sum(axis=1).tolist(), strict=True))
    shown = [*rows.items()][:MOST_SHOWN]
    cells = [_cells(label, **row) for label, row in [*shown, ("all", every)]]
    headings = ["answered", "right", "precision", "95 % interval"]
    console.print(plain_table(["class"], headings, cells))
    content = {"all": every, "classes": rows}
    if rule.costs is not None:
        costs = np.array(rule.costs)  # [C, C + 1]
        own = costs[texts.given, np.where(is_answered, chosen, C)]
        saved = costs[texts.given, texts.shares.argmax(axis=1)] - own
        margin = 1.96 * saved.std() / len(saved) ** 0.5
        found = {"mean": own.mean(), "saved": saved.mean(), "margin": margin}
        content["cost"] = {name: round(float(value), 6) for name, value in found.items()}
        line = f"mean cost {own.mean():.4f} a text, {saved.mean():.4f} ± {margin:.4f} less than"
        show_line(console, f"{line} with the likeliest class for every text")
    return content


def _cells(label: str, texts: int, answered: int, predicted: int, right: int) -> list[str]:
    """Return a row: coverage, and precision with its interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest  # here: its import takes 0.7 s

    row = [label, f"{answered} of {texts}", f"{right} of {predicted}"]
    if predicted == 0:
        return [*row, "-", "-"]
    interval = binomtest(right, predicted).proportion_ci(0.95, "exact")
    return [*row, f"{right / predicted:.3f}", f"{interval.low:.3f} to {interval.high:.3f}"]
