"""Changing what heads give, before the heads are joined: one of them switched off, or all of them through gates.

Every layer that `capture` can watch and that has heads can be changed: our own, torch.nn.MultiheadAttention, and those
of transformers' models. Shape letters: B texts of a batch, H heads, Q queries, T tokens, E head width.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import AttentionCall
from headscope.attention.multi_head import HeadedAttention, Intervention
from headscope.data.batching import Batch, moved
from headscope.heads.torch_layers import changed_by_torch
from headscope.heads.transformers_models import foreign_models, observe_transformers, uses_registry

Change = Literal["zero", "mean"]
CHANGES: dict[str, Change] = {"zeroed": "zero", "averaged": "mean"}
Means = dict[str, Float[Tensor, "H E"]]


@runtime_checkable
class Heads(Protocol):
    """An attention layer that has heads, of whatever make."""

    num_heads: int
    head_dim: int


@dataclass
class ForeignHeads:
    """The heads of an attention layer of a transformers model."""

    num_heads: int
    head_dim: int


_foreign: WeakKeyDictionary[nn.Module, dict[str, ForeignHeads]] = WeakKeyDictionary()


def headed_layers(model: nn.Module) -> dict[str, Heads]:
    """Return the model's attention layers that have heads, by name, in the order of their registration.

    Those of a transformers model are found by a forward pass over the few tokens that it has for such ends, once.
    """
    own: dict[str, Heads] = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, HeadedAttention | nn.MultiheadAttention)
    }
    for prefix, foreign in foreign_models(model).items():
        if foreign not in _foreign:
            _foreign[foreign] = _found(foreign)
        own |= {
            f"{prefix}.{name}" if prefix else name: heads
            for name, heads in _foreign[foreign].items()
        }
    return own


def _found(model: Any) -> dict[str, ForeignHeads]:
    found: dict[str, ForeignHeads] = {}
    if not uses_registry(model):
        return found

    def note(name: str, seen: AttentionCall) -> None:
        assert seen.values is not None
        found[name] = ForeignHeads(seen.shape[1], seen.values.shape[-1])

    tokens = {name: ids.to(device_of(model)) for name, ids in model.dummy_inputs.items()}
    with eval_mode(model), torch.no_grad(), observe_transformers(model, note):
        # The body alone: a classifier's head may ask for more of a text, as BART's does.
        model.base_model(**tokens, use_cache=False) if _takes_cache(model) else model.base_model(
            **tokens
        )
    return found


def _takes_cache(model: Any) -> bool:
    return "use_cache" in inspect.signature(model.base_model.forward).parameters


def logits_of(model: nn.Module, batch: Batch) -> Float[Tensor, "B C"]:
    """Run the model on a batch, on the device of its parameters."""
    logits: Float[Tensor, "B C"] = model(*moved(batch, device_of(model)).inputs)
    return logits


def device_of(model: nn.Module) -> torch.device:
    """Return where the model computes; the CPU, if it has no parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode; afterwards each of its modules is again in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def intervene_layers(model: nn.Module, interventions: Mapping[str, Intervention]) -> Iterator[None]:
    """Change the sums [B, H, Q, E] of some layers, after what may change them already; ValueError if there is none."""
    layers = headed_layers(model)
    if unknown := set(interventions) - set(layers):
        raise ValueError(
            f"no layer with heads is called {sorted(unknown)[0]!r}; there are {list(layers)}"
        )
    own = {
        name: layer for name in interventions if isinstance(layer := layers[name], HeadedAttention)
    }
    before = {name: layer.intervention for name, layer in own.items()}
    with ExitStack() as stack:
        stack.enter_context(changed_by_torch(model, interventions))
        others = {
            name: change
            for name, change in interventions.items()
            if isinstance(layers[name], ForeignHeads)
        }
        if others:
            stack.enter_context(observe_transformers(model, None, others))
        for name, layer in own.items():
            earlier = before[name]
            stack.callback(setattr, layer, "intervention", earlier)
            layer.intervention = (
                interventions[name] if earlier is None else _chained(earlier, interventions[name])
            )
        yield


def _chained(earlier: Intervention, later: Intervention) -> Intervention:
    return lambda sums: later(earlier(sums))


@contextmanager
def intervene(
    model: nn.Module, changes: Mapping[tuple[str, int], Change], means: Means | None = None
) -> Iterator[None]:
    """Replace what some heads give, at every query, until the block is left.

        with intervene(model, {("encoder.blocks.0.attention", 2): "zero"}):
            model(token_ids, key_padding_mask)

    Other heads' sums stay the same to the last digit; the output projection and its bias act as before.

    Args:
        model: any module with attention layers that have heads.
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
            raise ValueError(
                f"there is no head {head} in a layer {name!r}; the layers with heads are {list(layers)}"
            )
        if change not in CHANGES.values():
            raise ValueError(f"a head is changed to 'zero' or to 'mean', not to {change!r}")
        if change == "mean" and (means is None or name not in means):
            raise ValueError(
                f"the mean of {name!r} is needed: pass means=mean_outputs(model, batches)"
            )
        vector = (
            means[name][head] if change == "mean" and means else torch.zeros(layers[name].head_dim)
        )
        chosen.setdefault(name, {})[head] = vector
    with intervene_layers(
        model, {name: _replacing(layers[name], heads) for name, heads in chosen.items()}
    ):
        yield


def mean_outputs(model: nn.Module, batches: Iterable[Batch]) -> Means:
    """Return, for each layer, the mean over all tokens of all texts of what each head gives, padding left out.

    For self-attention, where a layer's queries are the batch's tokens. In float64, on the model's device.
    """
    sums: Means = {}
    tokens = 0

    def adding(name: str, kept: Bool[Tensor, "B T"]) -> Intervention:
        """Return what adds a layer's sums over all tokens to those it had, and changes nothing."""

        def add(given: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
            found = torch.einsum("bhqe,bq->he", given.double(), kept.double())
            sums[name] = sums[name] + found if name in sums else found
            return given

        return add

    with eval_mode(model), torch.no_grad():
        for batch in batches:
            mask = batch.key_padding_mask
            kept = torch.ones_like(batch.token_ids, dtype=torch.bool) if mask is None else ~mask
            kept = kept.to(device_of(model))
            with intervene_layers(
                model, {name: adding(name, kept) for name in headed_layers(model)}
            ):
                logits_of(model, batch)
            tokens += int(kept.sum())
    return {name: total / tokens for name, total in sums.items()}


def _replacing(layer: Heads, heads: Mapping[int, Float[Tensor, " E"]]) -> Intervention:
    """Return what puts these vectors [E] in the place of these heads' sums at every query."""
    values = torch.zeros(layer.num_heads, 1, layer.head_dim, dtype=torch.float64)
    changed = torch.zeros(layer.num_heads, 1, 1, dtype=torch.bool)
    for head, value in heads.items():
        values[head, 0], changed[head] = value.to(values), True
    return lambda sums: torch.where(changed.to(sums.device), values.to(sums), sums)
