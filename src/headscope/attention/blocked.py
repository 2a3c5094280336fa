"""Attention some texts at a time, for training on a CPU: what is being worked on stays in the core's cache.

The weights A of all texts and heads are the largest thing in a training step. Here they are never all there: texts are
taken in blocks, a block's weights are made, used and forgotten, and the backward pass makes them again from the
queries and keys (the idea of Dao et al. 2022, FlashAttention, section 3.1, which cuts along the keys instead). With
G the gradient of the output O = A V and all products within one head of one text,

    dV = A^T G,    dA = G V^T,    dS = A * (dA - rowsum(A * dA)),    dQ = dS K / sqrt(E),    dK = dS^T Q / sqrt(E).

With dropout, A * M stands for A in O and in dV, and dA * M for dA, where M is 0 or 1 / (1 - p); M is drawn again too.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.attention.dropout import drawn_seed, dropped_levels, kept, scale, words_for

BLOCK = 2**20  # bytes of a block's weights, which a core's cache holds beside a copy or two


def blocked_attention(
    query: Float[Tensor, "B H Q E"],
    key: Float[Tensor, "B H K E"],
    value: Float[Tensor, "B H K V"],
    numbers: Float[Tensor, "#B #H #Q K"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H Q V"]:
    """Return softmax(Q K^T / sqrt(E) + numbers) V, and the gradients of query, key and value.

    Args:
        query: what each position looks for, one vector per head.
        key: what each position offers.
        value: what is averaged.
        numbers: added to the scores; -inf hides a key. They get no gradient.
        dropout: share of the weights set to zero, the others scaled up by 1 / (1 - dropout).

    Returns:
        The weighted sum of the values for each query; zeros where every key is hidden.
    """
    hidden = None
    if numbers is not None:
        numbers, hidden = finite(numbers.to(query.dtype))
    levels = dropped_levels(dropout)
    seed = drawn_seed() if levels else 0
    output: Tensor = _BlockedAttention.apply(query, key, value, numbers, levels, seed)
    return output if hidden is None else output.masked_fill(hidden, 0.0)


def finite(numbers: Float[Tensor, "b h q K"]) -> tuple[Float[Tensor, "b h q K"], Tensor | None]:
    """Return numbers without -inf, and where a query may look nowhere [b, h, q, 1], if there is such a query.

    The lowest finite number makes the same weights, exactly 0, but for a query whose every key is hidden: there the
    softmax of nothing but -inf would be NaN.
    """
    nowhere = (numbers == -math.inf).all(dim=-1, keepdim=True)  # [b, h, q, 1]
    # Looking costs nothing on a CPU, but makes a GPU wait, and a compiler cannot do it.
    is_looked_at = numbers.device.type == "cpu" and not torch.compiler.is_compiling()
    is_needed = not is_looked_at or bool(nowhere.any())
    return numbers.clamp(min=torch.finfo(numbers.dtype).min), nowhere if is_needed else None


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, numbers: Tensor | None, levels: int, seed: int
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, numbers)
        ctx.levels, ctx.seed = levels, seed
        output = _like(query, value.shape[-1])
        for block, start in _blocks(query, key):
            weights = _weights(query[block], key[block], _part(numbers, block))
            if levels:
                weights.mul_(kept(tuple(weights.shape), levels, seed, start))
            sums = weights @ value[block]
            output[block] = sums.mul_(scale(levels)) if levels else sums
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, numbers = ctx.saved_tensors
        gradients = tuple(_like(heads, heads.shape[-1]) for heads in (query, key, value))
        for block, start in _blocks(query, key):
            heads = (query[block], key[block], value[block])
            mask = None
            if ctx.levels:
                shape = (*heads[0].shape[:3], key.shape[2])
                mask = kept(shape, ctx.levels, ctx.seed, start)
            found = _gradients(heads, _part(numbers, block), gradient[block].contiguous(), mask, scale(ctx.levels))
            for whole, part in zip(gradients, found, strict=True):
                whole[block] = part
        return *gradients, None, None, None


def _gradients(
    heads: tuple[Tensor, Tensor, Tensor], numbers: Tensor | None, gradient: Tensor, mask: Tensor | None, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dQ, dK and dV of a block, by the formulas at the head of this file."""
    query, key, value = heads
    weights = _weights(query, key, numbers)
    weights_gradient = gradient @ value.transpose(-2, -1)  # dA, [B, H, Q, K]
    used = weights
    if mask is not None:
        gradient = gradient * factor
        weights_gradient.mul_(mask).mul_(factor)
        used = weights * mask
    value_gradient = used.transpose(-2, -1) @ gradient
    scores_gradient = torch.ops.aten._softmax_backward_data.out(
        weights_gradient, weights, -1, weights.dtype, grad_input=weights_gradient
    )
    width = math.sqrt(query.shape[-1])
    query_gradient = (scores_gradient @ key).div_(width)
    key_gradient = (scores_gradient.transpose(-2, -1) @ query).div_(width)
    return query_gradient, key_gradient, value_gradient


def _weights(query: Tensor, key: Tensor, numbers: Tensor | None) -> Tensor:
    """Return A of a block, made in place."""
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # [B, H, Q, K]
    if numbers is not None:
        scores.add_(numbers)
    weights: Tensor = torch.ops.aten._softmax.out(scores, -1, False, out=scores)
    return weights


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, int]]:
    """Yield the texts of each block, and how many random numbers the blocks before it use."""
    B, H, Q, _ = query.shape
    a_text = H * Q * key.shape[2]
    texts = max(1, BLOCK // (a_text * query.element_size()))
    for number, start in enumerate(range(0, B, texts)):
        yield slice(start, start + texts), number * words_for(texts * a_text)


def _part(numbers: Tensor | None, block: slice) -> Tensor | None:
    return numbers if numbers is None or numbers.shape[0] == 1 else numbers[block]


def _like(heads: Tensor, width: int) -> Tensor:
    """Return room for [B, H, T, width] that lies in memory as [B, T, H, width], as what comes next wants it."""
    B, H, T, _ = heads.shape
    return heads.new_empty(B, T, H, width).transpose(1, 2)
