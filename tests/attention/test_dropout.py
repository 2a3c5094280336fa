"""Our dropout: the share dropped, the mean kept, the gradient masked alike."""

import pytest
import torch

from headscope.attention.functional import Dropout, dropped, dropped_levels


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_it_drops_the_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    numbers = torch.ones(1009, 997)
    dropped = Dropout(p)(numbers)
    assert (dropped == 0).double().mean().item() == pytest.approx(p, abs=0.004)
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)
    assert dropped.unique().numel() == 2


def test_every_byte_of_the_random_numbers_is_even() -> None:
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(100_000, 8)) > 0).double().mean(0)
    assert kept.tolist() == pytest.approx([0.5] * 8, abs=0.01)


def test_the_gradient_is_masked_as_the_numbers_are() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(31, 37, requires_grad=True)
    dropped = Dropout(0.3)(numbers)
    dropped.sum().backward()
    torch.testing.assert_close(numbers.grad * numbers, dropped)


def test_nothing_happens_in_eval_mode_or_at_zero() -> None:
    numbers = torch.randn(7, 3)
    assert Dropout(0.5).eval()(numbers) is numbers
    assert Dropout(0.0)(numbers) is numbers


def test_the_seed_decides() -> None:
    layer, numbers = Dropout(0.5), torch.ones(13, 11)
    torch.manual_seed(3)
    first = layer(numbers)
    assert not torch.equal(layer(numbers), first)
    torch.manual_seed(3)
    assert torch.equal(layer(numbers), first)


@pytest.mark.parametrize(("p", "levels"), [(0.0, 0), (0.0015, 1), (0.1, 26), (0.5, 128), (0.9999, 255), (1.0, 256)])
def test_the_share_is_rounded_but_never_to_nothing_or_all(p: float, levels: int) -> None:
    torch.manual_seed(0)
    assert dropped_levels(p) == levels
    assert (dropped(torch.ones(1009, 997), p) == 0).double().mean() == pytest.approx(levels / 256, abs=0.002)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        Dropout(p)


def test_neighbours_have_nothing_to_do_with_each_other() -> None:
    torch.manual_seed(0)
    found = dropped(torch.ones(1_000_000, dtype=torch.float64), 0.5) - 1
    for shift in (1, 2, 8, 64):
        assert abs((found[shift:] * found[:-shift]).mean().item()) < 4e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_stays(dtype: torch.dtype) -> None:
    assert Dropout(0.1)(torch.ones(7, 5, dtype=dtype)).dtype == dtype
