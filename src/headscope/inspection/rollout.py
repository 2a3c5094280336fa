"""How much each token counts, as far as maps can say: by what one head gives it, or by all layers together.

Shape letters: B texts, H heads, Q queries, T positions, L layers.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.inspection.patterns import Maps, Padding


def rollout(maps: Sequence[Maps], padding: Padding = None) -> Float[Tensor, "B T T"]:
    """Return R = M_L ... M_2 M_1 with M_l = (A_l + I) / 2, and A_l the mean over the heads of layer l.

    R_ij is the share of the last layer's token i that comes from token j of the text, if attention alone moved
    anything: half of each layer's output comes along the residual connection (Abnar and Zuidema 2020, Quantifying
    Attention Flow in Transformers, section 3).

    Args:
        maps: one for each layer, from the first to the last, queries and keys the same tokens.
        padding: True at padding, whose rows and columns come out as 0.

    Returns:
        Rows of tokens sum to 1.
    """
    identity = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    product = identity.expand(len(maps[0]), -1, -1)  # [B, T, T]
    for weights in maps:
        product = (weights.mean(dim=1) + identity) / 2 @ product
    if padding is None:
        return product
    return product.masked_fill(padding[:, :, None] | padding[:, None], 0.0)


def received(maps: Maps, padding: Padding = None) -> Float[Tensor, "B H T"]:
    """Return r_j = mean_i a_ij over the queries that are tokens: the mass that each key gets, summing to 1."""
    if padding is None:
        return maps.mean(dim=-2)
    tokens = (~padding).to(maps.dtype)[:, None, :, None]  # [B, 1, Q, 1]
    return (maps * tokens).sum(dim=-2) / tokens.sum(dim=-2).clamp(min=1)
