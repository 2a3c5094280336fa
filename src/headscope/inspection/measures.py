"""Numbers that say what a head does: each a mean over the queries of a text, padding left out.

Shape letters: B texts, H heads, T positions. a_ij is the weight that query i gives to key j, n the number of
tokens of a text. All are read off the maps alone (Clark et al. 2019, What Does BERT Look At?, sections 3 and 4).
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Maps = Float[Tensor, "B H Q T"]  # Q is T, but for a pooling, whose one query is no token
Padding = Bool[Tensor, "B T"] | None
PerText = Float[Tensor, "B H"]


def entropy(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i -sum_j a_ij ln a_ij in nats: 0 if each query looks at one key, ln n if at all alike."""
    # 0 ln 0 is 0: the logarithm is taken of the smallest number instead. torch.special.entr takes twice as long.
    logarithms = maps.clamp_min(torch.finfo(maps.dtype).tiny).log_()
    return _mean_over_queries(-torch.linalg.vecdot(maps, logarithms), padding)


def mean_distance(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i sum_j a_ij |i - j| in tokens: how far a head looks."""
    position = torch.arange(maps.shape[-1], device=maps.device, dtype=maps.dtype)
    distance = (position[:, None] - position).abs()  # [T, T]
    return _mean_over_queries(torch.linalg.vecdot(maps, distance), padding)


def self_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_ii: how much each token looks at itself."""
    return _mean_over_queries(maps.diagonal(dim1=-2, dim2=-1), padding)


def previous_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return the mean over i >= 1 of a_i,i-1: how much a token looks at the one before; the first has none."""
    return _mean_over_queries(maps.diagonal(offset=-1, dim1=-2, dim2=-1), None if padding is None else padding[:, 1:])


def next_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return the mean over i < n - 1 of a_i,i+1: how much a token looks at the one after; the last has none."""
    return _mean_over_queries(maps.diagonal(offset=1, dim1=-2, dim2=-1), None if padding is None else padding[:, 1:])


def first_mass(maps: Maps, padding: Padding = None) -> PerText:
    """Return mean_i a_i0: how much all look at the first token, [CLS]."""
    return _mean_over_queries(maps[..., 0], padding)


def _mean_over_queries(values: Float[Tensor, "B H Q"], padding: Bool[Tensor, "B Q"] | None) -> PerText:
    """Average over the queries that are tokens; a text without any such query counts as 0."""
    if padding is None:
        return values.mean(dim=-1) if values.shape[-1] else values.new_zeros(values.shape[:-1])
    tokens = (~padding).to(values.dtype)[:, None]  # [B, 1, Q]
    return (values * tokens).sum(dim=-1) / tokens.sum(dim=-1).clamp(min=1)


MEASURES: dict[str, Callable[[Maps, Padding], PerText]] = {
    "entropy": entropy,
    "mean_distance": mean_distance,
    "self": self_mass,
    "previous": previous_mass,
    "next": next_mass,
    "first": first_mass,
}


# What can be said of a pooling, which has one query, no token of the text.
POOLING_MEASURES: dict[str, Callable[[Maps, Padding], PerText]] = {"entropy": entropy, "first": first_mass}


class HeadStatistics:
    """Collect the measures of many texts: one mean and standard error for each layer, head and measure.

    Args:
        measures: by name; all that a self-attention head has, by default.
    """

    def __init__(self, measures: dict[str, Callable[[Maps, Padding], PerText]] = MEASURES) -> None:
        self.measures = measures
        self._values: dict[str, list[Float[Tensor, "M B H"]]] = {}

    def update(self, layer: str, maps: Maps, padding: Padding = None) -> None:
        """Count the maps of one layer and some texts in."""
        values = torch.stack([measure(maps, padding) for measure in self.measures.values()])  # [M, B, H]
        self._values.setdefault(layer, []).append(values.cpu())

    def summary(self) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
        """Return layer -> measure -> (mean of each head, standard error of each head) over the texts."""
        result = {}
        for layer, parts in self._values.items():
            values = torch.cat(parts, dim=1).double()  # [M, N, H]
            texts = values.shape[1]
            errors = values.std(dim=1) / texts**0.5 if texts > 1 else torch.zeros_like(values[:, 0])
            result[layer] = {
                name: (values[row].mean(dim=0).tolist(), errors[row].tolist()) for row, name in enumerate(self.measures)
            }
        return result
