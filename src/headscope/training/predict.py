"""Logits of many texts, in the texts' own order. Free of lightning, so that predicting starts fast."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch, EncodedTexts, TextBatches, moved
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Objective


def split_logits(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device,
    precision: torch.dtype = torch.float32,
    tick: Callable[[], object] = lambda: None,
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N *C"]]:
    """Return the logits and labels of all texts, in the split's own order, by the model in eval mode.

    The model is moved to the device, and computes in `precision`: float32 for evaluating and reports. `tick` is called
    after each batch, such as by a progress bar.
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


def probabilities(
    model: TextClassifier,
    texts: EncodedTexts,
    tokens_per_batch: int,
    device: torch.device,
    precision: torch.dtype = torch.float32,
    objective: Objective = ONE_CLASS,
    temperature: float = 1.0,
) -> Tensor:
    """Return [N, C] probabilities in the order of the texts, computed in batches of like length.

    Logits are divided by the temperature, in float64, so that a text keeps its label.
    """
    batches = TextBatches(texts)
    ordered = (batches[rows] for rows in by_length(texts.lengths, tokens_per_batch))
    logits, _ = split_logits(model, ordered, device, precision)
    return objective.probabilities(logits.double() / temperature)


def by_length(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield lists of rows, the longest texts first, that padded to their longest fill at most tokens_per_batch.

    Unlike training's batches nothing is drawn, so there is hardly any padding. A text longer than the budget is alone.
    """
    order: list[int] = np.argsort(-lengths, kind="stable").tolist()
    start = 0
    while start < len(order):
        count = max(1, tokens_per_batch // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count
