"""Additive and multiplicative attention against direct loops over every query and key."""

import math

import pytest
import torch
from torch import nn

from headscope.attention import AdditiveAttention, ConcatAttention, DotAttention, GeneralAttention
from headscope.attention.variants import ScoredAttention
from headscope.inspection.capture import capture

B, Q, K, D, W, V, A = 2, 5, 7, 11, 13, 17, 3


def layers() -> dict[str, tuple[ScoredAttention, int]]:
    """Return each layer with the width of its keys."""
    torch.manual_seed(0)
    made = {
        "additive": (AdditiveAttention(D, W, A), W),
        "dot": (DotAttention(), D),
        "general": (GeneralAttention(D, W), W),
        "concat": (ConcatAttention(D, W, A), W),
    }
    return {name: (layer.double(), width) for name, (layer, width) in made.items()}


def score(layer: ScoredAttention, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return e of one query and one key, as the papers write it."""
    match layer:
        case AdditiveAttention():
            return layer.v_a.weight[0] @ torch.tanh(layer.W_a.weight @ query + layer.U_a.weight @ key)
        case DotAttention():
            return query @ key
        case GeneralAttention():
            return query @ (layer.W_a.weight @ key)
        case ConcatAttention():
            return layer.v_a.weight[0] @ torch.tanh(layer.W_a.weight @ torch.cat([query, key]))
    raise AssertionError(layer)


def inputs(width: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    shapes = [(B, Q, D), (B, K, width), (B, K, V)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def padding() -> torch.Tensor:
    return torch.arange(K) >= torch.tensor([[7], [4]])


@pytest.mark.parametrize("name", ["additive", "dot", "general", "concat"])
@pytest.mark.parametrize("padded", [True, False])
def test_weights_and_contexts_equal_loops(name: str, padded: bool) -> None:
    layer, width = layers()[name]
    query, key, value = inputs(width)
    context, weights = layer(query, key, value, padding() if padded else None)
    for text in range(B):
        kept = [j for j in range(K) if not (padded and padding()[text, j])]
        for i in range(Q):
            exponentials = [math.exp(score(layer, query[text, i], key[text, j]).item()) for j in kept]
            expected = torch.zeros(K, dtype=torch.float64)
            expected[kept] = torch.tensor(exponentials, dtype=torch.float64) / sum(exponentials)
            torch.testing.assert_close(weights[text, i], expected, rtol=0, atol=1e-12)
            torch.testing.assert_close(context[text, i], expected @ value[text], rtol=0, atol=1e-12)
    if padded:
        assert (weights[1, :, 4:] == 0).all()


@pytest.mark.parametrize("name", ["additive", "dot", "general", "concat"])
def test_gradients_are_those_of_the_formula_and_finite_where_all_is_masked(name: str) -> None:
    layer, width = layers()[name]
    query, key, value = (tensor.detach()[:, :3].requires_grad_() for tensor in inputs(width))
    mask = torch.tensor([[False, True, False], [True, True, True]])
    assert torch.autograd.gradcheck(lambda *tensors: layer(*tensors, mask), (query, key, value))
    context, weights = layer(query, key, value, mask)
    assert weights[1].abs().max() == context[1].abs().max() == 0


@pytest.mark.parametrize("name", ["additive", "dot", "general", "concat"])
def test_the_order_of_keys_does_not_matter(name: str) -> None:
    layer, width = layers()[name]
    query, key, value = inputs(width)
    order = torch.randperm(K)
    there, moved = layer(query, key, value), layer(query, key[:, order], value[:, order])
    torch.testing.assert_close(moved[0], there[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(moved[1], there[1][..., order], rtol=0, atol=1e-12)


def test_concat_is_additive_with_both_matrices_side_by_side() -> None:
    additive, concat = layers()["additive"][0], layers()["concat"][0]
    with torch.no_grad():
        concat.W_a.weight.copy_(torch.cat([additive.W_a.weight, additive.U_a.weight], dim=1))
        concat.v_a.weight.copy_(additive.v_a.weight)
    tensors = inputs(W)
    for found, expected in zip(concat(*tensors), additive(*tensors), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_general_with_the_identity_is_dot() -> None:
    general = GeneralAttention(D, D).double()
    nn.init.eye_(general.W_a.weight)
    tensors = inputs(D)
    torch.testing.assert_close(general(*tensors)[1], DotAttention()(*tensors)[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["additive", "dot", "general", "concat"])
def test_what_is_captured_is_what_was_used(name: str) -> None:
    layer, width = layers()[name]
    tensors = inputs(width)
    with capture(layer) as maps:
        _, weights = layer(*tensors, padding())
    torch.testing.assert_close(maps[""][:, 0], weights, rtol=0, atol=0)
    assert maps[""].shape == (B, 1, Q, K)
    with capture(layer, rows=[1]) as maps:
        layer.float()(*(tensor.float() for tensor in tensors))
    assert maps[""].dtype == torch.float32
    assert maps[""].shape == (1, 1, Q, K)
