"""The textbooks' forms of multi-head attention, written to be read line by line; the layer is tested against them.

All three compute the same function: `headscope.proof.copy_weights` moves weights between them, `headscope verify` checks it.

    PaperAttention       as the paper writes it: matrices for each head, and a loop over heads
    PackedAttention      as torch stores it: one matrix for queries, keys and values of all heads
    FourLinearAttention  as most tutorials write it: four Linear layers, view and transpose, a mask of ones and zeros

They take self-attention and cross-attention of one width, keep every intermediate, and know no fused kernel.
A mask is [Q, K], [B, Q, K], or [B, H, Q, K] with one for each head; a size of 1 stands for all texts, heads or queries.
Shape letters as in `functional.py`.
"""

import math

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from headscope.attention.functional import check_shapes

Queries = Float[Tensor, "B Q D"]
Keys = Float[Tensor, "B K D"]  # values too
Output = tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"]]
Hidden = Bool[Tensor, "..."]  # True where a query may not look
Visible = Num[Tensor, "..."] | Bool[Tensor, "..."]  # 1 or True where a query may look


def mask_of_heads(mask: Tensor, B: int, H: int, Q: int, K: int) -> Tensor:
    """Return a mask as [B, H, Q, K]. ValueError if it does not fit: it would make more texts of the scores' few."""
    four = mask[:, None] if mask.dim() == 3 else mask[None, None] if mask.dim() == 2 else mask
    if four.dim() != 4 or any(
        given not in (1, size) for given, size in zip(four.shape, (B, H, Q, K), strict=True)
    ):
        raise ValueError(f"a mask of {list(mask.shape)} does not fit scores of {[B, H, Q, K]}")
    return four.expand(B, H, Q, K)


class PaperAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1 ... head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    (Vaswani et al. 2017, section 3.2.2.) Each W_i is [D, E] with E = D / h; Linear keeps it transposed.

    Args:
        d_model: D.
        num_heads: h; must divide d_model.
        bias: add a bias to each projection; the paper has none.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        E = d_model // num_heads
        self.W_Q, self.W_K, self.W_V = (
            nn.ModuleList(nn.Linear(d_model, E, bias=bias) for _ in range(num_heads))
            for _ in range(3)
        )
        self.W_O = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self, query: Queries, key: Keys, value: Keys, hidden: Hidden | None = None
    ) -> Output:
        """Return the output and the weights of each head."""
        check_shapes("query B Q D, key B K D, value B K D", query, key, value)
        (B, Q, _), K = query.shape, key.shape[1]
        if hidden is not None:
            hidden = mask_of_heads(hidden, B, len(self.W_Q), Q, K)
        heads, weights = [], []
        for i, (W_Qi, W_Ki, W_Vi) in enumerate(zip(self.W_Q, self.W_K, self.W_V, strict=True)):
            q, k, v = W_Qi(query), W_Ki(key), W_Vi(value)  # [B, Q, E], [B, K, E], [B, K, E]
            scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])  # [B, Q, K]
            if hidden is not None:
                scores = scores.masked_fill(hidden[:, i], -math.inf)
            weights.append(scores.softmax(dim=-1))
            heads.append(weights[-1] @ v)  # [B, Q, E]
        return self.W_O(torch.cat(heads, dim=-1)), torch.stack(weights, dim=1)


class PackedAttention(nn.Module):
    """One product with a matrix of 3D rows, cut into Q, K and V, and each of these into heads.

    This is how torch.nn.MultiheadAttention stores its weights: rows 0 to D of `in_proj` make the queries, and of
    these, rows i E to (i + 1) E make those of head i.

    Args:
        d_model: D.
        num_heads: H; must divide d_model.
        bias: add a bias to each projection.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self, query: Queries, key: Keys, value: Keys, hidden: Hidden | None = None
    ) -> Output:
        """Return the output and the weights of each head."""
        check_shapes("query B Q D, key B K D, value B K D", query, key, value)
        if query is key and key is value:  # self-attention: one product gives all three
            q, k, v = self.in_proj(query).chunk(3, dim=-1)  # [B, T, 3D] -> three of [B, T, D]
        else:  # of each product, one part is wanted
            q = self.in_proj(query).chunk(3, dim=-1)[0]  # [B, Q, 3D] -> [B, Q, D]
            k = self.in_proj(key).chunk(3, dim=-1)[1]  # [B, K, 3D] -> [B, K, D]
            v = self.in_proj(value).chunk(3, dim=-1)[2]
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (q, k, v)
        )  # [B, H, T, E]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [B, H, Q, K]
        if hidden is not None:
            scores = scores.masked_fill(mask_of_heads(hidden, *scores.shape), -math.inf)
        weights = scores.softmax(dim=-1)
        heads = weights @ v  # [B, H, Q, E]
        return self.out_proj(heads.transpose(1, 2).flatten(2)), weights  # [B, Q, H, E] -> [B, Q, D]


class FourLinearAttention(nn.Module):
    """Four Linear layers, W_Q, W_K, W_V and W_O, with view and transpose between them.

    The mask is the tutorials', of any type: 1 where a query may look, 0 where not, and a score there becomes -1e9. Who
    may look nowhere then looks everywhere alike, since all such scores are equal; our layer gives zeros there.

    Args:
        d_model: D.
        num_heads: H; must divide d_model.
        bias: add a bias to each projection.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (
            nn.Linear(d_model, d_model, bias=bias) for _ in range(4)
        )

    def forward(
        self, query: Queries, key: Keys, value: Keys, mask: Visible | None = None
    ) -> Output:
        """Return the output and the weights of each head. `mask` is 1 where a query may look, 0 elsewhere."""
        check_shapes("query B Q D, key B K D, value B K D", query, key, value)
        B, H, d_k = query.shape[0], self.num_heads, self.d_k
        q = (
            self.W_Q(query).view(B, -1, H, d_k).transpose(1, 2)
        )  # [B, Q, D] -> [B, Q, H, E] -> [B, H, Q, E]
        k = self.W_K(key).view(B, -1, H, d_k).transpose(1, 2)
        v = self.W_V(value).view(B, -1, H, d_k).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d_k)  # [B, H, Q, K]
        if mask is not None:
            if ((mask != 0) & (mask != 1)).any():
                raise ValueError(
                    "the four-Linear form takes 1 where a query may look and 0 elsewhere, nothing to add"
                )
            scores = scores.masked_fill(mask_of_heads(mask, *scores.shape) == 0, -1e9)
        weights = scores.softmax(dim=-1)
        heads = (weights @ v).transpose(1, 2).contiguous().view(B, -1, H * d_k)  # [B, Q, D]
        return self.W_O(heads), weights
