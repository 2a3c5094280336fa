"""What torch.nn.MultiheadAttention looked at, and how what its heads give is changed: it has no observer of its own.

A hook sees what the layer was called with; weights and sums are computed anew of that and of the layer's parameters.
Shape letters: B texts, H heads, Q queries, K keys, T tokens, D model width, C key width, V value width, E head width.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    AttentionCall,
    Mask,
    Rows,
    attend,
    attention_weights,
    hidden_keys,
    merge_masks,
)
from headscope.attention.multi_head import Intervention

# Of torch's layer, in their order.
ARGUMENTS = (
    *(
        "query",
        "key",
        "value",
        "key_padding_mask",
        "need_weights",
        "attn_mask",
        "average_attn_weights",
        "is_causal",
    ),
)


@contextmanager
def watching_torch(
    model: nn.Module,
    layers: Mapping[str, nn.MultiheadAttention],
    observer: Callable[[str, AttentionCall], None],
) -> Iterator[None]:
    """Show the observer what torch's layers saw, by hooks on them and on encoders that may pack their inputs."""

    def tell(
        name: str, layer: nn.MultiheadAttention, length: list[int], out: Any, call: dict[str, Any]
    ) -> None:
        observer(name, _seen(layer, length, out[0], call))

    with _hooked(model, layers, tell):
        yield


@contextmanager
def changed_by_torch(model: nn.Module, interventions: Mapping[str, Intervention]) -> Iterator[None]:
    """Change the sums [B, H, Q, E] of torch's layers, and go on with what their output projection makes of them."""
    layers = {name: layer for name, layer in model.named_modules()
              if isinstance(layer, nn.MultiheadAttention) and name in interventions}  # fmt: skip

    def change(
        name: str, layer: nn.MultiheadAttention, length: list[int], out: Any, call: dict[str, Any]
    ) -> Any:
        return _output(layer, length, interventions[name], call), out[1]

    with _hooked(model, layers, change):
        yield


Call = Callable[[str, nn.MultiheadAttention, list[int], Any, dict[str, Any]], Any]


@contextmanager
def _hooked(
    model: nn.Module, layers: Mapping[str, nn.MultiheadAttention], call: Call
) -> Iterator[None]:
    """Call `call` after each run of a layer, with its arguments by name; what it returns takes the output's place."""
    for name, layer in layers.items():
        if layer.bias_k is not None or layer.add_zero_attn:
            raise ValueError(
                f"{name}: add_bias_kv and add_zero_attn are not supported: they add a key that is no token"
            )
    length: list[int] = []  # tokens of the padded texts that the encoder at work was given

    def remember(encoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        source: Tensor = args[0] if args else kwargs["src"]
        length[:] = [] if source.is_nested else [source.shape[1]]

    def forget(*_: object) -> None:
        length.clear()

    def ran(
        name: str,
        layer: nn.MultiheadAttention,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> Any:
        return call(name, layer, length, out, dict(zip(ARGUMENTS, args, strict=False)) | kwargs)

    with ExitStack() as stack:
        hooks = [
            layer.register_forward_hook(partial(ran, name), with_kwargs=True)
            for name, layer in layers.items()
        ]
        for encoder in (
            module
            for module in model.modules()
            if isinstance(module, nn.TransformerEncoder) and layers
        ):
            hooks.append(encoder.register_forward_pre_hook(remember, with_kwargs=True))
            hooks.append(encoder.register_forward_hook(forget, always_call=True))
        for hook in hooks:
            stack.callback(hook.remove)
        yield


class _Inputs(NamedTuple):
    """What a call of torch's layer was given, text by text, whatever form it had."""

    query: Float[Tensor, "B Q D"]
    key: Float[Tensor, "B K C"]
    value: Float[Tensor, "B K V"]
    padding: Bool[Tensor, "B K"] | None
    mask: Mask | None  # the padding too


def _inputs(
    layer: nn.MultiheadAttention,
    length: list[int],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # a hint that attn_mask is the causal one, which torch asks for beside it
) -> _Inputs:
    padding = key_padding_mask
    if query.is_nested:  # torch takes these for self-attention alone
        query, padding = _padded(query, length)
        key = value = query
    else:
        if query.dim() == 2 and padding is not None:
            padding = padding[None]
        query, key, value = (_by_text(layer, tokens) for tokens in (query, key, value))
    shape = (*query.shape[:1], layer.num_heads, query.shape[1], key.shape[1])
    return _Inputs(query, key, value, padding, merge_masks(shape, padding, attn_mask))


def _by_text(layer: nn.MultiheadAttention, tokens: Tensor) -> Float[Tensor, "B T C"]:
    """Return tokens as [B, T, C], which may be those of one text, [T, C], or come as [T, B, C]."""
    if tokens.dim() == 2:
        return tokens[None]
    return tokens if layer.batch_first else tokens.transpose(0, 1)


def _seen(
    layer: nn.MultiheadAttention, length: list[int], output: Tensor, call: dict[str, Any]
) -> AttentionCall:
    """Return what a call of torch's layer looked at."""
    given = _inputs(layer, length, **call)
    whole = _padded(output, length)[0] if output.is_nested else _by_text(layer, output)
    return _explained(layer, given[:3], given.mask, hidden_keys(given.padding), whole)


def _output(
    layer: nn.MultiheadAttention, length: list[int], change: Intervention, call: dict[str, Any]
) -> Tensor:
    """Return what a call of torch's layer gives where its heads' sums are changed."""
    given, query = _inputs(layer, length, **call), call["query"]
    queries, keys, values = (
        _projected(layer, number, tokens) for number, tokens in enumerate(given[:3])
    )
    sums = change(
        attend(queries, keys, values, given.mask, layer.dropout if layer.training else 0.0)
    )  # [B, H, Q, E]
    output: Tensor = layer.out_proj(
        sums.transpose(1, 2).flatten(2)
    )  # [B, H, Q, E] -> [B, Q, H, E] -> [B, Q, D]
    if query.is_nested:
        return torch.nested.as_nested_tensor(
            [text[: len(own)] for text, own in zip(output, query.unbind(), strict=True)]
        )
    if query.dim() == 2:
        return output[0]
    return output if layer.batch_first else output.transpose(0, 1)


def _explained(
    layer: nn.MultiheadAttention,
    inputs: tuple[Float[Tensor, "B Q D"], Float[Tensor, "B K C"], Float[Tensor, "B K V"]],
    mask: Mask | None,
    padding: Bool[Tensor, "B K"] | None,
    output: Float[Tensor, "B Q D"],
) -> AttentionCall:
    query, key, value = inputs

    def weights(rows: Rows, precision: torch.dtype) -> Tensor:
        queries, keys = (
            _projected(layer, number, inputs[number][rows].to(precision)) for number in (0, 1)
        )
        return attention_weights(
            queries, keys, mask[rows] if mask is not None and mask.shape[0] > 1 else mask
        )

    def difference(shown: Tensor) -> Tensor:
        """Compare with the output, since torch's layer shows no sums."""
        sums = shown @ _projected(layer, 2, value.to(shown.dtype))  # [B, H, Q, E]
        bias = None if layer.out_proj.bias is None else layer.out_proj.bias.to(shown.dtype)
        expected = F.linear(
            sums.transpose(1, 2).flatten(2), layer.out_proj.weight.to(shown.dtype), bias
        )
        far = (expected - output).abs().amax(dim=-1)  # [B, Q]
        return (
            far.masked_fill(padding, 0).max() if padding is not None and key is query else far.max()
        )

    return AttentionCall(
        (len(query), layer.num_heads, query.shape[1], key.shape[1]),
        padding,
        query,
        weights,
        difference,
    )


def _padded(
    packed: Tensor, length: list[int]
) -> tuple[Float[Tensor, "B T D"], Bool[Tensor, "B T"]]:
    """Return a nested tensor as long as the texts were before packing, and the mask of its padding."""
    texts = packed.unbind()
    lengths = torch.tensor([len(text) for text in texts], device=packed.device)
    T = max([*length, int(lengths.max())])
    padded = torch.stack([F.pad(text, (0, 0, 0, T - len(text))) for text in texts])
    return padded, torch.arange(T, device=packed.device) >= lengths[:, None]


def _projected(
    layer: nn.MultiheadAttention, number: int, tokens: Float[Tensor, "B T C"]
) -> Float[Tensor, "B H T E"]:
    """Return the queries (0), keys (1) or values (2) of all heads, by the layer's own parameters."""
    if layer.in_proj_weight is None:
        weight = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)[number]
    else:
        weight = layer.in_proj_weight.chunk(3)[number]
    bias = (
        None if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)[number].to(tokens.dtype)
    )
    heads: Tensor = F.linear(tokens, weight.to(tokens.dtype), bias).unflatten(
        -1, (layer.num_heads, -1)
    )
    return heads.transpose(1, 2)  # [B, T, H, E] -> [B, H, T, E]
