"""A stack of pre-norm Transformer blocks built from our own attention."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, RotaryPositions
from headscope.model.dropout import Dropout


class EncoderBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each token, both as additions to what comes in.

    x <- x + MultiHeadAttention(LayerNorm(x)), x <- x + W_2 GELU(W_1 LayerNorm(x) + b_1) + b_2.
    The norm stands inside the branch, which trains without a delicate warm-up (Xiong et al. 2020, On Layer
    Normalization in the Transformer Architecture); GELU is x * Phi(x) (Hendrycks and Gimpel 2016).

    Args:
        d_model: D, width of a token's vector.
        num_heads: attention heads.
        feedforward_size: width of the hidden layer.
        dropout: on the output of either branch and on the hidden layer.
        attention_dropout: on the attention weights.
        rotary: rotary positions, if the place of a token enters that way.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        feedforward_size: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(
            d_model, num_heads, dropout=attention_dropout, batch_first=True, rotary=rotary
        )
        self.feedforward_norm = nn.LayerNorm(d_model)
        self.feedforward = nn.Sequential(
            nn.Linear(d_model, feedforward_size),
            nn.GELU(),
            Dropout(dropout),
            nn.Linear(feedforward_size, d_model),
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return the tokens' new vectors. key_padding_mask is True at padding, which nobody looks at."""
        normed = self.attention_norm(tokens)
        attended, _ = self.attention(normed, normed, normed, key_padding_mask=key_padding_mask, need_weights=False)
        tokens = tokens + self.dropout(attended)
        return tokens + self.dropout(self.feedforward(self.feedforward_norm(tokens)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """num_layers blocks and a last norm, which pre-norm blocks need since nothing else bounds their sum."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_layers: int,
        feedforward_size: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            EncoderBlock(d_model, num_heads, feedforward_size, dropout, attention_dropout, rotary)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return each token's vector after the last block. key_padding_mask is True at padding."""
        for block in self.blocks:
            tokens = block(tokens, key_padding_mask)
        return self.norm(tokens)  # type: ignore[no-any-return]
