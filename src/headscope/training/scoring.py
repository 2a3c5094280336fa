"""The scores that are reported of a split's logits."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multiclass_f1_score,
)

from headscope.model.objective import ONE_CLASS, Objective


@dataclass(frozen=True)
class Scores:
    """How well a split was classified.

    Attributes:
        accuracy: share of texts given their own label.
        macro_f1: F1 of each class, averaged over classes.
        loss: mean cross-entropy in nats.
        calibration_error: expected calibration error, the mean gap between confidence and accuracy in 15 bins of
            confidence, weighted by their texts (Guo et al. 2017, On Calibration of Modern Neural Networks).
        confusion: [label, prediction], counts.
    """

    accuracy: float
    macro_f1: float
    loss: float
    calibration_error: float
    confusion: list[list[int]]


def scores(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"], objective: Objective = ONE_CLASS
) -> Scores:
    """Compute the scores of logits (or of log-probabilities)."""
    C = logits.shape[1]
    # In float64, and rounded below what it can mean: sums of floats end differently in their last digits.
    probabilities = objective.probabilities(logits.double())
    return Scores(
        accuracy=multiclass_accuracy(probabilities, labels, C, average="micro").item(),
        macro_f1=multiclass_f1_score(probabilities, labels, C, average="macro").item(),
        loss=round(objective.loss(logits.double(), labels).item(), 6),
        calibration_error=round(multiclass_calibration_error(probabilities, labels, C, n_bins=15).item(), 6),
        confusion=multiclass_confusion_matrix(probabilities, labels, C).tolist(),
    )
