"""Multiplicative attention: the three scores of Luong, Pham and Manning (2015).

Effective Approaches to Attention-based Neural Machine Translation, section 3.1: q_i is the decoder's state h_t, k_j
the encoder's state h_s. None is scaled by the width, as the paper has it; Vaswani et al. 2017 added that.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention.scored import ScoredAttention


class DotAttention(ScoredAttention):
    """Score each key by e_ij = q_i^T k_j. Query and key are of one width; nothing is learned."""

    def scores(self, query: Float[Tensor, "B Q D"], key: Float[Tensor, "B K D"]) -> Float[Tensor, "B Q K"]:
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

    def scores(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        scores: Float[Tensor, "B Q K"] = query @ self.W_a(key).transpose(1, 2)
        return scores


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

    def scores(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        (_, Q, _), K = query.shape, key.shape[1]
        pairs = torch.cat(
            [query[:, :, None].expand(-1, -1, K, -1), key[:, None].expand(-1, Q, -1, -1)], dim=-1
        )  # [B, Q, K, Dq + Dk]
        scores: Float[Tensor, "B Q K"] = self.v_a(torch.tanh(self.W_a(pairs))).squeeze(-1)
        return scores
