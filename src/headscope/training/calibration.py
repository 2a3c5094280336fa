"""Temperature scaling: one number, by which all logits are divided, makes a model as sure as it is right.

    p = softmax(z / T)

Guo, Pleiss, Sun and Weinberger 2017, On Calibration of Modern Neural Networks, section 4.2. Dividing by T > 0 keeps the
order of a text's logits, so no label changes.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headscope.training.kept import CALIBRATION, save_json
from headscope.training.scoring import Scores, scores

LARGEST = 20.0  # T lies between 1/20 and 20: what is further off is no temperature but a broken model
CHANGED = ("calibration_error", "loss")  # the scores that a temperature changes


@dataclass(frozen=True)
class Calibration:
    """A temperature, and what it does to splits.

    Attributes:
        temperature: T.
        splits: name of a split -> its scores without the temperature, and with it.
    """

    temperature: float
    splits: dict[str, tuple[Scores, Scores]]

    def with_split(self, name: str, logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> "Calibration":
        """Return the same with one more split."""
        pair = scores(logits, labels), scores(logits.double() / self.temperature, labels)
        return Calibration(self.temperature, {**self.splits, name: pair})

    def content(self) -> dict[str, Any]:
        """Return the temperature, and for each split every changed score before and after, as JSON has it."""
        changes = {
            split: {name: {"before": getattr(before, name), "after": getattr(after, name)} for name in CHANGED}
            for split, (before, after) in self.splits.items()
        }
        return {"temperature": self.temperature, **changes}

    def row(self, split: str) -> dict[str, Scores]:
        """Return a split's scores with the temperature, under the name that a table of scores gives them."""
        return {f"at temperature {self.temperature:.3f}": self.splits[split][1]}


def calibrate(folder: Path, logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Calibration:
    """Fit the temperature on the validation split's logits, and keep it in the run folder as calibration.json."""
    found = Calibration(fitted_temperature(logits, labels), {}).with_split("validation", logits, labels)
    save_json(folder / CALIBRATION, found.content())
    return found


def fitted_temperature(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Return the T in [1/20, 20] of the least mean cross-entropy, found by L-BFGS on log T in float64.

    It is 1 where no other T has less, and where every text is right: then the loss falls for ever as T goes to 0, and
    the texts do not say how sure the model may be.

    Args:
        logits: of texts that the weights were not trained on.
        labels: their classes.
    """
    logits = logits.double()
    if bool((logits.argmax(dim=-1) == labels).all()):
        return 1.0
    # log T = log(20) tanh(u): smooth, and wherever the search goes, T stays within its bounds. u = 0 is T = 1.
    u = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [u], max_iter=100, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = F.cross_entropy(logits / _temperature(u), labels)
        found.backward()
        return found

    optimizer.step(loss)
    temperature = float(_temperature(u.detach()))
    helps = F.cross_entropy(logits / temperature, labels) < F.cross_entropy(logits, labels)
    return temperature if bool(helps) else 1.0


def _temperature(u: Float[Tensor, ""]) -> Float[Tensor, ""]:
    return (math.log(LARGEST) * u.tanh()).exp()
