"""Additive and multiplicative attention against direct loops over queries and keys."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from headscope.attention import AdditiveAttention, ConcatAttention, DotAttention, GeneralAttention
from headscope.attention.variants import ScoredAttention
from headscope.proof.claims import Claim, Terms

B, Q, K, D, A, V = 2, 5, 7, 11, 3, 13
Score = Callable[[Tensor, Tensor], Tensor]  # of one query and one key


def score_claims(terms: Terms) -> Iterator[Claim]:
    """Compare weights and contexts under padding, and what must hold for any weights."""
    torch.manual_seed(19)
    padding = torch.arange(K) >= torch.tensor([[7], [4]])
    query, key, value = terms.exact(B, Q, D), terms.exact(B, K, D), terms.exact(B, K, V)
    for name, layer, score in _cases(terms):
        expected = _looped(score, query.detach(), key.detach(), value.detach(), padding)
        layer.to(terms.device, terms.dtype)
        here = [terms.here(tensor) for tensor in (query, key, value)]
        context, weights = layer(*here, terms.here(padding))
        pairs = list(zip((context, weights), expected, strict=True))
        yield terms.claim(f"{name}: context and weights, padded", "a loop over i and j", pairs)
        sums = weights.sum(dim=-1)
        yield terms.claim(f"{name}: every row of weights sums to 1", "1", [(sums, torch.ones_like(sums))])
        masked = weights[1, :, 4:]
        yield terms.claim(f"{name}: a padded key gets exactly 0", "0", [(masked, torch.zeros_like(masked))], 0.0)
        order = torch.randperm(K, device=terms.device)
        moved = layer(here[0], here[1][:, order], here[2][:, order])[0]
        yield terms.claim(f"{name}: permuting keys changes nothing", "unpermuted", [(moved, layer(*here)[0])])


def _cases(terms: Terms) -> Iterator[tuple[str, ScoredAttention, Score]]:
    """Yield each layer with its score as the paper writes it, in the layer's own weights copied out in float64."""
    additive, general, concat = AdditiveAttention(D, D, A), GeneralAttention(D, D), ConcatAttention(D, D, A)
    for layer in (additive, general, concat):
        terms.rounded(layer)
    v, W, U = (linear.weight.detach().clone() for linear in (additive.v_a, additive.W_a, additive.U_a))
    G = general.W_a.weight.detach().clone()
    u, C = concat.v_a.weight.detach().clone(), concat.W_a.weight.detach().clone()
    yield "Bahdanau, additive", additive, lambda q, k: v[0] @ torch.tanh(W @ q + U @ k)
    yield "Luong, dot", DotAttention(), lambda q, k: q @ k
    yield "Luong, general", general, lambda q, k: q @ G @ k
    yield "Luong, concat", concat, lambda q, k: u[0] @ torch.tanh(C @ torch.cat([q, k]))


def _looped(score: Score, query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    contexts, weights = torch.zeros(B, Q, V, dtype=torch.float64), torch.zeros(B, Q, K, dtype=torch.float64)
    for text, i in ((text, i) for text in range(B) for i in range(Q)):
        kept = [j for j in range(K) if not padding[text, j]]
        exponentials = {j: math.exp(float(score(query[text, i], key[text, j]))) for j in kept}
        for j in kept:
            weights[text, i, j] = exponentials[j] / sum(exponentials.values())
            contexts[text, i] += weights[text, i, j] * value[text, j]
    return contexts, weights
