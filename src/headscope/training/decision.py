"""Who decided, the encoder or the bag of n-grams beside it, so that attention is not credited for counting words."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.batching import Batch, moved
from headscope.model.ngrams import NgramBag, share_of_bag


def decision(bag: NgramBag, batches: Iterable[Batch], logits: Float[Tensor, "N C"]) -> dict[str, float]:
    """Return the shares of the n-grams, and of the encoder with its heads, in the decisions about a split's texts.

    Args:
        bag: of the model.
        batches: of the split, with n-grams.
        logits: of the whole model, in the split's order.
    """
    parts, rows = [], []
    with torch.inference_mode():
        for batch in batches:
            parts.append(bag(moved(batch, bag.weight.device).ngrams).float().cpu())
            rows.append(batch.rows)
    share = round(share_of_bag(logits, torch.cat(parts)[torch.cat(rows).argsort()]), 4)
    return {"n-grams": share, "encoder": round(1 - share, 4)}
