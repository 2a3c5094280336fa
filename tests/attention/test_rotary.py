"""Rotary positions: products depend on the distance alone, and equal a rotation by complex numbers."""

import pytest
import torch

from headscope.attention import MultiHeadAttention, RotaryPositions, SharedProjectionAttention, attention_weights
from headscope.attention.heads import HeadedAttention


def test_it_is_a_rotation_of_each_pair() -> None:
    torch.manual_seed(0)
    heads = torch.randn(2, 3, 7, 10)
    turned = RotaryPositions(10, 7)(heads)
    pairs = torch.complex(heads[..., ::2], heads[..., 1::2])
    theta = 10_000.0 ** (-torch.arange(0, 10, 2) / 10)
    expected = pairs * torch.polar(torch.ones(7, 5), torch.arange(7)[:, None] * theta)
    torch.testing.assert_close(turned, torch.view_as_real(expected).flatten(-2))
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))


@pytest.mark.parametrize("make", [MultiHeadAttention, SharedProjectionAttention])
@pytest.mark.parametrize("is_one", [True, False])
def test_in_a_layer_the_halves_of_a_head_are_its_pairs(make: type[HeadedAttention], is_one: bool) -> None:
    torch.manual_seed(0)
    rotary, text, seen = RotaryPositions(6, 7), torch.randn(2, 7, 12), []
    layer = make(12, 2, **({"batch_first": True} if make is MultiHeadAttention else {}))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    layer.observer, layer.rotary = lambda pass_: seen.append(pass_.weights()), rotary
    if make is MultiHeadAttention:
        made = text @ layer.in_proj_weight.mT + layer.in_proj_bias  # [B, T, 3D]
        query, key = made[..., :24].unflatten(-1, (4, 6)).transpose(1, 2).chunk(2, dim=1)  # [B, H, T, E]
    else:
        query, key = (linear(text.unflatten(-1, (2, 6))).transpose(1, 2) for linear in (layer.queries, layer.keys))
    keys = text if is_one else text.clone()
    layer(text, keys, keys, need_weights=False)

    def halves(heads: torch.Tensor) -> torch.Tensor:
        first, second = heads.chunk(2, dim=-1)
        cosine, sine = rotary.cosine, rotary.sine
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)

    torch.testing.assert_close(seen[0], attention_weights(halves(query), halves(key)))


def test_a_product_depends_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(6), torch.randn(6)
    rotary = RotaryPositions(6, 40)
    queries, keys = (rotary(vector.expand(1, 1, 40, 6))[0, 0] for vector in (query, key))
    torch.testing.assert_close(queries[3] @ keys[5], queries[30] @ keys[32])
    assert not torch.isclose(queries[3] @ keys[5], queries[3] @ keys[9])


def test_the_layer_becomes_aware_of_order() -> None:
    torch.manual_seed(0)
    tokens, order = torch.randn(1, 7, 12), torch.randperm(7)
    plain = MultiHeadAttention(12, 3, batch_first=True)
    turned = MultiHeadAttention(12, 3, batch_first=True, rotary=RotaryPositions(4, 7))
    torch.testing.assert_close(plain(*[tokens[:, order]] * 3)[0], plain(*[tokens] * 3)[0][:, order])
    assert not torch.allclose(turned(*[tokens[:, order]] * 3)[0], turned(*[tokens] * 3)[0][:, order])


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        RotaryPositions(5, 7)


def test_its_gradients_are_those_of_small_differences() -> None:
    rotary = RotaryPositions(6, 5).double()
    heads = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotary, heads)
    assert torch.autograd.gradgradcheck(rotary, heads)
