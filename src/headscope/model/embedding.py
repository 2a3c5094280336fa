"""What the encoder reads: one vector for each token, and counted evidence beside it.

Shape letters: B texts, T tokens, D model width, W width of a token's vectors (D unless a checkpoint
has narrower ones), C classes, n known n-grams, M n-grams of a batch, K folds of the training texts.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.attention.functional import Dropout
from headscope.model.architecture import Architecture

EVIDENCE_STD = 0.2  # ten times a token's own 0.02: evidence has an effect from the start
# A pretrained network's vectors say more than the counts of few texts.
STD_BESIDE_PRETRAINED = 0.02
MOST_UNSCALED = 64  # n-grams of a token; a word has fewer, the rest of a long text has more
TokenIds = Int[Tensor, "B T"]
Tokens = Float[Tensor, "B T D"]
TokenRatios = Float[Tensor, "B T C"]  # what each token says about each class
# Of headscope.data.evidence.Ngrams: ids, places and folds
EvidenceInputs = tuple[Int[Tensor, " M"], Int[Tensor, " M"], Int[Tensor, " B"]]


class TokenEmbedding(nn.Module):
    """The sum of the vectors of token, position, class evidence and token type (segment).

    From scratch token id 0 is padding and stays zero. Positions are "learned" (a trained table),
    "sinusoidal" (a fixed one) or "rotary" (in the attention layer). `num_classes` is C if tokens
    carry evidence, else 0. A checkpoint may normalize the sum and bring it from W numbers to D.
    With `state_layers` the vectors of tokens are W h, of a frozen encoder's hidden states h, but
    for [CLS], whose vector is learned; if it reads several layers, W sum_l s_l h_l, with s the
    softmax of a learned vector (as ELMo's: Peters et al. 2018, Deep Contextualized Word
    Representations, section 3.2).

    Args:
        architecture: sizes and kinds.
        num_classes: C, or 0 without evidence.
        state_layers: number of layers whose hidden states are read; 0: token ids are.
        state_width: width of the hidden states of one layer.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_classes: int = 0,
        state_layers: int = 0,
        state_width: int = 0,
    ) -> None:
        super().__init__()
        W = architecture.token_width
        D = architecture.d_model
        self.token: nn.Embedding | nn.Linear
        self.mix: nn.Parameter | None = None
        if state_layers:
            self.token = nn.Linear(state_width, D, bias=False)
            self.start = nn.Parameter(torch.zeros(D))
            self.mix = nn.Parameter(torch.zeros(state_layers)) if state_layers > 1 else None
        else:
            padding = None if architecture.is_opened else 0
            self.token = nn.Embedding(architecture.vocab_size, W, padding_idx=padding)
        types = architecture.token_types
        has_types = types > (0 if architecture.is_opened else 1)
        self.segment = nn.Embedding(types, W) if has_types else None
        self.evidence = nn.Linear(num_classes, W, bias=False) if num_classes else None
        self._make_positions(architecture)
        self.dropout = Dropout(architecture.dropout)
        if isinstance(self.token, nn.Embedding):
            nn.init.normal_(self.token.weight, std=0.02)
            if not architecture.is_opened:
                with torch.no_grad():
                    self.token.weight[0].zero_()
        if self.segment is not None:
            nn.init.normal_(self.segment.weight, std=0.02)
        if self.evidence is not None:
            nn.init.normal_(self.evidence.weight, std=EVIDENCE_STD)
        self.norm = layer_norm(architecture, W) if architecture.has_embedding_norm else None
        self.projection = nn.Linear(W, D) if architecture.embedding_width else None

    def _make_positions(self, architecture: Architecture) -> None:
        shape = (architecture.max_length, architecture.token_width)
        self.position: Tensor | None = None
        if architecture.positions == "learned":
            self.position = nn.Parameter(torch.empty(shape))
            nn.init.normal_(self.position, std=0.02)
        elif architecture.positions == "sinusoidal":
            # Scaled to the size of the token vectors, which it would outweigh at the start.
            del self.position
            self.register_buffer("position", 0.02 * sinusoidal_positions(*shape), False)

    @property
    def reads_states(self) -> bool:
        """Whether hidden states of a frozen encoder are read in place of token ids."""
        return isinstance(self.token, nn.Linear)

    def forward(
        self,
        token_ids: TokenIds,
        segment_ids: TokenIds | None = None,
        evidence: TokenRatios | None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Tokens:
        """Return one vector for each token; from scratch that of [CLS] is the same in every text.

        Without `segment_ids` all tokens are of type 0.
        """
        vectors: Tensor = self.summed(token_ids, segment_ids, evidence, features)
        if self.norm is not None:
            vectors = self.norm(vectors)
        vectors = self.dropout(vectors)
        if self.projection is not None:
            vectors = self.projection(vectors)  # [B, T, W] -> [B, T, D]
        return vectors

    def summed(
        self,
        token_ids: TokenIds,
        segment_ids: TokenIds | None = None,
        evidence: TokenRatios | None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "B T W"]:
        """Return the sum of each token's vectors, before a norm."""
        looked_up = self.token if features is None else self.of_states
        vectors: Tensor = looked_up(token_ids if features is None else features)  # [B, T, W]
        if self.position is not None:
            vectors = vectors + self.position[: token_ids.shape[1]]  # [T, W], of every text
        if self.segment is not None:
            is_known = segment_ids is not None and self.segment.num_embeddings > 1
            segments = segment_ids if is_known else torch.zeros_like(token_ids)
            vectors = vectors + self.segment(segments)
        if self.evidence is not None and evidence is not None:
            vectors = vectors + self.evidence(evidence)  # [B, T, C] -> [B, T, W]
        return vectors

    def of_states(self, states: Float[Tensor, "B T F"]) -> Tokens:
        """Return the vectors made of a frozen encoder's states, but for that of [CLS]."""
        vectors: Tensor = self.token(self.mixed(states))
        # The hidden state at [CLS] knows the text. len() would fix B in an export.
        start = self.start.expand(vectors.shape[0], 1, -1)
        return torch.cat([start, vectors[:, 1:]], dim=1)

    def mixed(self, states: Float[Tensor, "B T F"]) -> Float[Tensor, "B T _"]:
        """Return the mix of a frozen encoder's layers, which are side by side."""
        if self.mix is None:
            return states
        of_layers = states.unflatten(-1, (len(self.mix), -1))  # [B, T, L F] -> [B, T, L, F]
        shares = self.mix.softmax(dim=0)
        parts = [of_layers.select(-2, layer) * share for layer, share in enumerate(shares)]
        mixed: Tensor = sum(parts[1:], parts[0])  # in half of the time of a sum over one tensor
        return mixed


def layer_norm(architecture: Architecture, width: int) -> nn.LayerNorm:
    """Return gamma (x - mean) / sqrt(variance + eps) + beta (Ba et al. 2016, Layer Norm.)."""
    return nn.LayerNorm(width, architecture.norm_eps, bias=architecture.has_biases)


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
