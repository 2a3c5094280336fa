"""The numbers of many texts, gathered batch by batch: means for each head, and the texts that stand out.

`headscope.inspection.patterns` says what each measure is.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscope.inspection.patterns import (
    Maps,
    Padding,
    PerText,
    Tokens,
    crossing_mass,
    entropy,
    entropy_share,
    first_mass,
    last_mass,
    mean_distance,
    next_mass,
    position_only,
    previous_mass,
    same_token_mass,
    self_mass,
    separator_mass,
    share_of_entropy,
)

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
SHARES = ("entropy_share", "self", "previous", "next", "first", "last", "separator", "crossing", "same_token")


class HeadStatistics:
    """Collect the measures of many texts: one mean and standard error for each layer, head and measure.

    Args:
        measures: by name; by default all that a self-attention head has and that are cheap.
        token_measures: by name; those that are taken where an update brings tokens. Those of pairs come with them where
            the tokens are of pairs.
    """

    def __init__(
        self, measures: Mapping[str, Measure] = MEASURES, token_measures: Mapping[str, TokenMeasure] = TOKEN_MEASURES
    ) -> None:
        self.measures, self.token_measures = measures, token_measures
        self._values: dict[str, dict[str, list[PerText]]] = {}

    def update(
        self, layer: str, maps: Maps, padding: Padding = None, tokens: Tokens | None = None
    ) -> dict[str, PerText]:
        """Count the maps of one layer and some texts in, and return their numbers by measure."""
        found = self._measured(maps, padding)
        if tokens is not None:
            pairs = {} if tokens.texts is None else PAIR_MEASURES
            chosen = {**self.token_measures, **pairs}
            found |= {name: measure(maps, padding, tokens) for name, measure in chosen.items()}
        # One transfer, however many measures there are.
        values = dict(zip(found, torch.stack(list(found.values())).cpu(), strict=True))
        for name, value in values.items():
            self._values.setdefault(layer, {}).setdefault(name, []).append(value)
        return values

    def _measured(self, maps: Maps, padding: Padding) -> dict[str, PerText]:
        found: dict[str, PerText] = {}
        for name, measure in self.measures.items():
            if measure is entropy_share and "entropy" in found:  # spares the logarithms, half of all the work
                found[name] = share_of_entropy(found["entropy"], padding, maps.shape[-1])
            else:
                found[name] = measure(maps, padding)
        return found

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
    """Keep, for each head, the few texts of the highest score out of a stream of texts.

    Args:
        count: how many are kept.
    """

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
    """Find for each head the texts where it is focused most sharply, and those where it changed most since before.

    Focus is 1 - entropy_share. Change is the root mean square, over the measures in `SHARES`, of the differences
    between a text's numbers in two records: between 0 and 1. entropy and mean_distance, which have units and grow
    with the text, are left out, and so are measures and texts that one of the records lacks.

    Args:
        count: texts for each head.
        before: the examples of the record before, which hold the numbers of all its texts.

    Attributes:
        focused: layer -> the texts of highest focus; `focused[layer].best()[head]`.
        changed: layer -> the texts of greatest change; empty without a record before.
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
        """Look at the numbers of some texts.

        Args:
            layer: whose numbers they are.
            texts: a number for each text, the same one in every record, such as its row in the split.
            values: what HeadStatistics.update returned.
            lengths: tokens of each text; if given, texts of one or two, where any head is focused, do not compete.
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
            joined[layer] = texts, {name: torch.cat(values)[order] for name, values in self._shares[layer].items()}
        return joined


def _change(
    texts: Int[Tensor, " B"],
    now: Mapping[str, PerText],
    known_texts: Int[Tensor, " N"],
    before: Mapping[str, Float[Tensor, "N H"]],
) -> tuple[Bool[Tensor, " B"], PerText]:
    """Return which texts were there before, and how much each changed; of others the change means nothing."""
    place = torch.searchsorted(known_texts, texts).clamp(max=len(known_texts) - 1)
    both = [name for name in now if name in before]
    differences = torch.stack([now[name] - before[name][place] for name in both])  # [M, B, H]
    return known_texts[place] == texts, differences.square().mean(dim=0).sqrt()
