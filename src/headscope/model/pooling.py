"""From the tokens' vectors to the text's vector, padding left out.

Shape letters: B texts, T tokens, Q of them (1 where the encoder makes the first alone), D width of
a vector.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention import AdditiveAttention, ConcatAttention, DotAttention, GeneralAttention
from headscope.attention.variants import ScoredAttention
from headscope.errors import ConfigError
from headscope.extension import called, is_import_path, resolve

Pooling = Callable[[Float[Tensor, "B T D"], Bool[Tensor, "B T"] | None], Float[Tensor, "B D"]]


def first_pooling(
    tokens: Float[Tensor, "B Q D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B D"]:
    """Return the vector of the first token, [CLS] (Devlin et al. 2019, BERT, section 3)."""
    return tokens[:, 0]


def mean_pooling(
    tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B D"]:
    """Return the mean over the tokens that are not padding."""
    if key_padding_mask is None:
        return tokens.mean(dim=1)
    kept = (~key_padding_mask).to(tokens.dtype)[:, :, None]  # [B, T, 1]
    return (tokens * kept).sum(dim=1) / kept.sum(dim=1)


def max_pooling(
    tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B D"]:
    """Return, number by number, the largest over the tokens that are not padding."""
    if key_padding_mask is not None:
        tokens = tokens.masked_fill(key_padding_mask[:, :, None], torch.finfo(tokens.dtype).min)
    return tokens.amax(dim=1)


class Pooler(nn.Module):
    """Return tanh(W x_0 + b) of the first token's vector x_0, as BERT does.

    (Devlin et al. 2019; get_pooled_output in modeling.py of their code.) A checkpoint may bring W
    and b, which BERT learned by telling whether one text follows another; else they are drawn.

    Args:
        d_model: D, width of a token's vector and of the text's.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(
        self, tokens: Float[Tensor, "B Q D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B D"]:
        """Return the text's vector; what is padding makes no difference."""
        return torch.tanh(self.dense(first_pooling(tokens)))


class AttentionPooling(nn.Module):
    """Return sum_j a_j x_j, the tokens averaged by how well each fits a query q that is learned.

    a = softmax_j(e(q, x_j)), with the score e that `attention` has: additive, dot, general or
    concat (Yang et al. 2016, Hierarchical Attention Networks for Document Classification, section
    2.2, has such a learned query). `attention` can be observed like any other layer, so the weights
    are recorded beside the heads.

    Args:
        attention: scores the tokens and averages them.
        d_model: D, width of a token's vector and of the query.
    """

    def __init__(self, attention: ScoredAttention, d_model: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(d_model))
        nn.init.normal_(self.query, std=0.02)  # near 0: at the start all tokens count alike
        self.attention = attention

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B D"]:
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
    """Return the pooling of that name, one of `headscope.config.POOLINGS`, or that of an import path.

    Raises:
        ConfigError: if that one cannot be imported, or returns another shape than [B, D].
    """
    if is_import_path(name):
        return _own_pooling(name, d_model)
    if name in POOLINGS:
        return POOLINGS[name]
    return (
        Pooler(d_model)
        if name == "pooler"
        else AttentionPooling(SCORED_ATTENTION[name](d_model), d_model)
    )


def _own_pooling(name: str, d_model: int) -> Pooling:
    """Return the user's function, or a module of the user's class, once two texts of three tokens went through it."""
    found = resolve("model.pooling", name)
    pooling: Pooling = (
        called("model.pooling", name, found, d_model) if isinstance(found, type) else found
    )
    if isinstance(found, type) and not isinstance(pooling, nn.Module):
        raise ConfigError(
            f"model.pooling={name}: takes a function or a subclass of torch.nn.Module"
        )
    padding = torch.tensor([[False] * 3, [False, False, True]])
    with torch.no_grad():
        given = called(
            "model.pooling",
            name,
            pooling,
            torch.linspace(-1, 1, 6 * d_model).view(2, 3, -1),
            padding,
        )
    shape = given.shape if isinstance(given, Tensor) else type(given)
    if shape != (2, d_model):
        raise ConfigError(
            f"model.pooling={name}: takes tokens [2, 3, {d_model}] to [2, {d_model}], got {shape}"
        )
    return pooling
