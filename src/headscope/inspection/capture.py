"""Asking a model's attention layers for their weights, without changing what the model computes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, attention_weights
from headscope.attention.functional import Mask

# Called with the layer's name, the queries and keys of all heads, and the mask that the softmax is taken of.
LayerObserver = Callable[[str, Tensor, Tensor, Mask | None], None]

ALL = slice(None)


@contextmanager
def observe(model: nn.Module, observer: LayerObserver) -> Iterator[None]:
    """Call `observer` each time an attention layer of the model runs, until the block is left."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, MultiHeadAttention)}
    before = {name: layer.observer for name, layer in layers.items()}
    for name, layer in layers.items():
        layer.observer = lambda query, key, mask, name=name: observer(name, query, key, mask)
    try:
        yield
    finally:
        for name, layer in layers.items():
            layer.observer = before[name]


@contextmanager
def capture(model: nn.Module, rows: slice | list[int] = slice(None)) -> Iterator[dict[str, Tensor]]:
    """Fill a plain mapping, layer name -> weights [row, head, query, key], each time the model runs.

        with capture(model, rows=[0, 2]) as maps:
            model(token_ids, key_padding_mask)
        maps["encoder.blocks.0.attention"]  # [2, H, T, T], float32

    The model goes on with its fused kernel, so its output is the same to the last digit; the weights are computed
    beside it, in float32, of the same queries, keys and mask, for the asked rows of the batch alone.

    Args:
        model: any module with our attention layers in it.
        rows: which rows of the batch; all by default.
    """
    maps: dict[str, Tensor] = {}

    def keep(name: str, query: Tensor, key: Tensor, mask: Mask | None) -> None:
        maps[name] = weights_of(query, key, mask, rows)

    with observe(model, keep):
        yield maps


def weights_of(
    query: Tensor, key: Tensor, mask: Mask | None, rows: slice | list[int] = slice(None)
) -> Float[Tensor, "R H Q K"]:
    """Return the weights of some rows of a batch, in float32 (or float64 where the model computes in it)."""
    if mask is not None and mask.shape[0] > 1:
        mask = mask[rows]
    precision = torch.promote_types(query.dtype, torch.float32)
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        return attention_weights(query[rows].to(precision), key[rows].to(precision), mask)
