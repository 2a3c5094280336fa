"""Attention some texts at a time, for training on a CPU: what is being worked on stays in the core's cache.

The weights A of all texts and heads are the largest thing in a training step. Here texts are taken in blocks, whose
weights are kept for the backward pass while they are small and made again there from the queries and keys where they
are not (the idea of Dao et al. 2022, FlashAttention, section 3.1, which cuts along the keys instead). With G the
gradient of the output O = A V and all products within one head of one text,

    dV = A^T G,    dA = G V^T,    dS = A * dA - A * rowsum(A * dA),    dQ = dS K / sqrt(E),    dK = dS^T Q / sqrt(E).

With dropout, U = A * M stands for A in O and in dV, and dS = U * dA - A * rowsum(U * dA), where M is 0 or 1 / (1 - p).
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headscope.attention.dropout import drawn_seed, dropped_levels, scale, signs, words_for

BLOCK = 2**20  # bytes of a block's weights, which a core's cache holds beside a copy or two
KEPT = 2**17  # bytes of a head's weights up to which they are kept for the backward pass: 256 x 256 in bfloat16
LANES = 32  # numbers of two bytes in a CPU's widest vector; shorter rests are worked on one by one


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
    key, value, numbers = _widened(key, value, numbers)
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


def _widened(key: Tensor, value: Tensor, numbers: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return them with hidden keys added up to a multiple of LANES, which is faster where keys are many."""
    missing = -key.shape[2] % LANES
    if not missing or key.shape[2] < 2 * LANES:
        return key, value.contiguous(), numbers  # a view would keep the queries and keys beside it in memory too
    if numbers is None:
        numbers = key.new_zeros(1, 1, 1, key.shape[2])
    key, value = (F.pad(heads, (0, 0, 0, missing)) for heads in (key, value))
    return key, value, F.pad(numbers, (0, missing), value=torch.finfo(numbers.dtype).min)


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, numbers: Tensor | None, levels: int, seed: int
    ) -> Tensor:
        ctx.levels, ctx.seed = levels, seed
        output, made = _like(query, value.shape[-1]), []
        for block, start in _blocks(query, key):
            weights = _weights(query[block], key[block], _part(numbers, block), levels, seed, start)
            sums = _used(weights, levels) @ value[block]
            output[block] = sums.mul_(scale(levels)) if levels else sums
            made.append(weights if weights[0, 0].nbytes <= KEPT else None)
        ctx.save_for_backward(query, key, value, numbers, *made)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, numbers, *made = ctx.saved_tensors
        gradients = tuple(_like(heads, heads.shape[-1]) for heads in (query, key, value))
        for (block, start), weights in zip(_blocks(query, key), made, strict=True):
            heads = (query[block], key[block], value[block])
            if weights is None:
                weights = _weights(*heads[:2], _part(numbers, block), ctx.levels, ctx.seed, start)
            found = _gradients(heads, weights, gradient[block].contiguous(), ctx.levels)
            for whole, part in zip(gradients, found, strict=True):
                whole[block] = part
        return *gradients, None, None, None


def _gradients(
    heads: tuple[Tensor, Tensor, Tensor], weights: Tensor, gradient: Tensor, levels: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dQ, dK and dV of a block, by the formulas at the head of this file."""
    query, key, value = heads
    if levels:
        gradient = gradient * scale(levels)  # the factor of M in both of its places
    used = _used(weights, levels)
    value_gradient = used.transpose(-2, -1) @ gradient
    scores_gradient = gradient @ value.transpose(-2, -1)  # dA, [B, H, Q, K]
    if levels:
        scores_gradient.mul_(used)
        sums = scores_gradient.sum(dim=-1, keepdim=True)  # [B, H, Q, 1]
        scores_gradient.addcmul_(weights.abs(), sums, value=-1)
    else:
        backward = torch.ops.aten._softmax_backward_data.out
        backward(scores_gradient, weights, -1, weights.dtype, grad_input=scores_gradient)
    width = math.sqrt(query.shape[-1])
    query_gradient = (scores_gradient @ key).div_(width)
    key_gradient = (scores_gradient.transpose(-2, -1) @ query).div_(width)
    return query_gradient, key_gradient, value_gradient


def _weights(query: Tensor, key: Tensor, numbers: Tensor | None, levels: int, seed: int, start: int) -> Tensor:
    """Return A of a block, made in place, with a minus sign where M is 0: A and A * M in one tensor."""
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # [B, H, Q, K]
    if numbers is not None:
        scores.add_(numbers)
    weights: Tensor = torch.ops.aten._softmax.out(scores, -1, False, out=scores)
    return weights.mul_(signs(tuple(weights.shape), levels, seed, start)) if levels else weights


def _used(weights: Tensor, levels: int) -> Tensor:
    """Return A * M, but for its factor, from the signed weights."""
    return weights.clamp(min=0) if levels else weights


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
