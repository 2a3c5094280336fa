"""A stack of pre-norm Transformer blocks built from our own attention."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, RotaryPositions, SharedProjectionAttention
from headscope.attention.dropout import Dropout
from headscope.attention.heads import HeadedAttention
from headscope.attention.masks import causal_mask, window_mask
from headscope.model.config import ModelConfig


class EncoderBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each token, both as additions to what comes in.

    x <- x + MultiHeadAttention(LayerNorm(x)), x <- x + W_2 GELU(W_1 LayerNorm(x) + b_1) + b_2.
    The norm stands inside the branch, which trains without a delicate warm-up (Xiong et al. 2020, On Layer
    Normalization in the Transformer Architecture); GELU is x * Phi(x) (Hendrycks and Gimpel 2016).

    Args:
        attention: makes each token's vector a mix of the tokens' vectors; called with query, key, value,
            key_padding_mask, need_weights and attn_mask.
        d_model: D, width of a token's vector.
        feedforward_size: width of the hidden layer.
        dropout: on the output of either branch and on the hidden layer.
    """

    def __init__(self, attention: HeadedAttention, d_model: int, feedforward_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(d_model)
        self.feedforward = nn.Sequential(
            nn.Linear(d_model, feedforward_size),
            nn.GELU(),
            Dropout(dropout),
            nn.Linear(feedforward_size, d_model),
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens: Float[Tensor, "B T D"],
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        attn_mask: Bool[Tensor, "T T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the tokens' new vectors. Both masks are True where nobody may look: at padding, at far tokens."""
        normed = self.attention_norm(tokens)
        attended, _ = self.attention(normed, normed, normed, key_padding_mask, need_weights=False, attn_mask=attn_mask)
        tokens = tokens + self.dropout(attended)
        return tokens + self.dropout(self.feedforward(self.feedforward_norm(tokens)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """num_layers blocks and a last norm, which pre-norm blocks need since nothing else bounds their sum.

    Args:
        config: width, heads, layers, kind of attention, and which tokens may look at which.
        max_length: most tokens of a text.
    """

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        rotary = None
        if config.positions == "rotary":
            rotary = RotaryPositions(config.d_model // config.num_heads, max_length)
        self.blocks = nn.ModuleList(
            EncoderBlock(build_attention(config, rotary), config.d_model, config.feedforward_size, config.dropout)
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.causal, self.window = config.causal, config.window

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return each token's vector after the last block. key_padding_mask is True at padding."""
        attn_mask = self.attention_mask(tokens.shape[1], tokens.device)
        for block in self.blocks:
            tokens = block(tokens, key_padding_mask, attn_mask)
        return self.norm(tokens)  # type: ignore[no-any-return]

    def attention_mask(self, length: int, device: torch.device) -> Bool[Tensor, "{length} {length}"] | None:
        """Return which token may not look at which, whatever the text: later ones, or those out of the window."""
        masks = []
        if self.causal:
            masks.append(causal_mask(length, length, device))
        if self.window is not None:
            masks.append(window_mask(length, length, self.window, device))
        return torch.cat(masks).any(dim=0)[0] if masks else None  # [1 or 2, 1, T, T] -> [T, T]


def build_attention(config: ModelConfig, rotary: RotaryPositions | None = None) -> HeadedAttention:
    """Return the attention layer that a configuration asks for."""
    D, H, dropout = config.d_model, config.num_heads, config.attention_dropout
    if config.attention == "shared_projection":
        return SharedProjectionAttention(D, H, dropout, rotary)
    return MultiHeadAttention(D, H, dropout, batch_first=True, rotary=rotary, num_kv_heads=config.num_kv_heads)
