"""Applying a model to texts: the device and the batches.

Shape letters: N texts, C classes, a star for any number of axes.
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch, moved
from headscope.ground.errors import ConfigError


def split_logits(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device,
    call: Callable[..., Tensor] | None = None,
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N *C"]]:
    """Return logits and labels of all texts in their own order.

    The model is moved to the device, and put in eval mode; `call` returns something else of it.
    """
    logits = []
    labels = []
    rows = []
    model.to(device).eval()
    with torch.inference_mode():
        for batch in batches:
            logits.append((call or model)(*moved(batch, device).inputs).float())
            labels.append(batch.labels)
            rows.append(batch.rows)
    order = torch.cat(rows).argsort()
    # To the CPU once, at the end: a GPU would wait for each batch otherwise.
    return torch.cat(logits).cpu()[order], torch.cat(labels)[order]


def best_device(accelerator: str = "auto", key: str = "accelerator") -> torch.device:
    """Return the device for auto, cpu, gpu or mps; ConfigError, with the key, if there is none."""
    if accelerator in ("auto", "gpu") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise ConfigError(
            f"{key}: expected a device that torch finds on this machine, got {accelerator!r}; "
            "set auto or cpu"
        )
    return torch.device("cpu")
