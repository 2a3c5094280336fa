"""What a head looks at, read off its maps, and the numbers of many texts: means for each head, texts that stand out.

Each measure is a mean over the queries of a text, padding left out. a_ij is the weight that query i gives to key j, n
the number of tokens of a text, which stand before its padding. Keys that are padding have weight 0, as every layer here
gives them. Masses and shares lie in [0, 1]. Shape letters: B texts, H heads, Q queries, T positions, N texts in all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Maps = Float[Tensor, "B H Q T"]  # Q is T, but for a pooling, whose one query is no token
Padding = Bool[Tensor, "B T"] | None
PerText = Float[Tensor, "B H"]

AGREEMENT = 0.9  # Voita et al. 2019, section 5.1: a head is positional if so often its maximum is at one offset
NOTICEABLE = (
    1.001  # times 1/n: a row whose maximum is not above it looks at all keys alike, rounding aside
)


@dataclass(frozen=True)
class Tokens:
    """What the tokens of some texts are, for the measures that ask."""

    token_ids: Int[Tensor, "B T"]  # id of each token; anything at padding
    separators: Bool[Tensor, "B T"]  # True at tokens such as [SEP]
    # For pairs, the text that each token is of, 0 or 1, and -1 at special tokens; None for single texts
    texts: Int[Tensor, "B T"] | None = None

    @classmethod
    def of(cls, token_ids: Int[Tensor, "B T"], separator_ids: Sequence[int]) -> "Tokens":
        """Return the tokens of a batch, given the ids that separate."""
        return cls(token_ids, torch.isin(token_ids, token_ids.new_tensor(list(separator_ids))))

    @classmethod
    def of_pairs(
        cls, token_ids: Int[Tensor, "B T"], separator_ids: Sequence[int], special_ids: Sequence[int]
    ) -> "Tokens":
        """Return the tokens of a batch of pairs, `[CLS] A [SEP] B [SEP]`, `<s> A </s></s> B </s>` and the like.

        The first separator ends the first text. The ids say so where the token types do not: those of RoBERTa are 0 in
        both texts. `special_ids` are all that the tokenizer adds to the texts, separators among them.
        """
        tokens = cls.of(token_ids, separator_ids)
        is_special = torch.isin(token_ids, token_ids.new_tensor(list(special_ids)))
        texts = (tokens.separators.cumsum(dim=-1) > 0).long()
        return replace(tokens, texts=texts.masked_fill(is_special, -1))

    def rows(self, rows: slice | list[int]) -> "Tokens":
        """Return the tokens of some of the texts."""
        texts = None if self.texts is None else self.texts[rows]
        return Tokens(self.token_ids[rows], self.separators[rows], texts)


def entropy(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i -sum_j a_ij ln a_ij in nats: 0 if each query looks at one key, ln n if at all alike.

    Clark et al. 2019, What Does BERT Look At?, section 3.3.
    """
    return mean_over_queries(row_entropy(maps), padding)


def row_entropy(maps: Maps) -> Float[Tensor, "B H Q"]:
    """Return -sum_j a_ij ln a_ij of each query."""
    # 0 ln 0 is 0: the logarithm is taken of the smallest number instead. torch.special.entr takes twice as long.
    return maps.clamp_min(torch.finfo(maps.dtype).tiny).log_().mul_(maps).sum(dim=-1).neg_()


def entropy_share(maps: Maps, padding: Padding = None) -> PerText:
    """Return entropy / ln n, what is left of a text's length: 0 if sharp, 1 if uniform. A text of one token has 0."""
    return share_of_entropy(entropy(maps, padding), padding, maps.shape[-1])


def share_of_entropy(nats: PerText, padding: Padding, length: int) -> PerText:
    """Return nats / ln n, for texts of n tokens; n is `length` where there is no padding."""
    n = (
        nats.new_full(nats.shape[:1], length)
        if padding is None
        else (~padding).sum(dim=-1).to(nats.dtype)
    )
    # Of one token the entropy is 0, whatever it is divided by.
    return nats / n.clamp(min=2).log()[:, None]


def mean_distance(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i sum_j a_ij |i - j| in tokens: how far a head looks."""
    position = torch.arange(maps.shape[-1], device=maps.device, dtype=maps.dtype)
    distance = (position[:, None] - position).abs()  # [T, T]
    return mean_over_queries(torch.linalg.vecdot(maps, distance), padding)


def self_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_ii: how much each token looks at itself (the diagonal of Kovaleva et al. 2019, section 4.1)."""
    return mean_over_queries(maps.diagonal(dim1=-2, dim2=-1), padding)


def previous_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return the mean over i >= 1 of a_i,i-1: how much a token looks at the one before; the first has none.

    Clark et al. 2019, section 3.1.
    """
    return mean_over_queries(
        maps.diagonal(offset=-1, dim1=-2, dim2=-1), None if padding is None else padding[:, 1:]
    )


def next_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return the mean over i < n - 1 of a_i,i+1: how much a token looks at the one after; the last has none."""
    return mean_over_queries(
        maps.diagonal(offset=1, dim1=-2, dim2=-1), None if padding is None else padding[:, 1:]
    )


def first_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_i0: how much all look at the first token, [CLS] (vertical in Kovaleva et al. 2019, 4.1)."""
    return mean_over_queries(maps[..., 0], padding)


def last_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_i,n-1: how much all look at the last token that is not padding, most often [SEP]."""
    if padding is None:
        return mean_over_queries(maps[..., -1], None)
    texts, last = (
        torch.arange(len(maps), device=maps.device),
        ((~padding).sum(dim=-1) - 1).clamp(min=0),
    )
    return mean_over_queries(maps[texts, :, :, last], padding)


def separator_mass(maps: Maps, padding: Padding, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij [j separates]: how much all look at separators, a no-op by Clark et al. 2019, 3.2."""
    separators = tokens.separators.to(maps.dtype)[:, None, None]  # [B, 1, 1, T]
    return mean_over_queries(torch.linalg.vecdot(maps, separators), padding)


def same_token_mass(maps: Maps, padding: Padding, tokens: Tokens) -> PerText:
    """Return mean_i sum_{j != i} a_ij [id_j = id_i]: how much each token looks at where it stands once more."""
    same = (tokens.token_ids[:, :, None] == tokens.token_ids[:, None]).to(maps.dtype)  # [B, T, T]
    same.diagonal(dim1=1, dim2=2).zero_()
    return mean_over_queries(torch.linalg.vecdot(maps, same[:, None]), padding)


def crossing_mass(maps: Maps, padding: Padding, tokens: Tokens) -> PerText:
    """Return mean_i sum_j a_ij [i and j are of different texts of the pair]: how much a head looks across.

    The mean is over the tokens i of the two texts; special tokens such as [CLS] and [SEP] are of neither text. So 1 if
    each token looks at the other text alone; if all keys are looked at alike, 2 n_A n_B / ((n_A + n_B) n) with n the
    tokens of both texts and the special ones, about a half. A pair in which a text has no token has 0. Our own;
    `headscope.record.pairs.quadrants` has both directions apart.

    Raises:
        ValueError: if it is not known which text each token is of.
    """
    if tokens.texts is None:
        raise ValueError(
            "crossing is a measure of pairs: Tokens.of_pairs says which text each token is of"
        )
    across = (tokens.texts[:, :, None] + tokens.texts[:, None] == 1).to(
        maps.dtype
    )  # [B, T, T]: 0 and 1, never -1
    outside = tokens.texts < 0 if padding is None else (tokens.texts < 0) | padding
    return mean_over_queries(torch.linalg.vecdot(maps, across[:, None]), outside)


def position_only(maps: Maps, padding: Padding = None) -> PerText:
    """Return 1 for texts where the place alone tells what a query looks at most, else 0; the mean is a share of texts.

    It is 1 if one rule gives the largest weight for 90 % of the queries that it applies to: the first token, the last
    token, or a fixed offset j - i = o, which must apply to at least half of the queries. Uniform rows count as misses.
    (Voita et al. 2019, Analyzing Multi-Head Self-Attention, section 5.1, asks 90 % for the offsets -1 and +1.) Takes
    three times as long as `mean_distance`.
    """
    B, H, Q, T = maps.shape
    n = maps.new_full((B,), T) if padding is None else (~padding).sum(dim=-1).to(maps.dtype)  # [B]
    largest, key = maps.max(dim=-1)  # [B, H, Q] each
    counts = largest * n[:, None, None] > NOTICEABLE
    counts = counts if padding is None else counts & ~padding[:, None]
    offset = key - torch.arange(Q, device=maps.device) + T - 1  # 0 .. 2T - 2
    votes = maps.new_zeros(B, H, 2 * T - 1).scatter_add_(-1, offset, counts.to(maps.dtype))
    queries = (
        n[:, None] - torch.arange(1 - T, T, device=maps.device).abs()
    )  # [B, 2T - 1], those with a token there
    by_offset = (votes >= AGREEMENT * queries[:, None]) & (2 * queries >= n[:, None])[:, None]
    needed = AGREEMENT * n[:, None]
    by_place = [
        (counts & (key == place)).sum(-1) >= needed for place in (0, n[:, None, None] - 1)
    ]  # [B, H] each
    return (by_offset.any(-1) | by_place[0] | by_place[1]).to(maps.dtype)


def mean_over_queries(
    values: Float[Tensor, "B H Q"], padding: Bool[Tensor, "B Q"] | None
) -> PerText:
    """Average over the queries that are tokens; a text without any such query counts as 0."""
    if padding is None:
        return values.mean(dim=-1) if values.shape[-1] else values.new_zeros(values.shape[:-1])
    tokens = (~padding).to(values.dtype)[:, None]  # [B, 1, Q]
    return (values * tokens).sum(dim=-1) / tokens.sum(dim=-1).clamp(min=1)


Measure = Callable[[Maps, Padding], PerText]
TokenMeasure = Callable[[Maps, Padding, Tokens], PerText]
# layer -> measure -> (mean of each head, standard error of each head)
Summary = dict[str, dict[str, tuple[list[float], list[float]]]]

# Cheap enough for every record.
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
# Where the tokens are known; cheap too.
TOKEN_MEASURES: dict[str, TokenMeasure] = {"separator": separator_mass}
# Where the texts are pairs.
PAIR_MEASURES: dict[str, TokenMeasure] = {"crossing": crossing_mass}
# For now and then, such as the end of a run: the first alone takes two thirds as long as all of MEASURES.
RARE_MEASURES: dict[str, Measure] = {"position_only": position_only}
RARE_TOKEN_MEASURES: dict[str, TokenMeasure] = {"same_token": same_token_mass}
# What can be said of a pooling, which has one query, no token of the text.
POOLING_MEASURES: dict[str, Measure] = {"entropy": entropy, "first": first_mass}
# Those that lie between 0 and 1 whatever the text's length, so that a change of one can be held against another's.
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
    """Collect the measures of many texts: one mean and standard error for each layer, head and measure.

    By default those that are cheap; `token_measures`, and those of pairs, are taken where an update brings tokens.
    """

    def __init__(
        self,
        measures: Mapping[str, Measure] = MEASURES,
        token_measures: Mapping[str, TokenMeasure] = TOKEN_MEASURES,
    ) -> None:
        self.measures, self.token_measures = measures, token_measures
        self._values: dict[str, dict[str, list[PerText]]] = {}

    def update(
        self, layer: str, maps: Maps, padding: Padding = None, tokens: Tokens | None = None
    ) -> dict[str, PerText]:
        """Count the maps of one layer and some texts in, and return their numbers by measure."""
        found: dict[str, PerText] = {}
        for name, measure in self.measures.items():
            if (
                measure is entropy_share and "entropy" in found
            ):  # spares the logarithms, half of all the work
                found[name] = share_of_entropy(found["entropy"], padding, maps.shape[-1])
            else:
                found[name] = measure(maps, padding)
        if tokens is not None:
            chosen = {**self.token_measures, **({} if tokens.texts is None else PAIR_MEASURES)}
            found |= {name: measure(maps, padding, tokens) for name, measure in chosen.items()}
        # One transfer, however many measures there are.
        values = dict(zip(found, torch.stack(list(found.values())).cpu(), strict=True))
        for name, value in values.items():
            self._values.setdefault(layer, {}).setdefault(name, []).append(value)
        return values

    def summary(self) -> Summary:
        """Return layer -> measure -> (mean of each head, standard error of each head) over the texts."""
        return {
            layer: {name: mean_and_error(torch.cat(parts)) for name, parts in measures.items()}
            for layer, measures in self._values.items()
        }


def mean_and_error(values: Float[Tensor, "N H"]) -> tuple[list[float], list[float]]:
    """Return, for each head, the mean over N texts and its standard error s / sqrt(N); 0 where N is 1."""
    values = values.double()
    texts = len(values)
    errors = values.std(dim=0) / texts**0.5 if texts > 1 else torch.zeros_like(values[0])
    return values.mean(dim=0).tolist(), errors.tolist()


class TopTexts:
    """Keep, for each head, the `count` texts of the highest score out of a stream of texts."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._scores: Float[Tensor, "K H"] | None = None
        self._texts: Int[Tensor, "K H"] | None = None

    def update(self, texts: Int[Tensor, " B"], scores: PerText) -> None:
        """Let some more texts, each known by a number, compete. Of equal scores the one that came first stays."""
        numbers = texts[:, None].expand_as(scores)
        if self._scores is not None and self._texts is not None:
            scores, numbers = torch.cat([self._scores, scores]), torch.cat([self._texts, numbers])
        scores, order = scores.sort(dim=0, descending=True, stable=True)
        self._scores, self._texts = scores[: self.count], numbers.gather(0, order)[: self.count]

    def best(self) -> list[list[tuple[int, float]]]:
        """Return for each head its texts and their scores, highest first; no heads before the first update."""
        if self._scores is None or self._texts is None:
            return []
        heads = zip(self._texts.T.tolist(), self._scores.T.tolist(), strict=True)
        return [list(zip(texts, scores, strict=True)) for texts, scores in heads]


class Examples:
    """Find for each head the texts where it is focused most sharply, and where it changed most since the last record.

    Focus is 1 - entropy_share. Change is the root mean square, over the measures in `SHARES`, of the differences
    between a text's numbers in two records: between 0 and 1. entropy and mean_distance, which have units and grow with
    the text, are left out, and so are measures and texts that one of the records lacks.

    Args:
        count: texts for each head.
        before: the examples of the previous record, which hold the numbers of all its texts.

    Attributes:
        focused: layer -> the texts of highest focus; `focused[layer].best()[head]`.
        changed: layer -> the texts of greatest change; empty without a previous record.
    """

    def __init__(self, count: int = 5, before: "Examples | None" = None) -> None:
        self.count, self._before = count, {} if before is None else before._joined()
        self.focused: dict[str, TopTexts] = {}
        self.changed: dict[str, TopTexts] = {}
        self._texts: dict[str, list[Int[Tensor, " B"]]] = {}
        self._shares: dict[str, dict[str, list[PerText]]] = {}

    def update(
        self,
        layer: str,
        texts: Int[Tensor, " B"],
        values: Mapping[str, PerText],
        lengths: Int[Tensor, " B"] | None = None,
    ) -> None:
        """Look at the numbers of some texts, which HeadStatistics.update returned.

        Each text is known by a number, the same one in every record, such as its row in the split. If the texts'
        lengths are given, those of one or two tokens, where any head is focused, do not compete.
        """
        shares = {name: values[name] for name in SHARES if name in values}
        self._texts.setdefault(layer, []).append(texts)
        for name, value in shares.items():
            self._shares.setdefault(layer, {}).setdefault(name, []).append(value)
        wanted = torch.ones_like(texts, dtype=torch.bool) if lengths is None else lengths > 2
        focus = 1 - values["entropy_share"]
        self.focused.setdefault(layer, TopTexts(self.count)).update(texts[wanted], focus[wanted])
        if layer in self._before:
            known, change = _change(texts, shares, *self._before[layer])
            self.changed.setdefault(layer, TopTexts(self.count)).update(texts[known], change[known])

    def _joined(self) -> dict[str, tuple[Int[Tensor, " N"], dict[str, Float[Tensor, "N H"]]]]:
        """Return the numbers of all texts, layer by layer, in the order of the texts' numbers."""
        joined = {}
        for layer, parts in self._texts.items():
            texts, order = torch.cat(parts).sort()
            joined[layer] = (
                texts,
                {name: torch.cat(values)[order] for name, values in self._shares[layer].items()},
            )
        return joined


def _change(
    texts: Int[Tensor, " B"],
    now: Mapping[str, PerText],
    known_texts: Int[Tensor, " N"],
    before: Mapping[str, Float[Tensor, "N H"]],
) -> tuple[Bool[Tensor, " B"], PerText]:
    """Return which texts the previous record has, and how much each changed; of others the change means nothing."""
    place = torch.searchsorted(known_texts, texts).clamp(max=len(known_texts) - 1)
    both = [name for name in now if name in before]
    differences = torch.stack([now[name] - before[name][place] for name in both])  # [M, B, H]
    return known_texts[place] == texts, differences.square().mean(dim=0).sqrt()


@dataclass(frozen=True)
class Rule:
    """A role, and when a head has it: where `measure` is at least `least`."""

    role: str
    measure: str
    least: float


# In this order: the more a rule says, the earlier it comes. A head that rests on [CLS] may look far and wide otherwise.
RULES = (
    Rule("first-token sink", "first", 0.4),
    Rule("separator sink", "separator", 0.4),
    Rule("same token", "same_token", 0.4),
    Rule("previous token", "previous", 0.4),
    Rule("next token", "next", 0.4),
    Rule("itself", "self", 0.4),
    Rule("last token", "last", 0.4),
    Rule(
        "across texts", "crossing", 0.6
    ),  # of two texts as long as each other about 0.45 is by chance
    Rule("position only", "position_only", 0.9),
    Rule("broad", "entropy_share", 0.9),
    Rule("focused", "focus", 0.7),  # 1 - entropy_share
)
NO_PATTERN = "no clear pattern"


def role(numbers: Mapping[str, float]) -> tuple[str, float]:
    """Return what a head seems to do, by its numbers (measure -> mean), and the number by which it is called so.

    Where no rule holds, the number is the one nearest to its rule. Measures that are missing are passed over.
    """
    known = {
        **numbers,
        **({"focus": 1 - numbers["entropy_share"]} if "entropy_share" in numbers else {}),
    }
    rules = [rule for rule in RULES if rule.measure in known]
    for rule in rules:
        if known[rule.measure] >= rule.least:
            return rule.role, known[rule.measure]
    nearest = max(rules, key=lambda rule: known[rule.measure] / rule.least, default=None)
    return NO_PATTERN, known[nearest.measure] if nearest else 0.0


def role_arrays(summary: Summary) -> dict[str, np.ndarray]:
    """Return the role of every head and its score as the record keeps them, [L, H]; empty where there is no head."""
    layers = list(summary.values())
    if not layers:
        return {}
    heads = [len(next(iter(measures.values()))[0]) for measures in layers]
    names = np.full((len(layers), max(heads)), "", dtype="<U20")
    scores = np.full(names.shape, np.nan, dtype=np.float32)
    for layer, measures in enumerate(layers):
        for head in range(heads[layer]):
            found = role({name: means[head] for name, (means, _) in measures.items()})
            names[layer, head], scores[layer, head] = found
    return {"roles": names, "roles/score": scores}
