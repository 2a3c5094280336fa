"""Rotary positions: products depend on the distance alone, and equal a rotation by complex numbers."""

import pytest
import torch

from headscope.attention import MultiHeadAttention, RotaryPositions
from headscope.attention.rotary import rotated_in_reals


def test_it_is_a_rotation_of_each_pair() -> None:
    torch.manual_seed(0)
    heads = torch.randn(2, 3, 7, 10)
    turned = RotaryPositions(10, 7)(heads)
    pairs = torch.complex(heads[..., ::2], heads[..., 1::2])
    theta = 10_000.0 ** (-torch.arange(0, 10, 2) / 10)
    expected = pairs * torch.polar(torch.ones(7, 5), torch.arange(7)[:, None] * theta)
    torch.testing.assert_close(turned, torch.view_as_real(expected).flatten(-2))
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))


def test_the_layer_becomes_aware_of_order() -> None:
    torch.manual_seed(0)
    tokens, order = torch.randn(1, 7, 12), torch.randperm(7)
    plain = MultiHeadAttention(12, 3, batch_first=True)
    turned = MultiHeadAttention(12, 3, batch_first=True, rotary=RotaryPositions(4, 7))
    torch.testing.assert_close(plain(*[tokens[:, order]] * 3)[0], plain(*[tokens] * 3)[0][:, order])
    assert not torch.allclose(
        turned(*[tokens[:, order]] * 3)[0], turned(*[tokens] * 3)[0][:, order]
    )


def test_an_odd_width_and_more_tokens_than_were_prepared_are_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        RotaryPositions(5, 7)
    with pytest.raises(ValueError, match="expected at most max_length=7 tokens, got 8"):
        RotaryPositions(4, 7)(torch.randn(1, 2, 8, 4))


def test_its_gradients_are_those_of_small_differences() -> None:
    rotary = RotaryPositions(6, 3).double()
    heads = torch.randn(1, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotary, heads)
    assert torch.autograd.gradgradcheck(rotary, heads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_real_numbers_give_the_same_bits_forward_and_backward(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    heads = torch.randn(3, 70, 4, 32, dtype=dtype).transpose(1, 2).requires_grad_()
    outer = torch.randn(3, 4, 70, 32, dtype=dtype)
    rotary = RotaryPositions(32, 80)
    pairs = heads.transpose(1, 2).unflatten(-1, (-1, 2))
    tables = (rotary.cosine[:70, None].to(dtype), rotary.sine[:70, None].to(dtype))
    real = rotated_in_reals(pairs, *tables).flatten(-2).transpose(1, 2)
    assert torch.equal(real, rotary(heads))
    (of_real,) = torch.autograd.grad(real, heads, outer)
    (of_complex,) = torch.autograd.grad(rotary(heads), heads, outer)
    assert torch.equal(of_real, of_complex)
