"""Asking a model's attention layers for their weights, without changing what the model computes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from headscope.attention.observed import ALL, ObservedAttention, Rows, Seen

# Called with the layer's name and what it saw.
LayerObserver = Callable[[str, Seen], None]


@contextmanager
def observe(
    model: nn.Module, observer: LayerObserver, kind: type[ObservedAttention] = ObservedAttention
) -> Iterator[None]:
    """Call `observer` each time an attention layer of the model runs, until the block is left.

    Args:
        model: any module with our attention layers in it.
        observer: told the layer's name and what it saw.
        kind: which layers to watch, such as HeadedAttention for those with heads; all by default.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, kind)}
    before = {name: layer.observer for name, layer in layers.items()}
    for name, layer in layers.items():
        layer.observer = lambda seen, name=name: observer(name, seen)
    try:
        yield
    finally:
        for name, layer in layers.items():
            layer.observer = before[name]


@contextmanager
def capture(
    model: nn.Module, rows: Rows = ALL, kind: type[ObservedAttention] = ObservedAttention
) -> Iterator[dict[str, Tensor]]:
    """Fill a plain mapping, layer name -> weights [row, head, query, key], each time the model runs.

        with capture(model, rows=[0, 2]) as maps:
            model(token_ids, key_padding_mask)
        maps["encoder.blocks.0.attention"]  # [2, H, T, T], float32

    The model goes on with its fused kernel, so its output is the same to the last digit; the weights are computed
    beside it, in float32, of the same queries, keys and mask, for the asked rows of the batch alone. A pooling that
    attends has one head and one query: [row, 1, 1, T].

    Args:
        model: any module with our attention layers in it.
        rows: which rows of the batch; all by default.
        kind: which layers to watch, such as HeadedAttention for those with heads; all by default.
    """
    maps: dict[str, Tensor] = {}

    def keep(name: str, seen: Seen) -> None:
        maps[name] = seen.weights(rows)

    with observe(model, keep, kind):
        yield maps
