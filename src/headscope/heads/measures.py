"""What heads attend to, read off their maps: seven measures, one more of pairs, and roles.

Each measure is a mean over the queries of a text, padding left out. a_ij is the weight that query i
gives to key j, n the number of tokens of a text, which stand before its padding. Keys that are
padding have weight 0, as every layer here gives them. Masses and shares lie in [0, 1].

Of a layer that is read at [CLS] alone (`headscope.heads.capture.read_at_first`) that one row
counts, maps [B, H, 1, T]: nothing depends on the others.

Shape letters: B texts, H heads, Q queries, T positions, N texts in all.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscope.data.batching import Batch
from headscope.record.schema import stack_layers

# Queries are the first Q tokens: all of them, or [CLS] alone
Maps = Float[Tensor, "B H Q T"]
PerText = Float[Tensor, "B H"]


class Tokens(NamedTuple):
    """What the tokens of some texts are, where it is known."""

    padding: Bool[Tensor, "B T"] | None = None  # True at padding; None without any
    separators: Bool[Tensor, "B T"] | None = None  # True at tokens such as [SEP]
    # Of pairs the text that each token is of, 0 or 1, and -1 at special tokens
    texts: Int[Tensor, "B T"] | None = None

    def rows(self, rows: slice) -> "Tokens":
        """Return the tokens of some of the texts."""
        return Tokens(*(None if marks is None else marks[rows] for marks in self))


class SpecialTokens(NamedTuple):
    """Ids that are no words: `separators` such as [SEP], and all that are `fixed`, [CLS] too."""

    separators: tuple[int, ...]
    fixed: tuple[int, ...]

    def tokens_of(self, batch: Batch) -> Tokens:
        """Return the tokens of a batch; of pairs also the text that each is of.

        The first separator ends the first text, in `[CLS] A [SEP] B [SEP]`, `<s> A </s></s> B </s>`
        and the like. The ids say so where the token types do not: those of RoBERTa are 0 in both
        texts.
        """
        token_ids = batch.token_ids
        if not self.fixed:
            return Tokens(batch.key_padding_mask)
        separators = torch.isin(token_ids, token_ids.new_tensor(self.separators))
        if batch.segment_ids is None or bool((batch.segment_ids > 1).any()):  # as XLNet's
            return Tokens(batch.key_padding_mask, separators)
        texts = (separators.cumsum(dim=-1) > 0).long()
        is_special = torch.isin(token_ids, token_ids.new_tensor(self.fixed))
        return Tokens(batch.key_padding_mask, separators, texts.masked_fill(is_special, -1))


def entropy_share(maps: Maps, tokens: Tokens) -> PerText:
    """Return mean_i -sum_j a_ij ln a_ij / ln n, for texts of any length: 0 if sharp, 1 if uniform.

    Clark et al. 2019, What Does BERT Look At?, section 3.3, have the entropy itself.
    """
    # 0 ln 0 is 0: the smallest number's logarithm stands in. torch.special.entr takes twice as
    # long.
    logarithms = maps.clamp_min(torch.finfo(maps.dtype).tiny).log_()
    entropy = mean_over_queries(logarithms.mul_(maps).sum(dim=-1).neg_(), tokens.padding)
    n = maps.new_full((len(maps),), maps.shape[-1])
    if tokens.padding is not None:
        n = (~tokens.padding).sum(dim=-1).to(maps.dtype)
    return entropy / n.clamp(min=2).log()[:, None]  # of one token the entropy is 0


def mean_distance(maps: Maps, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij |i - j| in tokens: how far a head attends."""
    position = torch.arange(maps.shape[-1], device=maps.device, dtype=maps.dtype)
    distance = (position[: maps.shape[-2], None] - position).abs()  # [Q, T]
    return mean_over_queries(torch.linalg.vecdot(maps, distance), tokens.padding)


def neighbor_mass(offset: int, maps: Maps, tokens: Tokens) -> PerText:
    """Return the mean of a_i,i+offset, where there is such a token.

    Of 0 each token itself (Kovaleva et al. 2019, 4.1), of -1 the token before (Clark et al. 2019,
    3.1), of 1 the token after.
    """
    values = maps.diagonal(offset=offset, dim1=-2, dim2=-1)  # [B, H, T - |offset|], or fewer
    padding = tokens.padding
    return mean_over_queries(values, None if padding is None else padding[:, abs(offset) :])


def first_mass(maps: Maps, tokens: Tokens) -> PerText:
    """Return mean_i a_i0: the first token, [CLS] (vertical in Kovaleva et al. 2019, 4.1)."""
    return mean_over_queries(maps[..., 0], tokens.padding)


def separator_mass(maps: Maps, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij [j separates], a no-op by Clark et al. 2019, section 3.2."""
    assert tokens.separators is not None
    separators = tokens.separators.to(maps.dtype)[:, None, None]  # [B, 1, 1, T]
    return mean_over_queries(torch.linalg.vecdot(maps, separators), tokens.padding)


def crossing_mass(maps: Maps, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij [i and j are of different texts of the pair].

    The mean is over the tokens i of the two texts; special tokens such as [CLS] and [SEP] are of
    neither text. So 1 if each token attends to the other text alone; for uniform weights 2 n_A n_B
    / ((n_A + n_B) n) with n the tokens of both texts and the special ones, about a half. A pair in
    which a text has no token has 0. Our own.
    """
    assert tokens.texts is not None
    queries = tokens.texts[:, : maps.shape[-2], None]  # [B, Q, 1]
    is_across = queries + tokens.texts[:, None] == 1  # [B, Q, T]: 0 and 1, never -1
    outside = tokens.texts < 0
    if tokens.padding is not None:
        outside = outside | tokens.padding
    across = torch.linalg.vecdot(maps, is_across.to(maps.dtype)[:, None])
    return mean_over_queries(across, outside)


def mean_over_queries(
    values: Float[Tensor, "B H Q"], padding: Bool[Tensor, "B T"] | None
) -> PerText:
    """Average over the queries, the first tokens, but padding; a text without any counts as 0."""
    if padding is None:
        return values.mean(dim=-1) if values.shape[-1] else values.new_zeros(values.shape[:-1])
    tokens = (~padding[:, : values.shape[-1]]).to(values.dtype)[:, None]  # [B, 1, Q]
    return (values * tokens).sum(dim=-1) / tokens.sum(dim=-1).clamp(min=1)


# layer -> measure -> (mean of each head, standard error of each head)
Summary = dict[str, dict[str, tuple[list[float], list[float]]]]

MEASURES: dict[str, Callable[[Maps, Tokens], PerText]] = {
    "entropy_share": entropy_share,
    "mean_distance": mean_distance,
    "self": partial(neighbor_mass, 0),
    "previous": partial(neighbor_mass, -1),
    "next": partial(neighbor_mass, 1),
    "first": first_mass,
    "separator": separator_mass,
    "crossing": crossing_mass,
}
NEEDED = {"separator": "separators", "crossing": "texts"}  # of the tokens, by some measures


class HeadStatistics:
    """Collect measures of many texts: a mean and standard error for each layer and head.

    Left out are those that ask for more than is known of the tokens.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[PerText]]] = {}

    def update(self, layer: str, maps: Maps, tokens: Tokens) -> None:
        """Add the maps of one layer for some texts."""
        names = [
            name
            for name in MEASURES
            if name not in NEEDED or getattr(tokens, NEEDED[name]) is not None
        ]
        # One transfer, however many measures there are.
        values = torch.stack([MEASURES[name](maps, tokens) for name in names]).cpu()
        for name, value in zip(names, values, strict=True):
            self._values.setdefault(layer, {}).setdefault(name, []).append(value)

    def summary(self) -> Summary:
        """Return layer -> measure -> (means, standard errors), one of each per head."""
        return {
            layer: {name: mean_and_error(torch.cat(parts)) for name, parts in measures.items()}
            for layer, measures in self._values.items()
        }


def mean_and_error(values: Float[Tensor, "N H"]) -> tuple[list[float], list[float]]:
    """Return each head's mean over N texts and its standard error s / sqrt(N); 0 where N is 1."""
    values = values.double()
    N = len(values)
    errors = values.std(dim=0) / N**0.5 if N > 1 else torch.zeros_like(values[0])
    return values.mean(dim=0).tolist(), errors.tolist()


# Roles

# A head has the first role whose measure is large enough. The more a rule says, the earlier it
# comes: a head that rests on [CLS] may attend far and wide otherwise.
RULES = (
    ("first-token sink", "first", 0.4),
    ("separator sink", "separator", 0.4),
    ("previous token", "previous", 0.4),
    ("next token", "next", 0.4),
    ("itself", "self", 0.4),
    ("across texts", "crossing", 0.6),  # uniform weights over texts of one length give about 0.45
    ("broad", "entropy_share", 0.9),
    ("focused", "focus", 0.7),  # 1 - entropy_share
)
NO_PATTERN = "no clear pattern"


def role(numbers: Mapping[str, float]) -> tuple[str, float]:
    """Return what a head seems to do by its numbers, measure -> mean, and the deciding number.

    Where no rule holds, the number is the one nearest to its rule. Measures that are missing are
    passed over.
    """
    known = dict(numbers)
    if "entropy_share" in known:
        known["focus"] = 1 - known["entropy_share"]
    rules = [(name, known[measure], least) for name, measure, least in RULES if measure in known]
    for name, number, least in rules:
        if number >= least:
            return name, number
    nearest = max(rules, key=lambda rule: rule[1] / rule[2], default=(NO_PATTERN, 0.0, 0.0))
    return NO_PATTERN, nearest[1]


def role_arrays(summary: Summary) -> dict[str, np.ndarray]:
    """Return every head's role and score as the record keeps them, [L, H], "" for no head."""
    names = []
    scores = []
    if not summary:
        return {}
    for measures in summary.values():
        heads = zip(*(means for means, _ in measures.values()), strict=True)
        roles = [role(dict(zip(measures, numbers, strict=True))) for numbers in heads]
        names.append(np.array([name for name, _ in roles], dtype="<U20"))
        scores.append(np.array([score for _, score in roles], dtype=np.float32))
    return {"roles": stack_layers(names, ""), "roles/score": stack_layers(scores)}
