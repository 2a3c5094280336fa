"""Changing what heads give, and leaving the model afterwards as it was.

Shape letters: B texts, H heads, Q queries, E head width.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.attention.multi_head import HeadedAttention, Intervention

Change = Literal["zero", "mean"]
Means = dict[str, Float[Tensor, "H E"]]


@runtime_checkable
class LabelledBatch(Protocol):
    """Some texts with their classes, [B] or, of any number, [B, C], such as headscope.data.batching.Batch."""

    @property
    def token_ids(self) -> Int[Tensor, "B T"]:
        """The tokens of each text."""

    @property
    def key_padding_mask(self) -> Bool[Tensor, "B T"] | None:
        """True where a text has no token any more; None where none is padded."""

    @property
    def segment_ids(self) -> Int[Tensor, "B T"] | None:
        """Which text of a pair a token is of; None where texts are single."""

    @property
    def labels(self) -> Int[Tensor, "B *C"]:
        """The class of each text, or 1 at each class that it has."""


def headed_layers(model: nn.Module) -> dict[str, HeadedAttention]:
    """Return the model's attention layers that have heads, by name, in the order in which they are registered."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, HeadedAttention)}


def logits_of(model: nn.Module, batch: LabelledBatch) -> Float[Tensor, "B C"]:
    """Run the model on a batch, on the device of its parameters."""
    device = device_of(model)
    inputs = [batch.token_ids, batch.key_padding_mask, batch.segment_ids]
    given: list[Any] = [None if part is None else part.to(device) for part in inputs]
    logits: Float[Tensor, "B C"] = model(*given, *evidence_of(batch, device))
    return logits


def evidence_of(batch: LabelledBatch, device: torch.device, times: int = 1) -> list[Any]:
    """Return the n-grams of a batch's tokens, if it has any, for the batch put `times` below itself."""
    evidence = getattr(batch, "evidence", None)
    if evidence is None:
        return []
    return [tuple(part.to(device) for part in evidence.repeated(times, batch.token_ids.shape[1]))]


def device_of(model: nn.Module) -> torch.device:
    """Return where the model computes; the CPU, if it has no parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode; afterwards each of its modules is again in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def intervening(model: nn.Module, interventions: Mapping[str, Intervention]) -> Iterator[None]:
    """Change the sums [B, H, Q, E] of some layers, after what may change them already, until the block is left.

    Raises:
        ValueError: if the model has no such layer.
    """
    layers = headed_layers(model)
    if unknown := set(interventions) - set(layers):
        raise ValueError(f"no layer with heads is called {sorted(unknown)[0]!r}; there are {list(layers)}")
    before = {name: layers[name].intervention for name in interventions}
    try:
        for name, intervention in interventions.items():
            layers[name].intervention = _after(before[name], intervention)
        yield
    finally:
        for name, earlier in before.items():
            layers[name].intervention = earlier


@contextmanager
def intervene(
    model: nn.Module, changes: Mapping[tuple[str, int], Change], means: Means | None = None
) -> Iterator[None]:
    """Take what some heads give away, until the block is left.

        with intervene(model, {("encoder.blocks.0.attention", 2): "zero"}):
            model(token_ids, key_padding_mask)

    The head's sum is replaced at every query; other heads' sums stay the same to the last digit, and the output
    projection and its bias act as before.

    Args:
        model: any module with our attention layers in it.
        changes: from a layer's name and a head's number to "zero", the head gives nothing, or "mean", it gives every
            query its mean output, which keeps what is the same for all texts (mean ablation).
        means: of each layer, for "mean"; from `mean_outputs`.

    Raises:
        ValueError: if there is no such layer, head or change, or its mean is not given.
    """
    layers = headed_layers(model)
    chosen: dict[str, dict[int, Float[Tensor, " E"]]] = {}
    for (name, head), change in changes.items():
        if name not in layers or not 0 <= head < layers[name].num_heads:
            raise ValueError(f"there is no head {head} in a layer {name!r}; the layers with heads are {list(layers)}")
        chosen.setdefault(name, {})[head] = _replacement(layers[name], name, head, change, means)
    with intervening(model, {name: _replacing(layers[name], heads) for name, heads in chosen.items()}):
        yield


def mean_outputs(model: nn.Module, batches: Iterable[LabelledBatch]) -> Means:
    """Return, for each layer, the mean over all tokens of all texts of what each head gives [H, E], padding left out.

    For self-attention, where a layer's queries are the batch's tokens. In float64, on the model's device.
    """
    sums: Means = {}
    tokens = 0
    with evaluating(model), torch.no_grad():
        for batch in batches:
            kept = _kept(batch).to(device_of(model))
            with intervening(model, {name: _adding(sums, name, kept) for name in headed_layers(model)}):
                logits_of(model, batch)
            tokens += int(kept.sum())
    return {name: total / tokens for name, total in sums.items()}


def _adding(sums: Means, name: str, kept: Bool[Tensor, "B T"]) -> Intervention:
    """Return what adds a layer's sums over all tokens to those it had, and changes nothing."""

    def add(given: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
        found = torch.einsum("bhqe,bq->he", given.double(), kept.double())
        sums[name] = sums[name] + found if name in sums else found
        return given

    return add


def _kept(batch: LabelledBatch) -> Bool[Tensor, "B T"]:
    mask = batch.key_padding_mask
    return torch.ones_like(batch.token_ids, dtype=torch.bool) if mask is None else ~mask


def _after(earlier: Intervention | None, later: Intervention) -> Intervention:
    return later if earlier is None else lambda sums: later(earlier(sums))


def _replacement(layer: HeadedAttention, name: str, head: int, change: str, means: Means | None) -> Float[Tensor, " E"]:
    if change == "zero":
        return torch.zeros(layer.head_dim)
    if change != "mean":
        raise ValueError(f"a head is changed to 'zero' or to 'mean', not to {change!r}")
    if means is None or name not in means:
        raise ValueError(f"the mean of {name!r} is needed: pass means=mean_outputs(model, batches)")
    return means[name][head]


def _replacing(layer: HeadedAttention, heads: Mapping[int, Float[Tensor, " E"]]) -> Intervention:
    """Return what puts these vectors [E] in the place of these heads' sums at every query."""
    values = torch.zeros(layer.num_heads, 1, layer.head_dim, dtype=torch.float64)
    changed = torch.zeros(layer.num_heads, 1, 1, dtype=torch.bool)
    for head, value in heads.items():
        values[head, 0], changed[head] = value.to(values), True
    return lambda sums: torch.where(changed.to(sums.device), values.to(sums), sums)
