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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from threading import Lock
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    AttentionCall,
    Rows,
    causal_mask,
    masked_softmax,
    uniform_attention,
)
from headscope.attention.multi_head import Intervention
from headscope.model.pretrained import FrozenEncoder

Observer = Callable[[str, AttentionCall], None]  # called with the layer's name
AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
Queries = Float[Tensor, "B H Q E"]
Keys = Float[Tensor, "B G K E"]  # values too
HeadOutputs = Float[Tensor, "B Q H E"]
KNOWN = ("sdpa", "eager")
EAGER = "eager_attention_forward"  # of a model's file
MAPS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def is_transformers(module: nn.Module) -> bool:
    """Return whether a module is a model of transformers."""
    library = sys.modules.get("transformers.modeling_utils")
    return library is not None and isinstance(module, library.PreTrainedModel)


def transformers_models(model: nn.Module) -> dict[str, Any]:
    """Return transformers' models in a module, or itself, by name; none is a part of another.

    An encoder that is frozen, and makes the vectors that a network of ours reads, is left out.
    """
    models: dict[str, Any] = {}
    frozen: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, FrozenEncoder):
            frozen.append(name)
        is_inner = any(not outer or name.startswith(f"{outer}.") for outer in [*models, *frozen])
        if is_transformers(module) and not is_inner:
            models[name] = module
    return models


@contextmanager
def observe_transformers(
    model: nn.Module,
    observer: Observer | None = None,
    interventions: Mapping[str, Intervention] | None = None,
    uniform: Mapping[str, Bool[Tensor, " H"]] | None = None,
) -> Iterator[None]:
    """Show the observer every attention call of transformers' models, and change some head outputs.

    `uniform` is True for the heads of a layer that attend uniformly to the keys that they may see.
    A ValueError names the class of a model whose attention cannot be observed or changed.
    """
    with ExitStack() as stack:
        for prefix, inner in transformers_models(model).items():
            if inner._can_set_attn_implementation():
                names = {
                    module: f"{prefix}.{name}".strip(".") for name, module in inner.named_modules()
                }
                watch = _Watch(names, observer, interventions or {}, uniform or {})
                _watch_functions(stack, inner, watch)
            elif interventions or uniform:
                raise ValueError(
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
        raise ValueError(
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
        watches = [
            (watch, watch.name_of_run(module)) for watch in [*_watches] if module in watch.names
        ]
        is_uniform = [watch.uniform[name] for watch, name in watches if name in watch.uniform]
        if is_uniform:
            heads = torch.stack(is_uniform).any(dim=0)
            if (bias := options.get("position_bias")) is not None:
                _, options["position_bias"] = uniform_attention(query, bias, heads)
            query, attention_mask = uniform_attention(query, attention_mask, heads)
        inputs = (module, query, key, value, attention_mask)
        head_outputs, weights = function(*inputs, **options)
        for watch, name in watches:
            if watch.observer is not None:
                with torch.no_grad():
                    call = _attention_call(*inputs, head_outputs, weights, options)
                watch.observer(name, call)
            if name in watch.interventions:
                changed = watch.interventions[name](head_outputs.transpose(1, 2))  # [B, H, Q, E]
                head_outputs = changed.transpose(1, 2)
        return head_outputs, weights

    return attention


@dataclass(eq=False)
class _Watch:
    """What is asked of a model's attention layers: to be shown, and to be changed."""

    names: Mapping[nn.Module, str]
    observer: Observer | None
    interventions: Mapping[str, Intervention]
    uniform: Mapping[str, Bool[Tensor, " H"]]
    runs: Counter[nn.Module] = field(default_factory=Counter)  # of layers, in this forward pass

    def start(self, *_: Any) -> None:
        self.runs.clear()

    def check(self, model: nn.Module, *_: Any) -> None:
        if not self.runs:
            raise ValueError(
                f"{type(model).__name__}: none of its attention layers called transformers'"
                ' AttentionInterface; call model.set_attn_implementation("sdpa") first'
            )

    def name_of_run(self, module: nn.Module) -> str:
        """Return the name of a layer, and count its run."""
        run = self.runs[module]
        self.runs[module] += 1
        return self.names[module] + (f"#{run}" if run else "")


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
    B, H, Q, _ = query.shape
    K = key.shape[2]
    # Several heads of queries may share one of keys and values (Ainslie et al. 2023, GQA).
    keys, values = (heads.repeat_interleave(H // heads.shape[1], dim=1) for heads in (key, value))

    def compute(rows: Rows, precision: torch.dtype) -> Tensor:
        if weights is not None:
            return _given_weights(weights, rows, precision)
        scale = options.get("scaling")
        scale = query.shape[-1] ** -0.5 if scale is None else scale
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

    def compare(weights: Float[Tensor, "B H Q K"]) -> Tensor:
        return (weights @ values.to(weights.dtype) - head_outputs.transpose(1, 2)).abs().max()

    padding = _padding(mask, B, K)
    return AttentionCall((B, H, Q, K), padding, query, compute, compare, values)


def _of_rows(tensor: Tensor, rows: Rows) -> Tensor:
    return tensor[rows] if len(tensor) > 1 else tensor


def _padding(mask: Tensor | None, B: int, K: int) -> Bool[Tensor, "B K"] | None:
    """Return which keys no query may attend to; None if there are none."""
    if mask is None:
        return None
    is_seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    padding = ~is_seen[..., :K].any(dim=2).any(dim=1).expand(B, -1)
    return padding if bool(padding.any()) else None


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

    def show(_: Any, args: Any, options: dict[str, Any], output: Any) -> None:
        maps = {
            f"{prefix}.{name}.{number}".strip("."): weights
            for name in MAPS
            for number, weights in enumerate(getattr(output, name, None) or ())
        }
        if not maps or not all(isinstance(each, Tensor) for each in maps.values()):
            raise ValueError(
                f"{type(model).__name__}: does not use transformers' AttentionInterface and"
                " returned no attention maps"
            )
        mask: Tensor | None = options.get("attention_mask")
        for name, weights in maps.items():
            B, H, Q, K = weights.shape
            padding = mask.eq(0) if mask is not None and mask.shape == (B, K) else None
            observer(
                name,
                AttentionCall((B, H, Q, K), padding, weights, partial(_given_weights, weights)),
            )

    stack.callback(model.register_forward_pre_hook(ask, with_kwargs=True).remove)
    stack.callback(model.register_forward_hook(show, with_kwargs=True).remove)


def _given_weights(weights: Tensor, rows: Rows, precision: torch.dtype) -> Tensor:
    return weights[rows].to(precision)
