"""The attention of transformers' models: what they look at, at the speed of their fused kernel, and changes of it.

From 4.48 on, transformers calls attention through a registry: a function by name, which gets queries, keys, values and
a mask, and returns the sums of every head. Here functions of our own are registered under private names. Each calls
the function that the model used before, so that the model's output stays the same to the last digit, and shows what
that was called with. Weights are computed beside it, for those who ask.

    softmax(scale Q K^T + bias + mask)      where the model used scaled_dot_product_attention
    what its own function returned          where it used its own code ("eager"), which may do more, such as a softcap

Models that do not use the registry, such as DeBERTa, are asked for `output_attentions`: maps alone, no changes. While
they are watched they use their own slow code, so that their output is the same up to rounding.

Layers are named by their module. One that runs several times in a forward pass, as ALBERT's does, has a name for each
run: `attention`, `attention#1`, `attention#2`. Other threads that use the model at the same time are not watched.

Shape letters: B texts, H heads, G heads of keys and values where several queries share one, Q queries, K keys, E width.
"""

import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import AttentionCall, Rows
from headscope.attention.multi_head import Intervention

Observer = Callable[[str, AttentionCall], None]  # called with the layer's name and what it saw
PRIVATE = {
    "sdpa": "headscope_sdpa",
    "eager": "headscope_eager",
}  # what a model uses -> our name for it
# What decides about the weights in transformers' function over scaled_dot_product_attention.
TAKEN = {
    "module",
    "query",
    "key",
    "value",
    "attention_mask",
    "dropout",
    "scaling",
    "is_causal",
    "position_bias",
}


@dataclass(eq=False)
class _Watch:
    """Who watches: the names of a model's modules, the observer, and changes by the layer's name."""

    names: Mapping[nn.Module, str]
    observer: Observer | None
    interventions: Mapping[str, Intervention]
    runs: dict[nn.Module, int] = field(default_factory=dict)  # of each layer, in this forward pass

    def name(self, module: nn.Module) -> str | None:
        """Return the name of a layer that runs now; None if it is no part of the model."""
        if module not in self.names:
            return None
        run = self.runs[module] = self.runs.get(module, -1) + 1
        return self.names[module] + (f"#{run}" if run else "")


@dataclass
class _Switched:
    """A configuration that says the name of our attention, for as long as anybody uses it, in whatever thread."""

    config: Any
    before: str  # the attention that it named
    users: int = 0


_watching: ContextVar[tuple[_Watch, ...]] = ContextVar("headscope_watching", default=())
_switched: dict[int, _Switched] = {}  # by the configuration's id
_switching = threading.Lock()


def is_transformers(module: nn.Module) -> bool:
    """Return whether a module is a model of transformers; false where transformers is not even imported."""
    library = sys.modules.get("transformers.modeling_utils")
    return library is not None and isinstance(module, library.PreTrainedModel)


def foreign_models(model: nn.Module) -> dict[str, Any]:
    """Return transformers' models in a module, or the module itself, by name; none that is a part of another."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        if is_transformers(module) and not any(
            name.startswith(f"{outer}.") or not outer for outer in found
        ):
            found[name] = module
    return found


def uses_registry(model: Any) -> bool:
    """Return whether a model's attention goes through the registry, and is the same under another name.

    The code of some, such as DeepSeek-V3.2's, asks for the name, and computes something else where it does not know it.
    """
    if not model._can_set_attn_implementation():
        return False
    parts = [
        part
        for part in model.modules()
        if is_transformers(part) and part._can_set_attn_implementation()
    ]
    asks = any(_asks_for_name(type(part).__module__) for part in parts)
    return not (
        asks and getattr(model.config, "reorder_and_upcast_attn", True)
    )  # GPT-2 asks because of this option


@cache
def _asks_for_name(module: str) -> bool:
    source = inspect.getsource(sys.modules[module])
    return (
        re.search(r"""_attn_implementation (==|!=|in|not in) [^\n]*["'](sdpa|eager)["']""", source)
        is not None
    )


@contextmanager
def observe_transformers(
    model: nn.Module,
    observer: Observer | None = None,
    interventions: Mapping[str, Intervention] | None = None,
) -> Iterator[None]:
    """Show the observer what every attention layer of transformers' models saw, and change the sums of some.

    Afterwards the models are as they were. ValueError, which names the class, for a model whose attention cannot be
    watched.
    """
    models = foreign_models(model)
    if not models:
        yield
        return
    names = {module: name for name, module in model.named_modules()}
    watch = _Watch(names, observer, interventions or {})
    with ExitStack() as stack:
        for name, foreign in models.items():
            if uses_registry(foreign):
                _switch(stack, foreign, watch)
            elif interventions:
                raise ValueError(
                    f"{type(foreign).__name__}: its heads cannot be changed: it does not use the registry"
                )
            elif observer is not None:
                _ask(stack, foreign, f"{name}." if name else "", watch)
        before = _watching.get()
        _watching.set((*before, watch))
        stack.callback(_watching.set, before)
        yield


def _switch(stack: ExitStack, model: Any, watch: _Watch) -> None:
    """Let the model use our functions until the stack is closed."""
    _register()
    with _held(stack, model) as used:
        if used in PRIVATE:
            # Asked for sdpa by force, a model that does not support it computes something else.
            model.set_attn_implementation(PRIVATE[used if model._supports_sdpa else "eager"])
        elif used not in PRIVATE.values():
            raise ValueError(
                f'{type(model).__name__} uses the attention {used!r}; call model.set_attn_implementation("sdpa") first'
            )

    def begin(*_: Any) -> None:
        if watch in _watching.get():  # else another thread uses the model
            watch.runs.clear()

    def end(*_: Any) -> None:
        if watch in _watching.get() and watch.observer is not None and not watch.runs:
            raise ValueError(
                f"{type(model).__name__}: none of its attention layers told what it looked at"
            )

    for hook in (model.register_forward_pre_hook(begin), model.register_forward_hook(end)):
        stack.callback(hook.remove)


@contextmanager
def _held(stack: ExitStack, model: Any) -> Iterator[str]:
    """Give the name of the attention that a model uses, to be changed now, and back once nobody needs the change."""
    configs = {id(part.config): part.config for part in model.modules() if is_transformers(part)}

    def restore() -> None:
        with _switching:
            for number in configs:
                switched = _switched[number]
                switched.users -= 1
                if not switched.users:
                    switched.config._attn_implementation_internal = switched.before
                    del _switched[number]

    with _switching:
        for number, config in configs.items():
            _switched.setdefault(number, _Switched(config, config._attn_implementation)).users += 1
        stack.callback(restore)
        yield model.config._attn_implementation


def _register() -> None:
    """Put our functions, and the masks that they need, into the registry."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for used, private in PRIVATE.items():
        if private not in ALL_ATTENTION_FUNCTIONS:
            ALL_ATTENTION_FUNCTIONS.register(private, {"sdpa": _fused, "eager": _own}[used])
            ALL_MASK_ATTENTION_FUNCTIONS.register(private, ALL_MASK_ATTENTION_FUNCTIONS[used])


def _fused(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Call what the model calls as "sdpa", and show what it was called with."""
    inner = _registered(module, "sdpa")
    sums, _ = inner(module, query, key, value, attention_mask, **options)
    if not _watching.get():
        return sums, None

    def weights(rows: Rows, precision: torch.dtype) -> Tensor:
        _check_options(module, inner, options)
        return _weights(module, query, key, attention_mask, rows, precision, options)

    return _shown(module, query, key, value, attention_mask, sums, weights), None


def _own(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Call the model's own code, which returns weights with its sums, and show them."""
    sums, weights = sys.modules[type(module).__module__].eager_attention_forward(
        module, query, key, value, attention_mask, **options
    )
    if not _watching.get():
        return sums, weights

    def kept(rows: Rows, precision: torch.dtype) -> Tensor:
        found: Tensor = weights[rows].to(precision)
        return found

    return _shown(module, query, key, value, attention_mask, sums, kept), weights


def _registered(module: nn.Module, name: str) -> Callable[..., tuple[Tensor, Any]]:
    """Return the function that the model calls by a name: a modeling file may have its own registry."""
    modeling = sys.modules[type(module).__module__]
    own: Callable[..., tuple[Tensor, Any]] = modeling.ALL_ATTENTION_FUNCTIONS[name]
    return own


def _check_options(
    module: nn.Module, inner: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    """Check that the weights are made of what we know; ValueError if the model asked for more."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    known = set(inspect.signature(sdpa_attention_forward).parameters)
    asked = {name for name, value in options.items() if value is not None and value is not False}
    strange = asked - TAKEN if inner is not sdpa_attention_forward else asked & (known - TAKEN)
    if strange:
        raise ValueError(
            f"{type(module).__name__} calls attention with {min(strange)!r}, which changes its weights in a way that is"
            ' not known here; call model.set_attn_implementation("eager") first'
        )


def _weights(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, rows: Rows, precision: torch.dtype,
    options: Mapping[str, Any],
) -> Float[Tensor, "R H Q K"]:  # fmt: skip
    """Return softmax(scale Q K^T + bias + mask) of some rows, as transformers calls the fused kernel."""
    queries, keys = query[rows].to(precision), _repeated(key[rows].to(precision), query.shape[1])
    Q, K = queries.shape[-2], keys.shape[-2]
    scale = options.get("scaling")
    # One product that scales as it goes, and a softmax in the same memory: a fifth less time than one after the other.
    scores = queries.new_empty(*queries.shape[:2], Q, K)
    flat = scores.flatten(end_dim=1)  # [R H, Q, K]
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    pair = queries.flatten(end_dim=1), keys.flatten(end_dim=1).transpose(1, 2)
    torch.baddbmm(flat, *pair, beta=0, alpha=factor, out=flat)
    is_causal = options.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if (bias := options.get("position_bias")) is not None:
        scores += bias[rows] if len(bias) > 1 else bias
    if mask is not None:
        some = mask[rows] if len(mask) > 1 else mask
        numbers = torch.where(some, 0.0, -torch.inf) if some.dtype == torch.bool else some
    elif is_causal and Q > 1:
        numbers = scores.new_full((Q, K), -torch.inf).triu_(1)
    else:
        return torch.softmax(scores, dim=-1, out=scores)
    # On a CPU this takes less time than masked_fill_ of the scores and `all` of the mask.
    weights = torch.softmax(scores.add_(numbers), dim=-1, out=scores)
    nowhere = (
        numbers.amax(dim=-1, keepdim=True) == -torch.inf
    )  # such a query has no weights; softmax gives NaN
    return weights.masked_fill_(nowhere, 0.0) if bool(nowhere.any()) else weights


def _repeated(tensor: Float[Tensor, "B G K E"], heads: int) -> Float[Tensor, "B H K E"]:
    """Return each head's own keys or values, where several heads of queries share them (Ainslie et al. 2023, GQA)."""
    return (
        tensor.repeat_interleave(heads // tensor.shape[1], dim=1)
        if tensor.shape[1] != heads
        else tensor
    )


def _shown(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sums: Float[Tensor, "B Q H E"],
    weights: Callable[[Rows, torch.dtype], Tensor],
) -> Float[Tensor, "B Q H E"]:  # fmt: skip
    """Show a layer to all who watch, and return its sums as those who change them leave them."""
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])

    def compare(shown: Tensor) -> Tensor:
        return (
            (shown @ _repeated(value, query.shape[1]).to(shown.dtype) - sums.transpose(1, 2))
            .abs()
            .max()
        )

    given = sums
    for watch in _watching.get():
        name = watch.name(module)
        if name is None:
            continue
        if watch.observer is not None:
            with torch.no_grad():
                seen = AttentionCall(
                    shape,
                    _padding(mask, shape),
                    query,
                    weights,
                    compare,
                    _repeated(value, query.shape[1]),
                )
            watch.observer(name, seen)
        if name in watch.interventions:
            given = watch.interventions[name](given.transpose(1, 2)).transpose(
                1, 2
            )  # [B, H, Q, E] and back
    return given


def _padding(mask: Tensor | None, shape: tuple[int, int, int, int]) -> Bool[Tensor, "B K"] | None:
    """Return which keys no query may look at."""
    if mask is None:
        return None
    numbers = (
        mask.to(torch.uint8) if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    )
    padding = (numbers[..., : shape[3]].amax(dim=(1, 2)) == 0).expand(shape[0], -1)
    return padding if bool(padding.any()) else None


def _ask(stack: ExitStack, model: Any, prefix: str, watch: _Watch) -> None:
    """Ask a model outside the registry for its maps at each forward pass, until the stack is closed."""
    with _held(stack, model):
        for part in filter(is_transformers, model.modules()):
            # Falcon adds the mask that it made for sdpa to the scores of its slow code, where it hides nothing.
            part.config._attn_implementation_internal = "eager"

    def ask(
        _: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        asked = {"output_attentions": True, "return_dict": True} if watch in _watching.get() else {}
        return args, options | asked

    def tell(_: Any, args: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        if watch not in _watching.get():  # another thread uses the model
            return
        names = [name for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
                 if isinstance(getattr(output, name, None), tuple)]  # fmt: skip
        maps = {
            f"{prefix}{name}.{number}": weights
            for name in names
            for number, weights in enumerate(output[name])
        }
        if not maps or not all(
            isinstance(weights, Tensor) and weights.dim() == 4 for weights in maps.values()
        ):
            raise ValueError(
                f"{type(model).__name__} does not use transformers' registry and gives no attention maps"
            )
        given = options.get("attention_mask")
        for name, weights in maps.items():
            padding = (
                given == 0 if given is not None and given.shape == weights.shape[::3] else None
            )
            kept = lambda rows, precision, weights=weights: weights[rows].to(precision)  # noqa: E731
            if watch.observer is not None:
                watch.observer(name, AttentionCall(tuple(weights.shape), padding, weights, kept))

    for hook in (
        model.register_forward_pre_hook(ask, with_kwargs=True),
        model.register_forward_hook(tell, with_kwargs=True),
    ):
        stack.callback(hook.remove)
