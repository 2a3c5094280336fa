"""The formula against loops written out, and the fused kernel against the formula."""

import math

import pytest
import torch

from headscope.attention import attend, attention_weights
from headscope.attention.functional import causal_mask, masked_softmax, merge_masks, window_mask

B, H, Q, K, E, V = 2, 3, 5, 7, 11, 13


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return tuple(torch.randn(B, H, length, width, dtype=torch.float64) for length, width in ((Q, E), (K, E), (K, V)))


def test_weights_and_sums_equal_loops_over_every_index() -> None:
    query, key, value = drawn()
    weights, output = attention_weights(query, key), attend(query, key, value)
    for b, h, i in torch.cartesian_prod(torch.arange(B), torch.arange(H), torch.arange(Q)).tolist():
        scores = [sum((query[b, h, i, e] * key[b, h, j, e]).item() for e in range(E)) / math.sqrt(E) for j in range(K)]
        shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        torch.testing.assert_close(weights[b, h, i].tolist(), shares, rtol=0, atol=1e-12)
        expected = [sum(shares[j] * value[b, h, j, v].item() for j in range(K)) for v in range(V)]
        torch.testing.assert_close(output[b, h, i].tolist(), expected, rtol=0, atol=1e-12)


def test_masked_keys_get_exactly_nothing_and_rows_sum_to_one() -> None:
    query, key, _ = drawn()
    mask = torch.rand(B, 1, Q, K) < 0.5
    mask[..., 0] = False
    weights = attention_weights(query, key, mask)
    assert weights.masked_select(mask.expand_as(weights)).abs().max() == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, Q, dtype=torch.float64))


def test_the_order_of_keys_does_not_matter() -> None:
    query, key, value = drawn()
    order = torch.randperm(K)
    torch.testing.assert_close(attend(query, key[:, :, order], value[:, :, order]), attend(query, key, value))


def test_gradients_are_those_of_the_formula() -> None:
    query, key, value = (tensor[:1, :1, :3, :4].clone().requires_grad_() for tensor in drawn())
    mask = torch.tensor([[[[False, False, True]]]])
    assert torch.autograd.gradcheck(
        lambda *heads: attention_weights(heads[0], heads[1], mask) @ heads[2], (query, key, value)
    )
    assert torch.autograd.gradcheck(lambda *heads: attend(*heads, mask), (query, key, value))


def test_masks_are_merged_as_torch_means_them() -> None:
    assert merge_masks((B, H, Q, K)) is None
    padding = torch.zeros(B, K, dtype=torch.bool)
    padding[1, 4:] = True
    look = torch.ones(Q, K, dtype=torch.bool).triu(1)
    merged = merge_masks((B, H, Q, K), padding, look)
    assert merged.dtype == torch.bool
    assert torch.equal(merged, padding[:, None, None] | look[None, None])
    numbers = merge_masks((B, H, Q, K), padding, torch.full((Q, K), 0.5))
    assert torch.equal(numbers[0, 0], torch.full((Q, K), 0.5))
    assert torch.isneginf(numbers[1, ..., 4:]).all()
    per_head = torch.rand(B * H, Q, K) < 0.5
    assert torch.equal(merge_masks((B, H, Q, K), None, per_head)[1, 2], per_head[1 * H + 2])


def test_the_causal_mask_hides_what_comes_later() -> None:
    assert causal_mask(3, 3)[0, 0].tolist() == [[False, True, True], [False, False, True], [False, False, False]]


def test_the_window_hides_what_is_far() -> None:
    expected = [[abs(i - j) > 1 for j in range(4)] for i in range(3)]
    assert window_mask(3, 4, 1)[0, 0].tolist() == expected


def test_the_softmax_of_scores_leaves_masked_keys_out() -> None:
    scores = torch.tensor([[[[1.0, 2.0, 1000.0]]]])
    weights = masked_softmax(scores.clone(), torch.tensor([[[[False, False, True]]]]))
    torch.testing.assert_close(weights[0, 0, 0, :2], torch.tensor([1.0, 2.0]).softmax(0))
    assert weights[0, 0, 0, 2] == 0
    torch.testing.assert_close(masked_softmax(scores.clone()), scores.softmax(-1))


def test_a_mask_of_four_dimensions_is_checked_too() -> None:
    shape = (2, 3, 5, 11)
    with pytest.raises(ValueError, match=r"attn_mask takes \[2, 3, 5, 11\], got \[2, 1, 7, 11\]"):
        merge_masks(shape, attn_mask=torch.zeros(2, 1, 7, 11, dtype=torch.bool))
    fits = torch.zeros(1, 3, 5, 1, dtype=torch.bool)
    assert merge_masks(shape, attn_mask=fits) is fits
