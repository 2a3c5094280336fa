"""Our dropout: the share dropped, the mean kept, the gradient masked alike."""

import pytest
import torch

from headscope.attention.dropout import Dropout, kept, random_words, signs


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


def test_the_random_numbers_are_those_of_the_published_generator() -> None:
    # The first outputs of SplitMix64 for the seed 1234567, as implementations in other languages print them.
    published = [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip
    assert [number % 2**64 for number in random_words(5, 1234567).tolist()] == published
    assert torch.equal(random_words(3, 1234567, start=2), random_words(5, 1234567)[2:])


@pytest.mark.parametrize("levels", [1, 26, 127, 128, 129, 200, 255])
def test_a_byte_decides_about_an_element(levels: int) -> None:
    bytes_ = random_words(4096, 7).view(torch.uint8)
    assert torch.equal(kept((4096 * 8,), levels, 7), (bytes_ >= levels).to(torch.uint8))


def test_neighbours_and_seeds_have_nothing_to_do_with_each_other() -> None:
    first, second = (kept((1_000_000,), 128, seed).double() - 0.5 for seed in (1, 2))
    for shift in (1, 2, 8, 64):
        assert abs((first[shift:] * first[:-shift]).mean().item()) < 1e-3
    assert abs((first * second).mean().item()) < 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_stays(dtype: torch.dtype) -> None:
    assert Dropout(0.1)(torch.ones(7, 5, dtype=dtype)).dtype == dtype


def test_signs_are_negative_where_an_element_is_dropped() -> None:
    shape = (5, 7, 11)
    expected = kept(shape, 77, 42, 3).int() * 2 - 1
    assert torch.equal(signs(shape, 77, 42, 3).int(), expected)
