"""What is recorded is what torch did: shapes, parameters, memory, copies, and the layer's own output."""

from typing import Any

import pytest
import torch

from headscope.attention.reference import FourLinearAttention, PackedAttention
from headscope.tracing.recording import Recorder
from headscope.tracing.steps import PLAN, Trace, against_layer, grouped, trace

B, T, H, E = 2, 5, 3, 7  # primes, so that no shape can be mistaken for another
D = H * E


def traced(layer: PackedAttention, **options: Any) -> Trace:
    torch.manual_seed(0)
    return trace(layer, torch.randn(B, T, D, dtype=layer.out_proj.weight.dtype), repeats=1, **options)


def test_every_shape_is_the_one_that_the_formula_asks_for() -> None:
    steps = {step.name: step for step in traced(PackedAttention(D, H)).steps}
    token, heads, square = (B, T, D), (B, H, T, E), (B, H, T, T)
    assert {name: (step.inputs, step.outputs) for name, step in steps.items()} == {
        "project to Q, K, V": ((token,), ((B, T, 3 * D),)),
        "cut into Q, K, V": (((B, T, 3 * D),), (token,) * 3),
        "split into heads": ((token,) * 3, (heads,) * 3),
        "scores Q·Kᵀ": ((heads, heads), (square,)),
        "scale": ((square,), (square,)),
        "softmax": ((square,), (square,)),
        "weighted sum A·V": ((square, heads), (heads,)),
        "concatenate heads": ((heads,), (token,)),
        "output projection": ((token,), (token,)),
    }
    assert list(steps) == list(PLAN)


def test_new_memory_is_that_of_the_results_and_views_have_none() -> None:
    steps = {step.name: step.new_bytes for step in traced(PackedAttention(D, H)).steps}
    assert steps["cut into Q, K, V"] == steps["split into heads"] == 0
    assert steps["project to Q, K, V"] == 4 * B * T * 3 * D
    assert steps["scores Q·Kᵀ"] == steps["scale"] == steps["softmax"] == 4 * B * H * T**2
    assert steps["weighted sum A·V"] == steps["concatenate heads"] == steps["output projection"] == 4 * B * T * D


def test_one_head_is_concatenated_by_a_view() -> None:
    steps = {step.name: step for step in traced(PackedAttention(D, 1)).steps}
    assert steps["concatenate heads"].new_bytes == 0


@pytest.mark.parametrize("bias", [True, False])
def test_the_parameters_are_those_of_the_module(bias: bool) -> None:
    layer = PackedAttention(D, H, bias)
    seen = sum(step.parameters for step in traced(layer).steps)
    assert seen == sum(parameter.numel() for parameter in layer.parameters())


def test_the_divisor_is_the_root_of_the_width_of_a_head() -> None:
    scale = next(step for step in traced(PackedAttention(D, H)).steps if step.name == "scale")
    assert scale.operations[0].numbers == (pytest.approx(E**0.5),)


def test_rows_of_softmax_sum_to_one_and_the_output_is_the_layers() -> None:
    layer = PackedAttention(D, H).double()
    passes: list[None] = []
    seen = traced(layer, passed=lambda: passes.append(None))
    assert seen.row_sums == (pytest.approx(1, abs=1e-12), pytest.approx(1, abs=1e-12))
    torch.manual_seed(0)
    tokens = torch.randn(B, T, D, dtype=torch.float64)
    assert torch.equal(seen.output, layer(tokens, tokens, tokens)[0])
    assert len(passes) == 2


@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_with_these_weights_gives_the_same(bias: bool) -> None:
    layer = PackedAttention(D, H, bias).double()
    tokens = torch.randn(B, T, D, dtype=torch.float64)
    seen = trace(layer, tokens, repeats=1)
    assert against_layer(layer, tokens, seen.output, repeats=1)[0] < 1e-14
    assert against_layer(layer, tokens, seen.output + 1, repeats=1)[0] == pytest.approx(1)


def test_copies_that_matmul_makes_are_seen_on_request() -> None:
    first, second = torch.randn(B, T, H, E).transpose(1, 2), torch.randn(B, T, H, E).transpose(1, 2).mT
    for watch, copied in ((True, first.nbytes + second.nbytes), (False, 0)):
        with Recorder(torch.device("cpu"), watch_copies=watch) as recorder:
            first @ second
        assert [operation.copied_bytes for operation in recorder.operations] == [copied]


def test_a_copy_that_is_the_result_is_new_memory_and_no_copy_on_the_way() -> None:
    tokens = torch.randn(T, D)
    with Recorder(torch.device("cpu"), watch_copies=True) as recorder:
        tokens.clone()
        tokens[1:].shape  # noqa: B018 reading a shape is no operation, slicing is one
    assert [(each.new_bytes, each.copied_bytes) for each in recorder.operations] == [(tokens.nbytes, 0), (0, 0)]


def test_a_layer_that_computes_otherwise_is_refused() -> None:
    layer, tokens = FourLinearAttention(D, H), torch.randn(B, T, D)
    with Recorder(tokens.device) as recorder:
        layer(tokens, tokens, tokens)
    with pytest.raises(ValueError, match="the steps are known for linear, chunk"):
        list(grouped(recorder.operations))
