"""Logits of many texts, in the texts' own order. Free of lightning, so that predicting starts fast."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch


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
