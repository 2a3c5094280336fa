"""Several networks on one frozen encoder, whose mean answers.

Shape letters: B texts, T tokens, M members, C classes, F width of hidden states.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.model.classifier import TextClassifier
from headscope.model.embedding import TokenIds
from headscope.model.frozen import FrozenLayers
from headscope.model.pooling import PaddingMask

GOLDEN = 2_654_435_769  # 2^32 / 1.618..., the golden ratio


class Ensemble(nn.Module):
    """logits = mean over members of their logits; the frozen encoder runs once for all.

    Member m does not learn an M-th of the training texts, another for each, and starts from weights
    of its own (Breiman 1996, Bagging Predictors, with folds in place of draws). Logits are
    averaged, not probabilities: each member's are an exact sum over words and heads, and so is
    their mean. `features` is taken out of the members.
    """

    def __init__(self, members: Sequence[TextClassifier], features: FrozenLayers) -> None:
        super().__init__()
        self.features = features
        self.members = nn.ModuleList(members)
        for member in members:
            member.features = None
        self.readout_position = members[0].readout_position

    @property
    def frozen(self) -> FrozenLayers:
        """The layers whose states are computed once, before training."""
        return self.features

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: PaddingMask = None,
        segment_ids: TokenIds | None = None,
        evidence: Any = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "texts C"]:
        """Return the mean logits [B, C]; in training those of each member, [M * B, C]."""
        if features is None:
            features = self.features(token_ids, key_padding_mask, segment_ids)
        inputs = (token_ids, key_padding_mask, segment_ids, evidence, features)
        logits = torch.stack([member(*inputs) for member in self.members])  # [M, B, C]
        return logits.flatten(0, 1) if self.training else logits.mean(dim=0)

    def learned(
        self, logits: Float[Tensor, "texts C"], labels: Tensor, rows: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "learned C"], Tensor]:
        """Return a training batch's logits of each member, and labels, but for its own fold."""
        is_learned = self.folds(rows) != torch.arange(len(self.members)).to(rows)[:, None]  # [M, B]
        each = labels.expand(len(self.members), *labels.shape)  # [M, B, *C]
        return logits[is_learned.flatten()], each[is_learned]

    def folds(self, rows: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return floor(M frac(row / 1.618...)): even for every n-th row too (Knuth 1998, 6.4)."""
        return rows * GOLDEN % 2**32 * len(self.members) >> 32
