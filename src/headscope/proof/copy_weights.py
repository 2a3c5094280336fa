"""Carrying weights from any form of multi-head attention to any other: all compute one function.

    carry(torch.nn.MultiheadAttention(4, 2), PaperAttention(4, 2))

Weights go through torch's packed form: `read` returns a layer's weights in it, `write` sets a layer from it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention.multi_head import MultiHeadAttention
from headscope.attention.reference import FourLinearAttention, PackedAttention, PaperAttention
from headscope.attention.variants import SharedProjectionAttention


class Weights(NamedTuple):
    """The weights of multi-head attention of one width, as torch packs them.

    Attributes:
        in_weight: rows for the queries of all heads, then for the keys, then for the values.
        in_bias: likewise; None without biases.
        out_weight: W^O, transposed as Linear keeps it.
        out_bias: likewise; None without biases.
    """

    in_weight: Float[Tensor, "3D D"]
    in_bias: Float[Tensor, " 3D"] | None
    out_weight: Float[Tensor, "D D"]
    out_bias: Float[Tensor, " D"] | None


def carry(source: nn.Module, target: nn.Module) -> None:
    """Give `target` the weights of `source`, so that both compute the same.

    Raises:
        TypeError: for a layer that is no form of multi-head attention.
        ValueError: where `target` cannot hold the weights: another width, biases it lacks, projections it shares.
    """
    write(target, read(source))


def read(layer: nn.Module) -> Weights:
    """Return the weights of a layer in the packed form. The tensors are detached."""
    if isinstance(layer, SharedProjectionAttention):
        # Every head has the same block on the diagonal: it sees its own piece of the embedding alone.
        weight = torch.cat([torch.block_diag(*[linear.weight.detach()] * layer.num_heads)
                            for linear in (layer.queries, layer.keys, layer.values)])  # fmt: skip
        return Weights(
            weight,
            weight.new_zeros(len(weight)),
            layer.fc_out.weight.detach(),
            layer.fc_out.bias.detach(),
        )
    if isinstance(layer, MultiHeadAttention | nn.MultiheadAttention):
        if layer.in_proj_weight is None:
            raise ValueError("keys and values of a width of their own have no packed form")
        out, in_weight = layer.out_proj, _with_own_keys(layer, layer.in_proj_weight)
        in_bias = None if layer.in_proj_bias is None else _with_own_keys(layer, layer.in_proj_bias)
    else:
        projections, out = _linears(layer, "from")
        in_weight = torch.cat([linear.weight.detach() for linear in projections])
        in_bias = (
            None
            if out.bias is None
            else torch.cat([linear.bias.detach() for linear in projections])
        )
    return Weights(
        in_weight, in_bias, out.weight.detach(), None if out.bias is None else out.bias.detach()
    )


def write(layer: nn.Module, weights: Weights) -> None:
    """Set the weights of a layer from the packed form."""
    if isinstance(layer, MultiHeadAttention | nn.MultiheadAttention):
        names = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
        given = {
            name: tensor for name, tensor in zip(names, weights, strict=True) if tensor is not None
        }
        shapes = [
            {name: tensor.shape for name, tensor in state.items()}
            for state in (layer.state_dict(), given)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{type(layer).__name__} has other widths, biases or shared keys than the weights"
            )
        layer.load_state_dict(given)
        return
    projections, out = _linears(layer, "to")
    parts = len(projections)
    biases = [None] * parts if weights.in_bias is None else list(weights.in_bias.chunk(parts))
    for linear, weight, bias in zip(
        projections, weights.in_weight.chunk(parts), biases, strict=True
    ):
        _put(linear, weight, bias)
    _put(out, weights.out_weight, weights.out_bias)


def _linears(layer: nn.Module, direction: str) -> tuple[list[nn.Linear], nn.Linear]:
    """Return a textbook form's projections, in the order in which the packed form stacks them, and W^O."""
    match layer:
        case PaperAttention():
            return [*layer.W_Q, *layer.W_K, *layer.W_V], layer.W_O
        case FourLinearAttention():
            return [layer.W_Q, layer.W_K, layer.W_V], layer.W_O
        case PackedAttention():
            return [layer.in_proj], layer.out_proj
    name = type(layer).__name__
    raise TypeError(
        f"{name} is no form of multi-head attention that weights can be carried {direction}"
    )


def _put(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    if linear.weight.shape != weight.shape or (linear.bias is None) != (bias is None):
        ours, theirs = list(linear.weight.shape), list(weight.shape)
        raise ValueError(f"a projection of {ours} with bias={linear.bias is not None} cannot take {theirs}, "
                         f"bias={bias is not None}")  # fmt: skip
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)


def _with_own_keys(layer: MultiHeadAttention | nn.MultiheadAttention, rows: Tensor) -> Tensor:
    """Repeat the rows of keys and values that several heads share, so that each head has its own."""
    if isinstance(layer, nn.MultiheadAttention):
        return rows.detach()
    queries, shared = rows.detach().tensor_split([layer.embed_dim])
    heads = shared.unflatten(0, (-1, layer.head_dim))  # [2 H / sharing, E, ...]
    return torch.cat(
        [
            queries,
            heads.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=0).flatten(0, 1),
        ]
    )
