"""Who decided, the encoder or the bag of n-grams beside it, so that attention is not credited for counting words."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.batching import Batch, moved
from headscope.model.ngrams import NgramBag, share_of_bag

DECIDED_BY, ENCODER_MEANS = "decided by", "encoder's mean logits"  # among the facts of training in metrics.json


def decision_facts(
    bag: NgramBag, batches: Iterable[Batch], logits: Float[Tensor, "N C"], labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the parts' shares in the decisions about a split's texts, and what the encoder says on average.

    Args:
        bag: of the model.
        batches: of the split, with n-grams.
        logits: of the whole model, in the split's order.
        labels: the classes.
    """
    of_bag = _bag_logits(bag, batches)
    share = round(share_of_bag(logits, of_bag), 4)
    means = (logits - of_bag).mean(dim=0).tolist()
    return {
        DECIDED_BY: {"n-grams": share, "encoder": round(1 - share, 4)},
        ENCODER_MEANS: {label: round(mean, 4) for label, mean in zip(labels, means, strict=True)},
    }


def _bag_logits(bag: NgramBag, batches: Iterable[Batch]) -> Float[Tensor, "N C"]:
    parts, rows = [], []
    with torch.inference_mode():
        for batch in batches:
            parts.append(bag(moved(batch, bag.weight.device).ngrams).float().cpu())
            rows.append(batch.rows)
    return torch.cat(parts)[torch.cat(rows).argsort()]
