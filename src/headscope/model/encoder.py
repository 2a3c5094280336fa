"""A stack of pre-norm Transformer blocks built from our own attention."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, RotaryPositions, SharedProjectionAttention
from headscope.attention.functional import Dropout, causal_mask, window_mask
from headscope.attention.multi_head import HeadedAttention
from headscope.attention.dropout import Dropout
from headscope.attention.heads import HeadedAttention
from headscope.attention.masks import causal_mask, window_mask
from headscope.attention.observed import Seen
from headscope.errors import ConfigError
from headscope.extension import called, is_import_path, resolve
from headscope.model.config import ModelConfig
from headscope.model.embedding import EVIDENCE_STD


class EncoderBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each token, both as additions to what comes in.

    x <- x + MultiHeadAttention(LayerNorm(x)), x <- x + W_2 GELU(W_1 LayerNorm(x) + b_1) + b_2.
    The norm stands inside the branch, which trains without a delicate warm-up (Xiong et al. 2020, On Layer
    Normalization in the Transformer Architecture); GELU is x * Phi(x) (Hendrycks and Gimpel 2016).

    Where tokens carry evidence e, the heads' values are made of LayerNorm(x) + U e: the norm makes a token that says
    much and one that says little alike, and U e does not.

    Args:
        attention: makes each token's vector a mix of the tokens' vectors; called with query, key, value,
            key_padding_mask, need_weights and attn_mask.
        d_model: D, width of a token's vector.
        feedforward_size: width of the hidden layer.
        dropout: on the output of either branch, as in the paper.
        num_classes: C, where tokens carry evidence about so many classes; else 0.
    """

    def __init__(
        self,
        attention: HeadedAttention,
        d_model: int,
        feedforward_size: int,
        dropout: float = 0.0,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        self.evidence = nn.Linear(num_classes, d_model, bias=False) if num_classes else None
        if self.evidence is not None:
            nn.init.normal_(self.evidence.weight, std=EVIDENCE_STD)
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(d_model)
        self.feedforward = nn.Sequential(
            nn.Linear(d_model, feedforward_size),
            nn.GELU(),
            nn.Linear(feedforward_size, d_model),
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens: Float[Tensor, "B T D"],
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        attn_mask: Bool[Tensor, "Q T"] | None = None,
        evidence: Float[Tensor, "B T C"] | None = None,
        first_alone: bool = False,
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' new vectors.

        Args:
            tokens: their vectors.
            key_padding_mask: True at padding.
            attn_mask: True where a query may not look at a key, such as at far tokens.
            evidence: e, what each token says about each class.
            first_alone: return the first token's vector alone: nothing else is asked of the last block.
        """
        normed = self.attention_norm(tokens)
        values = normed if self.evidence is None or evidence is None else normed + self.evidence(evidence)
        query, tokens = (normed[:, :1], tokens[:, :1]) if first_alone else (normed, tokens)
        attended, _ = self.attention(query, normed, values, key_padding_mask, need_weights=False, attn_mask=attn_mask)
        tokens = tokens + self.dropout(attended)
        return tokens + self.dropout(self.feedforward(self.feedforward_norm(tokens)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """num_layers blocks and a last norm, which pre-norm blocks need since nothing else bounds their sum.

    Where the first token alone is read, the last block makes no other's vector, unless somebody watches its heads.

    Args:
        config: width, heads, layers, kind of attention, which tokens may look at which, and what is read.
        max_length: most tokens of a text.
        num_classes: C, where tokens carry evidence about so many classes; else 0.
    """

    def __init__(self, config: ModelConfig, max_length: int, num_classes: int = 0) -> None:
        super().__init__()
        rotary = None
        if config.positions == "rotary":
            rotary = RotaryPositions(config.d_model // config.num_heads, max_length)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                build_attention(config, rotary), config.d_model, config.feedforward_size, config.dropout, num_classes
            )
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.causal, self.window = config.causal, config.window
        self.reads_first = config.pooling in ("first", "pooler")

    def forward(
        self,
        tokens: Float[Tensor, "B T D"],
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        evidence: Float[Tensor, "B T C"] | None = None,
    ) -> Float[Tensor, "B Q D"]:
        """Return each token's vector after the last block, or the first's alone where no other is read.

        Args:
            tokens: their vectors.
            key_padding_mask: True at padding.
            evidence: what each token says about each class.
        """
        attn_mask = self.attention_mask(tokens.shape[1], tokens.device)
        *blocks, last = self.blocks
        assert isinstance(last, EncoderBlock)
        for block in blocks:
            tokens = block(tokens, key_padding_mask, attn_mask, evidence)
        first_alone = self.reads_first and last.attention.observer is None
        if first_alone and attn_mask is not None:
            attn_mask = attn_mask[:1]
        return self.norm(last(tokens, key_padding_mask, attn_mask, evidence, first_alone))  # type: ignore[no-any-return]

    def attention_mask(self, length: int, device: torch.device) -> Bool[Tensor, "{length} {length}"] | None:
        """Return which token may not look at which, whatever the text: later ones, or those out of the window."""
        masks = []
        if self.causal:
            masks.append(causal_mask(length, length, device))
        if self.window is not None:
            masks.append(window_mask(length, length, self.window, device))
        return torch.cat(masks).any(dim=0)[0] if masks else None  # [1 or 2, 1, T, T] -> [T, T]


def build_attention(config: ModelConfig, rotary: RotaryPositions | None = None) -> HeadedAttention:
    """Return the attention layer that a configuration asks for.

    Raises:
        ConfigError: if it is the user's own, and does not do what the encoder needs.
    """
    if is_import_path(config.attention):
        return _own_attention(config, rotary)
    D, H, dropout = config.d_model, config.num_heads, config.attention_dropout
    if config.attention == "shared_projection":
        return SharedProjectionAttention(D, H, dropout, rotary)
    return MultiHeadAttention(D, H, dropout, batch_first=True, rotary=rotary, num_kv_heads=config.num_kv_heads)


def _own_attention(config: ModelConfig, rotary: RotaryPositions | None) -> HeadedAttention:
    """Return a layer of the user's own class, once two texts of three tokens, one of them padding, went through it."""
    where = f"model.attention={config.attention}"
    kind = resolve("model.attention", config.attention)
    if not (isinstance(kind, type) and issubclass(kind, HeadedAttention)):
        raise ConfigError(f"{where}: takes a subclass of headscope.attention.HeadedAttention, whose heads can be seen")
    settings: dict[str, Any] = {"dropout": config.attention_dropout, "rotary": rotary}
    if issubclass(kind, MultiHeadAttention):
        settings |= {"batch_first": True, "num_kv_heads": config.num_kv_heads}
    elif config.num_kv_heads is not None:
        settings["num_kv_heads"] = config.num_kv_heads
    layer: HeadedAttention = called(
        "model.attention", config.attention, kind, embed_dim=config.d_model, num_heads=config.num_heads, **settings
    )
    shown: list[Seen] = []
    joined: list[Tensor] = []  # the heads' sums [B, Q, D], before the output projection

    def note(sums: Tensor) -> Tensor:
        joined.append(sums.transpose(1, 2).flatten(2))
        return sums

    tokens = torch.linspace(-1, 1, 6 * config.d_model).view(2, 3, -1)
    padding = torch.tensor([[False] * 3, [False, False, True]])
    layer.eval().observer, layer.intervention = shown.append, note
    with torch.no_grad():
        given = called(
            "model.attention", config.attention, layer.forward, tokens[:, :1], tokens, tokens, padding,
            need_weights=False, attn_mask=None,
        )  # fmt: skip
    layer.train().observer = layer.intervention = None
    shape = given[0].shape if isinstance(given, tuple) and given and isinstance(given[0], Tensor) else type(given)
    if shape != (2, 1, config.d_model):
        raise ConfigError(
            f"{where}: returns (output, weights or None); output must be [2, 1, {config.d_model}], got {shape}"
        )
    if len(shown) != 1 or shown[0].shape != (2, config.num_heads, 1, 3):
        raise ConfigError(f"{where}: its heads cannot be seen: forward must call self.attend_heads once")
    if shown[0].weights()[1, :, :, 2].any():
        raise ConfigError(f"{where}: looks at padding: hand key_padding_mask on (headscope.attention.merge_masks)")
    with torch.no_grad():
        projected = called("model.attention", config.attention, lambda: layer.output_projection(joined[0]))
    if not torch.allclose(projected, given[0], atol=1e-5):
        raise ConfigError(f"{where}: its output is not self.output_projection of what self.attend_heads returns")
    return layer
