"""What heads attend to, read off their maps: measures, texts that stand out, roles.

Each measure is a mean over the queries of a text, padding left out. a_ij is the weight that query i
gives to key j, n the number of tokens of a text, which stand before its padding. Keys that are
padding have weight 0, as every layer here gives them. Masses and shares lie in [0, 1].

Of a layer that is read at [CLS] alone (`headscope.heads.capture.read_at_first`) that one row
counts, maps [B, H, 1, T]: nothing depends on the others.

Shape letters: B texts, H heads, Q queries, T positions, N texts in all.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Queries are the first Q tokens: all of them, or [CLS] alone; a pooling's one query is no token
Maps = Float[Tensor, "B H Q T"]
Padding = Bool[Tensor, "B T"] | None
PerText = Float[Tensor, "B H"]

AGREEMENT = 0.9  # Voita et al. 2019, section 5.1: the share of maxima at one offset
NOTICEABLE = 1.001  # times 1/n: a row whose maximum is lower is uniform, rounding aside


class Tokens(NamedTuple):
    """What the tokens of some texts are, for the measures that ask."""

    token_ids: Int[Tensor, "B T"]  # anything at padding
    separators: Bool[Tensor, "B T"]  # True at tokens such as [SEP]
    # Of pairs the text that each token is of, 0 or 1, and -1 at special tokens; None for single
    # texts
    texts: Int[Tensor, "B T"] | None = None

    def rows(self, rows: slice | list[int]) -> "Tokens":
        """Return the tokens of some of the texts."""
        texts = None if self.texts is None else self.texts[rows]
        return Tokens(self.token_ids[rows], self.separators[rows], texts)


class SpecialTokens(NamedTuple):
    """Ids that are no words: `separators` such as [SEP], and all that are `fixed`, [CLS] too."""

    separators: tuple[int, ...]
    fixed: tuple[int, ...]

    def tokens_of(self, token_ids: Int[Tensor, "B T"], pairs: bool) -> Tokens:
        """Return the tokens of a batch; of pairs also the text that each is of.

        The first separator ends the first text, in `[CLS] A [SEP] B [SEP]`, `<s> A </s></s> B </s>`
        and the like. The ids say so where the token types do not: those of RoBERTa are 0 in both
        texts.
        """
        separators = torch.isin(token_ids, token_ids.new_tensor(self.separators))
        if not pairs:
            return Tokens(token_ids, separators)
        texts = (separators.cumsum(dim=-1) > 0).long()
        is_special = torch.isin(token_ids, token_ids.new_tensor(self.fixed))
        return Tokens(token_ids, separators, texts.masked_fill(is_special, -1))


def entropy(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i -sum_j a_ij ln a_ij in nats: 0 for one key a query, ln n for uniform rows.

    Clark et al. 2019, What Does BERT Look At?, section 3.3.
    """
    return mean_over_queries(row_entropy(maps), padding)


def row_entropy(maps: Maps) -> Float[Tensor, "B H Q"]:
    """Return -sum_j a_ij ln a_ij of each query."""
    # 0 ln 0 is 0: the smallest number's logarithm stands in. torch.special.entr takes twice as
    # long.
    return maps.clamp_min(torch.finfo(maps.dtype).tiny).log_().mul_(maps).sum(dim=-1).neg_()


def entropy_share(maps: Maps, padding: Padding = None) -> PerText:
    """Return entropy / ln n, for texts of any length: 0 if sharp, 1 if uniform."""
    return share_of_entropy(entropy(maps, padding), padding, maps.shape[-1])


def share_of_entropy(nats: PerText, padding: Padding, length: int) -> PerText:
    """Return nats / ln n, for texts of n tokens; n is `length` where there is no padding."""
    n = nats.new_full(nats.shape[:1], length)
    if padding is not None:
        n = (~padding).sum(dim=-1).to(nats.dtype)
    return nats / n.clamp(min=2).log()[:, None]  # of one token the entropy is 0


def mean_distance(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i sum_j a_ij |i - j| in tokens: how far a head attends."""
    position = torch.arange(maps.shape[-1], device=maps.device, dtype=maps.dtype)
    distance = (position[: maps.shape[-2], None] - position).abs()  # [Q, T]
    return mean_over_queries(torch.linalg.vecdot(maps, distance), padding)


def self_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_ii: how much each token attends to itself (Kovaleva et al. 2019, 4.1)."""
    return mean_over_queries(maps.diagonal(dim1=-2, dim2=-1), padding)


def previous_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return the mean over i >= 1 of a_i,i-1: the token before (Clark et al. 2019, 3.1)."""
    return _mass_at(maps, padding, -1)


def next_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return the mean over i < n - 1 of a_i,i+1: the token after."""
    return _mass_at(maps, padding, 1)


def _mass_at(maps: Maps, padding: Padding, offset: int) -> PerText:
    """Return the mean weight on the token before (-1) or after (1), where there is one."""
    values = maps.diagonal(offset=offset, dim1=-2, dim2=-1)  # [B, H, T - 1], or fewer
    return mean_over_queries(values, None if padding is None else padding[:, 1:])


def first_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_i0: the first token, [CLS] (vertical in Kovaleva et al. 2019, 4.1)."""
    return mean_over_queries(maps[..., 0], padding)


def last_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_i,n-1: the last token that is not padding, most often [SEP]."""
    if padding is None:
        return mean_over_queries(maps[..., -1], None)
    last = ((~padding).sum(dim=-1) - 1).clamp(min=0)  # [B]
    texts = torch.arange(len(maps), device=maps.device)
    return mean_over_queries(maps[texts, :, :, last], padding)


def separator_mass(maps: Maps, padding: Padding, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij [j separates], a no-op by Clark et al. 2019, section 3.2."""
    separators = tokens.separators.to(maps.dtype)[:, None, None]  # [B, 1, 1, T]
    return mean_over_queries(torch.linalg.vecdot(maps, separators), padding)


def same_token_mass(maps: Maps, padding: Padding, tokens: Tokens) -> PerText:
    """Return mean_i sum_{j != i} a_ij [id_j = id_i]: other places of the same token."""
    queries = tokens.token_ids[:, : maps.shape[-2], None]  # [B, Q, 1]
    same = (queries == tokens.token_ids[:, None]).to(maps.dtype)  # [B, Q, T]
    same.diagonal(dim1=1, dim2=2).zero_()
    return mean_over_queries(torch.linalg.vecdot(maps, same[:, None]), padding)


def crossing_mass(maps: Maps, padding: Padding, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij [i and j are of different texts of the pair].

    The mean is over the tokens i of the two texts; special tokens such as [CLS] and [SEP] are of
    neither text. So 1 if each token attends to the other text alone; for uniform weights 2 n_A n_B
    / ((n_A + n_B) n) with n the tokens of both texts and the special ones, about a half. A pair in
    which a text has no token has 0. Our own; `headscope.record.pairs.quadrants` has both directions
    apart.
    """
    assert tokens.texts is not None, "crossing is a measure of pairs"
    queries = tokens.texts[:, : maps.shape[-2], None]  # [B, Q, 1]
    is_across = queries + tokens.texts[:, None] == 1  # [B, Q, T]: 0 and 1, never -1
    outside = tokens.texts < 0 if padding is None else (tokens.texts < 0) | padding
    across = torch.linalg.vecdot(maps, is_across.to(maps.dtype)[:, None])
    return mean_over_queries(across, outside)


def position_only(maps: Maps, padding: Padding = None) -> PerText:
    """Return 1 for texts where the place alone tells which key has the largest weight, else 0.

    It is 1 if one rule gives the largest weight for 90 % of the queries that it applies to: the
    first token, the last token, or a fixed offset j - i = o, which must apply to at least half of
    the queries; where there is but one query, no offset counts. Uniform rows count as misses.
    (Voita et al. 2019, Analyzing Multi-Head Self-Attention, section 5.1, asks 90 % for the offsets
    -1 and +1.) Takes three times as long as `mean_distance`.
    """
    B, H, Q, T = maps.shape
    n = maps.new_full((B,), T) if padding is None else (~padding).sum(dim=-1).to(maps.dtype)  # [B]
    largest, key = maps.max(dim=-1)  # [B, H, Q] each
    counts = largest * n[:, None, None] > NOTICEABLE
    if padding is not None:
        counts = counts & ~padding[:, None, :Q]
    at_first = (counts & (key == 0)).sum(-1)  # [B, H]
    at_last = (counts & (key == n[:, None, None] - 1)).sum(-1)
    if Q == 1:
        return (at_first | at_last).to(maps.dtype)
    offset = key - torch.arange(Q, device=maps.device) + T - 1  # 0 .. 2T - 2
    votes = maps.new_zeros(B, H, 2 * T - 1).scatter_add_(-1, offset, counts.to(maps.dtype))
    # [B, 2T - 1]: the queries that have a token at that offset
    queries = n[:, None] - torch.arange(1 - T, T, device=maps.device).abs()
    by_offset = (votes >= AGREEMENT * queries[:, None]) & (2 * queries >= n[:, None])[:, None]
    needed = AGREEMENT * n[:, None]
    return (by_offset.any(-1) | (at_first >= needed) | (at_last >= needed)).to(maps.dtype)


def mean_over_queries(
    values: Float[Tensor, "B H Q"], padding: Bool[Tensor, "B T"] | None
) -> PerText:
    """Average over the queries, the first tokens, but padding; a text without any counts as 0."""
    if padding is None:
        return values.mean(dim=-1) if values.shape[-1] else values.new_zeros(values.shape[:-1])
    tokens = (~padding[:, : values.shape[-1]]).to(values.dtype)[:, None]  # [B, 1, Q]
    return (values * tokens).sum(dim=-1) / tokens.sum(dim=-1).clamp(min=1)


Measure = Callable[[Maps, Padding], PerText]
TokenMeasure = Callable[[Maps, Padding, Tokens], PerText]
# layer -> measure -> (mean of each head, standard error of each head)
Summary = dict[str, dict[str, tuple[list[float], list[float]]]]

# Cheap enough for every record; entropy before its share, which is made of it.
MEASURES: dict[str, Measure] = {
    "entropy": entropy,
    "mean_distance": mean_distance,
    "self": self_mass,
    "previous": previous_mass,
    "next": next_mass,
    "first": first_mass,
    "last": last_mass,
    "entropy_share": entropy_share,
}
TOKEN_MEASURES: dict[str, TokenMeasure] = {"separator": separator_mass}  # cheap too
PAIR_MEASURES: dict[str, TokenMeasure] = {"crossing": crossing_mass}
# For now and then, such as the end of a run: the first alone takes two thirds as long as all of
# MEASURES.
RARE_MEASURES: dict[str, Measure] = {"position_only": position_only}
RARE_TOKEN_MEASURES: dict[str, TokenMeasure] = {"same_token": same_token_mass}
POOLING_MEASURES: dict[str, Measure] = {"entropy": entropy, "first": first_mass}
# Between 0 and 1 for texts of any length, so that their changes compare; entropy_share is first.
SHARES = (
    "entropy_share",
    "self",
    "previous",
    "next",
    "first",
    "last",
    "separator",
    "crossing",
    "same_token",
)


class HeadStatistics:
    """Collect the measures of many texts: a mean and standard error for each layer and head.

    By default those that are cheap; `token_measures`, and those of pairs, are taken where an update
    brings tokens.
    """

    def __init__(
        self,
        measures: Mapping[str, Measure] = MEASURES,
        token_measures: Mapping[str, TokenMeasure] = TOKEN_MEASURES,
    ) -> None:
        self.measures = measures
        self.token_measures = token_measures
        self._values: dict[str, dict[str, list[PerText]]] = {}

    def update(
        self, layer: str, maps: Maps, padding: Padding = None, tokens: Tokens | None = None
    ) -> dict[str, PerText]:
        """Add the maps of one layer for some texts, and return their numbers by measure."""
        values: dict[str, PerText] = {}
        for name, measure in self.measures.items():
            if name == "entropy_share":  # spares the logarithms, half of all the work
                values[name] = share_of_entropy(values["entropy"], padding, maps.shape[-1])
            else:
                values[name] = measure(maps, padding)
        if tokens is not None:
            chosen = {**self.token_measures, **({} if tokens.texts is None else PAIR_MEASURES)}
            values |= {name: measure(maps, padding, tokens) for name, measure in chosen.items()}
        # One transfer, however many measures there are.
        values = dict(zip(values, torch.stack(list(values.values())).cpu(), strict=True))
        for name, value in values.items():
            self._values.setdefault(layer, {}).setdefault(name, []).append(value)
        return values

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


# Texts that stand out

NUM_EXAMPLES = 5  # for each head
Ranking = tuple[Int[Tensor, "n H"], Float[Tensor, "n H"]]  # rows of texts and scores, highest first


class Examples:
    """Find, for each head, the texts where it is focused most and where it changed most."""

    def __init__(self) -> None:
        # layer -> rows [B], lengths [B] and shares [M, B, H] of some texts
        self._parts: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}

    def update(
        self,
        layer: str,
        rows: Int[Tensor, " B"],
        lengths: Int[Tensor, " B"],
        values: Mapping[str, PerText],
    ) -> None:
        """Note the numbers of some texts; a text has the same row in every record."""
        shares = torch.stack([values[name] for name in SHARES if name in values])
        self._parts.setdefault(layer, []).append((rows, lengths, shares))

    def focused(self) -> dict[str, Ranking]:
        """Rank by 1 - entropy_share the texts of 3 or more tokens: in two any head is focused."""
        rankings = {}
        for layer, parts in self._parts.items():
            longer = [(rows[n > 2], 1 - shares[0, n > 2]) for rows, n, shares in parts]
            rankings[layer] = _highest(longer)
        return rankings

    def changed(self, before: "Examples") -> dict[str, Ranking]:
        """Rank the texts of both records by how much each head changed since the one before.

        Change is the root mean square, over the measures in `SHARES`, of the differences of a
        text's numbers: between 0 and 1. entropy and mean_distance, which have units and grow with
        the text, are left out.
        """
        rankings = {}
        for layer, parts in self._parts.items():
            if layer not in before._parts:
                continue
            earlier_rows, _, earlier = zip(*before._parts[layer], strict=True)
            known_rows, order = torch.cat(earlier_rows).sort()
            known = torch.cat(earlier, dim=1)[:, order]  # [M, N, H]
            changes = []
            for rows, _, shares in parts:
                place = torch.searchsorted(known_rows, rows).clamp(max=len(known_rows) - 1)
                change = (shares - known[:, place]).square().mean(dim=0).sqrt()  # [B, H]
                is_in = known_rows[place] == rows
                changes.append((rows[is_in], change[is_in]))
            rankings[layer] = _highest(changes)
        return rankings


def _highest(parts: list[tuple[Tensor, Tensor]]) -> Ranking:
    """Return the texts of the highest scores; of equal scores the one that came first."""
    rows, scores = (torch.cat(part) for part in zip(*parts, strict=True))
    scores, order = scores.sort(dim=0, descending=True, stable=True)
    return rows[order[:NUM_EXAMPLES]], scores[:NUM_EXAMPLES]


# Roles

# A head has the first role whose measure is large enough. The more a rule says, the earlier it
# comes: a head that rests on [CLS] may attend far and wide otherwise.
RULES = (
    ("first-token sink", "first", 0.4),
    ("separator sink", "separator", 0.4),
    ("same token", "same_token", 0.4),
    ("previous token", "previous", 0.4),
    ("next token", "next", 0.4),
    ("itself", "self", 0.4),
    ("last token", "last", 0.4),
    ("across texts", "crossing", 0.6),  # uniform weights over texts of one length give about 0.45
    ("position only", "position_only", 0.9),
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
    layers = list(summary.values())
    heads = [len(means) for means, _ in (next(iter(measures.values())) for measures in layers)]
    names = np.full((len(layers), max(heads)), "", dtype="<U20")
    scores = np.full(names.shape, np.nan, dtype=np.float32)
    for layer, measures in enumerate(layers):
        for head in range(heads[layer]):
            numbers = {name: means[head] for name, (means, _) in measures.items()}
            names[layer, head], scores[layer, head] = role(numbers)
    return {"roles": names, "roles/score": scores}
