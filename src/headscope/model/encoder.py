"""The encoder: blocks of attention and a feed-forward network, from vectors to vectors.

Shape letters: B texts, T tokens, Q tokens whose vectors are computed (T, or 1 if only [CLS] is
read), D model width, H heads, F width of the feed-forward network, C classes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, RotaryPositions, SharedProjectionAttention
from headscope.attention.functional import AttentionCall, Dropout, causal_mask, window_mask
from headscope.attention.multi_head import HeadedAttention
from headscope.ground.errors import ConfigError
from headscope.model.architecture import Activation, Architecture, Layer
from headscope.model.embedding import EVIDENCE_STD, TokenRatios, Tokens, layer_norm
from headscope.model.pooling import PaddingMask
from headscope.settings.extension import is_import_path, own_code

AttentionMask = Bool[Tensor, "T T"] | None  # True where a query must not attend to a key
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,  # x Phi(x) (Hendrycks and Gimpel 2016)
    "gelu_tanh": lambda: nn.GELU("tanh"),  # the same by tanh, within 1e-3
    "relu": nn.ReLU,
    "silu": nn.SiLU,  # x sigmoid(x)
    "tanh": nn.Tanh,
}


class Gated(nn.Module):
    """f(a) * b, with a and b the halves of each vector (Shazeer 2020, GLU Variants)."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, hidden: Float[Tensor, "B Q FF"]) -> Float[Tensor, "B Q F"]:
        """Return half as many numbers of each token."""
        gate, linear = hidden.chunk(2, dim=-1)  # [B, Q, 2F] -> [B, Q, F] each
        return self.activation(gate) * linear  # type: ignore[no-any-return]


def feedforward(architecture: Architecture) -> nn.Sequential:
    """Return W_2 f(W_1 x + b_1) + b_2, or W_2 (f(a) * b) of the halves of W_1 x."""
    D = architecture.d_model
    width = architecture.feedforward_size
    activation = ACTIVATIONS[architecture.activation]()
    bias = architecture.has_biases
    if architecture.is_gated:
        return nn.Sequential(
            nn.Linear(D, 2 * width, bias), Gated(activation), nn.Linear(width, D, bias)
        )
    return nn.Sequential(nn.Linear(D, width, bias), activation, nn.Linear(width, D, bias))


class EncoderBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each, both added to the input.

    The norm stands inside the branch, which trains without a delicate warm-up (Xiong et al. 2020,
    On Layer Normalization in the Transformer Architecture):

        x <- x + MultiHeadAttention(LayerNorm(x)), x <- x + W_2 GELU(W_1 LayerNorm(x) + b_1) + b_2

    or, in BERT's family, after the branch was added (Vaswani et al. 2017, section 3.1):

        x <- LayerNorm(x + MultiHeadAttention(x)), x <- LayerNorm(x + W_2 GELU(W_1 x + b_1) + b_2)

    Dropout acts on the output of either branch. If tokens carry evidence e, the values are computed
    from the attention's input plus U e: a norm would make tokens with much and with little evidence
    alike.
    """

    def __init__(
        self,
        architecture: Architecture,
        layer: Layer,
        rotary: RotaryPositions | None,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        D = architecture.d_model
        attention = build_attention(architecture, rotary)  # draws its weights first
        self.evidence = nn.Linear(num_classes, D, bias=False) if num_classes else None
        if self.evidence is not None:
            nn.init.normal_(self.evidence.weight, std=EVIDENCE_STD)
        self.norm_after = architecture.norm == "after"
        self.attention_norm: nn.Module = nn.Identity()
        if layer.has_attention_norm:
            self.attention_norm = layer_norm(architecture, D)
        self.attention = attention
        self.feedforward_norm = layer_norm(architecture, D)
        self.feedforward = feedforward(architecture)
        self.dropout = Dropout(architecture.dropout)

    def forward(
        self,
        tokens: Tokens,
        key_padding_mask: PaddingMask = None,
        attn_mask: AttentionMask = None,
        evidence: TokenRatios | None = None,
        only_first: bool = False,
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' new vectors, or with `only_first` that of the first one.

        `attn_mask` is True where a query must not attend to a key.
        """
        read = tokens if self.norm_after else self.attention_norm(tokens)  # [B, T, D]
        values = read
        if self.evidence is not None and evidence is not None:
            values = read + self.evidence(evidence)
        query = read
        if only_first:  # [B, T, D] -> [B, 1, D]
            query = read[:, :1]
            tokens = tokens[:, :1]
            attn_mask = None if attn_mask is None else attn_mask[:1]
        attended, _ = self.attention(
            query, read, values, key_padding_mask, need_weights=False, attn_mask=attn_mask
        )
        return self.add(tokens, attended)

    def add(
        self, tokens: Float[Tensor, "B Q D"], attended: Float[Tensor, "B Q D"]
    ) -> Float[Tensor, "B Q D"]:
        """Add the output of attention to the tokens, and then that of the feed-forward network."""
        tokens = tokens + self.dropout(attended)
        if self.norm_after:
            tokens = self.attention_norm(tokens)
            tokens = tokens + self.dropout(self.feedforward(tokens))
            return self.feedforward_norm(tokens)  # type: ignore[no-any-return]
        branch: Tensor = self.dropout(self.feedforward(self.feedforward_norm(tokens)))
        return tokens + branch


class Encoder(nn.Module):
    """Blocks, and a last norm where norms stand inside the branches: nothing else bounds their sum.

    If only the first token is read, the last block computes no other, unless an observer asks for
    all queries.
    """

    def __init__(self, architecture: Architecture, num_classes: int = 0) -> None:
        super().__init__()
        rotaries: dict[float, RotaryPositions] = {}
        for base in (layer.rotary_base for layer in architecture.layers):
            if base is not None and base not in rotaries:
                sizes = (architecture.head_dim, architecture.max_length)
                rotaries[base] = RotaryPositions(*sizes, base)
        first_learned = architecture.frozen_layers or 0
        self.blocks = nn.ModuleList(
            EncoderBlock(
                architecture,
                layer,
                None if layer.rotary_base is None else rotaries[layer.rotary_base],
                num_classes if number >= first_learned else 0,
            )
            for number, layer in enumerate(architecture.layers)
        )
        self.norm: nn.Module = nn.Identity()
        if architecture.has_last_norm:
            self.norm = layer_norm(architecture, architecture.d_model)
        self.causal = architecture.causal
        self.windows = [layer.window for layer in architecture.layers]
        self.reads_first = architecture.pooling == "first"

    def forward(
        self,
        tokens: Tokens,
        key_padding_mask: PaddingMask = None,
        evidence: TokenRatios | None = None,
        start: int = 0,
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' vectors, or only the first's if no other is read.

        The blocks below number `start` have run already.
        """
        masks = self.attention_masks(tokens.shape[1], tokens.device)
        *places, last_place = range(start, len(self.blocks))
        for place in places:
            tokens = self.blocks[place](tokens, key_padding_mask, masks[place], evidence)
        last = self.blocks[last_place]
        assert isinstance(last, EncoderBlock)
        observers = last.attention.observers
        asking = [each for each in observers if getattr(each, "all_queries", True)]
        only_first = self.reads_first and not asking
        tokens = last(tokens, key_padding_mask, masks[last_place], evidence, only_first)
        return self.norm(tokens)  # type: ignore[no-any-return]

    def states(
        self, tokens: Tokens, key_padding_mask: PaddingMask, layers: Sequence[int]
    ) -> list[Tokens]:
        """Return the vectors after some layers: 0 are those that come in.

        After the last layer they are normalized, as they are for whoever reads the encoder.
        """
        masks = self.attention_masks(tokens.shape[1], tokens.device)
        found = {0: tokens}
        for number in range(max(layers)):
            tokens = self.blocks[number](tokens, key_padding_mask, masks[number])
            found[number + 1] = tokens
        found[len(self.blocks)] = self.norm(found.get(len(self.blocks), tokens))
        return [found[layer] for layer in layers]

    def attention_masks(self, length: int, device: torch.device) -> list[AttentionMask]:
        """Return each layer's mask: True for a later token, if it is causal, or a distant one."""
        by_window: dict[int | None, AttentionMask] = {}
        for window in dict.fromkeys(self.windows):
            masks = [causal_mask(length, length, device)] if self.causal else []
            if window is not None:
                masks.append(window_mask(length, length, window, device))
            # [1 or 2, 1, T, T] -> [T, T]
            by_window[window] = torch.cat(masks).any(dim=0)[0] if masks else None
        return [by_window[window] for window in self.windows]


def build_attention(
    architecture: Architecture, rotary: RotaryPositions | None = None
) -> HeadedAttention:
    """Return the attention layer of a configuration; ConfigError if the user's own does not fit."""
    if is_import_path(architecture.attention):
        return _own_attention(architecture, rotary)
    sizes = (architecture.d_model, architecture.num_heads, architecture.attention_dropout)
    if architecture.attention == "shared_projection":
        return SharedProjectionAttention(*sizes, rotary)
    return MultiHeadAttention(
        *sizes,
        bias=architecture.has_biases,
        batch_first=True,
        rotary=rotary,
        num_kv_heads=architecture.num_kv_heads,
    )


def _own_attention(architecture: Architecture, rotary: RotaryPositions | None) -> HeadedAttention:
    """Return a layer of the user's own class, after a trial."""
    settings: dict[str, Any] = {"dropout": architecture.attention_dropout, "rotary": rotary}
    with own_code("model.attention", architecture.attention) as kind:
        if not (isinstance(kind, type) and issubclass(kind, HeadedAttention)):
            raise ConfigError("expected a subclass of headscope.HeadedAttention")
        if issubclass(kind, MultiHeadAttention):
            settings |= {"batch_first": True, "num_kv_heads": architecture.num_kv_heads}
        elif architecture.num_kv_heads is not None:
            settings["num_kv_heads"] = architecture.num_kv_heads
        layer = kind(embed_dim=architecture.d_model, num_heads=architecture.num_heads, **settings)
        _check_layer(layer, architecture.d_model)
    return layer


@torch.no_grad()
def _check_layer(layer: HeadedAttention, D: int) -> None:
    """Raise a ConfigError for a layer, tried on two texts of three tokens, one padding."""
    calls: list[AttentionCall] = []
    tokens = torch.linspace(-1, 1, 6 * D).view(2, 3, D)
    padding = torch.tensor([[False] * 3, [False, False, True]])
    layer.eval()
    layer.observers.append(calls.append)
    output, _ = layer(tokens[:, :1], tokens, tokens, padding, need_weights=False, attn_mask=None)
    layer.train()
    layer.observers.clear()
    if output.shape != (2, 1, D):
        raise ConfigError(f"output: expected [2, 1, {D}], got {list(output.shape)}")
    if [call.shape for call in calls] != [(2, layer.num_heads, 1, 3)]:
        raise ConfigError("its heads cannot be observed: forward must call self.attend_heads once")
    if calls[0].weights()[1, :, :, 2].any():
        remedy = "pass key_padding_mask on (headscope.attention.merge_masks)"
        raise ConfigError(f"attends to padding: {remedy}")
    head_outputs = calls[0].head_outputs
    assert head_outputs is not None, "of a layer with heads"
    merged = head_outputs.transpose(1, 2).flatten(2)  # [B, H, Q, E] -> [B, Q, D]
    if not torch.allclose(layer.output_projection(merged), output, atol=1e-5):
        raise ConfigError("its output is not self.output_projection of self.attend_heads")
