"""Heads that share their projections: the embedding is cut into heads first, then projected."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.heads import HeadedAttention
from headscope.attention.masks import merge_masks
from headscope.attention.rotary import RotaryPositions


class SharedProjectionAttention(HeadedAttention):
    """Cut each vector into H pieces x_1 ... x_H of E numbers and send them all through the same three E x E matrices.

    head_i = softmax(Q_i W^Q (K_i W^K)^T / sqrt(E)) V_i W^V, output = dropout(Concat(head_1 ... head_H) W^O + b^O).
    A form found in many tutorials and in none of the papers: a head sees its own piece of the embedding alone, so the
    first layer's heads are told apart by what the pieces hold. It has 3 E^2 weights for projections in
    place of 3 D^2. It equals multi-head attention whose projections are block-diagonal, each block the same
    (`headscope.attention.carry`). Scores are scaled by sqrt(E), the width that the product is summed over; tutorials
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
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, rotary: RotaryPositions | None = None
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, rotary)
        self.queries, self.keys, self.values = (nn.Linear(self.head_dim, self.head_dim, bias=False) for _ in range(3))
        self.fc_out = nn.Linear(embed_dim, embed_dim)
        self.output_dropout = nn.Dropout(dropout)

    @property
    def output_projection(self) -> nn.Linear:
        """W^O and b^O, which the joined heads go through."""
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
        """
        B, Q, _ = query.shape
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask[:, None]  # [B, 1, Q or 1, K], the same for all heads
        mask = merge_masks((B, self.num_heads, Q, key.shape[1]), key_padding_mask, attn_mask)
        queries, keys, values = map(self._project, (query, key, value), (self.queries, self.keys, self.values))
        output, weights = self.attend_heads(queries, keys, values, mask, key_padding_mask, need_weights)
        return self.output_dropout(self.fc_out(output)), weights

    def _project(self, tokens: Float[Tensor, "B T D"], linear: nn.Linear) -> Float[Tensor, "B H T E"]:
        return linear(self.split_heads(tokens))  # type: ignore[no-any-return]
