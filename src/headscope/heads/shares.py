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

Gates are held fixed (`headscope.heads.fixed_gates`); `headscope.heads.contributions` has words and
biases. Shape letters: B texts, H heads, T tokens, S sums that are split, N gradients that are
taken at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.heads.fixed_gates import FixedGates, HeadOutputs

MOST_AT_ONCE = 2**20  # numbers of head outputs whose gradients are taken at once


class Shares(NamedTuple):
    """What the heads share of S sums of B texts, and what passes through no head.

    Of `past`, tokens and biases, `unobserved` passes through attention that is not observed.
    """

    heads: list[Float[Tensor, "B H T S"]]
    head_biases: list[Float[Tensor, "B H S"]]
    past: Float[Tensor, "B T S"]
    past_biases: Float[Tensor, "B S"]
    unobserved: Float[Tensor, "B S"]


def shares_of(gates: FixedGates, sums: Float[Tensor, "B S"]) -> Shares:
    """One gradient for each x to all heads; then one for each layer to what is below its heads."""
    B, S = sums.shape
    numbers = [*gates.heads.values()]
    calls = [gates.calls[number] for number in numbers]
    others = [call for number, call in enumerate(gates.calls) if number not in numbers]
    heads = [torch.zeros(call.weights.shape[1], S, B, gates.num_tokens + 1) for call in calls]
    table = [of_layer.double() for of_layer in heads]  # tokens, then biases
    outputs = [call.head_outputs for call in calls]
    each = torch.eye(S, dtype=sums.dtype, device=sums.device)
    with _scaled_heads(calls) as scale:
        scale(0.0)
        past = _below(gates, sums.sum(dim=0), each, len(gates.calls))
        with _scaled_heads(others) as scale_others:
            scale_others(0.0)
            unobserved = past - _below(gates, sums.sum(dim=0), each, len(gates.calls))
        for x, weight in gauss_legendre(len(calls)):
            scale(x)
            gradients = _gradients_of_rows(sums.sum(dim=0), outputs, each)  # x g(x), [S, ...] each
            for layer, (output, gradient) in enumerate(zip(outputs, gradients, strict=True)):
                H = len(table[layer])
                of_heads = gradient.reshape(S, B, H, -1)
                alone = torch.eye(H).to(gradient)[:, None, None, :, None] * of_heads
                rows = alone.reshape(H * S, *output.shape)
                found = _below(gates, output, rows, numbers[layer])
                table[layer] += weight / x * found.unflatten(0, (H, S))
    table = [of_layer.permute(2, 0, 3, 1) for of_layer in table]  # [B, H, T + 1, S]
    past = past.permute(1, 2, 0)  # [B, T + 1, S]
    return Shares(
        [of_layer[:, :, :-1] for of_layer in table],
        [of_layer[:, :, -1] for of_layer in table],
        past[:, :-1],
        past[:, -1],
        unobserved.sum(dim=-1).T,
    )


@contextmanager
def _scaled_heads(calls: Sequence[HeadOutputs]) -> Iterator[Callable[[float], None]]:
    """Let the gradient of all that passes a head be scaled, as if its output were."""
    scale = 1.0

    def set_scale(x: float) -> None:
        nonlocal scale
        scale = x

    with ExitStack() as stack:
        for call in calls:
            handle = call.passed_on.register_hook(
                lambda gradient: None if gradient is None else gradient * scale
            )
            stack.callback(handle.remove)
        yield set_scale


def gauss_legendre(num_layers: int) -> list[tuple[float, float]]:
    """Return points and weights on 0 to 1: exact for polynomials of degree L - 1."""
    if not num_layers:
        return []
    points, weights = np.polynomial.legendre.leggauss((num_layers + 1) // 2)
    return [*zip(((points + 1) / 2).tolist(), (weights / 2).tolist(), strict=True)]


def _below(
    gates: FixedGates, output: Tensor, rows: Float[Tensor, "N ..."], layer: int
) -> Float[Tensor, "N B tokens_and_1"]:
    """Return rows times an output, as a sum over tokens and over the biases that are below it."""
    biases = [leaf for place, leaf in gates.biases if place <= layer]
    leaves = [*gates.words, *biases]
    size = max(1, MOST_AT_ONCE // output.numel())
    parts = []
    for some in rows.split(size):
        gradients = _gradients_of_rows(output, leaves, some)
        words, of_biases = gates.of_leaves(gradients, len(some))
        parts.append(torch.cat([words, of_biases.sum(dim=-1, keepdim=True)], dim=-1))
    return torch.cat(parts)


def _gradients_of_rows(
    output: Tensor, tensors: Sequence[Tensor], rows: Float[Tensor, "N ..."]
) -> list[Float[Tensor, "N ..."]]:
    """Return the gradients of N sums, rows times an output: in one pass if its functions can."""
    zeros = [tensor.new_zeros(1).expand(len(rows), *tensor.shape) for tensor in tensors]
    if not output.requires_grad or not tensors:
        return zeros
    take = partial(torch.autograd.grad, output, tensors, retain_graph=True)
    try:
        found = take(rows, is_grads_batched=True, allow_unused=True)
    except RuntimeError:  # a module's own function has no rule for vmap
        each = [take(row, materialize_grads=True) for row in rows]
        found = tuple(map(torch.stack, zip(*each, strict=True)))
    pairs = zip(found, zeros, strict=True)
    return [zero if gradient is None else gradient for gradient, zero in pairs]
