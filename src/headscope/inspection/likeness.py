"""How alike heads are: the divergence between what any two of them look at, over all layers.

Shape letters: B texts, N heads of all layers together, Q queries, T positions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.inspection.patterns import Maps, Padding, mean_over_queries


@dataclass(frozen=True)
class Likeness:
    """How far any two heads look apart.

    Attributes:
        heads: layer and number of each head, in the order of rows and columns.
        divergence: mean Jensen-Shannon divergence over texts in nats, from 0 (the same maps) to ln 2 (no key in
            common); symmetric.
        error: its standard error over texts.
    """

    heads: list[tuple[str, int]]
    divergence: Float[Tensor, "N N"]
    error: Float[Tensor, "N N"]

    def distance(self) -> Float[Tensor, "N N"]:
        """Return the square root of the divergence, which is a metric (Endres and Schindelin 2003).

        For clustering and for pictures in the plane. What is averaged is the divergence itself, as in Clark et al.
        2019, section 6: nats add up over queries, their roots do not.
        """
        return self.divergence.sqrt()


class HeadLikeness:
    """Collect the divergence of every pair of heads, batch by batch.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 with H the entropy in nats, of the two heads' rows p and q for one
    query; averaged over a text's queries, padding left out, then over texts (Clark et al. 2019, What Does BERT Look
    At?, section 6, sums instead). Costs a logarithm for each weight and pair of heads, so it is for a sample of texts.
    """

    def __init__(self) -> None:
        self._heads: list[tuple[str, int]] = []
        self._values: list[Float[Tensor, "B N N"]] = []

    def update(self, maps: Mapping[str, Maps], padding: Padding = None) -> None:
        """Count some texts in: the maps of every layer, as `headscope.inspection.capture` gives them.

        Raises:
            ValueError: if the heads are not those of the updates before.
        """
        heads = [(layer, head) for layer, weights in maps.items() for head in range(weights.shape[1])]
        if self._values and heads != self._heads:
            raise ValueError(f"expected the maps of {self._heads}, got {heads}")
        self._heads = heads
        self._values.append(divergences(torch.cat(list(maps.values()), dim=1), padding).cpu())

    def summary(self) -> Likeness:
        """Return means and standard errors over all texts; there must have been one."""
        values = torch.cat(self._values).double()
        texts = len(values)
        error = values.std(dim=0) / math.sqrt(texts) if texts > 1 else torch.zeros_like(values[0])
        return Likeness(self._heads, values.mean(dim=0), error)


def divergences(maps: Float[Tensor, "B N Q T"], padding: Padding = None) -> Float[Tensor, "B N N"]:
    """Return the mean over queries of JS(a_mi, a_ni), in nats, for any two heads m and n of each text."""
    B, N, _, _ = maps.shape
    own = _row_entropy(maps)  # [B, N, Q]
    found = maps.new_zeros(B, N, N)
    for head in range(N - 1):  # one head against all that follow, so that memory does not grow with their square
        others = slice(head + 1, N)
        mixed = _row_entropy((maps[:, head : head + 1] + maps[:, others]) / 2)
        divergence = (mixed - (own[:, head : head + 1] + own[:, others]) / 2).clamp_min(0)  # below 0 by rounding alone
        found[:, head, others] = found[:, others, head] = mean_over_queries(divergence, padding)
    return found


def _row_entropy(weights: Float[Tensor, "B N Q T"]) -> Float[Tensor, "B N Q"]:
    logarithms = weights.clamp_min(torch.finfo(weights.dtype).tiny).log_()
    return logarithms.mul_(weights).sum(dim=-1).neg_()
