"""Copy weights from any form of multi-head attention to any other: all compute one function.

    copy_weights(torch.nn.MultiheadAttention(4, 2), PaperAttention(4, 2))

Weights pass through torch's packed form, the state dict of torch.nn.MultiheadAttention:
`read_weights` returns those of a layer in it, `write_weights` sets a layer from it.
"""

import torch
from torch import Tensor, nn

from headscope.attention.multi_head import MultiHeadAttention
from headscope.attention.reference import FourLinearAttention, PackedAttention, PaperAttention
from headscope.attention.variants import SharedProjectionAttention


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Give `target` the weights of `source`, so that both compute the same.

    Raises:
        TypeError: if one of them is not a form of multi-head attention.
        ValueError: if `target` cannot hold the weights: another width, no biases, shared keys.
    """
    write_weights(target, read_weights(source))


def read_weights(layer: nn.Module) -> dict[str, Tensor]:
    """Return a layer's weights in the packed form, [3D, D] for queries, keys and values."""
    if isinstance(layer, SharedProjectionAttention):
        # Every head has the same block on the diagonal: it sees only its own piece.
        linears = (layer.queries, layer.keys, layer.values)
        blocks = [
            torch.block_diag(*[linear.weight.detach()] * layer.num_heads) for linear in linears
        ]
        weights = {"in_proj_weight": torch.cat(blocks)}
        weights["in_proj_bias"] = weights["in_proj_weight"].new_zeros(3 * layer.embed_dim)
        out = layer.fc_out
    elif isinstance(layer, MultiHeadAttention | nn.MultiheadAttention):
        if layer.in_proj_weight is None:
            raise ValueError("keys and values of another width than queries have no packed form")
        state = layer.state_dict()
        names = [name for name in state if not name.startswith("out_proj.")]
        weights = {name: _repeat_shared_keys(layer, state[name]) for name in names}
        out = layer.out_proj
    else:
        projections, out = _linears(layer)
        weights = {}
        for kind in out.state_dict():  # weight and, if there is one, bias
            tensors = [linear.state_dict()[kind] for linear in projections]
            weights[f"in_proj_{kind}"] = torch.cat(tensors)
    return weights | {f"out_proj.{kind}": tensor for kind, tensor in out.state_dict().items()}


def write_weights(layer: nn.Module, weights: dict[str, Tensor]) -> None:
    """Set a layer's weights from the packed form."""
    try:
        if isinstance(layer, MultiHeadAttention | nn.MultiheadAttention):
            layer.load_state_dict(weights)
            return
        projections, out = _linears(layer)
        out.load_state_dict(_state(weights, "out_proj."))
        packed = _state(weights, "in_proj_")
        for i, linear in enumerate(projections):
            parts = {kind: rows.chunk(len(projections))[i] for kind, rows in packed.items()}
            linear.load_state_dict(parts)
    except RuntimeError as error:  # names or shapes differ
        raise ValueError(
            f"{type(layer).__name__}: the weights have another width, biases or shared keys"
        ) from error


def _state(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the weight and, if there is one, the bias whose names begin like this."""
    names = [name for name in weights if name.startswith(prefix)]
    return {name.removeprefix(prefix): weights[name] for name in names}


def _linears(layer: nn.Module) -> tuple[list[nn.Linear], nn.Linear]:
    """Return a textbook form's projections, in the order in which torch packs them, and W^O."""
    match layer:
        case PaperAttention():
            return [*layer.W_Q, *layer.W_K, *layer.W_V], layer.W_O
        case FourLinearAttention():
            return [layer.W_Q, layer.W_K, layer.W_V], layer.W_O
        case PackedAttention():
            return [layer.in_proj], layer.out_proj
    raise TypeError(
        f"expected a form of multi-head attention with weights for each head, got "
        f"{type(layer).__name__}"
    )


def _repeat_shared_keys(layer: MultiHeadAttention | nn.MultiheadAttention, rows: Tensor) -> Tensor:
    """Repeat the rows of keys and values that heads share, so that each head has its own."""
    if isinstance(layer, nn.MultiheadAttention):
        return rows
    queries, shared = rows.tensor_split([layer.embed_dim])
    heads = shared.unflatten(0, (-1, layer.head_dim))  # [2 num_kv_heads, E, ...]
    repeated = heads.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=0)
    return torch.cat([queries, repeated.flatten(0, 1)])
