"""What trace prints is what was computed: the layer's own output, torch's own counts, the shapes of the articles."""

import io

import pytest
import torch
from rich.console import Console
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from headscope.attention.reference import PackedAttention, PaperAttention
from headscope.proof.copy_weights import copy_weights
from headscope.proof.trace import steps, trace, trace_attention, values
from headscope.settings.commands import TraceConfig

B, T, H, E = 2, 5, 3, 7  # primes, so that no shape can be mistaken for another
D = H * E
HIDDEN = torch.arange(T) >= torch.tensor([[5], [3]])


def made(bias: bool = True, H: int = H, E: int = E) -> tuple[PackedAttention, Tensor]:
    torch.manual_seed(0)
    return PackedAttention(H * E, H, bias).double(), torch.randn(B, T, H * E, dtype=torch.float64)


def test_every_shape_is_the_one_that_the_formula_asks_for() -> None:
    done, seconds = trace(*made(), HIDDEN)
    token, square = (B, T, D), (B, H, T, T)
    assert {step.name: (len(step.made), tuple(step.made[0].shape)) for step in done} == {
        "project to Q, K, V": (1, (B, T, 3 * D)),
        "cut into Q, K, V": (3, token),
        "split into heads": (3, (B, H, T, E)),
        **dict.fromkeys(("scores", "scale", "mask", "softmax"), (1, square)),
        "weighted sum": (1, (B, H, T, E)),
        "concatenate heads": (1, token),
        "output projection": (1, token),
    }
    assert min(seconds) > 0


@pytest.mark.parametrize("bias", [True, False])
def test_a_heads_part_is_the_papers_and_the_output_the_layers_own(bias: bool) -> None:
    layer, X = made(bias)
    paper = PaperAttention(D, H, bias).double()
    copy_weights(layer, paper)
    made_by = {step.name: step.made[0] for step in steps(layer, X, HIDDEN)}
    queries, keys = paper.W_Q[0](X), paper.W_K[0](X)  # X W_1^Q and X W_1^K: [B, T, E]
    for found, expected in (
        (made_by["project to Q, K, V"][..., :E], queries),
        (made_by["split into heads"][:, 0], queries),
        (made_by["scores"][:, 0], queries @ keys.transpose(1, 2)),
        (made_by["output projection"], layer(X, X, X, HIDDEN[:, None])[0]),
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    masked = made_by["mask"].masked_select(HIDDEN[:, None, None].expand(B, H, T, T))
    assert torch.isneginf(masked).all()


@pytest.mark.parametrize(("H", "E"), [(3, 7), (1, 1), (5, 2)])
def test_multiply_adds_are_half_of_the_flops_that_torch_counts(H: int, E: int) -> None:
    layer, X = made(H=H, E=E)
    with FlopCounterMode(display=False) as counter:
        layer(X, X, X)
    total = sum(step.multiply_adds for step in steps(layer, X, HIDDEN))
    assert 2 * total == counter.get_total_flops()


def shown(width: int = 200, **options: object) -> str:
    written = io.StringIO()
    config = TraceConfig(**({"device": "cpu", "repeats": 1} | options))
    trace_attention(config, Console(file=written, width=width))
    assert max(map(len, written.getvalue().splitlines())) <= width
    return written.getvalue()


def test_the_table_shows_shapes_values_and_costs() -> None:
    layer, X = made()
    done, _ = trace(layer, X.flip(0), HIDDEN.flip(0))
    found = {step.name: values(step.made[0]) for step in done}
    maps = layer(X, X, X, HIDDEN[:, None])[1][1, 0, 0].tolist()  # the last two keys are padding
    assert found["softmax"] == f"{maps[0]:.2f} {maps[1]:.2f} {maps[2]:.2f} ... 0.00"
    small = shown(batch=2, seq_len=5, d_model=21, num_heads=3, dtype="bfloat16", bias=True)
    assert "bfloat16 on cpu" in small
    assert "1,848 parameters" in small
    printed = shown(140, batch=2)
    assert "B=2, T=100, D=768, H=8, E=96" in printed
    cells = ["(2, 100, 2304)", "3 × (2, 8, 100, 96)", "(2, 8, 100, 100)", "... -inf"]
    for cell in [*cells, "353,894,400", "15,360,000", "2,362,368 parameters", "O(n·d²)"]:
        assert cell in printed, cell
    assert "…" not in shown(80, batch=2, seq_len=5), "a narrow screen folds cells"
