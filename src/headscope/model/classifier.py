"""The whole network: token ids in, one logit for each class out."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.attention.functional import Dropout
from headscope.model.config import ModelConfig
from headscope.model.embedding import TokenEmbedding
from headscope.model.encoder import Encoder
from headscope.model.evidence import EvidenceInputs, TokenEvidence
from headscope.model.pooling import build_pooling
from headscope.model.pretrained.architecture import Architecture
from headscope.model.pretrained.encoder import NormedEmbedding, PostNormEncoder


class TextClassifier(nn.Module):
    """logits = W pool(Encoder(Embedding(ids))) + b.

    By default the first token, [CLS], is read, whose own vector is the same in every text: nothing of a text reaches
    the logits but through an attention head.

    Args:
        config: width, heads, layers and the like.
        vocab_size: number of token ids; id 0 is padding.
        num_classes: C, number of logits.
        max_length: most tokens of a text.
        num_segments: 2 for pairs of texts, else 1.
        architecture: of an encoder that is trained already; None for one from scratch. It decides about embedding and
            encoder, and so about every size; of `config`, pooling and dropout remain.
        num_ngrams: how many n-grams are known; without config.evidence tokens carry none.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        num_classes: int,
        max_length: int,
        num_segments: int = 1,
        architecture: Architecture | None = None,
        num_ngrams: int = 0,
    ) -> None:
        super().__init__()
        self.num_segments = num_segments
        self.embedding: TokenEmbedding | NormedEmbedding
        self.encoder: Encoder | PostNormEncoder
        told_classes = num_classes if config.evidence and architecture is None else 0
        self.evidence = TokenEvidence(num_ngrams, num_classes, config.evidence_dropout) if told_classes else None
        if architecture is None:
            self.embedding = TokenEmbedding(
                vocab_size, config.d_model, max_length, config.positions, num_segments, config.dropout, told_classes
            )
            self.encoder = Encoder(config, max_length, told_classes)
        else:
            self.embedding = NormedEmbedding(architecture, config.dropout)
            self.encoder = PostNormEncoder(architecture, config.dropout, config.attention_dropout)
        width = config.d_model if architecture is None else architecture.d_model
        self.pool = build_pooling(config.pooling, width)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(width, num_classes)

    def forward(
        self,
        token_ids: Int[Tensor, "B T"],
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        evidence: EvidenceInputs | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits.

        Args:
            token_ids: the texts, padded with id 0 to the longest.
            key_padding_mask: True at padding; None where no text is padded, which is faster.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second.
            evidence: the tokens' n-grams.

        Raises:
            ValueError: without evidence, or without segment_ids, where the network was trained with them: its logits
                would be wrong.
        """
        if self.num_segments > 1 and segment_ids is None:
            raise ValueError("this network reads pairs of texts: call it with segment_ids, as in a batch's `inputs`")
        if self.evidence is None:
            tokens = self.encoder(self.embedding(token_ids, segment_ids), key_padding_mask)
        elif evidence is None:
            raise ValueError("this network reads n-grams beside token ids: call it with a batch's `inputs`")
        else:
            said = self.evidence(evidence, token_ids.shape[1])  # [B, T, C]
            tokens = self.encoder(self.embedding(token_ids, segment_ids, said), key_padding_mask, said)
        logits: Tensor = self.head(self.dropout(self.pool(tokens, key_padding_mask)))
        return logits
