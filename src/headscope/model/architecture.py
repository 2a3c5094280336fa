"""What a network is: its sizes, and where its norms, positions, gates and read-out stand.

A network from scratch has the architecture of its settings (`architecture_from`), an opened
checkpoint that of its config.json (`headscope.model.families.architecture_of`).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from headscope.settings.config import ModelConfig

Norm = Literal["before", "after"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]


class Layer(NamedTuple):
    """What one layer has of its own.

    Attributes:
        window: tokens further away are masked; None: none are.
        rotary_base: of rotary positions; None where positions are no rotations.
        has_attention_norm: False in ModernBERT's first layer, where the embedding's norm does it.
    """

    window: int | None = None
    rotary_base: float | None = None
    has_attention_norm: bool = True


class Pooler(NamedTuple):
    """f(W x + b), and a norm, between the text's vector x and the classes.

    As BERT's pooler (Devlin et al. 2019) or the dense layer of RoBERTa's, ELECTRA's and
    DistilBERT's heads.
    """

    activation: Activation
    has_bias: bool = True
    has_norm: bool = False


@dataclass(frozen=True)
class Architecture:
    """The shape of a network; attributes are named as in `headscope.settings.config.ModelConfig`.

    Attributes:
        vocab_size: number of token ids.
        max_length: tokens of the longest text.
        layers: of each, what it has of its own.
        token_types: of segments: 2 for pairs of texts; a checkpoint may have one for all, or none.
        norm: whether a norm stands before a branch (Xiong et al. 2020) or after its output was
            added, as in the first Transformer (Vaswani et al. 2017, section 3.1) and in BERT.
        norm_eps: is added to the variance.
        has_biases: False: attention, feed-forward networks and norms have none.
        activation: f in W_2 f(W_1 x + b_1) + b_2.
        is_gated: the feed-forward network is W_2 (f(a) * b), with a and b the halves of W_1 x
            (Shazeer 2020, GLU Variants Improve Transformer).
        has_last_norm: whether a norm follows the last block.
        has_embedding_norm: a norm follows the sum of the token's vectors.
        embedding_width: of a token's vectors, where a matrix brings them to d_model; else d_model.
        pooler: between the text's vector and the classes; None: nothing.
        evidence: whether tokens carry counted evidence, in the layers that learn.
        frozen_layers: of the first N layers, and of all below, nothing learns; None: all does.
        is_opened: whether its weights come from a checkpoint, so what is new beside them starts
            small, and a single text is of token type 0.
    """

    vocab_size: int
    max_length: int
    d_model: int
    num_heads: int
    feedforward_size: int
    layers: tuple[Layer, ...]
    token_types: int = 1
    attention: str = "multi_head"
    num_kv_heads: int | None = None
    causal: bool = False
    positions: str = "rotary"
    pooling: str = "first"
    norm: Norm = "before"
    norm_eps: float = 1e-5
    has_biases: bool = True
    activation: Activation = "gelu"
    is_gated: bool = False
    has_last_norm: bool = True
    has_embedding_norm: bool = False
    embedding_width: int | None = None
    pooler: Pooler | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    evidence: bool = False
    evidence_dropout: float = 0.0
    frozen_layers: int | None = None
    is_opened: bool = False

    @property
    def token_width(self) -> int:
        """The width of a token's vectors before they are brought to d_model."""
        return self.embedding_width or self.d_model

    @property
    def head_dim(self) -> int:
        """E, the width of a head."""
        return self.d_model // self.num_heads


def architecture_from(
    config: ModelConfig, vocab_size: int, max_length: int, num_segments: int = 1
) -> Architecture:
    """Return the architecture of a network from scratch; `num_segments` is 2 for pairs of texts."""
    base = 10_000.0 if config.positions == "rotary" else None
    return Architecture(
        vocab_size=vocab_size,
        max_length=max_length,
        d_model=config.d_model,
        num_heads=config.num_heads,
        feedforward_size=config.feedforward_size,
        layers=(Layer(config.window, base),) * config.num_layers,
        token_types=num_segments,
        attention=config.attention,
        num_kv_heads=config.num_kv_heads,
        causal=config.causal,
        positions=config.positions,
        pooling=config.pooling,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        evidence=config.has_evidence,
        evidence_dropout=config.evidence_dropout,
    )
