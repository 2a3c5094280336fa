"""Other attention layers: heads with shared projections, and the additive and multiplicative scores.

The four scores compute a_ij = softmax_j(e_ij) and context_i = sum_j a_ij v_j. They differ in e_ij alone:

    AdditiveAttention   v_a^T tanh(W_a q_i + U_a k_j)    Bahdanau, Cho and Bengio 2015, Neural Machine Translation by
                                                         Jointly Learning to Align and Translate, section 3.1, A.1.2
    DotAttention        q_i^T k_j                        Luong, Pham and Manning 2015, Effective Approaches to
    GeneralAttention    q_i^T W_a k_j                    Attention-based Neural Machine Translation, section 3.1
    ConcatAttention     v_a^T tanh(W_a [q_i; k_j])

q_i is the decoder's state, k_j the encoder's. No score is divided by sqrt(width); Vaswani et al. 2017 added that.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    AttentionCall,
    ObservedAttention,
    check_shapes,
    masked_softmax,
    merge_masks,
)
from headscope.attention.multi_head import HeadedAttention
from headscope.attention.rotary import RotaryPositions


class SharedProjectionAttention(HeadedAttention):
    """Cut each vector into H pieces x_1 ... x_H of E numbers and send them all through the same three E x E matrices.

    head_i = softmax(Q_i W^Q (K_i W^K)^T / sqrt(E)) V_i W^V, output = dropout(Concat(head_1 ... head_H) W^O + b^O).
    Found in many tutorials and in none of the papers. A head sees only its own piece of the embedding, so the heads of
    the first layer differ only by what the pieces hold. It has 3 E^2 weights for projections in place of 3 D^2. It
    equals multi-head attention whose projections are block-diagonal, each block the same
    (`headscope.proof.copy_weights`). Scores are scaled by sqrt(E), the width that the product is summed over; tutorials
    that divide by sqrt(D) flatten the softmax.

    Args:
        embed_dim: D, width of tokens and of the output.
        num_heads: H; must divide embed_dim.
        dropout: share of the weights, and of the output's numbers, dropped in training.
        rotary: called on the queries and on the keys of all heads [B, H, T, E] before they meet.

    Raises:
        ValueError: if num_heads does not divide embed_dim.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, rotary)
        self.queries, self.keys, self.values = (
            nn.Linear(self.head_dim, self.head_dim, bias=False) for _ in range(3)
        )
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
        key_padding_mask: Bool[Tensor, "B K"] | Float[Tensor, "B K"] | None = None,
        need_weights: bool = True,
        attn_mask: Bool[Tensor, "*B #Q K"] | Float[Tensor, "*B #Q K"] | None = None,
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"] | None]:
        """Return the output and, if asked for, the weights of each head.

        Args:
            query: what each position looks for.
            key: what each position offers.
            value: what is averaged.
            key_padding_mask: True (or -inf) at keys that nobody may look at.
            need_weights: return the weights too.
            attn_mask: [Q, K], [B, 1, K] or [B, Q, K], the same for all heads; True where a query may not look.

        Raises:
            ValueError: if query, key, value and masks do not go together.
        """
        check_shapes("query B Q D, key B K D, value B K D", query, key, value, D=self.embed_dim)
        B, Q, _ = query.shape
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask[:, None]  # [B, 1, Q or 1, K], the same for all heads
        shape = (B, self.num_heads, Q, key.shape[1])
        mask = merge_masks(shape, key_padding_mask, attn_mask, device=query.device)
        queries, keys, values = map(
            self._project, (query, key, value), (self.queries, self.keys, self.values)
        )
        output, weights = self.attend_heads(
            queries, keys, values, mask, key_padding_mask, need_weights
        )
        return self.output_dropout(self.fc_out(output)), weights

    def _project(
        self, tokens: Float[Tensor, "B T D"], linear: nn.Linear
    ) -> Float[Tensor, "B H T E"]:
        return linear(self.split_heads(tokens))  # type: ignore[no-any-return]


class ScoredAttention(ObservedAttention):
    """Average values by how well their keys fit the query: a_ij = softmax_j(e_ij), context_i = sum_j a_ij v_j.

    How e_ij is computed is each subclass's `scores`. One head; no projection of the values.
    """

    scores: Callable[[Tensor, Tensor], Tensor]  # query [B, Q, Dq] and key [B, K, Dk] to e [B, Q, K]

    def forward(
        self,
        query: Float[Tensor, "B Q Dq"],
        key: Float[Tensor, "B K Dk"],
        value: Float[Tensor, "B K V"],
        key_padding_mask: Bool[Tensor, "B K"] | None = None,
    ) -> tuple[Float[Tensor, "B Q V"], Float[Tensor, "B Q K"]]:
        """Return the context vectors and the weights.

        Args:
            query: what each position looks for.
            key: what each position offers.
            value: what is averaged.
            key_padding_mask: True at keys that nobody may look at. Their weight is exactly 0, and where it is True for
                all keys of a text, the text's weights and context are zeros.

        Raises:
            ValueError: if query, key, value and mask do not go together.
        """
        check_shapes("query B Q Dq, key B K Dk, value B K V", query, key, value)
        mask = merge_masks(
            (len(query), 1, query.shape[1], key.shape[1]), key_padding_mask, device=query.device
        )
        weights = masked_softmax(self.scores(query, key)[:, None], mask)  # [B, 1, Q, K]
        if self.observer is not None:
            # The layer uses the very weights that it shows.
            B, H, Q, K = weights.shape
            self.observer(
                AttentionCall(
                    (B, H, Q, K),
                    key_padding_mask,
                    weights,
                    lambda rows, kind: weights[rows].to(kind),
                )
            )
        shares = weights[:, 0]  # [B, Q, K]
        return shares @ value, shares


class AdditiveAttention(ScoredAttention):
    """Score each key by e_ij = v_a^T tanh(W_a q_i + U_a k_j), then average the values by softmax_j(e_ij).

    (Bahdanau, Cho and Bengio 2015, section 3.1 and appendix A.1.2: q_i is the decoder's last state s_{i-1}, k_j the
    encoder's annotation h_j.) Query and key may differ in width. Builds a tensor [B, Q, K, A], so it suits few queries.

    Args:
        query_dim: Dq, width of a query.
        key_dim: Dk, width of a key.
        hidden_dim: A, width of the hidden layer; key_dim if None.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__()
        A = hidden_dim or key_dim
        self.W_a = nn.Linear(query_dim, A, bias=False)
        self.U_a = nn.Linear(key_dim, A, bias=False)
        self.v_a = nn.Linear(A, 1, bias=False)

    def scores(
        self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]
    ) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        # U_a k_j does not depend on the query, so it is computed once for all (appendix A.1.2 says so too).
        hidden = torch.tanh(self.W_a(query)[:, :, None] + self.U_a(key)[:, None])  # [B, Q, K, A]
        scores: Tensor = self.v_a(hidden)
        return scores.squeeze(-1)


class DotAttention(ScoredAttention):
    """Score each key by e_ij = q_i^T k_j. Query and key are of one width; nothing is learned."""

    def scores(
        self, query: Float[Tensor, "B Q D"], key: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        return query @ key.transpose(1, 2)


class GeneralAttention(ScoredAttention):
    """Score each key by e_ij = q_i^T W_a k_j, with W_a [Dq, Dk]: query and key may differ in width.

    Args:
        query_dim: Dq, width of a query.
        key_dim: Dk, width of a key.
    """

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.W_a = nn.Linear(key_dim, query_dim, bias=False)

    def scores(
        self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]
    ) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        keys: Tensor = self.W_a(key)  # [B, K, Dq]
        return query @ keys.transpose(1, 2)


class ConcatAttention(ScoredAttention):
    """Score each key by e_ij = v_a^T tanh(W_a [q_i; k_j]), with W_a [A, Dq + Dk].

    W_a [q; k] is the sum of one matrix times q and another times k, so this is additive attention with both matrices
    side by side; docs/attention.md shows it by numbers.

    Args:
        query_dim: Dq, width of a query.
        key_dim: Dk, width of a key.
        hidden_dim: A, width of the hidden layer; key_dim if None.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__()
        A = hidden_dim or key_dim
        self.W_a = nn.Linear(query_dim + key_dim, A, bias=False)
        self.v_a = nn.Linear(A, 1, bias=False)

    def scores(
        self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]
    ) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        (_, Q, _), K = query.shape, key.shape[1]
        pairs = torch.cat(
            [query[:, :, None].expand(-1, -1, K, -1), key[:, None].expand(-1, Q, -1, -1)], dim=-1
        )  # [B, Q, K, Dq + Dk]
        scores: Tensor = self.v_a(torch.tanh(self.W_a(pairs)))
        return scores.squeeze(-1)
