"""The scores that are reported of a split's logits."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multiclass_f1_score,
    multilabel_confusion_matrix,
    multilabel_exact_match,
    multilabel_f1_score,
)

from headscope.model.objective import ONE_CLASS, AnyClasses, Objective

Tables = dict[str, tuple[list[str], list[list[int]]]]


@dataclass(frozen=True)
class Scores:
    """How well a split was classified.

    Attributes:
        accuracy: share of texts given their own label.
        macro_f1: F1 of each class, averaged over the classes that a text has or is given.
        loss: mean cross-entropy in nats.
        calibration_error: expected calibration error, the mean gap between confidence and accuracy in 15 bins of
            confidence, weighted by their texts (Guo et al. 2017, On Calibration of Modern Neural Networks).
        confusion: [label, prediction], counts.
    """

    accuracy: float
    macro_f1: float
    loss: float
    calibration_error: float
    confusion: list[Any]

    def tables(self, labels: list[str]) -> Tables:
        """Return every table of counts [label, prediction] by its name, with the names along its sides."""
        return {"confusion": (labels, self.confusion)}


@dataclass(frozen=True)
class MultiLabelScores(Scores):
    """How well a split was classified where a text has any number of labels, each class at its own threshold.

    Attributes:
        accuracy: share of texts given all of their labels and no other (exact match, or subset accuracy).
        loss: mean binary cross-entropy in nats, over texts and classes.
        calibration_error: the mean gap between probability and frequency in 15 bins of probability, over all pairs of
            a text and a class.
        confusion: for each class [has it, is given it], counts.
        micro_f1: F1 over all pairs of a text and a class.
    """

    micro_f1: float

    def tables(self, labels: list[str]) -> Tables:
        """Return a table of two rows and two columns for each class."""
        pairs = zip(labels, self.confusion, strict=True)
        return {f"confusion/{label}": ([f"not {label}", label], counts) for label, counts in pairs}


def scores(logits: Float[Tensor, "N C"], labels: Int[Tensor, "N *C"], objective: Objective = ONE_CLASS) -> Scores:
    """Compute the scores of logits (or of log-probabilities), and of labels that are such as the objective says."""
    # In float64, and rounded below what it can mean: sums of floats end differently in their last digits.
    probabilities = objective.probabilities(logits.double())
    loss = round(objective.loss(logits.double(), labels).item(), 6)
    if isinstance(objective, AnyClasses):
        return _of_any_classes(probabilities, labels.long(), objective.given(probabilities), loss)
    C = logits.shape[1]
    return Scores(
        accuracy=multiclass_accuracy(probabilities, labels, C, average="micro").item(),
        macro_f1=multiclass_f1_score(probabilities, labels, C, average="macro").item(),
        loss=loss,
        calibration_error=round(multiclass_calibration_error(probabilities, labels, C, n_bins=15).item(), 6),
        confusion=multiclass_confusion_matrix(probabilities, labels, C).tolist(),
    )


def _of_any_classes(
    probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N C"], given: Bool[Tensor, "N C"], loss: float
) -> MultiLabelScores:
    C, answers = labels.shape[1], given.long()
    by_class = multilabel_f1_score(answers, labels, C, average="none")
    # torchmetrics counts a class that no text has or is given as 0; of one class a text, it leaves such out, as we do.
    is_there = labels.bool().any(dim=0) | given.any(dim=0)
    return MultiLabelScores(
        accuracy=multilabel_exact_match(answers, labels, C).item(),
        macro_f1=(by_class * is_there).sum().item() / max(1, int(is_there.sum())),
        loss=loss,
        calibration_error=round(binary_calibration_error(probabilities.flatten(), labels.flatten(), 15).item(), 6),
        confusion=multilabel_confusion_matrix(answers, labels, C).tolist(),
        micro_f1=multilabel_f1_score(answers, labels, C, average="micro").item(),
    )
