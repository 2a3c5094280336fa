"""Asking a model's attention layers for their weights, without changing what the model computes.

Our own layers tell their observer. Those of torch and of transformers have none: see `torch_layers` and `huggingface`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attention.functional import ALL, AttentionCall, ObservedAttention, Rows
from headscope.attention.multi_head import HeadedAttention
from headscope.heads.torch_layers import watching_torch
from headscope.heads.transformers_models import foreign_models, observe_transformers

# Called with the layer's name and what it saw.
LayerObserver = Callable[[str, AttentionCall], None]
Kind = type[Any] | tuple[type[Any], ...]


class ForeignAttention:
    """Stands, among the kinds of layers, for the attention of transformers' models."""


ATTENTION = (ObservedAttention, nn.MultiheadAttention, ForeignAttention)
HEADED = (HeadedAttention, nn.MultiheadAttention, ForeignAttention)  # those that have heads


@contextmanager
def capture(
    model: nn.Module, rows: Rows = ALL, kind: Kind = ATTENTION
) -> Iterator[dict[str, Tensor]]:
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
        model: any module with attention layers of headscope, of torch or of transformers in it.
        rows: which rows of the batch; all by default.
        kind: which layers to watch, such as HeadedAttention for ours with heads; all by default.

    Raises:
        ValueError: if the model has no such layer, or one whose weights cannot be known; the message names the class.
    """
    maps: dict[str, Tensor] = {}

    def keep(name: str, seen: AttentionCall) -> None:
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
    if ForeignAttention in _classes(kind) and not layers and not foreign_models(model):
        raise ValueError(
            f"{type(model).__name__}: has no attention that is known here: takes headscope's layers,"
            " torch.nn.MultiheadAttention, and models of transformers"
        )
    with ExitStack() as stack:
        for name, layer in layers.items():
            if isinstance(layer, ObservedAttention):
                stack.callback(setattr, layer, "observer", layer.observer)
                layer.observer = lambda seen, name=name: observer(name, seen)
        torchs = {
            name: layer
            for name, layer in layers.items()
            if isinstance(layer, nn.MultiheadAttention)
        }
        stack.enter_context(watching_torch(model, torchs, observer))
        if ForeignAttention in _classes(kind):
            stack.enter_context(observe_transformers(model, observer))
        yield


def _classes(kind: Kind) -> tuple[type[Any], ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def now(device: torch.device) -> float:
    """Return the time once the device is done, so that its work is counted where it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
