"""From the tokens' vectors to the text's vector, padding left out."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Pooling = Callable[[Float[Tensor, "B T D"], Bool[Tensor, "B T"] | None], Float[Tensor, "B D"]]


def first_pooling(
    tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B D"]:
    """Return the vector of the first token, [CLS] (Devlin et al. 2019, BERT, section 3)."""
    return tokens[:, 0]


def mean_pooling(
    tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B D"]:
    """Return the mean over the tokens that are not padding."""
    if key_padding_mask is None:
        return tokens.mean(dim=1)
    kept = (~key_padding_mask).to(tokens.dtype)[:, :, None]  # [B, T, 1]
    return (tokens * kept).sum(dim=1) / kept.sum(dim=1)


def max_pooling(
    tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B D"]:
    """Return, number by number, the largest over the tokens that are not padding."""
    if key_padding_mask is not None:
        tokens = tokens.masked_fill(key_padding_mask[:, :, None], torch.finfo(tokens.dtype).min)
    return tokens.amax(dim=1)


POOLINGS: dict[str, Pooling] = {"first": first_pooling, "mean": mean_pooling, "max": max_pooling}
