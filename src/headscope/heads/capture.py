"""Observing attention layers and intervening on their heads, without changing the model's code.

Layers of headscope have an observer and an intervention of their own. While one of torch's is
observed, a layer of ours that shares its parameters computes in its place. Models of transformers:
see `headscope.foreign`.

Shape letters: B texts, H heads, Q queries, K keys, T tokens, E head width, C classes.
"""

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from headscope.attention.functional import (
    ALL,
    Ablation,
    AttentionCall,
    ObservedAttention,
    Rows,
)
from headscope.attention.multi_head import HeadedAttention, MultiHeadAttention
from headscope.data.batching import Batch, moved
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.model.frozen import learning_modules
from headscope.model.others import others
from headscope.model.running import Runs, lock_of
from headscope.model.running import eval_mode as eval_mode

Change = Literal["zero", "uniform"]
Observer = Callable[[str, AttentionCall], None]  # called with the layer's name


class NotObservedError(ValueError):
    """The attention of a model cannot be observed or changed; the message names its class."""


def named_attention(name: str, call: AttentionCall, is_last: bool = True) -> None:
    """Name a call of attention that an observer was shown, which is the last, if it is in time."""
    if has_torch_function_unary(call.like):
        handle_torch_function(named_attention, (call.like,), name, call, is_last)


def _transformers(model: nn.Module) -> Any:
    """Return what observes models of transformers; None where the module has none of them."""
    if "transformers.modeling_utils" not in sys.modules:
        return None
    room = others().transformers_models
    return room if room.transformers_models(model) else None


# Observing


@contextmanager
def capture(
    model: nn.Module, rows: Rows = ALL, poolings: bool = True
) -> Iterator[dict[str, Tensor]]:
    """Fill a dictionary, layer name -> weights [row, head, query, key], whenever the model runs.

    It holds the last forward pass. `Run.predict` makes several: use `Run.maps` for texts of a run.

        with capture(model, rows=[0, 2]) as maps:
            model(token_ids, key_padding_mask)
        maps["encoder.blocks.0.attention"]  # [2, H, T, T], float32

    Models of headscope and of transformers keep their fused kernel, so their output stays equal to
    the last digit; the weights are computed beside it, in float32, from the same queries, keys and
    mask. While a torch.nn.MultiheadAttention is observed, our layer computes in its place: its
    output is equal up to rounding, and a query whose every key is masked gets zeros (torch: NaN).

    Args:
        model: any module with attention layers of headscope, torch or transformers in it.
        rows: which rows of the batch; all by default.
        poolings: also of poolings that attend, which have one head and one query.

    Raises:
        ValueError: if the model has no such layer, or one that cannot be observed; the message
            names it.
    """
    maps: dict[str, Tensor] = {}

    def keep(name: str, call: AttentionCall) -> None:
        if poolings or not call.is_pooling:
            maps[name] = call.weights(rows)

    with observe(model, keep):
        yield maps


@contextmanager
def observe(model: nn.Module, observer: Observer, all_queries: bool = True) -> Iterator[None]:
    """Call `observer` with the layer's name and its call each time an attention layer runs.

    Where only [CLS] is read, the last layer has all queries for observers that ask for them.

    A layer that runs several times in a forward pass has a name for each run: `layer`, `layer#1`.
    Until the block is left, other threads that observe, change or explain the model wait. Errors
    are those of `capture`.
    """
    for module in model.modules():
        getattr(module, "reads_padding", None)  # found out by forward passes, which none observes
    kinds = ObservedAttention | nn.MultiheadAttention
    layers = {name: layer for name, layer in learning_modules(model) if isinstance(layer, kinds)}
    theirs = _transformers(model)
    if not layers and theirs is None:
        raise NotObservedError(
            f"{type(model).__name__}: expected attention layers of headscope,"
            " torch.nn.MultiheadAttention or a model of transformers, got none of them"
        )
    runs = Runs(model)
    modules = dict(model.named_modules())

    def show(name: str, call: AttentionCall) -> None:
        run = runs.name(name)
        if not call.is_pooling:
            _note_heads(modules.get(name), run, call)
            named_attention(run, call, is_last=call.values is not None)
        observer(run, call)

    with ExitStack() as stack:
        stack.enter_context(lock_of(model))
        stack.enter_context(runs.counted())
        for name, layer in layers.items():
            observers = stack.enter_context(_ours(name, layer)).observers
            shown = partial(show, name)
            shown.all_queries = all_queries  # type: ignore[attr-defined]
            observers.append(shown)
            stack.callback(observers.pop)
        if theirs is not None:
            stack.enter_context(theirs.observe_transformers(model, show))
        yield


@contextmanager
def named_layers(model: nn.Module) -> Iterator[None]:
    """Have the calls of attention named that `FixedGates` notes, of layers that can be observed."""
    try:
        stack = ExitStack()
        stack.enter_context(observe(model, lambda *_: None, all_queries=False))
    except NotObservedError:
        pass
    with stack:
        yield


def is_observed(model: nn.Module) -> bool:
    """Tell whether an attention layer in the model has an observer."""
    theirs = _transformers(model)
    if theirs is not None and theirs.is_watched(model):
        return True
    layers = (getattr(layer.forward, "ours", layer) for layer in model.modules())
    return any(getattr(layer, "observers", None) for layer in layers)


@contextmanager
def _ours(name: str, layer: nn.Module) -> Iterator[Any]:
    """Yield our layer that computes: this one, or one that shares the parameters of torch's."""
    if not isinstance(layer, nn.MultiheadAttention):
        yield layer
        return
    if (ours := getattr(layer.forward, "ours", None)) is not None:  # an outer block put it there
        yield ours
        return
    if layer.bias_k is not None or layer.add_zero_attn:
        raise ValueError(
            f"{name}: expected add_bias_kv=False and add_zero_attn=False: they add a key that is no"
            " token"
        )
    ours = _sharing_parameters(layer)

    def forward(*args: Any, **options: Any) -> Any:
        ours.training = layer.training
        ours.dropout = layer.dropout
        return ours(*args, **options)

    forward.ours = ours  # type: ignore[attr-defined]
    is_packed = layer._qkv_same_embed_dim
    layer.forward = forward  # type: ignore[method-assign]
    layer._qkv_same_embed_dim = False  # or torch's encoder blocks would not call the layer
    try:
        yield ours
    finally:
        del layer.forward
        layer._qkv_same_embed_dim = is_packed


def _sharing_parameters(layer: nn.MultiheadAttention) -> MultiHeadAttention:
    ours = MultiHeadAttention(
        layer.embed_dim,
        layer.num_heads,
        layer.dropout,
        bias=layer.in_proj_bias is not None,
        kdim=layer.kdim,
        vdim=layer.vdim,
        batch_first=layer.batch_first,
        device="meta",
    )
    for name in ours._parameters:
        setattr(ours, name, getattr(layer, name))
    ours.out_proj = layer.out_proj
    return ours


# The layers that have heads


HEADED = HeadedAttention | nn.MultiheadAttention


class _Seen(NamedTuple):
    """A run of a layer, as it was last observed."""

    run: str  # what its name has behind the layer's: "", "#1"
    heads: int
    order: int  # among all runs


_seen: WeakKeyDictionary[nn.Module, list[_Seen]] = WeakKeyDictionary()
_order = count()


def _note_heads(layer: nn.Module | None, run: str, call: AttentionCall) -> None:
    """Note how many heads a layer has that can be ablated, and how often it runs."""
    if layer is None or (call.values is None and not isinstance(layer, HEADED)):
        return
    _, mark, number = run.rpartition("#")
    before = _seen.get(layer, []) if mark else []
    _seen[layer] = [*before, _Seen(mark + number if mark else "", call.shape[1], next(_order))]


def headed_layers(model: nn.Module, batch: Batch | None = None) -> dict[str, int]:
    """Return how many heads each attention layer has, by its name, in the order of registration.

    Of a layer that ran several times while it was observed each run, and all in the order in which
    they ran. Those of a transformers model are found where it is observed; if it was not yet, by a
    forward pass over the batch, or over its dummy inputs.
    """
    heads = _noted(model, lambda layer: isinstance(layer, HEADED))
    theirs = _transformers(model)
    for prefix, inner in theirs.transformers_models(model).items() if theirs else ():
        if not inner._can_set_attn_implementation():
            continue
        if not any(layer in _seen for layer in inner.modules()):
            _find_heads(model, inner, batch)
        noted = _noted(inner, lambda layer: not isinstance(layer, HEADED))
        heads |= {f"{prefix}.{name}".strip("."): count for name, count in noted.items()}
    return heads


def _noted(model: nn.Module, chosen: Callable[[nn.Module], bool]) -> dict[str, int]:
    """Return the heads of each run of some layers: as registered, or in the order they ran in."""
    found: list[tuple[int, str, int]] = []
    is_repeated = False
    for number, (name, layer) in enumerate(learning_modules(model)):
        if not chosen(layer):
            continue
        runs = _seen.get(layer, [])
        if not runs and isinstance(layer, HEADED):
            runs = [_Seen("", layer.num_heads, number)]
        is_repeated |= len(runs) > 1
        found += [(run.order, f"{name}{run.run}", run.heads) for run in runs]
    if is_repeated or not any(isinstance(layer, HEADED) for layer in model.modules()):
        found.sort()
    return {name: heads for _, name, heads in found}


def _find_heads(model: nn.Module, inner: Any, batch: Batch | None) -> None:
    with eval_mode(model), torch.no_grad(), observe(model, lambda *_: None):
        if batch is not None:
            logits_of(model, batch)
            return
        inputs = {name: ids for name, ids in inner.dummy_inputs.items() if ids is not None}
        inputs = {name: ids.to(device_of(model)) for name, ids in inputs.items()}
        if "use_cache" in inspect.signature(inner.base_model.forward).parameters:
            inputs["use_cache"] = False
        try:
            # A classifier's head may ask for more of a text, as BART's does
            inner.base_model(**inputs)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise NotObservedError(
                f"{type(inner).__name__}: its heads are found where it runs; run it once within "
                "headscope.capture(model) first"
            ) from error


def readout_position(model: nn.Module) -> int | None:
    """Return the position that a classifier reads: 0, that of [CLS]; None if it reads all."""
    position = getattr(model, "readout_position", None)
    return position if isinstance(position, int) else None


def read_at_first(model: nn.Module) -> frozenset[str]:
    """Return the names of the layers whose map is read in its first row alone, that of [CLS].

    It is the last layer of a classifier that reads out there, wherever in the model it stands.
    """
    names = [name for name, module in model.named_modules() if readout_position(module) == 0]
    layers = [*headed_layers(model)] if names else []
    starts = [f"{name}." if name else "" for name in names]
    own = [[layer for layer in layers if layer.startswith(start)] for start in starts]
    return frozenset(layer for of_classifier in own for layer in of_classifier[-1:])


# Ablating


def every_head(model: nn.Module) -> list[tuple[str, int]]:
    """Return all heads of a model, each by its layer's name and its number."""
    return [(name, head) for name, count in headed_layers(model).items() for head in range(count)]


def layer_of(num_heads: Mapping[str, int], layer: int | str, head: int) -> str:
    """Return the name of a layer, given by name or number; ValueError if it has no such head."""
    names = dict(enumerate(num_heads))
    name = names.get(layer, "") if isinstance(layer, int) else layer
    if not 0 <= head < num_heads.get(name, 0):
        raise ValueError(
            f"heads: expected one of a layer in {list(num_heads)}, by name or number, "
            f"got {head} of {layer!r}"
        )
    return name


@contextmanager
def ablate(model: nn.Module, heads: Mapping[tuple[Any, int], Change]) -> Iterator[None]:
    """Ablate heads to zero or uniform weights: see `headscope.heads.patching.ablate`."""
    num_heads = headed_layers(model)
    ablations: dict[str, Ablation] = {}
    for (layer, head), change in heads.items():
        name = layer_of(num_heads, layer, head)
        if change not in Ablation._fields:
            raise ValueError(f"heads: expected 'zero' or 'uniform', got {change!r}")
        if name not in ablations:
            ablations[name] = Ablation(*torch.zeros(2, num_heads[name], dtype=torch.bool))
        getattr(ablations[name], change)[head] = True
    with ExitStack() as stack:
        stack.enter_context(lock_of(model))
        runs = Runs(model)
        stack.enter_context(runs.counted())
        layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, HEADED)}
        changed = {name.partition("#")[0] for name in ablations}
        for name in changed & layers.keys():
            ours = stack.enter_context(_ours(name, layers[name]))
            _ablate_runs(stack, model, ours, name, runs, ablations)
        if changed - layers.keys():
            theirs = _transformers(model)
            stack.enter_context(theirs.observe_transformers(model, ablations=ablations, runs=runs))
        yield


def _ablate_runs(
    stack: ExitStack,
    model: nn.Module,
    ours: Any,
    name: str,
    runs: Runs,
    ablations: Mapping[str, Ablation],
) -> None:
    """Ablate heads of one of our layers, in those of its runs that are named."""
    if isinstance(model, TextClassifier | Ensemble):  # each of its layers runs once
        stack.callback(setattr, ours, "ablation", ours.ablation)
        ours.ablation = ablations[name].joined(ours.ablation)
        return
    before: list[Ablation | None] = []

    def start(*_: Any) -> None:
        before.append(ours.ablation)
        run = runs.name(name)
        if run in ablations:
            ours.ablation = ablations[run].joined(ours.ablation)

    def end(*_: Any) -> None:
        ours.ablation = before.pop()

    stack.callback(ours.register_forward_pre_hook(start).remove)
    handle = ours.register_forward_hook(end, prepend=True, always_call=True)
    stack.callback(handle.remove)


# Running


def logits_of(model: nn.Module, batch: Batch) -> Float[Tensor, "B C"]:
    """Run the model on a batch, on the device of its parameters."""
    logits: Tensor = model(*moved(batch, device_of(model)).inputs)
    return logits


def texts_apart(model: nn.Module, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches; of a model that reads padding one for each text, without its padding."""
    for batch in batches:
        padding = batch.key_padding_mask
        if padding is None or not getattr(model, "reads_padding", False):
            yield batch
            continue
        for row, length in enumerate((~padding).sum(dim=1).tolist()):
            own = slice(row, row + 1)
            segments = None if batch.segment_ids is None else batch.segment_ids[own, :length]
            text = (batch.token_ids[own, :length], None, segments, batch.labels[own])
            yield Batch(*text, batch.rows[own])


def device_of(model: nn.Module) -> torch.device:
    """Return where the model computes; the CPU, if it has no parameters.

    Of one whose weights are offloaded by accelerate, where they are brought to.
    """
    hooks = (getattr(module, "_hf_hook", None) for module in model.modules())
    brought = (getattr(hook, "execution_device", None) for hook in hooks)
    if (device := next((each for each in brought if each is not None), None)) is not None:
        return torch.device(device)
    devices = (parameter.device for parameter in model.parameters())
    return next((each for each in devices if each.type != "meta"), torch.device("cpu"))


def now(device: torch.device) -> float:
    """Return the time once the device is done, so that work is counted where it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
