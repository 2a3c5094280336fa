"""The whole network, from token ids to logits; from scratch, or opened from a checkpoint.

    token ids -> TokenEmbedding (+ TokenEvidence) -> Encoder of EncoderBlocks -> pooling
    (-> Pooler) -> dropout -> linear -> logits

Shape letters: B texts, T tokens, Q tokens whose vectors are computed (T, or 1 if only [CLS] is
read), D model width, C classes, n known n-grams, F width of a frozen encoder's states, M members.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.attention.functional import Dropout
from headscope.model.architecture import Architecture
from headscope.model.architecture import Pooler as PoolerKind
from headscope.model.embedding import (
    STD_BESIDE_PRETRAINED,
    EvidenceInputs,
    TokenEmbedding,
    TokenEvidence,
    TokenIds,
    layer_norm,
)
from headscope.model.encoder import ACTIVATIONS, Encoder
from headscope.model.frozen import FrozenLayers
from headscope.model.pooling import PaddingMask, build_pooling

GOLDEN = 2_654_435_769  # 2^32 / 1.618..., the golden ratio


class Pooler(nn.Module):
    """f(W x + b), and in ModernBERT a norm, of the text's vector x: a part of a checkpoint."""

    def __init__(self, architecture: Architecture, kind: PoolerKind) -> None:
        super().__init__()
        D = architecture.d_model
        self.dense = nn.Linear(D, D, kind.has_bias)
        self.activation = ACTIVATIONS[kind.activation]()
        self.norm = layer_norm(architecture, D) if kind.has_norm else nn.Identity()

    def forward(self, text: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Return the vector that the classes are read from."""
        return self.norm(self.activation(self.dense(text)))  # type: ignore[no-any-return]


class TextClassifier(nn.Module):
    """logits = W pool(Encoder(Embedding(ids))) + b.

    By default the first token, [CLS], is read out. From scratch its own vector is the same in every
    text: a text reaches the logits only through attention heads.

    Args:
        architecture: sizes and kinds.
        num_classes: C, number of logits.
        num_ngrams: n, the number of known n-grams.
        features: the frozen encoder whose hidden states are read in place of token ids.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_classes: int,
        num_ngrams: int = 0,
        features: FrozenLayers | None = None,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.features = features
        D = architecture.d_model
        classes = num_classes if architecture.evidence else 0
        self.evidence: TokenEvidence | None = None
        if architecture.evidence:
            self.evidence = TokenEvidence(num_ngrams, num_classes, architecture.evidence_dropout)
        is_frozen = architecture.frozen_layers is not None
        states = (0, 0) if features is None else (len(features.layers), features.layer_width)
        self.embedding = TokenEmbedding(architecture, 0 if is_frozen else classes, *states)
        self.encoder = Encoder(architecture, classes)
        if features is not None or architecture.is_opened:
            for part in (self.embedding, *self.encoder.blocks):
                if part.evidence is not None:
                    nn.init.normal_(part.evidence.weight, std=STD_BESIDE_PRETRAINED)
        self.pool = build_pooling(architecture.pooling, D)
        self.readout_position = 0 if self.encoder.reads_first else None
        self.pooler: nn.Module = nn.Identity()
        if architecture.pooler is not None:
            self.pooler = Pooler(architecture, architecture.pooler)
        self.dropout = Dropout(architecture.dropout)
        self.head = nn.Linear(D, num_classes)
        for part in self._frozen_parts():
            part.requires_grad_(False).eval()

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: PaddingMask = None,
        segment_ids: TokenIds | None = None,
        evidence: EvidenceInputs | None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits; `text_vectors` has the arguments and what is raised."""
        text = self.text_vectors(token_ids, key_padding_mask, segment_ids, evidence, features)
        return self.head(self.dropout(text))  # type: ignore[no-any-return]

    def text_vectors(
        self,
        token_ids: TokenIds,
        key_padding_mask: PaddingMask = None,
        segment_ids: TokenIds | None = None,
        evidence: EvidenceInputs | None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "B D"]:
        """Return the vectors that the logits are read from.

        Args:
            token_ids: the texts, padded with id 0 to the longest.
            key_padding_mask: True at padding; None if no text is padded, which is faster.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second.
            evidence: the tokens' n-grams.
            features: the hidden states of the frozen layers, if they are known already.

        Raises:
            ValueError: without segment_ids or evidence, if the network was trained with them.
        """
        if self.needs_segments and segment_ids is None:
            raise ValueError("this network reads pairs: call it with a batch's `inputs`")
        ratios: Tensor | None = None  # [B, T, C]
        if self.evidence is not None:
            if evidence is None:
                raise ValueError("this network reads n-grams: call it with a batch's `inputs`")
            ratios = self.evidence(evidence, token_ids.shape[1])
        if self.features is not None and features is None:
            features = self.features(token_ids, key_padding_mask, segment_ids)
        start = 0
        if features is not None and not self.embedding.reads_states:  # after our frozen layers
            vectors = features
            start = self.architecture.frozen_layers or 0
        else:
            vectors = self.embedding(token_ids, segment_ids, ratios, features)  # [B, T, D]
        tokens = self.encoder(vectors, key_padding_mask, ratios, start)
        return self._text_vectors(tokens, key_padding_mask)

    def read_out(
        self, tokens: Float[Tensor, "B Q D"], key_padding_mask: PaddingMask = None
    ) -> Float[Tensor, "B C"]:
        """Return the logits of the vectors that the encoder returns."""
        text = self._text_vectors(tokens, key_padding_mask)  # [B, D]
        return self.head(self.dropout(text))  # type: ignore[no-any-return]

    def _text_vectors(
        self, tokens: Float[Tensor, "B Q D"], key_padding_mask: PaddingMask
    ) -> Float[Tensor, "B D"]:
        return self.pooler(self.pool(tokens, key_padding_mask))  # type: ignore[no-any-return]

    @property
    def needs_segments(self) -> bool:
        """Whether token types must be given: a checkpoint's tokens are else all of type 0."""
        return self.architecture.token_types > 1 and not self.architecture.is_opened

    @property
    def frozen(self) -> FrozenLayers | None:
        """The layers whose states are computed once, before training; None if there are none."""
        if self.features is not None:
            return self.features
        number = self.architecture.frozen_layers or 0
        if not 0 < number < len(self.encoder.blocks):
            return None
        return FrozenLayers(self.embedding, self.encoder, (number,))

    def train(self, mode: bool = True) -> "TextClassifier":
        """Set the mode of the parts that learn; frozen ones have no dropout."""
        super().train(mode)
        for part in self._frozen_parts():
            part.eval()
        return self

    def _frozen_parts(self) -> list[nn.Module]:
        number = self.architecture.frozen_layers
        if number is None:
            return []
        return [self.embedding, *self.encoder.blocks[:number]]


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
