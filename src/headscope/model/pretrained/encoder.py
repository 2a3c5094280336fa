"""The encoder of the BERT family: an embedding with a norm, and blocks whose norm comes after the addition."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.attention.functional import Dropout
from headscope.model.pretrained.architecture import Architecture

# gelu_new is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, near x Phi(x) (Hendrycks and Gimpel 2016, section 2).
MAKE_ACTIVATION: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_new": lambda: nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
}


class NormedEmbedding(nn.Module):
    """LayerNorm(token + place + token type), the input of BERT (Devlin et al. 2019, section 3, figure 2).

    A token's place is counted from the start of the text, whatever is padding: padding stands at the end, and a token
    that is hidden on purpose leaves the others where they are. What is looked up at padding is seen by nobody.

    Args:
        architecture: sizes.
        dropout: share of numbers dropped in training.
    """

    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        D = architecture.d_model
        self.token = nn.Embedding(architecture.vocab_size, D)
        self.position = nn.Parameter(torch.empty(architecture.max_positions, D))
        self.segment = nn.Embedding(architecture.num_segments, D) if architecture.num_segments else None
        self.norm = nn.LayerNorm(D, eps=architecture.norm_epsilon)
        self.dropout = Dropout(dropout)
        nn.init.normal_(self.position, std=0.02)

    def forward(
        self, token_ids: Int[Tensor, "B T"], segment_ids: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return one vector for each token.

        Args:
            token_ids: whatever stands at padding.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second. Without them all are of type 0,
                and so they are where the encoder knows but one type, as RoBERTa does.
        """
        vectors = self.token(token_ids) + self.position[: token_ids.shape[1]]
        if self.segment is not None:
            if segment_ids is None or self.segment.num_embeddings == 1:
                vectors = vectors + self.segment.weight[0]
            else:
                vectors = vectors + self.segment(segment_ids)
        return self.dropout(self.norm(vectors))  # type: ignore[no-any-return]


class PostNormBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each, a norm after each addition.

    x <- LayerNorm(x + MultiHeadAttention(x)), x <- LayerNorm(x + W_2 f(W_1 x + b_1) + b_2) (Vaswani et al. 2017,
    section 3.1). Dropout acts on the output of either branch.

    Args:
        architecture: sizes, the activation f, and the epsilon of the norms.
        dropout: on the output of either branch.
        attention_dropout: on the attention weights.
    """

    def __init__(self, architecture: Architecture, dropout: float = 0.0, attention_dropout: float = 0.0) -> None:
        super().__init__()
        D, epsilon = architecture.d_model, architecture.norm_epsilon
        self.attention = MultiHeadAttention(D, architecture.num_heads, attention_dropout, batch_first=True)
        self.attention_norm = nn.LayerNorm(D, eps=epsilon)
        self.feedforward = nn.Sequential(
            nn.Linear(D, architecture.feedforward_size),
            MAKE_ACTIVATION[architecture.activation](),
            nn.Linear(architecture.feedforward_size, D),
        )
        self.feedforward_norm = nn.LayerNorm(D, eps=epsilon)
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return the tokens' new vectors. key_padding_mask is True at padding."""
        attended, _ = self.attention(tokens, tokens, tokens, key_padding_mask, need_weights=False)
        tokens = self.attention_norm(tokens + self.dropout(attended))
        return self.feedforward_norm(tokens + self.dropout(self.feedforward(tokens)))  # type: ignore[no-any-return]


class PostNormEncoder(nn.Module):
    """A stack of such blocks, without a last norm: each block ends with one.

    Args:
        architecture: sizes.
        dropout: on the output of each branch.
        attention_dropout: on the attention weights.
    """

    def __init__(self, architecture: Architecture, dropout: float = 0.0, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            PostNormBlock(architecture, dropout, attention_dropout) for _ in range(architecture.num_layers)
        )

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return each token's vector after the last block. key_padding_mask is True at padding."""
        for block in self.blocks:
            tokens = block(tokens, key_padding_mask)
        return tokens
