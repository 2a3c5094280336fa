"""Carrying weights from any form of multi-head attention to any other: all compute one function.

    carry(torch.nn.MultiheadAttention(4, 2), PaperAttention(4, 2))

The packed form is the common tongue: `read` says a layer's weights in it, `write` sets a layer from it.
"""

from functools import singledispatch
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


@singledispatch
def read(layer: nn.Module) -> Weights:
    """Return the weights of a layer in the packed form. The tensors are detached."""
    raise TypeError(f"{type(layer).__name__} is no form of multi-head attention that weights can be carried from")


@singledispatch
def write(layer: nn.Module, weights: Weights) -> None:
    """Set the weights of a layer from the packed form."""
    raise TypeError(f"{type(layer).__name__} is no form of multi-head attention that weights can be carried to")


def _put(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    if linear.weight.shape != weight.shape or (linear.bias is None) != (bias is None):
        ours, theirs = list(linear.weight.shape), list(weight.shape)
        raise ValueError(f"a projection of {ours} with bias={linear.bias is not None} cannot take {theirs}, "
                         f"bias={bias is not None}")  # fmt: skip
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)


def _parts(weights: Weights, parts: int) -> list[tuple[Tensor, Tensor | None]]:
    """Cut the rows of the in-projection into so many parts of one size, biases beside them."""
    biases = [None] * parts if weights.in_bias is None else list(weights.in_bias.chunk(parts))
    return list(zip(weights.in_weight.chunk(parts), biases, strict=True))


def _stacked(projections: list[nn.Linear], output: nn.Linear) -> Weights:
    """Return the packed form of projections that stand one after the other: queries, keys, values."""
    weight = torch.cat([linear.weight.detach() for linear in projections])
    bias = None if output.bias is None else torch.cat([linear.bias.detach() for linear in projections])
    return Weights(weight, bias, output.weight.detach(), None if output.bias is None else output.bias.detach())


@read.register(PaperAttention)
def _(layer: PaperAttention) -> Weights:
    return _stacked([*layer.W_Q, *layer.W_K, *layer.W_V], layer.W_O)


@write.register(PaperAttention)
def _(layer: PaperAttention, weights: Weights) -> None:
    projections = [*layer.W_Q, *layer.W_K, *layer.W_V]
    for linear, part in zip(projections, _parts(weights, len(projections)), strict=True):
        _put(linear, *part)
    _put(layer.W_O, weights.out_weight, weights.out_bias)


@read.register(FourLinearAttention)
def _(layer: FourLinearAttention) -> Weights:
    return _stacked([layer.W_Q, layer.W_K, layer.W_V], layer.W_O)


@write.register(FourLinearAttention)
def _(layer: FourLinearAttention, weights: Weights) -> None:
    for linear, part in zip((layer.W_Q, layer.W_K, layer.W_V), _parts(weights, 3), strict=True):
        _put(linear, *part)
    _put(layer.W_O, weights.out_weight, weights.out_bias)


@read.register(PackedAttention)
def _(layer: PackedAttention) -> Weights:
    return _stacked([layer.in_proj], layer.out_proj)


@write.register(PackedAttention)
def _(layer: PackedAttention, weights: Weights) -> None:
    _put(layer.in_proj, weights.in_weight, weights.in_bias)
    _put(layer.out_proj, weights.out_weight, weights.out_bias)


@read.register(MultiHeadAttention)
@read.register(nn.MultiheadAttention)
def _(layer: MultiHeadAttention | nn.MultiheadAttention) -> Weights:
    if layer.in_proj_weight is None:
        raise ValueError("keys and values of a width of their own have no packed form")
    weight, out = _with_own_keys(layer, layer.in_proj_weight), layer.out_proj
    bias = None if layer.in_proj_bias is None else _with_own_keys(layer, layer.in_proj_bias)
    return Weights(weight, bias, out.weight.detach(), None if out.bias is None else out.bias.detach())


def _with_own_keys(layer: MultiHeadAttention | nn.MultiheadAttention, rows: Tensor) -> Tensor:
    """Repeat the rows of keys and values that several heads share, so that each head has its own."""
    if isinstance(layer, nn.MultiheadAttention):
        return rows.detach()
    queries, shared = rows.detach().tensor_split([layer.embed_dim])
    heads = shared.unflatten(0, (-1, layer.head_dim))  # [2 H / sharing, E, ...]
    return torch.cat([queries, heads.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=0).flatten(0, 1)])


@write.register(MultiHeadAttention)
@write.register(nn.MultiheadAttention)
def _(layer: MultiHeadAttention | nn.MultiheadAttention, weights: Weights) -> None:
    names = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    wanted = {name: tensor for name, tensor in zip(names, weights, strict=True) if tensor is not None}
    if {name: tensor.shape for name, tensor in layer.state_dict().items()} != {
        name: tensor.shape for name, tensor in wanted.items()
    }:
        raise ValueError(f"{type(layer).__name__} has other widths, biases or shared keys than the weights")
    layer.load_state_dict(wanted)


@read.register(SharedProjectionAttention)
def _(layer: SharedProjectionAttention) -> Weights:
    """Every head has the same block on the diagonal: it sees its own piece of the embedding alone."""
    parts = [torch.block_diag(*[linear.weight.detach()] * layer.num_heads)
             for linear in (layer.queries, layer.keys, layer.values)]  # fmt: skip
    weight = torch.cat(parts)
    out = layer.fc_out
    return Weights(weight, weight.new_zeros(len(weight)), out.weight.detach(), out.bias.detach())
