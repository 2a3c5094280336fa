"""Scaled dot-product attention: the one place where softmax(Q K^T / sqrt(d)) V is written.

Shape letters, here and in the whole folder: B batch, H heads, Q query positions, K key positions,
E head width, V width of a value head, D model width.

Masks follow torch.nn.MultiheadAttention: a boolean mask is True where a query may NOT look; a floating
mask is added to the scores. A query that may look nowhere gets zero weights and a zero output; torch's
layer gives NaN there when it is asked for weights.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.attention.blocked import blocked_attention, finite

Heads = Float[Tensor, "B H Q E"]
Mask = Bool[Tensor, "#B #H #Q K"] | Float[Tensor, "#B #H #Q K"]


def attention_weights(
    query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K E"], mask: Mask | None = None
) -> Float[Tensor, "B H Q K"]:
    """Return A = softmax(Q K^T / sqrt(E)) over the keys, the share that each query gives to each key.

    Dividing by sqrt(E) keeps the scores' variance at one when query and key have unit variance, so that the
    softmax does not saturate as heads grow wider (Vaswani et al. 2017, Attention Is All You Need, section 3.2.1).

    Args:
        query: what each position looks for, one vector per head.
        key: what each position offers.
        mask: True where a query may not look, or numbers to be added to the scores.

    Returns:
        Weights in [0, 1]. Each row sums to 1, or to 0 where every key is masked.
    """
    # Scaling the query spares a pass over the scores, which are far larger.
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # [B, H, Q, K]
    return masked_softmax(scores, mask)


def masked_softmax(scores: Float[Tensor, "B H Q K"], mask: Mask | None = None) -> Float[Tensor, "B H Q K"]:
    """Return softmax(scores) over the keys: exp(s_ij) / sum_j exp(s_ij), the sum over keys that i may look at.

    Args:
        scores: how well each key fits each query. They may be overwritten.
        mask: True where a query may not look, or numbers to be added to the scores.

    Returns:
        Weights in [0, 1]; exactly 0 at masked keys. Each row sums to 1, or to 0 where every key is masked.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    # Adding a small mask to all scores costs a CPU a tenth of what filling them through a boolean one costs.
    numbers, nowhere = finite(as_numbers(mask, scores.dtype))
    weights = scores.add_(numbers).softmax(dim=-1)
    return weights if nowhere is None else weights.masked_fill(nowhere, 0.0)


def attend(
    query: Float[Tensor, "B H Q E"],
    key: Float[Tensor, "B H K E"],
    value: Float[Tensor, "B H K V"],
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H Q V"]:
    """Return attention_weights(query, key, mask) @ value, by the kernel that is fastest there.

    Args:
        query: what each position looks for, one vector per head.
        key: what each position offers.
        value: what is averaged.
        mask: True where a query may not look, or numbers to be added to the scores.
        dropout: share of weights set to zero, the others scaled up by 1 / (1 - dropout). Pass 0 outside training.

    Returns:
        The weighted sum of the values for each query; zeros where every key is masked.
    """
    if pays_in_blocks(query, mask, dropout):
        return blocked_attention(query, key, value, None if mask is None else as_numbers(mask, query.dtype), dropout)
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask  # scaled_dot_product_attention wants True where a query MAY look
    elif mask is not None:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def pays_in_blocks(query: Heads, mask: Mask | None, dropout: float) -> bool:
    """Tell whether our blocks are faster than torch's fused kernel.

    By measurement, in training on a CPU (docs/benchmarks): with dropout, for which torch has no fused kernel there, and
    in bfloat16, where its backward pass is three times as slow as plain matrix products. In bfloat16 blocks round the
    scores, so numbers to be added to them, which would be rounded a second time, are left to torch's kernel; and so is
    what a compiler or an exporter sees, which know it.
    """
    in_training = torch.is_grad_enabled() and query.requires_grad
    if query.device.type != "cpu" or not in_training or torch.compiler.is_compiling():
        return False
    if mask is not None and mask.dtype != torch.bool and (mask.requires_grad or query.dtype == torch.bfloat16):
        return False
    return dropout > 0 or query.dtype == torch.bfloat16


def as_numbers(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return the mask as numbers to add to the scores: -inf where a query may not look."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -math.inf)
