"""Other attention layers: shared projections, and the additive and multiplicative scores.

The four scores compute a_ij = softmax_j(e_ij) and context_i = sum_j a_ij v_j. They differ only in
e_ij:

    AdditiveAttention   v_a^T tanh(W_a q_i + U_a k_j)
    DotAttention        q_i^T k_j
    GeneralAttention    q_i^T W_a k_j
    ConcatAttention     v_a^T tanh(W_a [q_i; k_j])

The first is of Bahdanau, Cho and Bengio 2015, Neural Machine Translation by Jointly Learning to
Align and Translate, section 3.1 and appendix A.1.2, the others of Luong, Pham and Manning 2015,
Effective Approaches to Attention-based Neural Machine Translation, section 3.1.

q_i is the decoder's state, k_j the encoder's. No score is divided by sqrt(width); Vaswani et al.
2017 added that. Shape letters as in `functional.py`; besides, Dq and Dk are the widths of queries
and keys, A that of a hidden layer.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    ObservedAttention,
    Padding,
    call_with,
    check_shapes,
    masked_softmax,
    merge_masks,
)
from headscope.attention.multi_head import HeadedAttention
from headscope.attention.rotary import RotaryPositions


class SharedProjectionAttention(HeadedAttention):
    """Split each vector into H pieces of E numbers, projected by the same three E x E matrices.

    head_i = Attention(Q_i W^Q, K_i W^K, V_i W^V), output = dropout(Concat(head_1 ... head_H) W^O +
    b^O). Many tutorials have it, no paper does. A head sees only its own piece of the embedding, so
    the heads of the first layer differ only by what the pieces hold. The projections have 3 E^2
    weights instead of 3 D^2: it is multi-head attention with block-diagonal projections, each block
    the same (`headscope.proof.copy_weights`). Scores are divided by sqrt(E), the width that the
    product sums over; tutorials that divide by sqrt(D) flatten the softmax.

    Arguments are those of `HeadedAttention`; dropout is also that of the output's numbers.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, rotary)
        E = self.head_dim
        self.queries = nn.Linear(E, E, bias=False)
        self.keys = nn.Linear(E, E, bias=False)
        self.values = nn.Linear(E, E, bias=False)
        self.fc_out = nn.Linear(embed_dim, embed_dim)
        self.output_dropout = nn.Dropout(dropout)

    @property
    def output_projection(self) -> nn.Linear:
        """The layer of W^O and b^O, applied to the merged heads."""
        return self.fc_out

    def forward(
        self,
        query: Float[Tensor, "B Q D"],
        key: Float[Tensor, "B K D"],
        value: Float[Tensor, "B K D"],
        key_padding_mask: Padding | None = None,
        need_weights: bool = True,
        attn_mask: Bool[Tensor, "*B #Q K"] | Float[Tensor, "*B #Q K"] | None = None,
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"] | None]:
        """Return the output and, if needed, the weights of each head.

        attn_mask is [Q, K], [B, 1, K] or [B, Q, K], the same for all heads.
        """
        check_shapes("query B Q D, key B K D, value B K D", query, key, value, D=self.embed_dim)
        B, Q, _ = query.shape
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask[:, None]  # [B, 1, Q or 1, K]
        shape = (B, self.num_heads, Q, key.shape[1])
        mask = merge_masks(shape, key_padding_mask, attn_mask)
        heads = self.project(query, key, value)
        output, weights = self.attend_heads(*heads, mask, need_weights)
        return self.output_dropout(self.fc_out(output)), weights

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of all heads, each [B, H, T, E]."""
        queries = self.queries(self.split_heads(query))
        keys = self.keys(self.split_heads(key))
        return queries, keys, self.values(self.split_heads(value))


Queries = Float[Tensor, "B Q Dq"]
Keys = Float[Tensor, "B K Dk"]
Scores = Float[Tensor, "B Q K"]  # weights too


class ScoredAttention(ObservedAttention):
    """Average the values: a_ij = softmax_j(e_ij), context_i = sum_j a_ij v_j.

    A subclass computes e_ij in `scores`. There is one head, and values are not projected.
    """

    scores: Callable[[Queries, Keys], Scores]

    def forward(
        self,
        query: Queries,
        key: Keys,
        value: Float[Tensor, "B K V"],
        key_padding_mask: Bool[Tensor, "B K"] | None = None,
    ) -> tuple[Float[Tensor, "B Q V"], Scores]:
        """Return the context vectors and the weights.

        A weight is exactly 0 where key_padding_mask is True, and all are where it is for all keys.
        """
        check_shapes("query B Q Dq, key B K Dk, value B K V", query, key, value)
        shape = (query.shape[0], 1, query.shape[1], key.shape[1])
        mask = merge_masks(shape, key_padding_mask)
        weights = masked_softmax(self.scores(query, key)[:, None], mask)  # [B, 1, Q, K]
        for observer in self.observers:
            observer(call_with(weights, is_pooling=True))
        weights_of_head = weights[:, 0]  # [B, Q, K]
        return weights_of_head @ value, weights_of_head


class AdditiveAttention(ScoredAttention):
    """e_ij = v_a^T tanh(W_a q_i + U_a k_j), with W_a [A, Dq], U_a [A, Dk]; by default A = Dk.

    In the paper q_i is the decoder's last state s_{i-1}, k_j the encoder's annotation h_j. It
    builds a tensor [B, Q, K, A], so it suits few queries.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__()
        A = hidden_dim or key_dim
        self.W_a = nn.Linear(query_dim, A, bias=False)
        self.U_a = nn.Linear(key_dim, A, bias=False)
        self.v_a = nn.Linear(A, 1, bias=False)

    def scores(self, query: Queries, key: Keys) -> Scores:
        """Return e_ij."""
        # U_a k_j does not depend on the query, so it is computed once for all (appendix A.1.2 says
        # so too).
        hidden = torch.tanh(self.W_a(query)[:, :, None] + self.U_a(key)[:, None])  # [B, Q, K, A]
        scores: Tensor = self.v_a(hidden)
        return scores.squeeze(-1)


class DotAttention(ScoredAttention):
    """e_ij = q_i^T k_j. Query and key have one width; there are no parameters."""

    def scores(self, query: Queries, key: Keys) -> Scores:
        """Return e_ij."""
        return query @ key.transpose(1, 2)


class GeneralAttention(ScoredAttention):
    """e_ij = q_i^T W_a k_j, with W_a [Dq, Dk]."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.W_a = nn.Linear(key_dim, query_dim, bias=False)

    def scores(self, query: Queries, key: Keys) -> Scores:
        """Return e_ij."""
        keys: Tensor = self.W_a(key)  # [B, K, Dq]
        return query @ keys.transpose(1, 2)


class ConcatAttention(ScoredAttention):
    """e_ij = v_a^T tanh(W_a [q_i; k_j]), with W_a [A, Dq + Dk]; by default A = Dk.

    W_a [q; k] is one matrix times q plus another times k, so this is additive attention with both
    matrices side by side (docs/attention.md).
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__()
        A = hidden_dim or key_dim
        self.W_a = nn.Linear(query_dim + key_dim, A, bias=False)
        self.v_a = nn.Linear(A, 1, bias=False)

    def scores(self, query: Queries, key: Keys) -> Scores:
        """Return e_ij."""
        queries = query[:, :, None].expand(-1, -1, key.shape[1], -1)  # [B, Q, K, Dq]
        keys = key[:, None].expand(-1, query.shape[1], -1, -1)  # [B, Q, K, Dk]
        pairs = torch.cat([queries, keys], dim=-1)  # [B, Q, K, Dq + Dk]
        scores: Tensor = self.v_a(torch.tanh(self.W_a(pairs)))
        return scores.squeeze(-1)
