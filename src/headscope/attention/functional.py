"""What every attention layer is made of: the formula, its masks, dropout, and what an observer of a layer is told.

The one place where softmax(Q K^T / sqrt(d)) V is written. Shape letters, here and in the whole folder: B batch,
H heads, Q query positions, K key positions, E head width, V width of a value head, D model width.

Masks follow torch.nn.MultiheadAttention: a boolean mask is True where a query may NOT look; a floating mask is added to
the scores. A query that may look nowhere gets zero weights and a zero output; torch's layer gives NaN there when it is
asked for weights. Many texts write masks the other way around, 1 to keep and 0 to hide, as integers; these are refused,
because read silently they would hide everything but padding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

Mask = Bool[Tensor, "#B #H #Q K"] | Float[Tensor, "#B #H #Q K"]
Rows = slice | list[int]
ALL = slice(None)
LEVELS = 256  # dropout: a byte decides about an element
WORD = 8  # dropout: bytes of one random number
ROUNDING = 0.1  # dropout: how far the share may be rounded, as a share of itself
is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]


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


def masked_softmax(
    scores: Float[Tensor, "B H Q K"], mask: Mask | None = None
) -> Float[Tensor, "B H Q K"]:
    """Return softmax(scores) over the keys: exp(s_ij) / sum_j exp(s_ij), the sum over keys that i may look at.

    Args:
        scores: how well each key fits each query.
        mask: True where a query may not look, or numbers to be added to the scores.

    Returns:
        Weights in [0, 1]; exactly 0 at masked keys. Each row sums to 1, or to 0 where every key is masked.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    # On a CPU, adding an additive mask takes a tenth of the time of masked_fill with a boolean one. The lowest finite
    # number gives the same weights as -inf, exactly 0, and no NaN where every key is masked.
    # Numbers are first brought to the scores' type, as the kernel takes them, but added in float32 at least: bfloat16
    # would round the sum a second time.
    numbers = as_numbers(mask, scores.dtype)
    if mask.dtype != torch.bool:
        numbers = numbers.to(torch.promote_types(scores.dtype, torch.float32))
    nowhere = (numbers == -math.inf).all(dim=-1, keepdim=True)  # [b, h, q, 1]
    summed = scores + numbers.clamp(min=torch.finfo(numbers.dtype).min)
    if summed.shape != scores.shape:
        raise ValueError(
            f"a mask of {list(mask.shape)} does not fit scores of {list(scores.shape)}"
        )
    weights = summed.softmax(dim=-1).to(scores.dtype)
    return weights.masked_fill(nowhere, 0.0) if _any_or_unknown(nowhere) else weights


def _any_or_unknown(truths: Bool[Tensor, "..."]) -> bool:
    """Return whether any is True; True too where finding out would cost time or is impossible."""
    # On a GPU the look would wait for the device, torch.compile cannot branch on a number, and torch.jit.trace would
    # keep the answer of its example for ever.
    if truths.device.type != "cpu" or torch.compiler.is_compiling() or is_tracing():
        return True
    try:
        return bool(truths.any())
    except RuntimeError:  # under torch.vmap, where one value stands for the whole batch
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

    On a CPU the kernel has no dropout, and in bfloat16 its training step takes up to three times as long as the plain
    formula (docs/benchmarks); in both cases the plain formula is computed, unless is_causal spares the mask.

    Args:
        query: what each position looks for, one vector per head.
        key: what each position offers.
        value: what is averaged.
        mask: True where a query may not look, or numbers to be added to the scores.
        dropout: share of weights set to zero, the others scaled up by 1 / (1 - dropout). Pass 0 outside training.
        is_causal: let no position look at a later one; takes no mask beside it. The kernel builds none for it.

    Returns:
        The weighted sum of the values for each query; zeros where every key is masked.

    Raises:
        ValueError: if query, key and value do not go together: the kernel would read beyond the end of the shorter one.
    """
    check_shapes("query B H Q E, key B H K E, value B H K V", query, key, value)
    is_trained_in_half = (
        query.dtype == torch.bfloat16 and torch.is_grad_enabled() and query.requires_grad
    )
    if dropout == 1 or (
        query.device.type == "cpu" and (dropout or (is_trained_in_half and not is_causal))
    ):
        mask = causal_mask(query.shape[2], key.shape[2], query.device) if is_causal else mask
        return dropped(attention_weights(query, key, mask), dropout) @ value
    if mask is not None:
        mask = (
            ~mask if mask.dtype == torch.bool else mask.to(query.dtype)
        )  # True says where a query MAY look
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


# Shapes


def check_shapes(expected: str, *tensors: Tensor, **sizes: int) -> None:
    """Refuse tensors that do not go together.

    Args:
        expected: name and dimensions of each, such as "query B Q D, key B K D". A letter stands for one size wherever
            it occurs.
        tensors: one for each name.
        sizes: of letters whose size is known.

    Raises:
        ValueError: with all dimensions expected and found.
    """
    if is_tracing():  # sizes are part of the trace there; looking at them would fix them
        return
    found, parts = dict(sizes), expected.split(", ")
    for part, tensor in zip(parts, tensors, strict=True):
        _, *dims = part.split()
        fits = len(dims) == tensor.dim()
        for dim, size in zip(dims, tensor.shape, strict=False):
            fits = fits and found.setdefault(dim, size) == size
        if not fits:
            wanted = [f"{name} [{', '.join(str(sizes.get(dim, dim)) for dim in dims)}]"
                      for name, *dims in map(str.split, parts)]  # fmt: skip
            raise ValueError(
                f"takes {', '.join(wanted)}; got {', '.join(str(list(each.shape)) for each in tensors)}"
            )


# Masks


def causal_mask(
    queries: int, keys: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 {queries} {keys}"]:
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
    """Merge the masks of one forward pass into one of four dimensions, or None if nothing is masked.

    Boolean masks are joined by "or" and stay boolean. If one of them is additive, all are added, True counting as -inf.

    Args:
        shape: B, H, Q, K of the weights.
        key_padding_mask: keys that nobody may look at.
        attn_mask: [Q, K], [B * H, Q, K] or four dimensions that broadcast to B, H, Q, K.
        is_causal: let no position look at a later one, whatever attn_mask says. (torch expects attn_mask to be the
            causal mask then; of another it takes one of the two.)
        device: where the masks are, and where to make the causal one.

    Raises:
        ValueError: if a mask is neither boolean nor floating, does not fit the shape or is on another device.
    """
    B, H, Q, K = shape
    masks: list[Tensor] = []
    if key_padding_mask is not None:
        check_mask("key_padding_mask", key_padding_mask, [(B, K)], device)
        masks.append(key_padding_mask[:, None, None, :])  # [B, 1, 1, K]
    if attn_mask is not None and attn_mask.dim() == 4:
        broadcast = tuple(
            size if given == 1 else given
            for size, given in zip(shape, attn_mask.shape, strict=True)
        )
        check_mask(
            "attn_mask",
            attn_mask,
            [tuple(attn_mask.shape) if broadcast == shape else shape],
            device,
        )
        masks.append(attn_mask)
    elif attn_mask is not None:
        check_mask("attn_mask", attn_mask, [(Q, K), (B * H, Q, K)], device)
        masks.append(
            attn_mask[None, None] if attn_mask.dim() == 2 else attn_mask.reshape(B, H, Q, K)
        )
    if is_causal:
        masks.append(causal_mask(Q, K, device))
    return _joined(masks)


def as_numbers(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return the mask as numbers to add to the scores: -inf where a query may not look."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def hidden_keys(key_padding_mask: Tensor | None) -> Bool[Tensor, "B K"] | None:
    """Return True at padding, whichever way it was given: as True or as -inf."""
    if key_padding_mask is None or key_padding_mask.dtype == torch.bool:
        return key_padding_mask
    return key_padding_mask == -math.inf


def check_mask(
    name: str, mask: Tensor, shapes: Sequence[tuple[int, ...]], device: torch.device | None = None
) -> None:
    """Refuse a mask that is neither boolean nor floating, has none of the shapes, or is on another device."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"{name} takes booleans, True where nobody may look, or numbers to add; got {mask.dtype}"
        )
    if not is_tracing() and tuple(mask.shape) not in shapes:
        raise ValueError(
            f"{name} takes {' or '.join(str(list(shape)) for shape in shapes)}, got {list(mask.shape)}"
        )
    if device is not None and mask.device != device:
        raise ValueError(f"{name} is on {mask.device}, the query on {device}")


def _joined(masks: list[Tensor]) -> Mask | None:
    if not masks:
        return None
    if any(mask.dtype != torch.bool for mask in masks):
        masks = [
            mask if mask.is_floating_point() else as_numbers(mask, torch.float32) for mask in masks
        ]
        return reduce(torch.add, masks)
    return reduce(torch.logical_or, masks)


# Dropout


def check_share(p: float) -> None:
    """Refuse a share of dropout that is not in [0, 1], by a ValueError."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout takes a share from 0 to 1, got {p}")


def dropped(numbers: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """Return numbers * m / (1 - p), m being 0 with probability p and else 1 (Srivastava et al. 2014, Dropout).

    On a CPU torch's own dropout draws one random number for each element. Here one number of 64 bits decides about
    eight elements, a byte about each, which is faster. torch.manual_seed and a saved generator state decide about it.

    A byte drops a multiple of 1/256: 0.1 drops 26/256 = 0.1016, and the scale is that share's, which keeps the mean
    right. Where that would be more than a tenth away from p (or from 1 - p), as for 0.0015, torch's dropout does it.

    Args:
        numbers: of any shape, which the result has too.
        p: share of the numbers that are dropped; 0 gives the numbers themselves, 1 zeros.

    Raises:
        ValueError: if p is not in [0, 1].
    """
    check_share(p)
    levels = round(p * LEVELS)
    is_rounded_too_far = abs(levels / LEVELS - p) > ROUNDING * min(p, 1 - p)
    if p == 0:
        return numbers
    if p == 1 or is_rounded_too_far or numbers.device.type != "cpu" or is_tracing():
        return F.dropout(numbers, p)
    words = torch.randint(-(2**63), 2**63 - 1, (-(-numbers.numel() // WORD),))
    bytes_ = words.view(torch.uint8)[: numbers.numel()].view(numbers.shape)
    # As numbers of the inputs' type: torch converts bytes faster than booleans, and would convert in both passes.
    kept = (bytes_ >= levels).view(torch.uint8).to(numbers.dtype).mul_(LEVELS / (LEVELS - levels))
    return numbers * kept


class Dropout(nn.Module):
    """Set a share p of the numbers to zero in training and scale the others by 1 / (1 - p), as `dropped` says.

    On a CPU p is rounded to a multiple of 1/256, as said there.

    Args:
        p: share of the numbers that are dropped.

    Raises:
        ValueError: if p is not in [0, 1].
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        check_share(p)
        self.p = p

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the numbers, some of them dropped if in training mode."""
        return dropped(numbers, self.p) if self.training else numbers

    def extra_repr(self) -> str:
        """Say p in the printed model."""
        return f"p={self.p}"


# Observation


@dataclass(frozen=True)
class AttentionCall:
    """One forward pass of an attention layer, as its observer sees it.

    Attributes:
        shape: B, H, Q, K of the weights.
        key_padding_mask: [B, K], True at padding; None where there is none.
        like: a tensor of the pass, for its device and type.
        compute: from rows of the batch, and the type to compute in, to their weights [R, H, Q, K].
        compare: from these weights of all texts to how far what the layer went on with is from what they give: its
            sums from weights @ values. None where the layer itself used these weights.
        values: [B, H, K, E], what the weights average; None where the layer is not one of ours with heads.
    """

    shape: tuple[int, int, int, int]
    key_padding_mask: Bool[Tensor, "B K"] | None
    like: Tensor
    compute: Callable[[Rows, torch.dtype], Tensor]
    compare: Callable[[Tensor], Tensor] | None = None
    values: Float[Tensor, "B H K E"] | None = None

    def weights(self, rows: Rows = ALL) -> Float[Tensor, "R H Q K"]:
        """Return the weights of some texts of the batch, in float32 (or float64 where the model computes in it)."""
        precision = torch.promote_types(self.like.dtype, torch.float32)
        with torch.no_grad(), torch.autocast(self.like.device.type, enabled=False):
            return self.compute(rows, precision)

    def difference(self) -> float:
        """Return how far what the layer went on with is from what these weights give, at most.

        A fused kernel never builds the weights: a small difference shows that these are the ones it used. Dropout of
        weights counts in full.
        """
        if self.compare is None:
            return 0.0
        with torch.no_grad(), torch.autocast(self.like.device.type, enabled=False):
            return float(self.compare(self.weights()))


class ObservedAttention(nn.Module):
    """An attention layer that shows each forward pass to its observer, if it has one, and computes the same without.

    Attributes:
        observer: called with what was seen; set by `headscope.heads.capture`.
    """

    observer: Callable[[AttentionCall], None] | None = None
