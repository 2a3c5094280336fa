"""The sums of a text as one table: what each head of all layers shares of each word and bias.

A logit is a sum over paths, each from a token's vector, or from a bias, through some heads or none.
Heads share alike what passes several of them: a path of amount c through k heads gives c / k to
each. That is the Shapley value of the heads in the network with its gates held fixed (Shapley 1953,
A Value for n-Person Games). So all heads of all layers are one table, which adds up both ways:

    word_tc = sum_lh share_lhtc + past_tc          past: the paths through no head
    bias_c  = sum_lh bias_lhc   + past_bias_c

With the output of each head times x, a path through k heads is x^k as large, and the integral of
k x^(k-1) c / k over x from 0 to 1 is c / k. So

    share_lh = integral of z_lh(x) . d logit_c(x) / dz_lh,     z_lh: the head's output

split by tokens and biases as z_lh is: a polynomial of degree L - 1 in x, for which ceil(L / 2)
points of Gauss and Legendre are exact.

Gates are held fixed (`headscope.heads.linear`, or `headscope.foreign` for what is not ours);
`headscope.heads.contributions` has words and biases. Shape letters: B texts, H heads, T tokens, S
sums that are split.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor


class Shares(NamedTuple):
    """What the heads share of S sums of B texts, and what passes through no head.

    Of `past`, tokens and biases, `unobserved` passes through attention that is not observed.
    """

    heads: list[Float[Tensor, "B H T S"]]
    head_biases: list[Float[Tensor, "B H S"]]
    past: Float[Tensor, "B T S"]
    past_biases: Float[Tensor, "B S"]
    unobserved: Float[Tensor, "B S"]


def gauss_legendre(num_layers: int) -> list[tuple[float, float]]:
    """Return points and weights on 0 to 1: exact for polynomials of degree L - 1."""
    if not num_layers:
        return []
    points, weights = np.polynomial.legendre.leggauss((num_layers + 1) // 2)
    return [*zip(((points + 1) / 2).tolist(), (weights / 2).tolist(), strict=True)]
