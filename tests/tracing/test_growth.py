"""Exponents: exact where the work is counted; what is a view grows in nothing."""

import pytest
import torch

from headscope.attention.reference import PackedAttention
from headscope.tracing.cost import COSTS
from headscope.tracing.growth import exponent, grow

LENGTHS = [3, 7, 11, 29]


def test_an_exponent_is_found_whatever_the_factor() -> None:
    for power in (0.0, 0.5, 1.0, 2.0, 3.0):
        assert exponent(LENGTHS, [0.37 * n**power for n in LENGTHS]) == pytest.approx(power, abs=1e-12)


def test_least_squares_are_taken_of_the_logarithms() -> None:
    # Slopes 1, 2 and 2 between powers of ten: by hand, sum of (x - 1.5)(y) over sum of (x - 1.5)².
    assert exponent([1, 10, 100, 1000], [1.0, 10.0, 1000.0, 100000.0]) == pytest.approx(
        (-1.5 * 0 - 0.5 * 1 + 0.5 * 3 + 1.5 * 5) / 5
    )


def test_nothing_has_no_exponent() -> None:
    assert exponent([1, 2], [0, 0]) is None


def test_counted_work_grows_exactly_as_expected() -> None:
    torch.manual_seed(0)
    passes: list[int] = []
    growth = grow(PackedAttention(6, 2), 2, LENGTHS, repeats=1, passed=passes.append)
    assert growth.lengths == tuple(LENGTHS)
    assert passes == [n for n in LENGTHS for _ in range(2)]
    found = {name: exponent(growth.lengths, growth.work(name)) for name in growth.steps}
    moving = ("cut into Q, K, V", "split into heads", "concatenate heads")
    for name, cost in COSTS.items():
        assert found[name] == (None if name in moving else pytest.approx(cost.exponent, abs=1e-12))
        assert growth.is_view(name) == (name in moving[:2])
        assert [step.name for step in growth.steps[name]] == [name] * len(LENGTHS)
    assert [step.inputs[0] for step in growth.steps["softmax"]] == [(2, 2, n, n) for n in LENGTHS]
    assert all(seconds > 0 for name in growth.steps for seconds in growth.seconds(name))
