"""Turning the masks that torch.nn.MultiheadAttention takes into the one mask that the formula needs."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.attention.functional import Mask


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 {queries} {keys}"]:
    """Return a mask that is True above the diagonal: position i may look at positions 0 to i."""
    later = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(diagonal=1)
    return later[None, None]  # [1, 1, Q, K]


def merge_masks(
    batch: int,
    num_heads: int,
    key_padding_mask: Bool[Tensor, "B K"] | Float[Tensor, "B K"] | None = None,
    attn_mask: Bool[Tensor, "*H Q K"] | Float[Tensor, "*H Q K"] | None = None,
) -> Mask | None:
    """Join a padding mask [B, K] and an attention mask [Q, K] or [B * H, Q, K] into one of four dimensions.

    Two boolean masks stay boolean (a key is hidden if either hides it); as soon as one is a number, both
    are added, a hidden key counting as -inf.
    """
    masks: list[Tensor] = []
    if key_padding_mask is not None:
        masks.append(key_padding_mask[:, None, None, :])  # [B, 1, 1, K]
    if attn_mask is not None and attn_mask.dim() == 2:
        masks.append(attn_mask[None, None])  # [1, 1, Q, K]
    elif attn_mask is not None:
        masks.append(attn_mask.view(batch, num_heads, *attn_mask.shape[-2:]))  # [B, H, Q, K]
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        return masks[0] if len(masks) == 1 else masks[0] | masks[1]
    numbers = [_as_numbers(mask) for mask in masks]
    return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]


def _as_numbers(mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf)
