"""The textbooks' forms of multi-head attention, which our layer is tested against.

    PaperAttention       as in the paper: matrices for each head, and a loop over heads
    PackedAttention      as in torch: one matrix for queries, keys and values of all heads
    FourLinearAttention  as in most tutorials: four Linear layers, and a mask of ones and zeros

All three compute the same function: `headscope.proof.copy_weights` copies weights between them and
`headscope verify` compares them. They have no fused kernel, and query, key and value have one width
D. A mask is [Q, K], [B, Q, K], or [B, H, Q, K] with one for each head; a size of 1 broadcasts.
Shape letters as in `functional.py`.
"""

import math

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from headscope.attention.functional import check_shapes

SHAPES = "query B Q D, key B K D, value B K D"
Queries = Float[Tensor, "B Q D"]
Keys = Float[Tensor, "B K D"]  # values too
Output = tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"]]
Masked = Bool[Tensor, "..."]  # True where a query must not attend to a key, as in torch's layer
Visible = Num[Tensor, "..."] | Bool[Tensor, "..."]  # 1 or True where a query attends to a key


def mask_of_heads(mask: Tensor, B: int, H: int, Q: int, K: int) -> Tensor:
    """Return a mask as [B, H, Q, K], or raise a ValueError if it does not broadcast to that."""
    four = mask
    if mask.dim() == 2:
        four = mask[None, None]
    elif mask.dim() == 3:
        four = mask[:, None]
    sizes = (B, H, Q, K)
    if four.dim() != 4 or any(n not in (1, m) for n, m in zip(four.shape, sizes, strict=True)):
        raise ValueError(
            f"mask: expected a shape that broadcasts to {list(sizes)}, got {list(mask.shape)}"
        )
    return four.expand(sizes)


class PaperAttention(nn.Module):
    """Concat(head_1 ... head_H) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    (Vaswani et al. 2017, section 3.2.2.) Each W_i is [D, E] with E = D / H; nn.Linear keeps it
    transposed. The paper has no biases.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        E = d_model // num_heads

        def matrices() -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(d_model, E, bias=bias) for _ in range(num_heads))

        self.W_Q = matrices()
        self.W_K = matrices()
        self.W_V = matrices()
        self.W_O = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query: Queries, key: Keys, value: Keys, mask: Masked | None = None) -> Output:
        """Return the output and the weights of each head."""
        check_shapes(SHAPES, query, key, value)
        if mask is not None:
            mask = mask_of_heads(mask, len(query), len(self.W_Q), query.shape[1], key.shape[1])
        heads = []
        weights = []
        for i, (W_Qi, W_Ki, W_Vi) in enumerate(zip(self.W_Q, self.W_K, self.W_V, strict=True)):
            q = W_Qi(query)  # [B, Q, D] -> [B, Q, E]
            k = W_Ki(key)  # [B, K, E]
            v = W_Vi(value)  # [B, K, E]
            scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])  # [B, Q, K]
            if mask is not None:
                scores = scores.masked_fill(mask[:, i], -math.inf)
            A = scores.softmax(dim=-1)
            weights.append(A)
            heads.append(A @ v)  # [B, Q, E]
        return self.W_O(torch.cat(heads, dim=-1)), torch.stack(weights, dim=1)


class PackedAttention(nn.Module):
    """One product with a matrix of 3D rows, split into Q, K and V, and each of these into heads.

    torch.nn.MultiheadAttention stores its weights like this: rows 0 to D of `in_proj` make the
    queries, and of these, rows i E to (i + 1) E make those of head i.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query: Queries, key: Keys, value: Keys, mask: Masked | None = None) -> Output:
        """Return the output and the weights of each head."""
        check_shapes(SHAPES, query, key, value)
        if query is key and key is value:  # self-attention: one product gives all three
            q, k, v = self.in_proj(query).chunk(3, dim=-1)  # [B, T, 3D] -> three of [B, T, D]
        else:  # of each product, one part is used
            q = self.in_proj(query).chunk(3, dim=-1)[0]  # [B, Q, 3D] -> [B, Q, D]
            k = self.in_proj(key).chunk(3, dim=-1)[1]  # [B, K, 3D] -> [B, K, D]
            v = self.in_proj(value).chunk(3, dim=-1)[2]
        q = self._split_heads(q)
        k = self._split_heads(k)
        v = self._split_heads(v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [B, H, Q, K]
        if mask is not None:
            scores = scores.masked_fill(mask_of_heads(mask, *scores.shape), -math.inf)
        weights = scores.softmax(dim=-1)
        heads = weights @ v  # [B, H, Q, E]
        return self.out_proj(heads.transpose(1, 2).flatten(2)), weights  # [B, Q, H, E] -> [B, Q, D]

    def _split_heads(self, tokens: Tensor) -> Tensor:
        heads: Tensor = tokens.unflatten(-1, (self.num_heads, -1))  # [B, T, D] -> [B, T, H, E]
        return heads.transpose(1, 2)  # [B, H, T, E]


class FourLinearAttention(nn.Module):
    """Four Linear layers, W_Q, W_K, W_V and W_O, with view and transpose between them.

    The mask is the tutorials': 1 where a query attends to a key, 0 elsewhere, and a score there
    becomes -1e9. If all keys of a query are masked, its weights are uniform, since all its scores
    are equal; our layer gives zeros.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_Q = nn.Linear(d_model, d_model, bias=bias)
        self.W_K = nn.Linear(d_model, d_model, bias=bias)
        self.W_V = nn.Linear(d_model, d_model, bias=bias)
        self.W_O = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self, query: Queries, key: Keys, value: Keys, mask: Visible | None = None
    ) -> Output:
        """Return the output and the weights of each head."""
        check_shapes(SHAPES, query, key, value)
        B, _, D = query.shape
        H = self.num_heads
        E = D // H
        q = self.W_Q(query).view(B, -1, H, E).transpose(1, 2)  # [B, Q, D] -> [B, H, Q, E]
        k = self.W_K(key).view(B, -1, H, E).transpose(1, 2)
        v = self.W_V(value).view(B, -1, H, E).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(E)  # [B, H, Q, K]
        if mask is not None:
            if ((mask != 0) & (mask != 1)).any():
                raise ValueError(
                    "mask: expected 1 where a query attends to a key, else 0; got other numbers"
                )
            scores = scores.masked_fill(mask_of_heads(mask, *scores.shape) == 0, -1e9)
        weights = scores.softmax(dim=-1)
        heads = (weights @ v).transpose(1, 2).contiguous().view(B, -1, D)  # [B, Q, D]
        return self.W_O(heads), weights
