"""Turning the masks that torch.nn.MultiheadAttention takes into the one mask that the formula needs.

Everywhere a boolean mask is True where a query may NOT look. (Many texts write masks the other way around, 1 to keep
and 0 to hide, as integers; these are refused here, since a silent reading would look at nothing but padding.)
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.attention.functional import Mask, as_numbers


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 {queries} {keys}"]:
    """Return a mask that is True above the diagonal: position i may look at positions 0 to i."""
    later = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(diagonal=1)
    return later[None, None]  # [1, 1, Q, K]


def window_mask(
    queries: int, keys: int, window: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 {queries} {keys}"]:
    """Return a mask that is True where |i - j| > window: position i may look at `window` positions on either side.

    Local attention as in Beltagy et al. 2020, Longformer, section 3.1, without global tokens.
    """
    query, key = torch.arange(queries, device=device), torch.arange(keys, device=device)
    return ((query[:, None] - key).abs() > window)[None, None]  # [1, 1, Q, K]


def merge_masks(
    shape: tuple[int, int, int, int],
    key_padding_mask: Bool[Tensor, "B K"] | Float[Tensor, "B K"] | None = None,
    attn_mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    device: torch.device | None = None,
) -> Mask | None:
    """Join the masks of one forward pass into one of four dimensions, or None if nothing is masked.

    Boolean masks stay boolean (a key is hidden if any hides it); as soon as one is a number, they
    are added, a hidden key counting as -inf.

    Args:
        shape: B, H, Q, K of the weights.
        key_padding_mask: keys that nobody may look at.
        attn_mask: [Q, K], [B * H, Q, K] or four dimensions that broadcast to B, H, Q, K.
        is_causal: let no position look at a later one; counts only where attn_mask is None, as in torch, where
            attn_mask is then the causal mask itself.
        device: where to make the causal mask.

    Raises:
        ValueError: if a mask is neither boolean nor floating or does not fit the shape.
    """
    B, H, Q, K = shape
    masks: list[Tensor] = []
    if key_padding_mask is not None:
        _check("key_padding_mask", key_padding_mask, [(B, K)])
        masks.append(key_padding_mask[:, None, None, :])  # [B, 1, 1, K]
    if attn_mask is not None and attn_mask.dim() == 4:
        broadcast = tuple(size if given == 1 else given for size, given in zip(shape, attn_mask.shape, strict=True))
        _check("attn_mask", attn_mask, [tuple(attn_mask.shape)] if broadcast == tuple(shape) else [tuple(shape)])
        masks.append(attn_mask)
    elif attn_mask is not None:
        _check("attn_mask", attn_mask, [(Q, K), (B * H, Q, K)])
        masks.append(attn_mask[None, None] if attn_mask.dim() == 2 else attn_mask.reshape(B, H, Q, K))
    elif is_causal:
        masks.append(causal_mask(Q, K, device))
    return _joined(masks)


def hidden_keys(key_padding_mask: Tensor | None) -> Bool[Tensor, "B K"] | None:
    """Return True at padding, whichever way it was given: as True or as -inf."""
    if key_padding_mask is None or key_padding_mask.dtype == torch.bool:
        return key_padding_mask
    return key_padding_mask == -math.inf


def _check(name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"{name} takes booleans, True where nobody may look, or numbers to add; got {mask.dtype}")
    if tuple(mask.shape) not in shapes:
        raise ValueError(f"{name} takes {' or '.join(str(list(shape)) for shape in shapes)}, got {list(mask.shape)}")


def _joined(masks: list[Tensor]) -> Mask | None:
    if not masks:
        return None
    if any(mask.dtype != torch.bool for mask in masks):
        masks = [mask if mask.is_floating_point() else as_numbers(mask, torch.float32) for mask in masks]
        return masks[0] if len(masks) == 1 else masks[0] + masks[1]
    return masks[0] if len(masks) == 1 else masks[0] | masks[1]
