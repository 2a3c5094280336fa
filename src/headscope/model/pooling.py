"""From the tokens' vectors to the text's vector, without padding.

Shape letters: B texts, T tokens, Q of them (1 if the encoder returns the first only), D width.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention import AdditiveAttention, ConcatAttention, DotAttention, GeneralAttention
from headscope.attention.variants import ScoredAttention

Tokens = Float[Tensor, "B Q D"]
PaddingMask = Bool[Tensor, "B T"] | None  # True at padding
TextVectors = Float[Tensor, "B D"]
Pooling = Callable[[Tokens, PaddingMask], TextVectors]


def first_pooling(tokens: Tokens, key_padding_mask: PaddingMask = None) -> TextVectors:
    """Return the vector of the first token, [CLS] (Devlin et al. 2019, BERT, section 3)."""
    return tokens[:, 0]


def mean_pooling(tokens: Tokens, key_padding_mask: PaddingMask = None) -> TextVectors:
    """Return the mean over the tokens that are not padding."""
    if key_padding_mask is None:
        return tokens.mean(dim=1)
    kept = (~key_padding_mask).to(tokens.dtype)[:, :, None]  # [B, T, 1]
    return (tokens * kept).sum(dim=1) / kept.sum(dim=1)


def max_pooling(tokens: Tokens, key_padding_mask: PaddingMask = None) -> TextVectors:
    """Return the elementwise maximum over the tokens that are not padding."""
    if key_padding_mask is not None:
        tokens = tokens.masked_fill(key_padding_mask[:, :, None], torch.finfo(tokens.dtype).min)
    return tokens.amax(dim=1)


class AttentionPooling(nn.Module):
    """sum_j a_j x_j, the tokens averaged by attention to a learned query q.

    a = softmax_j(e(q, x_j)), with the score e of `attention`: additive, dot, general or concat
    (Yang et al. 2016, Hierarchical Attention Networks for Document Classification, section 2.2).
    The weights are recorded beside the heads.
    """

    def __init__(self, attention: ScoredAttention, d_model: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(d_model))
        nn.init.normal_(self.query, std=0.02)  # near 0: at the start all tokens count alike
        self.attention = attention

    def forward(self, tokens: Tokens, key_padding_mask: PaddingMask = None) -> TextVectors:
        """Return the text's vector; padding has weight 0."""
        query = self.query.expand(tokens.shape[0], 1, -1)  # [B, 1, D]
        context, _ = self.attention(query, tokens, tokens, key_padding_mask)
        return context[:, 0]  # type: ignore[no-any-return]


POOLINGS: dict[str, Pooling] = {"first": first_pooling, "mean": mean_pooling, "max": max_pooling}
SCORED_ATTENTION: dict[str, Callable[[int], ScoredAttention]] = {
    "additive": lambda d_model: AdditiveAttention(d_model, d_model),
    "dot": lambda d_model: DotAttention(),
    "general": lambda d_model: GeneralAttention(d_model, d_model),
    "concat": lambda d_model: ConcatAttention(d_model, d_model),
}


def build_pooling(name: str, d_model: int) -> Pooling:
    """Return the pooling of that name, one of `headscope.settings.config.PoolingKind`."""
    if name in POOLINGS:
        return POOLINGS[name]
    return AttentionPooling(SCORED_ATTENTION[name](d_model), d_model)
