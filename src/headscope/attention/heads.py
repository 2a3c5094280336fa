"""What every layer of several heads does once it has queries, keys and values: turn, show, attend, join."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention.dropout import dropped
from headscope.attention.functional import Mask, attend, attention_weights
from headscope.attention.masks import hidden_keys
from headscope.attention.observed import ObservedAttention, Seen
from headscope.attention.rotary import RotaryPositions

Intervention = Callable[[Tensor], Tensor]


class HeadedAttention(ObservedAttention):
    """The part of multi-head attention behind the projections.

    Args:
        embed_dim: D, width of queries and of the output.
        num_heads: H; must divide embed_dim. A head is E = D / H wide.
        dropout: share of the weights dropped in training.
        rotary: called on the queries and on the keys of all heads [B, H, T, E] before they meet.

    Attributes:
        intervention: if set, changes the sums of all heads [B, H, Q, E] before they are joined: how
            `headscope.inspection` finds out what happens without a head.

    Raises:
        ValueError: if num_heads does not divide embed_dim.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, rotary: RotaryPositions | None = None
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.rotary = dropout, rotary
        self.intervention: Intervention | None = None

    @property
    def output_projection(self) -> nn.Linear:
        """W^O and b^O, which the joined heads go through."""
        raise NotImplementedError

    def split_heads(self, tokens: Float[Tensor, "B T HE"]) -> Float[Tensor, "B H T E"]:
        """Cut each token's vector into heads of E numbers; costs nothing but a view."""
        heads: Tensor = tokens.unflatten(-1, (-1, self.head_dim))  # [B, T, H, E]
        return heads.transpose(1, 2)  # [B, H, T, E]

    def attend_heads(
        self,
        query: Float[Tensor, "B H Q E"],
        key: Float[Tensor, "B H K E"],
        value: Float[Tensor, "B H K E"],
        mask: Mask | None,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"] | None]:
        """Return Concat(head_1 ... head_H) and the weights, if these are needed; is_causal as `attend` has it."""
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        if self.observer is not None:
            self.observer(_seen(query, key, value, mask, key_padding_mask))
        sums, weights = self._sums(query, key, value, mask, need_weights, is_causal)
        if self.intervention is not None:
            sums = self.intervention(sums)
        return sums.transpose(1, 2).flatten(2), weights  # [B, H, Q, E] -> [B, Q, H, E] -> [B, Q, D]

    def _sums(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, need_weights: bool, is_causal: bool
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            return attend(query, key, value, mask, dropout, is_causal), None
        weights = dropped(attention_weights(query, key, mask), dropout)
        return weights @ value, weights


def _seen(query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, key_padding_mask: Tensor | None) -> Seen:
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return Seen(
        shape,
        hidden_keys(key_padding_mask),
        query,
        lambda rows, precision: attention_weights(
            query[rows].to(precision),
            key[rows].to(precision),
            mask[rows] if mask is not None and mask.shape[0] > 1 else mask,
        ),
        lambda: (attend(query, key, value, mask) - attention_weights(query, key, mask) @ value).abs().max(),
        value,
    )
