"""Scaled dot-product attention: the formula, its masks, dropout, and what observers of a layer see.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(E)) V

(Vaswani et al. 2017, Attention Is All You Need, section 3.2.1.) Every layer computes it here.

Shape letters, here and in the whole folder: B batch, H heads, Q query positions, K key positions, T
tokens (where queries and keys are the same), E width of a query or key of one head, V width of its
value, D model width.

Masks follow torch.nn.MultiheadAttention: a boolean mask is True where a query must NOT attend to a
key; a floating-point mask is added to the scores. A query whose keys are all masked gets zero
weights and a zero output; torch's layer gives NaN there. Many texts write masks the other way
around, as integers with 1 to keep and 0 to mask: an integer mask raises an error, because read as
above it would mask everything but padding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

Queries = Float[Tensor, "B H Q E"]
Keys = Float[Tensor, "B H K E"]
Weights = Float[Tensor, "B H Q K"]  # scores too
Mask = Bool[Tensor, "#B #H #Q K"] | Float[Tensor, "#B #H #Q K"]
Padding = Bool[Tensor, "B K"] | Float[Tensor, "B K"]
Rows = slice | list[int]
ALL = slice(None)


# The formula


def attention_weights(query: Queries, key: Keys, mask: Mask | None = None) -> Weights:
    """Return A = softmax(Q K^T / sqrt(E)): how much each query takes of each key's value.

    A score is a sum of E products: if query and key have variance 1, it has variance E. Dividing by
    sqrt(E) makes that 1 again, so that the softmax does not saturate as heads grow wider. Each row
    of A sums to 1, or to 0 where all keys are masked.
    """
    # Scaling the query saves a pass over the scores, which are far larger.
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # [B, H, Q, K]
    return masked_softmax(scores, mask)


def masked_softmax(scores: Weights, mask: Mask | None = None) -> Weights:
    """Return exp(s_ij) / sum_j exp(s_ij) over the keys that are not masked, exactly 0 at others."""
    if mask is None:
        return scores.softmax(dim=-1)
    # On a CPU, adding a mask takes a tenth of the time of masked_fill. The lowest finite number
    # gives the same weights as -inf, exactly 0, and no NaN where all keys are masked. The mask is
    # first rounded to the scores' type, as the fused kernel takes it, but added in float32 at
    # least: bfloat16 would round the sum a second time.
    numbers = as_numbers(mask, scores.dtype)
    if mask.dtype != torch.bool:
        numbers = numbers.to(torch.promote_types(scores.dtype, torch.float32))
    all_masked = (numbers == -math.inf).all(dim=-1, keepdim=True)  # [b, h, q, 1]
    masked_scores = scores + numbers.clamp(min=torch.finfo(numbers.dtype).min)
    if masked_scores.shape != scores.shape:
        expected = list(scores.shape)
        raise ValueError(
            f"mask: expected a shape that broadcasts to {expected}, got {list(mask.shape)}"
        )
    weights = masked_scores.softmax(dim=-1).to(scores.dtype)
    # A GPU would have to be waited for, and torch.compile cannot branch on a tensor.
    is_known = scores.device.type == "cpu" and not torch.compiler.is_compiling()
    if is_known and not all_masked.any():
        return weights
    return weights.masked_fill(all_masked, 0.0)


def attend(
    query: Queries,
    key: Keys,
    value: Float[Tensor, "B H K V"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Float[Tensor, "B H Q V"]:
    """Return attention_weights(query, key, mask) @ value, by torch's kernel, which never stores A.

    With dropout 1 the kernel divides by 0; on a CPU it has no dropout, and in bfloat16 its training
    step takes up to three times as long as the formula. In these cases the formula is computed as
    written, except that a causal mask in bfloat16 is left to the kernel.

    Args:
        query: queries of all heads.
        key: keys of all heads.
        value: values of all heads.
        mask: True where a query must not attend to a key, or numbers added to the scores.
        dropout: share of the weights set to zero. Pass 0 outside training.
        is_causal: no position attends to a later one; given instead of a mask, which the kernel
            then never builds.

    Raises:
        ValueError: if the shapes do not fit; the kernel would read beyond the end of a tensor.
    """
    check_shapes("query B H Q E, key B H K E, value B H K V", query, key, value)
    trains_in_bfloat16 = (
        query.dtype == torch.bfloat16 and torch.is_grad_enabled() and query.requires_grad
    )
    is_slow_on_cpu = dropout > 0 or (trains_in_bfloat16 and not is_causal)
    if dropout == 1 or (query.device.type == "cpu" and is_slow_on_cpu):
        if is_causal:
            mask = causal_mask(query.shape[2], key.shape[2], query.device)
        return apply_dropout(attention_weights(query, key, mask), dropout) @ value
    if mask is not None:  # of a boolean mask the kernel expects True where a query MAY attend
        mask = ~mask if mask.dtype == torch.bool else mask.to(query.dtype)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def check_shapes(expected: str, *tensors: Tensor, **sizes: int) -> None:
    """Raise a ValueError with all shapes unless the tensors have those expected.

    `expected` has the name and the dimensions of each tensor, such as "query B Q D, key B K D". A
    letter is one size wherever it occurs; `sizes` has those that are known.
    """
    parts = [part.split() for part in expected.split(", ")]
    known = dict(sizes)
    fits = True
    for (_, *dims), tensor in zip(parts, tensors, strict=True):
        fits = fits and len(dims) == tensor.dim()
        for dim, size in zip(dims, tensor.shape, strict=False):
            fits = fits and known.setdefault(dim, size) == size
    if not fits:
        wanted = []
        for name, *dims in parts:
            wanted.append(f"{name} [{', '.join(str(sizes.get(dim, dim)) for dim in dims)}]")
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
        raise ValueError(f"expected {', '.join(wanted)}; got {shapes}")


# Masks


def causal_mask(
    queries: int, keys: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 {queries} {keys}"]:
    """Return a mask that is True above the diagonal: position i attends to positions 0 to i."""
    later = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(diagonal=1)
    return later[None, None]  # [1, 1, Q, K]


def window_mask(
    queries: int, keys: int, window: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 {queries} {keys}"]:
    """Return a mask that is True where |i - j| > window.

    This is the local attention of Beltagy et al. 2020, Longformer, section 3.1, without its global
    tokens.
    """
    i = torch.arange(queries, device=device)[:, None]
    j = torch.arange(keys, device=device)
    return ((i - j).abs() > window)[None, None]  # [1, 1, Q, K]


def merge_masks(
    shape: tuple[int, int, int, int],
    key_padding_mask: Padding | None = None,
    attn_mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    device: torch.device | None = None,
) -> Mask | None:
    """Merge the masks of a forward pass into one of four dimensions; None if there is none.

    Boolean masks are joined by "or". If one of them is floating-point, all are added, -inf for
    True.

    Args:
        shape: B, H, Q, K of the weights.
        key_padding_mask: True (or -inf) at keys that no query attends to.
        attn_mask: [Q, K], [B * H, Q, K], or four dimensions that broadcast to B, H, Q, K.
        is_causal: no position attends to a later one, whatever attn_mask has. (torch expects the
            causal mask in attn_mask then; of another mask and is_causal it uses one.)
        device: of the causal mask.

    Raises:
        ValueError: if a mask is neither boolean nor floating-point, or has another shape.
    """
    B, H, Q, K = shape
    masks: list[Tensor] = []
    if key_padding_mask is not None:
        check_mask("key_padding_mask", key_padding_mask, [(B, K)])
        masks.append(key_padding_mask[:, None, None, :])  # [B, 1, 1, K]
    if attn_mask is not None and attn_mask.dim() == 4:
        sizes = zip(attn_mask.shape, shape, strict=True)
        broadcasts = all(given in (1, size) for given, size in sizes)
        check_mask("attn_mask", attn_mask, [tuple(attn_mask.shape) if broadcasts else shape])
        masks.append(attn_mask)
    elif attn_mask is not None:
        check_mask("attn_mask", attn_mask, [(Q, K), (B * H, Q, K)])
        is_shared = attn_mask.dim() == 2
        masks.append(attn_mask[None, None] if is_shared else attn_mask.reshape(B, H, Q, K))
    if is_causal:
        masks.append(causal_mask(Q, K, device))
    if all(mask.dtype == torch.bool for mask in masks):
        return reduce(torch.logical_or, masks) if masks else None
    numbers = [as_numbers(m, torch.float32) if m.dtype == torch.bool else m for m in masks]
    return reduce(torch.add, numbers)


def as_numbers(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return the mask as numbers to add to the scores: -inf where it is True."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def check_mask(name: str, mask: Tensor, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise a ValueError unless the mask has a type and a shape that fit."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"{name}: expected booleans, True where a query must not attend to a key, or numbers "
            f"to add to the scores, got {mask.dtype}"
        )
    if tuple(mask.shape) not in shapes:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name}: expected {expected}, got {list(mask.shape)}")


# Dropout

LEVELS = 256  # a byte of random bits decides about one number
BYTES_OF_WORD = 8  # torch draws 64 bits at once
MAX_ROUNDING = 0.1  # p and 1 - p may change by this share when p is rounded to a multiple of 1/256


def check_probability(p: float) -> None:
    """Raise a ValueError unless p is a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: expected a probability from 0 to 1, got {p}")


def apply_dropout(numbers: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """Return numbers * m / (1 - p), where m is 0 with probability p and else 1.

    (Srivastava et al. 2014, Dropout.) On a CPU torch draws a random number for each element. Here
    one of 64 bits decides about eight elements, which is faster; torch.manual_seed determines it.

    A byte drops a multiple of 1/256: p = 0.1 drops 26/256 = 0.1016, and the scale is that share's,
    so the mean is kept. Where p or 1 - p would change by more than a tenth, as for p = 0.0015, and
    on a GPU, torch's dropout is used.
    """
    check_probability(p)
    if p == 0:
        return numbers
    levels = round(p * LEVELS)
    is_rounded_too_far = abs(levels / LEVELS - p) > MAX_ROUNDING * min(p, 1 - p)
    if p == 1 or is_rounded_too_far or numbers.device.type != "cpu":
        return F.dropout(numbers, p)
    num_words = (numbers.numel() + BYTES_OF_WORD - 1) // BYTES_OF_WORD
    words = torch.randint(-(2**63), 2**63 - 1, (num_words,))
    random_bytes = words.view(torch.uint8)[: numbers.numel()].view(numbers.shape)
    # torch converts bytes faster than booleans, and would convert them in the backward pass too.
    kept = (random_bytes >= levels).view(torch.uint8).to(numbers.dtype)
    return numbers * kept.mul_(LEVELS / (LEVELS - levels))


class Dropout(nn.Module):
    """`apply_dropout` in training mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        check_probability(p)
        self.p = p

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the numbers, in training mode with dropout."""
        return apply_dropout(numbers, self.p) if self.training else numbers


# Observation and ablation


@dataclass(frozen=True)
class AttentionCall:
    """One forward pass of an attention layer, as its observers see it.

    Attributes:
        shape: B, H, Q, K of the weights.
        like: a tensor of the pass, for its device and type.
        compute: from rows of the batch and a type to the weights [R, H, Q, K] of these rows in that
            type.
        values: what the weights average; None if the layer used the weights that are shown.
        head_outputs: what the layer made of them; None as above.
        is_pooling: whether it has no heads: one query sums up a text.
    """

    shape: tuple[int, ...]
    like: Tensor
    compute: Callable[[Rows, torch.dtype], Tensor]
    values: Keys | None = None
    head_outputs: Queries | None = None
    is_pooling: bool = False

    def weights(self, rows: Rows = ALL) -> Float[Tensor, "R H Q K"]:
        """Return the weights of some texts, in float32, or float64 if the model computes in it."""
        dtype = torch.promote_types(self.like.dtype, torch.float32)
        with torch.no_grad(), torch.autocast(self.like.device.type, enabled=False):
            return self.compute(rows, dtype)

    def difference(self) -> float:
        """Return the largest difference between the head outputs and those that these weights give.

        A fused kernel never stores the weights: a small difference shows that it used these.
        Dropout of weights makes it large.
        """
        if self.values is None or self.head_outputs is None:
            return 0.0
        weights = self.weights()
        with torch.no_grad(), torch.autocast(self.like.device.type, enabled=False):
            expected = weights @ self.values.to(weights.dtype)  # [B, H, Q, E]
            return float((expected - self.head_outputs).abs().max())


def call_with(weights: Weights, is_pooling: bool = False) -> AttentionCall:
    """Return the call of a layer that used these weights."""

    def compute(rows: Rows, dtype: torch.dtype) -> Tensor:
        return weights[rows].to(dtype)

    return AttentionCall(tuple(weights.shape), weights, compute, is_pooling=is_pooling)


class ObservedAttention(nn.Module):
    """An attention layer that shows each forward pass to its observers, and computes the same."""

    def __init__(self) -> None:
        super().__init__()
        # `headscope.heads.capture` adds to them.
        self.observers: list[Callable[[AttentionCall], None]] = []


class Ablation(NamedTuple):
    """Heads whose output is 0, and heads that attend uniformly to the keys that they may see."""

    zero: Bool[Tensor, " H"]
    uniform: Bool[Tensor, " H"]

    def joined(self, other: "Ablation | None") -> "Ablation":
        """Return both ablations as one."""
        if other is None:
            return self
        return Ablation(self.zero | other.zero, self.uniform | other.uniform)

    def inputs(self, query: Queries, mask: Mask | None) -> tuple[Queries, Mask | None]:
        """Return query and mask with which some heads attend uniformly.

        A query of zeros scores 0 with every key. Of a floating-point mask what hides a key is kept,
        biases are not.
        """
        of_heads = self.uniform.to(query.device)[:, None, None]  # [H, 1, 1]
        query = query.masked_fill(of_heads, 0.0)
        if mask is not None and mask.dtype != torch.bool:
            is_hidden = mask < torch.finfo(mask.dtype).min / 2
            mask = torch.where(of_heads & ~is_hidden, 0.0, mask)
        return query, mask

    def outputs(self, head_outputs: Queries) -> Queries:
        """Return the head outputs, 0 where a head is ablated."""
        return head_outputs.masked_fill(self.zero.to(head_outputs.device)[:, None, None], 0.0)
