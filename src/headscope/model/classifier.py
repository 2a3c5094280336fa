"""The whole network, from token ids to logits: embedding, block, encoder, classifier.

    token ids -> TokenEmbedding (+ TokenEvidence) -> Encoder of EncoderBlocks -> pooling -> dropout
    -> linear -> logits

Shape letters: B texts, T tokens, Q tokens whose vectors are computed (T, or 1 if only [CLS] is
read), D model width, H heads, C classes, n known n-grams, M n-grams of a batch, K folds of the
training texts.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, RotaryPositions, SharedProjectionAttention
from headscope.attention.functional import AttentionCall, Dropout, causal_mask, window_mask
from headscope.attention.multi_head import HeadedAttention
from headscope.ground.errors import ConfigError
from headscope.model.pooling import PaddingMask, build_pooling
from headscope.model.pretrained import FrozenEncoder
from headscope.settings.config import ModelConfig
from headscope.settings.extension import is_import_path, own_code

EVIDENCE_STD = 0.2  # ten times a token's own 0.02: evidence has an effect from the start
STD_BESIDE_FEATURES = 0.02  # a frozen encoder's vectors say more than the counts of few texts
MOST_UNSCALED = 64  # n-grams of a token; a word has fewer, the rest of a long text has more
TokenIds = Int[Tensor, "B T"]
Tokens = Float[Tensor, "B T D"]
TokenRatios = Float[Tensor, "B T C"]  # what each token says about each class
# Of headscope.data.evidence.Ngrams: ids, places and folds
EvidenceInputs = tuple[Int[Tensor, " M"], Int[Tensor, " M"], Int[Tensor, " B"]]


class TokenEmbedding(nn.Module):
    """The sum of the vectors of token, position, class evidence and, for pairs, segment.

    Token id 0 is padding and stays zero. Positions are "learned" (a trained table), "sinusoidal" (a
    fixed one) or "rotary" (in the attention layer). `num_segments` is 2 for pairs of texts, else 1.
    `num_classes` is C if tokens carry evidence, else 0. With `features` the vectors of tokens are
    W h, of its hidden states h, but for [CLS], whose vector is learned; if it reads several layers,
    W sum_l s_l h_l, with s the softmax of a learned vector (as ELMo's: Peters et al. 2018, Deep
    Contextualized Word Representations, section 3.2).
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        max_length: int,
        num_segments: int,
        num_classes: int = 0,
        features: FrozenEncoder | None = None,
    ) -> None:
        super().__init__()
        D = config.d_model
        self.token: nn.Embedding | nn.Linear
        self.mix: nn.Parameter | None = None
        if features is not None:
            layers = len(features.layers)
            self.token = nn.Linear(features.width // layers, D, bias=False)
            self.start = nn.Parameter(torch.zeros(D))
            self.mix = nn.Parameter(torch.zeros(layers)) if layers > 1 else None
        else:
            self.token = nn.Embedding(vocab_size, D, padding_idx=0)
        self.segment = nn.Embedding(num_segments, D) if num_segments > 1 else None
        self.evidence = nn.Linear(num_classes, D, bias=False) if num_classes else None
        self.position: Tensor | None
        if config.positions == "learned":
            self.position = nn.Parameter(torch.empty(max_length, D))
            nn.init.normal_(self.position, std=0.02)
        elif config.positions == "sinusoidal":
            # Scaled to the size of the token vectors, which it would outweigh at the start.
            self.register_buffer("position", 0.02 * sinusoidal_positions(max_length, D), False)
        else:
            self.position = None
        self.dropout = Dropout(config.dropout)
        if isinstance(self.token, nn.Embedding):
            nn.init.normal_(self.token.weight, std=0.02)
            with torch.no_grad():
                self.token.weight[0].zero_()
        if self.segment is not None:
            nn.init.normal_(self.segment.weight, std=0.02)
        if self.evidence is not None:
            nn.init.normal_(self.evidence.weight, std=EVIDENCE_STD)

    def forward(
        self,
        token_ids: TokenIds,
        segment_ids: TokenIds | None = None,
        evidence: TokenRatios | None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Tokens:
        """Return one vector for each token; that of [CLS] is the same in every text."""
        if features is not None and self.mix is not None:
            of_layers = features.unflatten(-1, (len(self.mix), -1))  # [B, T, L F] -> [B, T, L, F]
            shares = self.mix.softmax(dim=0)
            parts = [of_layers.select(-2, layer) * share for layer, share in enumerate(shares)]
            features = sum(parts[1:], parts[0])  # in half of the time of a sum over one tensor
        vectors: Tensor = self.token(token_ids if features is None else features)  # [B, T, D]
        if features is not None:  # whose hidden state at [CLS] knows the text
            start = self.start.expand(vectors.shape[0], 1, -1)  # len() would fix it in an export
            vectors = torch.cat([start, vectors[:, 1:]], dim=1)
        if self.position is not None:
            vectors = vectors + self.position[: token_ids.shape[1]]  # [T, D], of every text
        if self.segment is not None and segment_ids is not None:
            vectors = vectors + self.segment(segment_ids)
        if self.evidence is not None and evidence is not None:
            vectors = vectors + self.evidence(evidence)  # [B, T, C] -> [B, T, D]
        return self.dropout(vectors)  # type: ignore[no-any-return]


def sinusoidal_positions(max_length: int, d_model: int) -> Float[Tensor, "T D"]:
    """Return sin(t / 10000^(2i/D)) in column 2i, its cos in 2i+1 (Vaswani et al. 2017, 3.5)."""
    position = torch.arange(max_length)[:, None]  # [T, 1]
    rate = -math.log(10_000.0) / d_model
    frequency = torch.exp(torch.arange(0, d_model, 2) * rate)  # [D/2]
    table = torch.empty(max_length, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


class TokenEvidence(nn.Module):
    """e_jc = sum_g w_gc r_gc over the n-grams g of token j: what they say about class c.

    r is naive Bayes' log-count ratio, counted in the training texts and scaled by how rare the
    n-gram is (`headscope.data.evidence`); in training, in the folds that a text is not in. w is
    learned and starts at 1; two classes share it, since evidence for one is evidence against the
    other (Wang and Manning 2012, Baselines and Bigrams, section 2.3: naive Bayes' numbers as the
    features of another classifier). At a token with m > 64 n-grams, such as the last one of a text
    whose rest is not read, the sum is multiplied by sqrt(64 / m).

    `weight` is w, [n, C] or, for two classes, [n, 1]; `ratio` is r, [n, C]; `fold_ratios`, [K, n,
    C], is set in training only. `dropout` is the share of a batch's n-grams left out in training.
    """

    ratio: Tensor

    def __init__(self, num_ngrams: int, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_ngrams, num_classes if num_classes > 2 else 1))
        self.register_buffer("ratio", torch.zeros(num_ngrams, num_classes))
        # Not a buffer: it is large, and only training reads it.
        self.fold_ratios: Tensor | None = None
        self.dropout = Dropout(dropout)

    def set_ratios(self, ratios: Float[Tensor, "folds_and_all n C"]) -> None:
        """Set the ratios: those without each fold, then those of all training texts."""
        self.fold_ratios = ratios[:-1].contiguous()
        self.ratio.copy_(ratios[-1])

    def forward(self, evidence: EvidenceInputs, length: int) -> TokenRatios:
        """Return e of B texts of `length` tokens; 0 at special tokens."""
        ids, places, folds = evidence
        if self.training and self.fold_ratios is not None:
            self.fold_ratios = self.fold_ratios.to(ids.device)
            # [M], of the text that each n-gram stands in, whose label it must not see
            fold = folds[places // length]
            rows = fold * len(self.ratio) + ids  # [M]
            ratios = F.embedding(rows, self.fold_ratios.flatten(0, 1))  # [K * n, C] -> [M, C]
        else:
            ratios = F.embedding(ids, self.ratio)  # [n, C] -> [M, C]
        ngrams = F.embedding(ids, self.weight) * ratios  # [M, C]
        # An n-gram is dropped whole.
        ngrams = ngrams * self.dropout(ngrams.new_ones(ids.shape[0], 1))
        tokens: Tensor = ngrams.new_zeros(folds.shape[0] * length, ngrams.shape[1])
        tokens = tokens.index_add_(0, places, ngrams)
        counts = tokens.new_zeros(tokens.shape[0])
        counts = counts.index_add_(0, places, ngrams.new_ones(ngrams.shape[0]))
        tokens = tokens * (MOST_UNSCALED / counts.clamp(min=MOST_UNSCALED)).sqrt()[:, None]
        return tokens.view(folds.shape[0], length, -1)  # [B * T, C] -> [B, T, C]


class EncoderBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each, both added to the input.

    x <- x + MultiHeadAttention(LayerNorm(x)), x <- x + W_2 GELU(W_1 LayerNorm(x) + b_1) + b_2. The
    norm is inside the branch, which trains without a delicate warm-up (Xiong et al. 2020, On Layer
    Normalization in the Transformer Architecture); GELU is x * Phi(x) (Hendrycks and Gimpel 2016).
    Dropout acts on the output of either branch.

    If tokens carry evidence e, the values are computed from LayerNorm(x) + U e: a norm would make
    tokens with much and with little evidence alike.
    """

    def __init__(
        self, config: ModelConfig, rotary: RotaryPositions | None, num_classes: int = 0
    ) -> None:
        super().__init__()
        D = config.d_model
        attention = build_attention(config, rotary)  # draws its weights first
        self.evidence = nn.Linear(num_classes, D, bias=False) if num_classes else None
        if self.evidence is not None:
            nn.init.normal_(self.evidence.weight, std=EVIDENCE_STD)
        self.attention_norm = nn.LayerNorm(D)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(D)
        self.feedforward = nn.Sequential(
            nn.Linear(D, config.feedforward_size), nn.GELU(), nn.Linear(config.feedforward_size, D)
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        tokens: Tokens,
        key_padding_mask: PaddingMask = None,
        attn_mask: Bool[Tensor, "Q T"] | None = None,
        evidence: TokenRatios | None = None,
        only_first: bool = False,
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' new vectors, or with `only_first` that of the first one.

        `attn_mask` is True where a query must not attend to a key.
        """
        normed = self.attention_norm(tokens)  # [B, T, D]
        values = normed
        if self.evidence is not None and evidence is not None:
            values = normed + self.evidence(evidence)
        query = normed
        if only_first:  # [B, T, D] -> [B, 1, D]
            query = normed[:, :1]
            tokens = tokens[:, :1]
        attended, _ = self.attention(
            query, normed, values, key_padding_mask, need_weights=False, attn_mask=attn_mask
        )
        return self.add(tokens, attended)

    def add(
        self, tokens: Float[Tensor, "B Q D"], attended: Float[Tensor, "B Q D"]
    ) -> Float[Tensor, "B Q D"]:
        """Add the output of attention to the tokens, and then that of the feed-forward network."""
        tokens = tokens + self.dropout(attended)
        return tokens + self.dropout(self.feedforward(self.feedforward_norm(tokens)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """num_layers blocks and a last norm, since nothing else bounds the sum of pre-norm blocks.

    If only the first token is read, the last block computes no other, unless an observer asks for
    all queries.
    """

    def __init__(self, config: ModelConfig, max_length: int, num_classes: int = 0) -> None:
        super().__init__()
        D = config.d_model
        rotary = None
        if config.positions == "rotary":
            rotary = RotaryPositions(D // config.num_heads, max_length)
        self.blocks = nn.ModuleList(
            EncoderBlock(config, rotary, num_classes) for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(D)
        self.causal = config.causal
        self.window = config.window
        self.reads_first = config.pooling == "first"

    def forward(
        self,
        tokens: Tokens,
        key_padding_mask: PaddingMask = None,
        evidence: TokenRatios | None = None,
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' vectors, or only the first's if no other is read."""
        attn_mask = self.attention_mask(tokens.shape[1], tokens.device)  # [T, T]
        *blocks, last = self.blocks
        assert isinstance(last, EncoderBlock)
        for block in blocks:
            tokens = block(tokens, key_padding_mask, attn_mask, evidence)
        observers = last.attention.observers
        asking = [each for each in observers if getattr(each, "all_queries", True)]
        only_first = self.reads_first and not asking
        if only_first and attn_mask is not None:
            attn_mask = attn_mask[:1]  # [T, T] -> [1, T]
        return self.norm(last(tokens, key_padding_mask, attn_mask, evidence, only_first))  # type: ignore[no-any-return]

    def attention_mask(
        self, length: int, device: torch.device
    ) -> Bool[Tensor, "{length} {length}"] | None:
        """Return True where a token must not attend to another: a later one, or a distant one."""
        masks = [causal_mask(length, length, device)] if self.causal else []
        if self.window is not None:
            masks.append(window_mask(length, length, self.window, device))
        return torch.cat(masks).any(dim=0)[0] if masks else None  # [1 or 2, 1, T, T] -> [T, T]


class TextClassifier(nn.Module):
    """logits = W pool(Encoder(Embedding(ids))) + b.

    By default the first token, [CLS], is read out, whose own vector is the same in every text: a
    text reaches the logits only through attention heads.

    Args:
        config: width, heads, layers and the like.
        vocab_size: number of token ids; id 0 is padding.
        num_classes: C, number of logits.
        max_length: tokens of the longest text.
        num_segments: 2 for pairs of texts, else 1.
        num_ngrams: n, the number of known n-grams.
        features: what the vectors of tokens are made from, in place of a table of their own.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        num_classes: int,
        max_length: int,
        num_segments: int = 1,
        num_ngrams: int = 0,
        features: FrozenEncoder | None = None,
    ) -> None:
        super().__init__()
        self.num_segments = num_segments
        self.features = features
        D = config.d_model
        evidence_classes = num_classes if config.evidence else 0
        self.evidence: TokenEvidence | None = None
        if config.evidence:
            self.evidence = TokenEvidence(num_ngrams, num_classes, config.evidence_dropout)
        self.embedding = TokenEmbedding(
            config, vocab_size, max_length, num_segments, evidence_classes, features
        )
        self.encoder = Encoder(config, max_length, evidence_classes)
        if features is not None and config.evidence:
            for part in (self.embedding, *self.encoder.blocks):
                nn.init.normal_(part.evidence.weight, std=STD_BESIDE_FEATURES)
        self.pool = build_pooling(config.pooling, D)
        self.readout_position = 0 if self.encoder.reads_first else None
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(D, num_classes)

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: PaddingMask = None,
        segment_ids: TokenIds | None = None,
        evidence: EvidenceInputs | None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits.

        Args:
            token_ids: the texts, padded with id 0 to the longest.
            key_padding_mask: True at padding; None if no text is padded, which is faster.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second.
            evidence: the tokens' n-grams.
            features: the frozen encoder's hidden states, if they are known already.

        Raises:
            ValueError: without segment_ids or evidence, if the network was trained with them.
        """
        if self.num_segments > 1 and segment_ids is None:
            raise ValueError("this network reads pairs: call it with a batch's `inputs`")
        ratios: Tensor | None = None  # [B, T, C]
        if self.evidence is not None:
            if evidence is None:
                raise ValueError("this network reads n-grams: call it with a batch's `inputs`")
            ratios = self.evidence(evidence, token_ids.shape[1])
        if self.features is not None and features is None:
            features = self.features(token_ids, key_padding_mask, segment_ids)
        vectors = self.embedding(token_ids, segment_ids, ratios, features)  # [B, T] -> [B, T, D]
        return self.read_out(self.encoder(vectors, key_padding_mask, ratios), key_padding_mask)

    def read_out(
        self, tokens: Float[Tensor, "B Q D"], key_padding_mask: PaddingMask = None
    ) -> Float[Tensor, "B C"]:
        """Return the logits of the vectors that the encoder returns."""
        text = self.dropout(self.pool(tokens, key_padding_mask))  # [B, D]
        logits: Tensor = self.head(text)  # [B, C]
        return logits


def build_attention(config: ModelConfig, rotary: RotaryPositions | None = None) -> HeadedAttention:
    """Return the attention layer of a configuration; ConfigError if the user's own does not fit."""
    if is_import_path(config.attention):
        return _own_attention(config, rotary)
    sizes = (config.d_model, config.num_heads, config.attention_dropout)
    if config.attention == "shared_projection":
        return SharedProjectionAttention(*sizes, rotary)
    return MultiHeadAttention(
        *sizes, batch_first=True, rotary=rotary, num_kv_heads=config.num_kv_heads
    )


def _own_attention(config: ModelConfig, rotary: RotaryPositions | None) -> HeadedAttention:
    """Return a layer of the user's own class, after a trial."""
    settings: dict[str, Any] = {"dropout": config.attention_dropout, "rotary": rotary}
    with own_code("model.attention", config.attention) as kind:
        if not (isinstance(kind, type) and issubclass(kind, HeadedAttention)):
            raise ConfigError("expected a subclass of headscope.HeadedAttention")
        if issubclass(kind, MultiHeadAttention):
            settings |= {"batch_first": True, "num_kv_heads": config.num_kv_heads}
        elif config.num_kv_heads is not None:
            settings["num_kv_heads"] = config.num_kv_heads
        layer = kind(embed_dim=config.d_model, num_heads=config.num_heads, **settings)
        _check_layer(layer, config.d_model)
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
