"""Asking a model's attention layers for their weights, without changing what the model computes.

Our own layers tell their observer. torch.nn.MultiheadAttention has none: a hook sees what it was called with, and the
weights are computed anew of that and of the layer's parameters.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    ALL,
    Mask,
    ObservedAttention,
    Rows,
    Seen,
    attention_weights,
    hidden_keys,
    merge_masks,
)

# Called with the layer's name and what it saw.
LayerObserver = Callable[[str, Seen], None]
Kind = type[nn.Module] | tuple[type[nn.Module], ...]
ATTENTION = (ObservedAttention, nn.MultiheadAttention)


@contextmanager
def capture(model: nn.Module, rows: Rows = ALL, kind: Kind = ATTENTION) -> Iterator[dict[str, Tensor]]:
    """Fill a plain mapping, layer name -> weights [row, head, query, key], each time the model runs.

        with capture(model, rows=[0, 2]) as maps:
            model(token_ids, key_padding_mask)
        maps["encoder.blocks.0.attention"]  # [2, H, T, T], float32

    The model goes on with its fused kernel, so its output is the same to the last digit; the weights are computed
    beside it, in float32, of the same queries, keys and mask. A pooling that attends has one head and one query.

    This holds for torch.nn.MultiheadAttention too. The exception is torch.nn.TransformerEncoderLayer on its fast path
    (eval mode, no gradients): a hook takes it off that path, and its output is then equal up to rounding. On a CPU
    (torch 2.13) it was equal to the last digit, except where a mask reaches the blocks (with norm_first, or without the
    nested tensors that torch.nn.TransformerEncoder packs padded texts into). Packing goes on as before, with zeros at
    padding in the output; the maps are padded again.

    Args:
        model: any module with our attention layers or torch's in it.
        rows: which rows of the batch; all by default.
        kind: which layers to watch, such as HeadedAttention for ours with heads; all by default.
    """
    maps: dict[str, Tensor] = {}

    def keep(name: str, seen: Seen) -> None:
        maps[name] = seen.weights(rows)

    with observe(model, keep, kind):
        yield maps


@contextmanager
def observe(model: nn.Module, observer: LayerObserver, kind: Kind = ATTENTION) -> Iterator[None]:
    """Call `observer` with the layer's name and what it saw each time an attention layer runs, until the block is left.

    `kind` says which layers to watch, such as HeadedAttention for ours with heads; all by default. ValueError if a
    torch.nn.MultiheadAttention has add_bias_kv or add_zero_attn.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, kind)}
    with ExitStack() as stack:
        for name, layer in layers.items():
            if isinstance(layer, ObservedAttention):
                stack.callback(setattr, layer, "observer", layer.observer)
                layer.observer = lambda seen, name=name: observer(name, seen)
        watched = {name: layer for name, layer in layers.items() if isinstance(layer, nn.MultiheadAttention)}
        if watched:
            _watch(stack, model, watched, observer)
        yield


def _watch(
    stack: ExitStack, model: nn.Module, layers: dict[str, nn.MultiheadAttention], observer: LayerObserver
) -> None:
    """Put hooks on torch's layers, and on encoders that may pack their inputs, until the stack is closed."""
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

    def tell(name: str, layer: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        observer(name, _seen(layer, length, out[0], *args, **kwargs))

    hooks = [layer.register_forward_hook(partial(tell, name), with_kwargs=True) for name, layer in layers.items()]
    for encoder in (module for module in model.modules() if isinstance(module, nn.TransformerEncoder)):
        hooks.append(encoder.register_forward_pre_hook(remember, with_kwargs=True))
        hooks.append(encoder.register_forward_hook(forget, always_call=True))
    for hook in hooks:
        stack.callback(hook.remove)


def _seen(
    layer: nn.MultiheadAttention,
    length: list[int],
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # a hint that attn_mask is the causal one, which torch asks for beside it
) -> Seen:
    """Return what a call of torch's layer, with these arguments, looked at."""
    if query.is_nested:  # torch takes these for self-attention alone
        (query, key_padding_mask), (output, _) = _padded(query, length), _padded(output, length)
        key = value = query
    elif query.dim() == 2:  # one text
        query, key, value, output = query[None], key[None], value[None], output[None]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    elif not layer.batch_first:
        query, key, value, output = (tensor.transpose(0, 1) for tensor in (query, key, value, output))
    mask = merge_masks((*query.shape[:1], layer.num_heads, query.shape[1], key.shape[1]), key_padding_mask, attn_mask)
    return _explained(layer, (query, key, value), mask, hidden_keys(key_padding_mask), output)


def _explained(
    layer: nn.MultiheadAttention,
    inputs: tuple[Float[Tensor, "B Q D"], Float[Tensor, "B K C"], Float[Tensor, "B K V"]],
    mask: Mask | None,
    padding: Bool[Tensor, "B K"] | None,
    output: Float[Tensor, "B Q D"],
) -> Seen:
    query, key, value = inputs

    def weights(rows: Rows, precision: torch.dtype) -> Tensor:
        queries, keys = (_projected(layer, number, inputs[number][rows].to(precision)) for number in (0, 1))
        return attention_weights(queries, keys, mask[rows] if mask is not None and mask.shape[0] > 1 else mask)

    def difference(shown: Tensor) -> Tensor:
        """Compare with the output, since torch's layer shows no sums."""
        sums = shown @ _projected(layer, 2, value.to(shown.dtype))  # [B, H, Q, E]
        bias = None if layer.out_proj.bias is None else layer.out_proj.bias.to(shown.dtype)
        expected = F.linear(sums.transpose(1, 2).flatten(2), layer.out_proj.weight.to(shown.dtype), bias)
        far = (expected - output).abs().amax(dim=-1)  # [B, Q]
        return far.masked_fill(padding, 0).max() if padding is not None and key is query else far.max()

    return Seen((len(query), layer.num_heads, query.shape[1], key.shape[1]), padding, query, weights, difference)


def _padded(packed: Tensor, length: list[int]) -> tuple[Float[Tensor, "B T D"], Bool[Tensor, "B T"]]:
    """Return a nested tensor as long as the texts were before packing, and the mask of its padding."""
    texts = packed.unbind()
    lengths = torch.tensor([len(text) for text in texts], device=packed.device)
    T = max([*length, int(lengths.max())])
    padded = torch.stack([F.pad(text, (0, 0, 0, T - len(text))) for text in texts])
    return padded, torch.arange(T, device=packed.device) >= lengths[:, None]


def _projected(layer: nn.MultiheadAttention, number: int, tokens: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T E"]:
    """Return the queries (0), keys (1) or values (2) of all heads, by the layer's own parameters."""
    if layer.in_proj_weight is None:
        weight = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)[number]
    else:
        weight = layer.in_proj_weight.chunk(3)[number]
    bias = None if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)[number].to(tokens.dtype)
    heads: Tensor = F.linear(tokens, weight.to(tokens.dtype), bias).unflatten(-1, (layer.num_heads, -1))
    return heads.transpose(1, 2)  # [B, T, H, E] -> [B, H, T, E]


def now(device: torch.device) -> float:
    """Return the time once the device is done, so that its work is counted where it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
