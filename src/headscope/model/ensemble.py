"""Several networks on one frozen encoder, whose mean answers.

Shape letters: B texts, T tokens, M members, C classes, F width of hidden states.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.model.classifier import TextClassifier, TokenIds
from headscope.model.pooling import PaddingMask
from headscope.model.pretrained import FrozenEncoder


class Ensemble(nn.Module):
    """logits = mean over members of their logits; the frozen encoder runs once for all.

    Member m leaves out every M-th training text, another for each, and starts from weights of its
    own (Breiman 1996, Bagging Predictors, with folds in place of draws). Logits are averaged, not
    probabilities: each member's are an exact sum over words and heads, and so is their mean.

    Args:
        members: networks on the same encoder; it is taken out of them.
        features: the encoder.
    """

    def __init__(self, members: Sequence[TextClassifier], features: FrozenEncoder) -> None:
        super().__init__()
        self.features = features
        self.members = nn.ModuleList(members)
        for member in members:
            member.features = None
        self.readout_position = members[0].readout_position

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: PaddingMask = None,
        segment_ids: TokenIds | None = None,
        evidence: Any = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "texts C"]:
        """Return the logits [B, C]; arguments and errors as of `TextClassifier`.

        In training those of each member, [M * B, C], since each has a loss of its own: a loss of
        their mean would let them lean on one another.
        """
        if features is None:
            features = self.features(token_ids, key_padding_mask, segment_ids)
        inputs = (token_ids, key_padding_mask, segment_ids, evidence, features)
        logits = torch.stack([member(*inputs) for member in self.members])  # [M, B, C]
        return logits.flatten(0, 1) if self.training else logits.mean(dim=0)

    def learned(self, rows: Int[Tensor, " B"]) -> Bool[Tensor, "M B"]:
        """Return which training texts, by their rows, each member learns: all but an M-th."""
        M = len(self.members)
        return rows % M != torch.arange(M, device=rows.device)[:, None]
