"""The scores of a split, thresholds of classes, and the temperature of probabilities.

Shape letters: N texts, C classes, a star for any number of axes.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from sklearn.metrics import precision_recall_fscore_support
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

Tables = dict[str, tuple[list[str], list[list[int]]]]
SCORES = {  # as people read them
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",  # with multi_label alone: of single labels it is the accuracy
    "macro_f1": "macro-F1",
    "loss": "loss",
    "calibration_error": "calibration error",
}
CHANGED = ("calibration_error", "loss")  # the scores that a temperature changes
MOST_IN_TABLE = 1000  # classes: a table of 10,000 has 100 million counts, nearly all of them 0
LARGEST = 20.0  # T lies between 1/20 and 20: beyond that the model is broken


@dataclass(frozen=True)
class Scores:
    """The scores of a split.

    Attributes:
        accuracy: share of texts whose prediction is their label.
        macro_f1: mean F1 of the classes that some text has or is predicted to have.
        loss: mean cross-entropy in nats.
        calibration_error: expected calibration error, the mean gap between confidence and accuracy
            in 15 bins of confidence, weighted by their texts (Guo et al. 2017, On Calibration of
            Modern Neural Networks).
        confusion: counts [label, prediction]; of more than 1,000 classes a list of
            [label, prediction, count].
        by_class: precision, recall, F1 and number of texts, [4, C]; 0 where undefined.
    """

    accuracy: float
    macro_f1: float
    loss: float
    calibration_error: float
    confusion: list[Any]
    by_class: list[list[Any]] = field(default_factory=list, kw_only=True)

    def tables(self, labels: list[str]) -> Tables:
        """Return the table of counts by its name, with the names along its sides."""
        return {"confusion": (labels, self.confusion)} if len(labels) <= MOST_IN_TABLE else {}

    def content(self, labels: list[str]) -> dict[str, Any]:
        """Return the scores as JSON, with those of each class by its name."""
        content = asdict(self)
        rows = zip(labels, *content.pop("by_class"), strict=True)
        content["classes"] = {
            label: {"precision": precision, "recall": recall, "f1": f1, "texts": count}
            for label, precision, recall, f1, count in rows
        }
        return content


@dataclass(frozen=True)
class MultiLabelScores(Scores):
    """The scores of a split whose texts have any number of labels, each with its threshold.

    Accuracy is exact match: the share of texts whose labels are all predicted, and no other. The
    loss is the mean binary cross-entropy over texts and classes, the calibration error is over all
    pairs of a text and a class, as is micro-F1, and the confusion is [[TN, FP], [FN, TP]] of each
    class.
    """

    micro_f1: float

    def tables(self, labels: list[str]) -> Tables:
        """Return the table of each class."""
        pairs = zip(labels, self.confusion, strict=True)
        return {f"confusion/{label}": ([f"not {label}", label], counts) for label, counts in pairs}


def scores(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, "N *C"], objective: Objective = ONE_CLASS
) -> Scores:
    """Compute the scores of logits (or log-probabilities), in float64.

    Loss and calibration error are rounded: sums of floats differ in their last digits.
    """
    C = logits.shape[1]
    probabilities = objective.probabilities(logits.double())
    loss = round(objective.loss(logits.double(), labels).item(), 6)
    if isinstance(objective, MultiLabel):
        labels = labels.long()
        predictions = objective.predicted(probabilities).long()
        by_class = multilabel_f1_score(predictions, labels, C, average="none")
        # torchmetrics counts a class that no text has or is predicted to have as 0.
        occurs = (labels | predictions).bool().any(dim=0)
        gap = binary_calibration_error(probabilities.flatten(), labels.flatten(), 15)
        return MultiLabelScores(
            accuracy=multilabel_exact_match(predictions, labels, C).item(),
            macro_f1=(by_class * occurs).sum().item() / max(1, int(occurs.sum())),
            loss=loss,
            calibration_error=round(gap.item(), 6),
            confusion=multilabel_confusion_matrix(predictions, labels, C).tolist(),
            micro_f1=multilabel_f1_score(predictions, labels, C, average="micro").item(),
            by_class=_by_class(labels, predictions, C),
        )
    predictions = probabilities.argmax(dim=1)
    if C <= MOST_IN_TABLE:
        confusion = multiclass_confusion_matrix(probabilities, labels, C)
    else:
        pairs = torch.stack([labels, predictions], 1)
        pairs, counts = pairs.unique(dim=0, return_counts=True)
        confusion = torch.cat([pairs, counts[:, None]], 1)
    gap = multiclass_calibration_error(probabilities, labels, C, n_bins=15)
    return Scores(
        accuracy=multiclass_accuracy(probabilities, labels, C, average="micro").item(),
        macro_f1=multiclass_f1_score(probabilities, labels, C, average="macro").item(),
        loss=loss,
        calibration_error=round(gap.item(), 6),
        confusion=confusion.tolist(),
        by_class=_by_class(labels, predictions, C),
    )


def _by_class(labels: Tensor, predictions: Tensor, num_classes: int) -> list[list[Any]]:
    classes = range(num_classes)
    columns = precision_recall_fscore_support(labels, predictions, labels=classes, zero_division=0)
    return [column.tolist() for column in columns]


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


class AtBestThresholds(Metric):
    """Exact match and macro-F1 of a split at its best thresholds, as they are chosen in the end.

    At 0.5 a rare class might never be predicted though the model tells its texts from all others.
    """

    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("logits", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, "B C"]) -> None:
        """Add a batch."""
        self.logits.append(logits.float())
        self.labels.append(labels)

    def compute(self) -> dict[str, Tensor]:
        """Return accuracy (exact match) and macro_f1 of all batches."""
        logits = dim_zero_cat(self.logits).cpu()
        labels = dim_zero_cat(self.labels).cpu()
        result = scores(logits, labels, MultiLabel(best_thresholds(logits, labels)))
        return {name: torch.tensor(getattr(result, name)) for name in ("accuracy", "macro_f1")}


@dataclass(frozen=True)
class Calibration:
    """A temperature T, and the scores of each split without and with it."""

    temperature: float
    splits: dict[str, tuple[Scores, Scores]]

    def with_split(
        self, name: str, logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]
    ) -> "Calibration":
        """Return the same with one more split."""
        pair = scores(logits, labels), scores(logits.double() / self.temperature, labels)
        return Calibration(self.temperature, {**self.splits, name: pair})

    def content(self) -> dict[str, Any]:
        """Return T, and of each split what it changes, for metrics.json."""
        content: dict[str, Any] = {"temperature": self.temperature}
        for split, (before, after) in self.splits.items():
            content[split] = {
                name: {"before": getattr(before, name), "after": getattr(after, name)}
                for name in CHANGED
            }
        return content

    def row(self, split: str) -> dict[str, Scores]:
        """Return a split's scores with the temperature, by their name in a table of scores."""
        return {f"at temperature {self.temperature:.3f}": self.splits[split][1]}


def calibrate(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Calibration:
    """Choose the temperature on the validation split."""
    calibration = Calibration(chosen_temperature(logits, labels), {})
    return calibration.with_split("validation", logits, labels)


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
        held_out[judged] = logits[judged] / fitted_temperature(logits[chosen], labels[chosen])
    helps = F.cross_entropy(held_out, labels) < F.cross_entropy(logits, labels)
    return fitted_temperature(logits, labels) if bool(helps) else 1.0


def fitted_temperature(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Return the T in [1/20, 20] of least mean cross-entropy of softmax(z / T), by L-BFGS on log T.

    The texts must not be those of training (Guo, Pleiss, Sun and Weinberger 2017, On Calibration
    of Modern Neural Networks, section 4.2). T > 0 keeps the order of a text's logits, so no
    prediction changes. T is 1 where no other is better, and where every text is right: then the
    loss falls for ever as T goes to 0.
    """
    logits = logits.double()
    if bool((logits.argmax(dim=-1) == labels).all()):
        return 1.0
    # log T = log(20) tanh(u): smooth, and T stays within its bounds. u = 0 is T = 1.
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

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits / temperature_of(u), labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    temperature = float(temperature_of(u.detach()))
    is_better = F.cross_entropy(logits / temperature, labels) < F.cross_entropy(logits, labels)
    return temperature if bool(is_better) else 1.0
