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

from headscope.attention.dropout import dropped

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
        scores: how well each key fits each query.
        mask: True where a query may not look, or numbers to be added to the scores.

    Returns:
        Weights in [0, 1]; exactly 0 at masked keys. Each row sums to 1, or to 0 where every key is masked.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    # Adding a small mask to all scores costs a CPU a tenth of what filling them through a boolean one costs. The lowest
    # finite number makes the same weights, exactly 0, but where every key is hidden: -inf alone would make NaN there.
    # Numbers meet scores in float32 at least: bfloat16 would round their sum a second time.
    wide = torch.promote_types(scores.dtype, torch.float32)
    numbers = as_numbers(mask, scores.dtype if mask.dtype == torch.bool else wide)
    nowhere = (numbers == -math.inf).all(dim=-1, keepdim=True)  # [b, h, q, 1]
    weights = (scores + numbers.clamp(min=torch.finfo(numbers.dtype).min)).softmax(dim=-1).to(scores.dtype)
    return weights.masked_fill(nowhere, 0.0) if _may_hold(nowhere) else weights


def _may_hold(truths: Bool[Tensor, "..."]) -> bool:
    """Return False where none is True and that can be seen at no cost."""
    # Looking makes a GPU wait, and a compiler cannot do it.
    if truths.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    try:
        return bool(truths.any())
    except RuntimeError:  # under torch.vmap, which shows one text and computes all
        return True


def attend(
    query: Float[Tensor, "B H Q E"],
    key: Float[Tensor, "B H K E"],
    value: Float[Tensor, "B H K V"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Float[Tensor, "B H Q V"]:
    """Return attention_weights(query, key, mask) @ value, by torch's fused kernel or as it is written here.

    On a CPU the kernel has no dropout, and training in bfloat16 takes it up to three times as long as the line written
    out (docs/benchmarks); there that line is computed.

    Args:
        query: what each position looks for, one vector per head.
        key: what each position offers.
        value: what is averaged.
        mask: True where a query may not look, or numbers to be added to the scores.
        dropout: share of weights set to zero, the others scaled up by 1 / (1 - dropout). Pass 0 outside training.
        is_causal: let no position look at a later one, without a mask that would say so: the kernel's own way, which
            goes with neither mask nor dropout.

    Returns:
        The weighted sum of the values for each query; zeros where every key is masked.
    """
    is_trained_in_half = query.dtype == torch.bfloat16 and torch.is_grad_enabled() and query.requires_grad
    if query.device.type == "cpu" and not is_causal and (dropout or is_trained_in_half):
        return dropped(attention_weights(query, key, mask), dropout) @ value
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask.to(query.dtype)  # True says where a query MAY look
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def as_numbers(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return the mask as numbers to add to the scores: -inf where a query may not look."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
