"""Observing transformers' attention at the speed of its fused kernel, and intervening on it.

Models call attention through a registry (AttentionInterface): a function gets queries, keys, values
and a mask, and returns the head outputs. While a model is observed, the functions that it may call
are wrapped, so its output stays equal to the last digit and its settings are untouched. For those
who ask, the weights are computed beside it:

    softmax(scale Q K^T + bias + mask)      where the model uses "sdpa" what its own function
    returned          where it uses "eager", which may do more, such as a softcap or sinks

Models that do not use the registry, such as DeBERTa, are asked for `output_attentions`: maps alone,
no interventions. While they are observed they use their own eager code, so that their output is
equal up to rounding.

Layers are named by their module. One that runs several times in a forward pass, as ALBERT's does,
has a name for each run: `attention`, `attention#1`, `attention#2`.

Shape letters: B texts, H heads, G heads of keys and values where several queries share one, Q
queries, K keys, E width.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention.functional import (
    Ablation,
    AttentionCall,
    Rows,
    call_with,
    causal_mask,
    masked_softmax,
)
from headscope.heads.capture import NotObservedError, Observer
from headscope.model.running import Runs, hooks_kept

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
Queries = Float[Tensor, "B H Q E"]
Keys = Float[Tensor, "B G K E"]  # values too
HeadOutputs = Float[Tensor, "B Q H E"]
KNOWN = ("sdpa", "eager")
EAGER = "eager_attention_forward"  # of a model's file
MAPS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def is_watched(model: nn.Module) -> bool:
    """Tell whether a model of transformers in the module is observed."""
    modules = {*model.modules()}
    return any(watch.observer and not modules.isdisjoint(watch.names) for watch in [*_watches])


def is_transformers(module: nn.Module) -> bool:
    """Return whether a module is a model of transformers."""
    library = sys.modules.get("transformers.modeling_utils")
    return library is not None and isinstance(module, library.PreTrainedModel)


def transformers_models(model: nn.Module) -> dict[str, Any]:
    """Return transformers' models in a module, or itself, by name; none is a part of another."""
    models: dict[str, Any] = {}
    for name, module in model.named_modules():
        is_inner = any(not outer or name.startswith(f"{outer}.") for outer in models)
        if is_transformers(module) and not is_inner:
            models[name] = module
    return models


@contextmanager
def observe_transformers(
    model: nn.Module,
    observer: Observer | None = None,
    ablations: Mapping[str, Ablation] | None = None,
    runs: Runs | None = None,
) -> Iterator[None]:
    """Show the observer every attention call of transformers' models, and ablate some heads.

    The observer gets the names of layers, ablations are those of their runs, which `runs` counts.
    NotObservedError names the class of a model whose attention cannot be observed or changed.
    """
    with ExitStack() as stack:
        for prefix, inner in transformers_models(model).items():
            if inner._can_set_attn_implementation():
                names = {
                    module: f"{prefix}.{name}".strip(".") for name, module in inner.named_modules()
                }
                watch = _Watch(names, observer, ablations or {}, runs)
                _watch_functions(stack, inner, watch)
            elif ablations:
                raise NotObservedError(
                    f"{type(inner).__name__}: does not use transformers' AttentionInterface, so its"
                    " heads cannot be ablated"
                )
            elif observer is not None:
                _ask_for_maps(stack, inner, prefix, observer)
        yield


# Of all threads. While there is one, the functions that models may call are wrapped.
_watches: "list[_Watch]" = []
_own_functions: dict[Any, AttentionFunction] = {}  # of "sdpa", or of a model's file
_changing = Lock()


def _watch_functions(stack: ExitStack, model: Any, watch: "_Watch") -> None:
    """Have the attention functions that a model may call wrapped, until the stack is closed."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    used = {part.config._attn_implementation for part in model.modules() if is_transformers(part)}
    if unknown := used.difference(KNOWN):
        raise NotObservedError(
            f'{type(model).__name__}: expected the attention "sdpa" or "eager", got'
            f' {unknown.pop()!r}; call model.set_attn_implementation("sdpa") first'
        )
    stack.callback(_stop, watch)
    with _changing:
        _watches.append(watch)
        own: dict[Any, AttentionFunction] = {"sdpa": ALL_ATTENTION_FUNCTIONS["sdpa"]}
        for file in {sys.modules[type(module).__module__] for module in model.modules()}:
            if (eager := getattr(file, EAGER, None)) is not None:
                own[file] = eager
        for place, function in own.items():
            if place not in _own_functions:
                _own_functions[place] = function
                _put(place, _wrapped(function))
    stack.callback(model.register_forward_pre_hook(watch.start).remove)
    stack.callback(model.register_forward_hook(watch.check).remove)


def _stop(watch: "_Watch") -> None:
    """Remove a watch; with the last one the functions are the models' own again."""
    with _changing:
        _watches.remove(watch)
        if not _watches:
            for place, function in _own_functions.items():
                _put(place, function)
            _own_functions.clear()


def _put(place: Any, function: AttentionFunction) -> None:
    from transformers.modeling_utils import AttentionInterface

    if place == "sdpa":
        AttentionInterface.register("sdpa", function)
    else:
        setattr(place, EAGER, function)


def _wrapped(function: AttentionFunction) -> AttentionFunction:
    """Return an attention function that shows its calls to the watches of its module."""

    @wraps(function)
    def attention(
        module: nn.Module,
        query: Queries,
        key: Keys,
        value: Keys,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[HeadOutputs, Tensor | None]:
        watches = [watch for watch in [*_watches] if module in watch.names]
        found = [watch.ablation_of(module) for watch in watches]
        ablations = [ablation for ablation in found if ablation is not None]
        for ablation in ablations:
            if (bias := options.get("position_bias")) is not None:
                _, options["position_bias"] = ablation.inputs(query, bias)
            query, attention_mask = ablation.inputs(query, attention_mask)
        inputs = (module, query, key, value, attention_mask)
        head_outputs, weights = function(*inputs, **options)
        for watch in watches:
            if watch.observer is not None:
                with torch.no_grad():
                    call = _attention_call(*inputs, head_outputs, weights, options)
                watch.observer(watch.names[module], call)
        for ablation in ablations:
            head_outputs = ablation.outputs(head_outputs.transpose(1, 2)).transpose(1, 2)
            head_outputs = head_outputs.contiguous()  # as JetMoE needs it
        return head_outputs, weights

    return attention


@dataclass(eq=False)
class _Watch:
    """What is asked of a model's attention layers: to be shown, and to be changed."""

    names: Mapping[nn.Module, str]
    observer: Observer | None
    ablations: Mapping[str, Ablation]
    runs: Runs | None
    was_called: bool = False  # one of the layers, in this forward pass

    def start(self, *_: Any) -> None:
        self.was_called = False

    def check(self, model: nn.Module, *_: Any) -> None:
        if not self.was_called:
            remedy = ""
            if getattr(model, "_supports_sdpa", False):  # FNet has no attention
                remedy = '; call model.set_attn_implementation("sdpa") first'
            raise NotObservedError(
                f"{type(model).__name__}: none of its layers calls transformers'"
                " AttentionInterface, so there are no attention maps and no heads to ablate"
                f"{remedy}"
            )

    def ablation_of(self, module: nn.Module) -> Ablation | None:
        """Return what is ablated in this run of a layer."""
        self.was_called = True
        return self.ablations.get(self.runs.name(self.names[module])) if self.runs else None


def _attention_call(
    module: nn.Module,
    query: Queries,
    key: Keys,
    value: Keys,
    mask: Tensor | None,
    head_outputs: HeadOutputs,
    weights: Float[Tensor, "B H Q K"] | None,
    options: Mapping[str, Any],
) -> AttentionCall:
    Q = query.shape[2]
    K = key.shape[2]
    # Several heads of queries may share one of keys and values (Ainslie et al. 2023, GQA).
    sharing = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(sharing, dim=1)
    values = value.repeat_interleave(sharing, dim=1)

    def compute(rows: Rows, precision: torch.dtype) -> Tensor:
        if weights is not None:
            return weights[rows].to(precision)
        scale = options.get("scaling") or query.shape[-1] ** -0.5
        scores = (query[rows].to(precision) * scale) @ keys[rows].to(precision).transpose(-2, -1)
        if (bias := options.get("position_bias")) is not None:
            scores = scores + _of_rows(bias, rows)
        if mask is not None:
            hidden = ~mask if mask.dtype == torch.bool else mask
            return masked_softmax(scores, _of_rows(hidden, rows))
        is_causal = options.get("is_causal")
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        causal = causal_mask(Q, K, scores.device) if is_causal and Q > 1 else None
        return masked_softmax(scores, causal)

    shape = (*query.shape[:3], K)
    return AttentionCall(shape, query, compute, values, head_outputs.transpose(1, 2))


def _of_rows(tensor: Tensor, rows: Rows) -> Tensor:
    return tensor[rows] if len(tensor) > 1 else tensor


def _ask_for_maps(stack: ExitStack, model: Any, prefix: str, observer: Observer) -> None:
    """Ask a model outside the registry for its maps at each forward pass."""
    for part in filter(is_transformers, model.modules()):
        # Falcon would add the mask that it made for sdpa to its eager scores, where it hides
        # nothing.
        used = part.config._attn_implementation
        stack.callback(setattr, part.config, "_attn_implementation_internal", used)
        part.config._attn_implementation_internal = "eager"

    def ask(_: Any, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, options | {"output_attentions": True, "return_dict": True}

    def show(_: Any, __: Any, output: Any) -> None:
        maps = {
            f"{prefix}.{name}.{number}".strip("."): weights
            for name in MAPS
            for number, weights in enumerate(getattr(output, name, None) or ())
        }
        if not maps or not all(isinstance(each, Tensor) for each in maps.values()):
            raise NotObservedError(
                f"{type(model).__name__}: does not use transformers' AttentionInterface and"
                " returned no attention maps"
            )
        rows = [weights.detach().float() for weights in maps.values()]
        if any(bool((each < -1e-3).any() or (each.sum(dim=-1) > 1.01).any()) for each in rows):
            raise NotObservedError(
                f"{type(model).__name__}: returned attention scores, not weights, whose rows sum to"
                " 1"
            )
        for name, weights in maps.items():
            observer(name, call_with(weights))

    stack.enter_context(hooks_kept(model))
    stack.callback(model.register_forward_pre_hook(ask, with_kwargs=True).remove)
    stack.callback(model.register_forward_hook(show).remove)
