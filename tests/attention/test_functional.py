"""Gradients of the formula and of the fused kernel, masks, and our dropout; `headscope verify` has the loops."""

import pytest
import torch

from headscope.attention import attend, attention_weights
from headscope.attention.functional import (
    Dropout,
    apply_dropout,
    causal_mask,
    merge_masks,
    window_mask,
)

B, H, Q, K, E, V = 2, 3, 5, 7, 11, 13


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return tuple(
        torch.randn(B, H, length, width, dtype=torch.float64)
        for length, width in ((Q, E), (K, E), (K, V))
    )


def test_gradients_are_those_of_the_formula() -> None:
    heads = tuple(tensor[:1, :1, :3, :4].clone().requires_grad_() for tensor in drawn())
    mask = torch.tensor([[[[False, False, True]]]])
    assert torch.autograd.gradcheck(
        lambda query, key, value: attention_weights(query, key, mask) @ value, heads
    )
    assert torch.autograd.gradcheck(lambda *heads: attend(*heads, mask), heads)


def test_masks_are_merged_as_torch_means_them() -> None:
    shape, padding = (B, H, Q, K), torch.arange(K) >= torch.tensor([[7], [4]])
    assert merge_masks(shape) is None
    look = torch.ones(Q, K, dtype=torch.bool).triu(1)
    merged = merge_masks(shape, padding, look)
    assert merged.dtype == torch.bool
    assert torch.equal(merged, padding[:, None, None] | look[None, None])
    numbers = merge_masks(shape, padding, torch.full((Q, K), 0.5))
    assert torch.equal(numbers[0, 0], torch.full((Q, K), 0.5))
    assert torch.isneginf(numbers[1, ..., 4:]).all()
    per_head = torch.rand(B * H, Q, K) < 0.5
    assert torch.equal(merge_masks(shape, None, per_head)[1, 2], per_head[1 * H + 2])
    fits = torch.zeros(1, H, Q, 1, dtype=torch.bool)
    assert merge_masks(shape, attn_mask=fits) is fits
    message = r"attn_mask: expected \[2, 3, 5, 7\], got \[2, 1, 7, 11\]"
    with pytest.raises(ValueError, match=message):
        merge_masks(shape, attn_mask=torch.zeros(2, 1, 7, 11, dtype=torch.bool))


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_kernel_is_never_asked_to_read_beyond_the_end() -> None:
    query, key, value = drawn()
    names = r"query \[B, H, Q, E\], key \[B, H, K, E\], value \[B, H, K, V\]; got"
    for wrong in ((query, key, value[:, :, :3]), (query, key[:, :, :3], value), (query, key[:1], value[:1]),
                  (query, key[:, :1], value[:, :1]), (query, key[..., :3], value), (query[0], key[0], value[0])):  # fmt: skip
        with pytest.raises(ValueError, match=names):
            attend(*wrong)
    message = r"mask: expected a shape that broadcasts to \[1, 3, 5, 7\], got \[4, 1, 5, 7\]"
    with pytest.raises(ValueError, match=message):
        attention_weights(query[:1], key[:1], torch.zeros(4, 1, Q, K, dtype=torch.bool))


def test_causal_and_window_masks_hide_what_is_later_and_what_is_far() -> None:
    assert causal_mask(3, 4)[0, 0].tolist() == [[j > i for j in range(4)] for i in range(3)]
    assert window_mask(3, 4, 1)[0, 0].tolist() == [
        [abs(i - j) > 1 for j in range(4)] for i in range(3)
    ]


def test_every_byte_is_used_and_neighbours_are_independent() -> None:
    torch.manual_seed(0)
    found = apply_dropout(torch.ones(1_000_000, dtype=torch.float64), 0.5) - 1
    assert (found > 0).double().view(-1, 8).mean(0).tolist() == pytest.approx([0.5] * 8, abs=0.01)
    for shift in (1, 2, 8, 64):
        assert abs((found[shift:] * found[:-shift]).mean().item()) < 4e-3


def test_the_seed_decides_the_type_stays_and_eval_mode_drops_nothing() -> None:
    layer, numbers = Dropout(0.5), torch.ones(13, 11, dtype=torch.bfloat16)
    torch.manual_seed(3)
    first = layer(numbers)
    assert first.dtype == torch.bfloat16
    assert not torch.equal(layer(numbers), first)
    torch.manual_seed(3)
    assert torch.equal(layer(numbers), first)
    assert layer.eval()(numbers) is numbers
    assert Dropout(0.0)(numbers) is numbers


@pytest.mark.parametrize(
    ("p", "dropped_share"),
    [(0.1, 26 / 256), (0.5, 0.5), *((p, p) for p in (0.0, 0.0015, 0.006, 0.9985, 0.9999, 1.0))],
)
def test_the_share_is_rounded_by_less_than_a_tenth_the_mean_stays_and_the_gradient_is_masked_alike(
    p: float, dropped_share: float
) -> None:
    torch.manual_seed(0)
    numbers = torch.ones(1009, 997, dtype=torch.float64, requires_grad=True)
    found = apply_dropout(numbers, p)
    found.sum().backward()
    error = 4 * (dropped_share * (1 - dropped_share) / found.numel()) ** 0.5  # four standard errors
    assert (found == 0).double().mean().item() == pytest.approx(dropped_share, abs=error)
    torch.testing.assert_close(numbers.grad, found.detach())
    if p < 1:
        assert found.max().item() == pytest.approx(1 / (1 - dropped_share))
