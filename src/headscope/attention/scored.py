"""Attention by a score that is not a dot product of heads: what additive and multiplicative attention share."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor

from headscope.attention.functional import masked_softmax
from headscope.attention.observed import ObservedAttention, Seen


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
        """
        mask = None if key_padding_mask is None else key_padding_mask[:, None, None, :]  # [B, 1, 1, K]
        weights = masked_softmax(self.scores(query, key)[:, None], mask)  # [B, 1, Q, K]
        if self.observer is not None:
            self.observer(_seen(weights, key_padding_mask))
        weights = weights[:, 0]  # [B, Q, K]
        return weights @ value, weights


def _seen(weights: Float[Tensor, "B 1 Q K"], key_padding_mask: Tensor | None) -> Seen:
    B, H, Q, K = weights.shape
    # These weights are the ones that the values are multiplied with.
    return Seen(
        (B, H, Q, K),
        key_padding_mask,
        weights,
        lambda rows, precision: weights[rows].to(precision),
        lambda: weights.new_zeros(()),
    )
