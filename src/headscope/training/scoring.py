"""Logits of a whole split, and the scores that are reported of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multiclass_f1_score,
)

from headscope.data.batching import Batch


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


def split_logits(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device,
    bf16: bool = False,
    tick: Callable[[], object] = lambda: None,
) -> tuple[Float[Tensor, "N C"], Int[Tensor, " N"]]:
    """Return the logits and labels of all texts, in the split's own order, by the model in eval mode.

    Args:
        model: the classifier; moved to the device.
        batches: a whole split.
        device: where to compute.
        bf16: multiply matrices in bfloat16.
        tick: called after each batch, such as by a progress bar.
    """
    logits, labels, rows = [], [], []
    model.to(device).eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for batch in batches:
            mask = None if batch.key_padding_mask is None else batch.key_padding_mask.to(device)
            segments = None if batch.segment_ids is None else batch.segment_ids.to(device)
            logits.append(model(batch.token_ids.to(device), mask, segments).float().cpu())
            labels.append(batch.labels)
            rows.append(batch.rows)
            tick()
    order = torch.cat(rows).argsort()
    return torch.cat(logits)[order], torch.cat(labels)[order]


def scores(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Scores:
    """Compute the scores of logits (or of log-probabilities)."""
    C = logits.shape[1]
    # In float64, and rounded below what it can mean: sums of floats end differently in their last digits.
    probabilities = logits.double().softmax(dim=-1)
    return Scores(
        accuracy=multiclass_accuracy(probabilities, labels, C, average="micro").item(),
        macro_f1=multiclass_f1_score(probabilities, labels, C, average="macro").item(),
        loss=round(F.cross_entropy(logits.double(), labels).item(), 6),
        calibration_error=round(multiclass_calibration_error(probabilities, labels, C, n_bins=15).item(), 6),
        confusion=multiclass_confusion_matrix(probabilities, labels, C).tolist(),
    )
