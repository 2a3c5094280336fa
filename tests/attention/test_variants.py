"""Additive and multiplicative attention beyond what verify checks; shared projections."""

import re

import pytest
import torch
from torch import Tensor, nn

from headscope.attention import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    GeneralAttention,
    SharedProjectionAttention,
)
from headscope.attention.variants import ScoredAttention

B, Q, K, D, W, V, A = 2, 5, 7, 11, 13, 17, 3
PADDING = torch.arange(K) >= torch.tensor([[7], [4]])
NAMES = ["additive", "dot", "general", "concat"]


def made(name: str) -> tuple[ScoredAttention, list[Tensor]]:
    """Return a layer, and query, key and value for it."""
    torch.manual_seed(0)
    layer = {
        "additive": lambda: AdditiveAttention(D, W, A),
        "dot": DotAttention,
        "general": lambda: GeneralAttention(D, W),
        "concat": lambda: ConcatAttention(D, W, A),
    }[name]().double()
    shapes = [(B, Q, D), (B, K, D if name == "dot" else W), (B, K, V)]
    return layer, [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_key_gets_exactly_0_and_the_order_of_keys_does_not_matter(name: str) -> None:
    """`headscope verify` compares weights and contexts with loops."""
    layer, (query, key, value) = made(name)
    context, weights = layer(query, key, value, PADDING)
    assert weights.masked_select(PADDING[:, None].expand_as(weights)).count_nonzero() == 0
    order = torch.randperm(K)
    moved = layer(query, key[:, order], value[:, order], PADDING[:, order])
    close(moved[0], context)
    close(moved[1], weights[..., order])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_formula_and_finite_where_all_is_masked(name: str) -> None:
    layer, tensors = made(name)
    tensors = tuple(tensor.detach()[:, :2].requires_grad_() for tensor in tensors)
    mask = torch.tensor([[False, True], [True, True]])
    assert torch.autograd.gradcheck(lambda *tensors: layer(*tensors, mask), tensors)
    context, weights = layer(*tensors, mask)
    assert weights[1].abs().max() == context[1].abs().max() == 0


def test_concat_is_additive_with_matrices_side_by_side_and_general_with_the_identity_dot() -> None:
    (additive, tensors), (concat, _), (dot, same) = made("additive"), made("concat"), made("dot")
    with torch.no_grad():
        concat.W_a.weight.copy_(torch.cat([additive.W_a.weight, additive.U_a.weight], dim=1))
        concat.v_a.weight.copy_(additive.v_a.weight)
    for found, expected in zip(concat(*tensors), additive(*tensors), strict=True):
        close(found, expected)
    general = GeneralAttention(D, D).double()
    nn.init.eye_(general.W_a.weight)
    close(general(*same)[1], dot(*same)[1])


@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_go_together_raises_an_error_with_all_shapes() -> None:
    layer, (query, key, value) = made("additive")
    for wrong in (
        (query, key, value[:, :4]),
        (query, key[:1], value[:1]),
        (query[:1], key, value),
        (query, key, value[0]),
    ):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in wrong)
        with pytest.raises(ValueError, match=re.escape(f"got {shapes}")):
            layer(*wrong)
    for mask in (PADDING[:, :4], PADDING[:1], PADDING[:, None], PADDING.int()):
        with pytest.raises(ValueError, match="key_padding_mask: expected"):
            layer(query, key, value, mask)


def test_shared_projections_drop_weights_and_outputs_in_training_alone() -> None:
    torch.manual_seed(4)
    layer, H, E = SharedProjectionAttention(33, 3, dropout=0.5).double(), 3, 11
    query, key, value = (torch.randn(B, length, H * E, dtype=torch.float64) for length in (Q, K, K))
    assert sum(weight.numel() for weight in layer.parameters()) == 3 * E * E + 33 * 33 + 33
    output, weights = layer(query, key, value)
    assert 0.3 < (output == 0).double().mean() < 0.7
    assert 0.3 < (weights == 0).double().mean() < 0.7
    output, weights = layer.eval()(query, key, value)
    assert (output != 0).all()
    close(weights.sum(-1), torch.ones(B, H, Q, dtype=torch.float64))
    close(layer(query, key, value, need_weights=False)[0], output)
