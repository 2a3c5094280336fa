"""Logits of many texts, in the texts' own order. Free of lightning, so that predicting starts fast."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch, moved


def split_logits(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device,
    precision: torch.dtype = torch.float32,
    tick: Callable[[], object] = lambda: None,
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N *C"]]:
    """Return the logits and labels of all texts, in the split's own order, by the model in eval mode.

    Args:
        model: the classifier; moved to the device.
        batches: a whole split.
        device: where to compute.
        precision: of matrix products; float32 is what evaluating and reports take.
        tick: called after each batch, such as by a progress bar.
    """
    logits, labels, rows = [], [], []
    model.to(device).eval()
    halved = precision == torch.bfloat16
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=halved):
        for batch in batches:
            logits.append(model(*moved(batch, device).inputs).float())
            labels.append(batch.labels)
            rows.append(batch.rows)
            tick()
    order = torch.cat(rows).argsort()
    # Fetched once at the end: fetching every batch would let a GPU wait while the next one is made.
    return torch.cat(logits).cpu()[order], torch.cat(labels)[order]
