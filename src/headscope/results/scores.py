"""The scores of a split, thresholds of classes, and the temperature of probabilities.

Shape letters: N texts, C classes, a star for any number of axes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize_scalar
from sklearn.metrics import (
    confusion_matrix,
    f1_score,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
)
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import (
    binary_calibration_error,
    binary_precision_recall_curve,
)
from torchmetrics.utilities import dim_zero_cat

from headscope.model.objective import ONE_CLASS, MultiLabel, Objective

Tables = dict[str, tuple[list[str], list[list[int]]]]
SCORES = {  # as people read them
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",  # with multi_label alone: of single labels it is the accuracy
    "macro_f1": "macro-F1",
    "loss": "loss",
    "calibration_error": "calibration error",
}
MOST_IN_TABLE = 1000  # classes: a table of 10,000 has 100 million counts, nearly all of them 0
TEMPERED = "tempered_loss"  # of validation: by it weights are chosen
LARGEST = 20.0  # T lies between 1/20 and 20: beyond that the model is broken


@dataclass(frozen=True)
class Scores:
    """The scores of a split.

    With multi_label accuracy is exact match, the share of texts whose labels are all predicted, and
    no other. The calibration error is the mean gap between confidence and accuracy in 15 bins of
    confidence, weighted by their texts (Guo et al. 2017, On Calibration of Modern Neural Networks);
    with multi_label over all pairs of a text and a class, as micro-F1 is.
    """

    accuracy: float
    macro_f1: float  # mean F1 of the classes that some text has or is predicted to have
    loss: float  # mean cross-entropy in nats; with multi_label binary, over texts and classes
    calibration_error: float
    # Counts [label, prediction], none of more than 1,000 classes; with multi_label [[TN, FP],
    # [FN, TP]] of each class.
    confusion: list[Any]
    by_class: list[list[Any]] = field(default_factory=list)  # precision, recall, F1, texts: [4, C]
    micro_f1: float | None = None  # None of single labels, where it is the accuracy

    def values(self) -> dict[str, float]:
        """Return the single numbers, in the order of `SCORES`."""
        values = {name: getattr(self, name) for name in SCORES}
        return {name: value for name, value in values.items() if value is not None}

    def tables(self, labels: list[str]) -> Tables:
        """Return tables of counts by their name, with the names along their sides."""
        if self.micro_f1 is not None:
            pairs = zip(labels, self.confusion, strict=True)
            return {
                f"confusion/{label}": ([f"not {label}", label], counts) for label, counts in pairs
            }
        return {"confusion": (labels, self.confusion)} if len(labels) <= MOST_IN_TABLE else {}

    def content(self, labels: list[str]) -> dict[str, Any]:
        """Return the scores as JSON, with those of each class by its name."""
        rows = zip(labels, *self.by_class, strict=True)
        classes = {
            label: {"precision": precision, "recall": recall, "f1": f1, "texts": count}
            for label, precision, recall, f1, count in rows
        }
        return {**self.values(), "confusion": self.confusion, "classes": classes}


def predicted_classes(objective: Objective, logits: Float[Tensor, "N C"]) -> Bool[Tensor, "N C"]:
    """Return which classes are predicted: of the probabilities in float64."""
    return objective.predicted(objective.probabilities(logits.double()))


def scores(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, "N *C"], objective: Objective = ONE_CLASS
) -> Scores:
    """Compute the scores of logits (or log-probabilities), in float64.

    Loss and calibration error are rounded: sums of floats differ in their last digits.
    """
    logits = logits.double()
    probabilities = objective.probabilities(logits)
    C = logits.shape[1]
    has = objective.has(labels, C).numpy()  # [N, C]
    given = objective.predicted(probabilities).numpy()  # [N, C]
    by_class = precision_recall_fscore_support(has, given, zero_division=0)  # [4, C]
    is_known = (has | given).any(axis=0)
    micro_f1 = None
    confusion = []
    if isinstance(objective, MultiLabel):
        confidence = probabilities.flatten()
        is_right = torch.from_numpy(has).flatten()
        confusion = multilabel_confusion_matrix(has, given).tolist()
        micro_f1 = float(f1_score(has, given, average="micro", zero_division=0))
    else:
        confidence, prediction = probabilities.max(dim=1)
        is_right = prediction == labels
        if C <= MOST_IN_TABLE:
            confusion = confusion_matrix(labels, prediction, labels=range(C)).tolist()
    gap = binary_calibration_error(confidence, is_right.long(), n_bins=15)
    return Scores(
        accuracy=float((has == given).all(axis=1).mean()),
        macro_f1=float(by_class[2].sum() / max(1, is_known.sum())),
        loss=round(objective.loss(logits, labels).item(), 6),
        calibration_error=round(gap.item(), 6),
        confusion=confusion,
        by_class=[column.tolist() for column in by_class],
        micro_f1=micro_f1,
    )


def best_thresholds(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, "N C"]
) -> Float[Tensor, " C"]:
    """Return for each class the threshold of highest F1; 0.5 for a class that no text has.

    Each class by itself, which is best for macro-F1 (Lipton, Elkan and Naryanaswamy 2014, Optimal
    Thresholding of Classifiers to Maximize F1 Measure, section 2). A threshold lies half way
    between two probabilities, so that the last digit of a probability decides nothing.
    """
    probabilities = MultiLabel().probabilities(logits.double())
    thresholds = torch.full((labels.shape[1],), 0.5, dtype=torch.float64)
    for number in labels.any(dim=0).nonzero()[:, 0].tolist():
        column = probabilities[:, number]
        curve = binary_precision_recall_curve(column, labels[:, number].long())
        precision, recall, candidates = curve
        f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
        least = candidates[f1[:-1].argmax()]  # the last of the curve's points has no threshold
        lower = column[column < least]
        thresholds[number] = (least + (lower.max() if len(lower) else 0.0)) / 2
    return thresholds


class ValidationScores(Metric):
    """Accuracy, macro-F1 and tempered loss of a split, from all logits of all processes.

    Weights are chosen by the tempered loss, at the temperature that is best for the split: an
    overconfident epoch may still tell the classes apart best. With multi_label the loss is as it
    is, and scores are those at the best thresholds: at 0.5 a rare class might never be predicted.
    """

    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
        for name in ("logits", "labels"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, "B ..."]) -> None:
        """Add a batch."""
        self.logits.append(logits.float())
        self.labels.append(labels)

    def compute(self) -> dict[str, Tensor]:
        """Return validation/accuracy (exact match), macro_f1 and tempered_loss."""
        logits = dim_zero_cat(self.logits).cpu()
        labels = dim_zero_cat(self.labels).cpu()
        objective = self.objective
        if isinstance(objective, MultiLabel):
            objective = MultiLabel(best_thresholds(logits, labels))
            loss = objective.loss(logits, labels)
        else:
            loss = F.cross_entropy(logits.double() / fitted_temperature(logits, labels), labels)
        result = scores(logits, labels, objective)
        values = {"accuracy": result.accuracy, "macro_f1": result.macro_f1, TEMPERED: loss.item()}
        return {f"validation/{name}": torch.tensor(value) for name, value in values.items()}


def calibration(temperature: float, splits: Mapping[str, tuple[Scores, Scores]]) -> dict[str, Any]:
    """Return a temperature, and what it changes of the scores of each split, as JSON."""
    return {"temperature": temperature} | {
        split: {
            name: {"before": getattr(before, name), "after": getattr(after, name)}
            for name in ("calibration_error", "loss")
        }
        for split, (before, after) in splits.items()
    }


def chosen_temperature(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Return the fitted temperature if one helps texts that did not choose it, else 1.

    Two-fold cross-fitting: the texts are halved at random, with a fixed seed, and the temperature
    fitted to each half is judged on the other. If the cross-entropy of all texts, each at the
    temperature of the half that it is not in, is lower than at 1, the fit to all is kept.
    """
    logits = logits.double()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    halves = order.tensor_split(2)
    held_out = torch.empty_like(logits)
    for chosen, judged in (halves, halves[::-1]):
        temperature = fitted_temperature(logits[chosen], labels[chosen])
        held_out[judged] = logits[judged] / temperature
    helps = F.cross_entropy(held_out, labels) < F.cross_entropy(logits, labels)
    return fitted_temperature(logits, labels) if bool(helps) else 1.0


def fitted_temperature(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Return the T in [1/20, 20] of least mean cross-entropy of softmax(z / T).

    The texts must not be those of training (Guo, Pleiss, Sun and Weinberger 2017, On Calibration
    of Modern Neural Networks, section 4.2). T > 0 keeps the order of a text's logits, so no
    prediction changes. T is 1 where no other is better, and where every text is right: then the
    loss falls for ever as T goes to 0.
    """
    logits = logits.double()
    if bool((logits.argmax(dim=-1) == labels).all()):
        return 1.0

    def loss(log_temperature: float) -> float:
        return F.cross_entropy(logits / math.exp(log_temperature), labels).item()

    limit = math.log(LARGEST)
    # The loss is convex in 1 / T, so it has one minimum in log T.
    minimum = minimize_scalar(loss, bounds=(-limit, limit), options={"xatol": 1e-9})
    return math.exp(minimum.x) if minimum.fun < loss(0.0) else 1.0
