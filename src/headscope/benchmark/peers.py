"""What a user would pick instead: encoders of equal size from torch and from Hugging Face, and ours."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.benchmark.workload import Sizes
from headscope.errors import ConfigError
from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.model.pooling import mean_pooling

DROPOUT = 0.1  # everywhere, on attention weights too, which is what both peers have by default

Maker = Callable[[Sizes, int], nn.Module]  # from sizes and the longest text to a model: (token_ids, mask) -> logits


class TorchClassifier(nn.Module):
    """torch.nn.TransformerEncoder between an embedding and a mean, as a user would write it.

    Args:
        sizes: of the encoder.
        max_length: most tokens of a text.
    """

    def __init__(self, sizes: Sizes, max_length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(sizes.vocab_size, sizes.d_model, padding_idx=0)
        self.position = nn.Parameter(0.02 * torch.randn(max_length, sizes.d_model))
        layer = nn.TransformerEncoderLayer(
            sizes.d_model, sizes.num_heads, sizes.feedforward_size, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(sizes.d_model)
        self.encoder = nn.TransformerEncoder(layer, sizes.num_layers, norm, enable_nested_tensor=False)
        self.dropout = nn.Dropout(DROPOUT)
        self.head = nn.Linear(sizes.d_model, sizes.num_classes)

    def forward(
        self, token_ids: Int[Tensor, "B T"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        """Return the logits."""
        tokens = self.dropout(self.token(token_ids) + self.position[: token_ids.shape[1]])
        tokens = self.encoder(tokens, src_key_padding_mask=key_padding_mask)
        logits: Float[Tensor, "B C"] = self.head(self.dropout(mean_pooling(tokens, key_padding_mask)))
        return logits


class HuggingFaceClassifier(nn.Module):
    """BertForSequenceClassification of these sizes, with random weights.

    Args:
        sizes: of the encoder.
        max_length: most tokens of a text.
        kernel: sdpa or eager.

    Raises:
        ConfigError: if transformers is not installed.
    """

    def __init__(self, sizes: Sizes, max_length: int, kernel: str = "sdpa") -> None:
        super().__init__()
        self.bert = transformers().BertForSequenceClassification(bert_config(sizes, max_length, kernel))

    def forward(
        self, token_ids: Int[Tensor, "B T"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        """Return the logits."""
        mask = None if key_padding_mask is None else (~key_padding_mask).long()  # 1 where there is a token
        logits: Float[Tensor, "B C"] = self.bert(input_ids=token_ids, attention_mask=mask).logits
        return logits


def bert_config(sizes: Sizes, max_length: int, kernel: str = "sdpa") -> Any:
    """Return the BertConfig of these sizes; dropout is 0.1 everywhere by default."""
    return transformers().BertConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.d_model,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        intermediate_size=sizes.feedforward_size,
        max_position_embeddings=max_length,
        num_labels=sizes.num_classes,
        pad_token_id=0,
        attn_implementation=kernel,
    )


def our_config(sizes: Sizes, dropout: float = DROPOUT, attention_dropout: float = DROPOUT) -> ModelConfig:
    """Return our encoder's configuration of these sizes."""
    return ModelConfig(
        d_model=sizes.d_model,
        num_heads=sizes.num_heads,
        num_layers=sizes.num_layers,
        feedforward_size=sizes.feedforward_size,
        dropout=dropout,
        attention_dropout=attention_dropout,
        pooling="mean",  # every token's vector is made, as the peers do
        evidence=False,
    )


def ours(sizes: Sizes, max_length: int) -> nn.Module:
    """Return our classifier with dropout everywhere, as the peers have it."""
    return TextClassifier(our_config(sizes), sizes.vocab_size, sizes.num_classes, max_length)


def ours_by_default(sizes: Sizes, max_length: int) -> nn.Module:
    """Return our classifier as it comes: no dropout on attention weights."""
    return TextClassifier(our_config(sizes, attention_dropout=0.0), sizes.vocab_size, sizes.num_classes, max_length)


def hugging_face(kernel: str) -> Maker:
    """Return the maker of Hugging Face's BERT with that attention kernel."""
    return lambda sizes, max_length: HuggingFaceClassifier(sizes, max_length, kernel)


def transformers() -> Any:
    """Return the package transformers.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import transformers as installed
    except ImportError as error:
        raise ConfigError(
            "peers: transformers is not installed; `pip install -e .[benchmark]`, or measure without: peers=false"
        ) from error
    return installed
