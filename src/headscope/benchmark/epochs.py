"""An epoch of training, the same for every model: forward, loss, backward, AdamW."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from headscope.data.batching import Batch, moved


@dataclass(frozen=True)
class Epoch:
    """Train a model on batches, once through, whenever it is called.

    Attributes:
        model: (token_ids, key_padding_mask) -> logits.
        batches: where the model is.
        precision: float32, or bfloat16 for products under autocast.
        optimizer: steps after each batch.
    """

    model: nn.Module
    batches: Sequence[Batch]
    precision: torch.dtype
    optimizer: torch.optim.Optimizer

    def __call__(self) -> None:
        """Train through the batches. The loss is not read, so that a GPU need not wait."""
        for batch in self.batches:
            self.step(batch)

    def step(self, batch: Batch) -> None:
        """Train on one batch."""
        with autocast(batch.token_ids.device, self.precision):
            loss = F.cross_entropy(self.model(batch.token_ids, batch.key_padding_mask).float(), batch.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def epoch(
    make: Callable[[], nn.Module],
    batches: Sequence[Batch],
    precision: torch.dtype,
    device: torch.device,
    compiled: bool = False,
) -> Epoch:
    """Return an epoch of a freshly made model: the same seed, the same fused AdamW for all."""
    torch.manual_seed(0)
    model = make().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if compiled:
        model.compile(dynamic=True)
    return Epoch(model, [moved(batch, device) for batch in batches], precision, optimizer)


def autocast(device: torch.device, precision: torch.dtype) -> contextlib.AbstractContextManager[None]:
    """Return the context in which products are computed in that precision."""
    if precision == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, precision)
