"""From which probability on a text is given a class, chosen class by class where a text has any number of them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_precision_recall_curve
from torchmetrics.utilities import dim_zero_cat

from headscope.model.objective import AnyClasses
from headscope.training.scoring import scores


def best_thresholds(logits: Float[Tensor, "N C"], labels: Int[Tensor, "N C"]) -> Float[Tensor, " C"]:
    """Return for each class the probability with the highest F1 on these texts; 0.5 for a class that none of them has.

    Each class by itself, which is best for macro-F1 (Lipton, Elkan and Naryanaswamy 2014, Optimal Thresholding of
    Classifiers to Maximize F1 Measure, section 2). It lies half way from the least probability that is still given the
    class to the next lower one, so that the last digit of a probability decides nothing.
    """
    probabilities = AnyClasses().probabilities(logits.double())
    found = torch.full((labels.shape[1],), 0.5, dtype=torch.float64)
    for number in labels.any(dim=0).nonzero()[:, 0].tolist():
        column = probabilities[:, number]
        precision, recall, candidates = binary_precision_recall_curve(column, labels[:, number].long())
        f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
        least = candidates[f1[:-1].argmax()]  # the last of the curve's points has no threshold
        lower = column[column < least]
        found[number] = (least + (lower.max() if len(lower) else 0.0)) / 2
    return found


class AtBestThresholds(Metric):
    """Exact match and macro-F1 of a split at the thresholds that are best for it, as they are chosen in the end.

    At 0.5 throughout, a rare class might not be found once though the model tells its texts from all others.
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
        found = scores(logits, labels, AnyClasses(best_thresholds(logits, labels)))
        return {"accuracy": torch.tensor(found.accuracy), "macro_f1": torch.tensor(found.macro_f1)}
