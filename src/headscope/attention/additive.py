"""Additive attention: a small network says how well a key fits a query."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention.scored import ScoredAttention


class AdditiveAttention(ScoredAttention):
    """Score each key by e_ij = v_a^T tanh(W_a q_i + U_a k_j), then average the values by softmax_j(e_ij).

    (Bahdanau, Cho and Bengio 2015, Neural Machine Translation by Jointly Learning to Align and Translate, section 3.1
    and appendix A.1.2: q_i is the decoder's last state s_{i-1}, k_j the encoder's annotation h_j.) Query and key
    may differ in width. Builds a tensor [B, Q, K, A], so it suits few queries.

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

    def scores(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        """Return e_ij."""
        # U_a k_j does not depend on the query, so it is computed once for all (appendix A.1.2 says so too).
        hidden = torch.tanh(self.W_a(query)[:, :, None] + self.U_a(key)[:, None])  # [B, Q, K, A]
        scores: Float[Tensor, "B Q K"] = self.v_a(hidden).squeeze(-1)
        return scores
