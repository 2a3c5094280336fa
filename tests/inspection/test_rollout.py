"""Rollout and received mass, by hand."""

import torch

from headscope.inspection.rollout import received, rollout


def test_rollout_of_two_layers_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    second = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    # (A + I) / 2: [[1, 0], [1/4, 3/4]] and [[1/2, 1/2], [0, 1]]; the second times the first
    expected = torch.tensor([[[0.625, 0.375], [0.25, 0.75]]], dtype=torch.float64)
    torch.testing.assert_close(rollout([first[None, None], second[None, None]]), expected, rtol=0, atol=0)


def test_rollout_takes_the_mean_over_heads_and_keeps_rows_summing_to_one() -> None:
    torch.manual_seed(0)
    maps = [torch.randn(3, 4, 5, 5, dtype=torch.float64).softmax(-1) for _ in range(3)]
    found = rollout(maps)
    torch.testing.assert_close(found, rollout([weights.mean(1, keepdim=True) for weights in maps]))
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 5, dtype=torch.float64))


def test_padding_changes_nothing_and_comes_out_as_zero() -> None:
    torch.manual_seed(0)
    short = [torch.randn(2, 3, 4, 4, dtype=torch.float64).softmax(-1) for _ in range(2)]
    padded = [torch.zeros(2, 3, 6, 6, dtype=torch.float64) for _ in range(2)]
    for whole, part in zip(padded, short, strict=True):
        whole[..., 4:, :] = 1 / 6  # what padding looks at
        whole[..., :4, :4] = part
    padding = (torch.arange(6) >= 4).expand(2, -1)
    found = rollout(padded, padding)
    torch.testing.assert_close(found[:, :4, :4], rollout(short), rtol=0, atol=1e-12)
    assert not found[:, 4:].any()
    assert not found[:, :, 4:].any()
    masses = received(padded[0], padding)
    torch.testing.assert_close(masses[..., :4], received(short[0]), rtol=0, atol=1e-12)
    assert not masses[..., 4:].any()


def test_received_mass_is_a_mean_over_queries() -> None:
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    assert received(weights).tolist() == [[[0.75, 0.25]]]
