"""The scores of a split, the thresholds of classes, and the temperature of probabilities. C classes, N texts."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import (
    binary_calibration_error,
    binary_precision_recall_curve,
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multiclass_f1_score,
    multilabel_confusion_matrix,
    multilabel_exact_match,
    multilabel_f1_score,
)
from torchmetrics.utilities import dim_zero_cat

from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.run import CALIBRATION, save_json

Tables = dict[str, tuple[list[str], list[list[int]]]]
# How the scores are called where people read them.
SCORES = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",  # of texts with any number of labels; of one label a text it is the accuracy
    "macro_f1": "macro-F1",
    "loss": "loss",
    "calibration_error": "calibration error",
}
CHANGED = ("calibration_error", "loss")  # the scores that a temperature changes
MOST_IN_TABLE = (
    1000  # classes: the table of all pairs of 10,000 has 100 million numbers, nearly all of them 0
)
LARGEST = 20.0  # T lies between 1/20 and 20: beyond that the model is broken


@dataclass(frozen=True)
class Scores:
    """How well a split was classified.

    Macro-F1 is over the classes that a text has or is given. The expected calibration error is the mean gap between
    confidence and accuracy in 15 bins of confidence, weighted by their texts (Guo et al. 2017, On Calibration of Modern
    Neural Networks).
    """

    accuracy: float
    macro_f1: float
    loss: float  # mean cross-entropy in nats
    calibration_error: float
    confusion: list[
        Any
    ]  # counts, [label, prediction]; of more than 1,000 classes [label, prediction, count] above 0

    def tables(self, labels: list[str]) -> Tables:
        """Return every table of counts [label, prediction] by its name, with the names along its sides."""
        return {"confusion": (labels, self.confusion)} if len(labels) <= MOST_IN_TABLE else {}

    def content(self, labels: list[str]) -> dict[str, Any]:
        """Return what is kept as JSON: every score, and by class precision, recall, F1 and the texts that have it.

        What cannot be divided is 0, as in scikit-learn: the precision of a class that no text is given, for one.
        """
        classes = {
            label: {
                "precision": tp / max(1, tp + fp),
                "recall": tp / max(1, tp + fn),
                "f1": 2 * tp / max(1, 2 * tp + fp + fn),
                "texts": tp + fn,
            }
            for label, (tp, fp, fn) in zip(labels, self._counts(len(labels)), strict=True)
        }
        return {**asdict(self), "classes": classes}

    def _counts(self, num_classes: int) -> list[tuple[int, int, int]]:
        """Return of each class how many texts are given it rightly, given it wrongly, and not given it wrongly."""
        pairs: Iterable[Any] = self.confusion
        if num_classes <= MOST_IN_TABLE:
            pairs = (
                (label, given, n)
                for label, row in enumerate(self.confusion)
                for given, n in enumerate(row)
            )
        right, wrong, missed = ([0] * num_classes for _ in range(3))
        for label, given, count in pairs:
            if label == given:
                right[label] = count
            else:
                wrong[given] += count
                missed[label] += count
        return list(zip(right, wrong, missed, strict=True))


@dataclass(frozen=True)
class MultiLabelScores(Scores):
    """The same where a text has any number of labels, each class at its own threshold.

    Accuracy is the share of texts given all of their labels and no other (exact match, or subset accuracy); the loss is
    the mean binary cross-entropy over texts and classes, the calibration error is over all pairs of a text and a class,
    and the confusion is [[TN, FP], [FN, TP]] of each class.
    """

    micro_f1: float  # over all pairs of a text and a class

    def tables(self, labels: list[str]) -> Tables:
        """Return the table of two rows and two columns of each class."""
        pairs = zip(labels, self.confusion, strict=True)
        return {f"confusion/{label}": ([f"not {label}", label], counts) for label, counts in pairs}

    def _counts(self, num_classes: int) -> list[tuple[int, int, int]]:
        return [(tp, fp, fn) for (_, fp), (fn, tp) in self.confusion]


def scores(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, "N *C"], objective: Objective = ONE_CLASS
) -> Scores:
    """Compute the scores of logits (or of log-probabilities), by what the objective says that labels are."""
    # In float64, and rounded below what it can mean: sums of floats end differently in their last digits.
    probabilities = objective.probabilities(logits.double())
    loss = round(objective.loss(logits.double(), labels).item(), 6)
    if isinstance(objective, MultiLabel):
        return _of_any_classes(probabilities, labels.long(), objective.predicted(probabilities), loss)
    C = logits.shape[1]
    if C <= MOST_IN_TABLE:
        confusion = multiclass_confusion_matrix(probabilities, labels, C).tolist()
    else:
        pairs, counts = torch.stack([labels, probabilities.argmax(dim=1)], 1).unique(
            dim=0, return_counts=True
        )
        confusion = torch.cat([pairs, counts[:, None]], 1).tolist()
    return Scores(
        accuracy=multiclass_accuracy(probabilities, labels, C, average="micro").item(),
        macro_f1=multiclass_f1_score(probabilities, labels, C, average="macro").item(),
        loss=loss,
        calibration_error=round(
            multiclass_calibration_error(probabilities, labels, C, n_bins=15).item(), 6
        ),
        confusion=confusion,
    )


def _of_any_classes(
    probabilities: Float[Tensor, "N C"],
    labels: Int[Tensor, "N C"],
    given: Bool[Tensor, "N C"],
    loss: float,
) -> MultiLabelScores:
    C, answers = labels.shape[1], given.long()
    by_class = multilabel_f1_score(answers, labels, C, average="none")
    # torchmetrics counts a class that no text has or is given as 0; of one class a text, it leaves such out, as we do.
    is_there = labels.bool().any(dim=0) | given.any(dim=0)
    return MultiLabelScores(
        accuracy=multilabel_exact_match(answers, labels, C).item(),
        macro_f1=(by_class * is_there).sum().item() / max(1, int(is_there.sum())),
        loss=loss,
        calibration_error=round(
            binary_calibration_error(probabilities.flatten(), labels.flatten(), 15).item(), 6
        ),
        confusion=multilabel_confusion_matrix(answers, labels, C).tolist(),
        micro_f1=multilabel_f1_score(answers, labels, C, average="micro").item(),
    )


def best_thresholds(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, "N C"]
) -> Float[Tensor, " C"]:
    """Return for each class the probability with the highest F1 on these texts; 0.5 for a class that none of them has.

    Each class by itself, which is best for macro-F1 (Lipton, Elkan and Naryanaswamy 2014, Optimal Thresholding of
    Classifiers to Maximize F1 Measure, section 2). The threshold lies half way between the least probability that is
    still given the class and the next lower one, so that the last digit of a probability decides nothing.
    """
    probabilities = MultiLabel().probabilities(logits.double())
    found = torch.full((labels.shape[1],), 0.5, dtype=torch.float64)
    for number in labels.any(dim=0).nonzero()[:, 0].tolist():
        column = probabilities[:, number]
        precision, recall, candidates = binary_precision_recall_curve(
            column, labels[:, number].long()
        )
        f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
        least = candidates[f1[:-1].argmax()]  # the last of the curve's points has no threshold
        lower = column[column < least]
        found[number] = (least + (lower.max() if len(lower) else 0.0)) / 2
    return found


class AtBestThresholds(Metric):
    """Exact match and macro-F1 of a split at the thresholds that are best for it, as they are chosen in the end.

    At 0.5 a rare class might never be found though the model tells its texts from all others.
    """

    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("logits", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, "B C"]) -> None:
        """Keep a batch."""
        self.logits.append(logits.float())
        self.labels.append(labels)

    def compute(self) -> dict[str, Tensor]:
        """Return accuracy (exact match) and macro_f1 of all that was kept."""
        logits, labels = dim_zero_cat(self.logits).cpu(), dim_zero_cat(self.labels).cpu()
        found = scores(logits, labels, MultiLabel(best_thresholds(logits, labels)))
        return {"accuracy": torch.tensor(found.accuracy), "macro_f1": torch.tensor(found.macro_f1)}


@dataclass(frozen=True)
class Calibration:
    """A temperature T, and for each split by name its scores without the temperature and with it."""

    temperature: float
    splits: dict[str, tuple[Scores, Scores]]

    def with_split(
        self, name: str, logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]
    ) -> "Calibration":
        """Return the same with one more split."""
        pair = scores(logits, labels), scores(logits.double() / self.temperature, labels)
        return Calibration(self.temperature, {**self.splits, name: pair})

    def content(self) -> dict[str, Any]:
        """Return what calibration.json holds: T, and for each split every changed score before and after."""
        changes = {
            split: {
                name: {"before": getattr(before, name), "after": getattr(after, name)}
                for name in CHANGED
            }
            for split, (before, after) in self.splits.items()
        }
        return {"temperature": self.temperature, **changes}

    def row(self, split: str) -> dict[str, Scores]:
        """Return a split's scores with the temperature, under the name that a table of scores gives them."""
        return {f"at temperature {self.temperature:.3f}": self.splits[split][1]}


def calibrate(folder: Path, logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Calibration:
    """Fit the temperature on the validation split's logits, and keep it in the run folder as calibration.json."""
    found = Calibration(fitted_temperature(logits, labels), {}).with_split(
        "validation", logits, labels
    )
    save_json(folder / CALIBRATION, found.content())
    return found


def fitted_temperature(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Return the T in [1/20, 20] that makes p = softmax(z / T) best, by L-BFGS on log T in float64.

    Best is the least mean cross-entropy, on texts that the weights were not trained on (Guo, Pleiss, Sun and Weinberger
    2017, On Calibration of Modern Neural Networks, section 4.2). T > 0 keeps the order of a text's logits, so no label
    changes. T is 1 where no other is better, and where every text is right: then the loss falls for ever as T goes to
    0, and the texts do not say how sure the model may be.
    """
    logits = logits.double()
    if bool((logits.argmax(dim=-1) == labels).all()):
        return 1.0
    # log T = log(20) tanh(u): smooth, and wherever the search goes, T stays within its bounds. u = 0 is T = 1.
    u = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [u],
        max_iter=100,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def temperature_of(u: Tensor) -> Tensor:
        return (math.log(LARGEST) * u.tanh()).exp()

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = F.cross_entropy(logits / temperature_of(u), labels)
        found.backward()
        return found

    optimizer.step(loss)
    temperature = float(temperature_of(u.detach()))
    helps = F.cross_entropy(logits / temperature, labels) < F.cross_entropy(logits, labels)
    return temperature if bool(helps) else 1.0
