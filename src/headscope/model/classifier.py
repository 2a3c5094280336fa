"""The whole network: token ids in, one logit for each class out."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.attention.dropout import Dropout
from headscope.model.config import ModelConfig
from headscope.model.embedding import TokenEmbedding
from headscope.model.encoder import Encoder
from headscope.model.pooling import build_pooling
from headscope.model.pretrained.architecture import Architecture
from headscope.model.pretrained.encoder import NormedEmbedding, PostNormEncoder


class TextClassifier(nn.Module):
    """logits = W pool(Encoder(Embedding(ids))) + b.

    Args:
        config: width, heads, layers and the like.
        vocab_size: number of token ids; id 0 is padding.
        num_classes: C, number of logits.
        max_length: most tokens of a text.
        num_segments: 2 for pairs of texts, else 1.
        architecture: of an encoder that is trained already; None for one from scratch. It decides about embedding and
            encoder, and so about every size; of `config`, pooling and dropout remain.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        num_classes: int,
        max_length: int,
        num_segments: int = 1,
        architecture: Architecture | None = None,
    ) -> None:
        super().__init__()
        self.embedding: TokenEmbedding | NormedEmbedding
        self.encoder: Encoder | PostNormEncoder
        if architecture is None:
            self.embedding = TokenEmbedding(
                vocab_size, config.d_model, max_length, config.positions, num_segments, config.dropout
            )
            self.encoder = Encoder(config, max_length)
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
    ) -> Float[Tensor, "B C"]:
        """Return the logits.

        Args:
            token_ids: the texts, padded with id 0 to the longest.
            key_padding_mask: True at padding; None where no text is padded, which is faster.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second.
        """
        tokens = self.encoder(self.embedding(token_ids, segment_ids), key_padding_mask)
        logits: Tensor = self.head(self.dropout(self.pool(tokens, key_padding_mask)))
        return logits
