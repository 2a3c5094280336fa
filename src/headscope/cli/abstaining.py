"""What abstaining does to each class, as `evaluate` prints it. N texts, C classes."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from rich.console import Console
from scipy.stats import binomtest
from torch import Tensor

from headscope.ground.terminal import plain_table
from headscope.runs.answering import why_abstained
from headscope.runs.run import Run

HEADINGS = ["its texts answered", "its answers right", "precision", "95 % interval"]


def show_abstaining(
    console: Console,
    run: Run,
    least: float,
    logits: Float[Tensor, "N C"],
    labels: Int[Tensor, " N"],
    is_odd: Bool[np.ndarray, " N"],
) -> dict[str, Any]:
    """Print coverage and precision of each class and all; return the counts as JSON.

    Of each class: its texts, those answered, its predictions, the right ones.
    """
    shares = run.reading.probabilities(logits.double()).numpy()
    given = labels.numpy()
    chosen = shares.argmax(axis=1)
    has_answer = np.array(why_abstained(shares.max(axis=1), is_odd, least)) == ""
    right = has_answer & (chosen == given)
    counted = (given, given[has_answer], chosen[has_answer], given[right])
    columns = [np.bincount(each, minlength=len(run.labels)) for each in counted]
    counts = np.stack(columns, axis=1)  # [C, 4]
    classes = dict(zip(run.labels, counts.tolist(), strict=True))
    every: list[int] = counts.sum(axis=0).tolist()
    rows = [_cells(label, *numbers) for label, numbers in [*classes.items(), ("all", every)]]
    console.print(plain_table(["class"], HEADINGS, rows))
    return {"all": every, "classes": classes}


def _cells(label: str, texts: int, answered: int, predicted: int, correct: int) -> list[str]:
    """Return a row of the table: the interval is that of Clopper and Pearson (1934)."""
    row = [label, f"{answered} of {texts}", f"{correct} of {predicted}"]
    if predicted == 0:
        return [*row, "-", "-"]
    interval = binomtest(correct, predicted).proportion_ci(0.95, "exact")
    precision = f"{correct / predicted:.3f}"
    return [*row, precision, f"{interval.low:.3f} to {interval.high:.3f}"]
