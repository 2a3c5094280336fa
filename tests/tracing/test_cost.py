"""Counts agree with torch's own, with the formulas that are printed, and with the shapes."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headscope.attention.reference import PackedAttention
from headscope.tracing.cost import COSTS, MULTIPLY_ADDS, multiply_adds, sizes, value, work
from headscope.tracing.steps import PLAN, Trace, trace

SIZES = [(2, 5, 3, 7), (1, 1, 1, 1), (3, 11, 1, 5), (1, 13, 5, 2)]  # B, T, H, E


def traced(B: int, T: int, H: int, E: int) -> Trace:
    return trace(PackedAttention(H * E, H), torch.randn(B, T, H * E), repeats=1)


@pytest.mark.parametrize(("B", "T", "H", "E"), SIZES)
def test_multiply_adds_are_half_of_the_flops_that_torch_counts(B: int, T: int, H: int, E: int) -> None:
    layer, tokens = PackedAttention(H * E, H), torch.randn(B, T, H * E)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(tokens, tokens, tokens)
    steps = trace(layer, tokens, repeats=1).steps
    assert 2 * sum(map(multiply_adds, steps)) == counter.get_total_flops()
    by_kind = counter.get_flop_counts()["Global"]
    products = [step for step in steps if step.name in ("scores Q·Kᵀ", "weighted sum A·V")]
    assert 2 * sum(map(multiply_adds, products)) == by_kind[torch.ops.aten.bmm]


@pytest.mark.parametrize(("B", "T", "H", "E"), SIZES)
def test_the_printed_formula_gives_what_was_counted(B: int, T: int, H: int, E: int) -> None:
    steps = traced(B, T, H, E).steps
    assert sizes(steps) == {"B": B, "T": T, "D": H * E, "H": H, "E": E}
    for step in steps:
        assert value(COSTS[step.name].formula, sizes(steps)) == work(step)
        assert multiply_adds(step) == (work(step) if COSTS[step.name].unit == MULTIPLY_ADDS else 0)


def test_every_step_has_its_cost_and_the_exponent_of_its_order() -> None:
    assert list(COSTS) == list(PLAN)
    for cost in COSTS.values():
        assert ("n²" in cost.order) == (cost.exponent == 2)


def test_the_value_of_a_formula() -> None:
    symbols = {"B": 2, "T": 5, "D": 7, "H": 3}
    assert value("B·T·3D·D", symbols) == 2 * 5 * 21 * 7
    assert value("B·H·T²", symbols) == 2 * 3 * 25
    assert value("0", symbols) == 0
    with pytest.raises(AssertionError, match="no factor"):
        value("B·t", symbols)
