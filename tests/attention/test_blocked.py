"""Attention by blocks against torch's kernel and the formula, in float64, and its dropout against its own mask."""

import math

import pytest
import torch
import torch.nn.functional as F

from headscope.attention import attend, attention_weights, blocked
from headscope.attention.blocked import blocked_attention
from headscope.attention.dropout import dropped_levels, kept, scale, words_for
from headscope.attention.functional import as_numbers, pays_in_blocks
from headscope.attention.masks import causal_mask

B, H, Q, K, E, V = 5, 3, 7, 11, 13, 17
HIDDEN = torch.arange(K) >= torch.tensor([3, 11, 7, 1, 5])[:, None]  # keys of each text that nobody may look at
MASKS = {
    "none": None,
    "padding": HIDDEN[:, None, None],
    "causal": causal_mask(Q, K),
    "numbers": torch.randn(1, H, Q, K, generator=torch.Generator().manual_seed(1)),
    "a row of nothing": torch.zeros(B, 1, Q, K, dtype=torch.bool).index_fill(2, torch.tensor([2]), True),
    "a text of nothing": torch.zeros(B, 1, 1, K, dtype=torch.bool).index_fill(0, torch.tensor([4]), True),
}


def drawn(dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    shapes = ((Q, E), (K, E), (K, V))
    return [
        torch.randn(B, length, H, width, generator=random, dtype=torch.float64)
        .to(dtype)
        .transpose(1, 2)
        .requires_grad_()
        for length, width in shapes
    ]


@pytest.fixture(params=[1, 2, 5], ids=lambda texts: f"{texts} texts a block")
def texts_in_a_block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(blocked, "BLOCK", request.param * H * Q * K * torch.float64.itemsize)
    return request.param


@pytest.fixture(params=[True, False], ids=["weights kept", "weights made again"])
def are_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(blocked, "KEPT", 0)


@pytest.fixture(params=[blocked.LANES, 4], ids=["few keys", "keys added"])
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return what the number of keys becomes a multiple of, if they are at least twice as many."""
    monkeypatch.setattr(blocked, "LANES", request.param)
    return request.param


def outcome(output: torch.Tensor, heads: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(2)
    gradient = torch.randn(output.shape, generator=random, dtype=torch.float64).to(output.dtype)
    return output, *torch.autograd.grad(output, heads, gradient)


@pytest.mark.usefixtures("are_kept", "lanes")
@pytest.mark.parametrize("name", [*MASKS])
def test_output_and_gradients_are_those_of_the_fused_kernel(name: str, texts_in_a_block: int) -> None:
    heads, mask = drawn(), MASKS[name]
    numbers = None if mask is None else as_numbers(mask, torch.float64)
    ours = outcome(blocked_attention(*heads, numbers), heads)
    fused = outcome(F.scaled_dot_product_attention(*heads, attn_mask=numbers), heads)
    torch.testing.assert_close(ours, fused, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("are_kept")
@pytest.mark.parametrize("name", [*MASKS])
def test_dropout_is_the_formula_with_the_mask_that_was_drawn(
    name: str, texts_in_a_block: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = K if 2 * lanes > K else -(-K // lanes) * lanes
    monkeypatch.setattr(blocked, "BLOCK", texts_in_a_block * H * Q * width * torch.float64.itemsize)
    heads, mask, levels = drawn(), MASKS[name], dropped_levels(0.3)
    monkeypatch.setattr(blocked, "drawn_seed", lambda: 42)
    ours = outcome(blocked_attention(*heads, None if mask is None else as_numbers(mask, torch.float64), 0.3), heads)
    words = words_for(texts_in_a_block * H * Q * width)
    masks = [
        kept((min(texts_in_a_block, B - first), H, Q, width), levels, 42, number * words)[..., :K]
        for number, first in enumerate(range(0, B, texts_in_a_block))
    ]
    weights = attention_weights(heads[0], heads[1], mask) * torch.cat(masks) * scale(levels)
    torch.testing.assert_close(ours, outcome(weights @ heads[2], heads), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("are_kept")
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_backward_pass_can_be_run_again(dropout: float) -> None:
    heads = drawn()
    output = blocked_attention(*heads, None, dropout)
    first = torch.autograd.grad(output, heads, torch.ones_like(output), retain_graph=True)
    second = torch.autograd.grad(output, heads, torch.ones_like(output))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.usefixtures("are_kept")
def test_gradients_are_those_of_small_differences() -> None:
    heads = [tensor[:2, :1, :3, :4].detach().clone().requires_grad_() for tensor in drawn()]
    numbers = torch.tensor([0.3, -math.inf, 0.0], dtype=torch.float64)[None, None, None]
    assert torch.autograd.gradcheck(lambda *heads: blocked_attention(*heads, numbers), heads)


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    query, key = torch.zeros(2, 3, 101, 7), torch.zeros(2, 3, 1009, 7)
    value = torch.ones(2, 3, 1009, 1)
    output = blocked_attention(query, key, value, None, 0.1)
    assert output.mean().item() == pytest.approx(1, abs=2e-3)
    assert output.std().item() == pytest.approx(math.sqrt(0.1 / 0.9 / 1009), rel=0.1)


def test_the_seed_decides_about_dropout() -> None:
    heads = drawn()
    torch.manual_seed(3)
    first, second = blocked_attention(*heads, None, 0.5), blocked_attention(*heads, None, 0.5)
    torch.manual_seed(3)
    assert torch.equal(blocked_attention(*heads, None, 0.5), first)
    assert not torch.equal(second, first)


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_stays_near_float64(dtype: torch.dtype) -> None:
    heads, numbers = drawn(dtype), as_numbers(HIDDEN[:, None, None], torch.float32)
    ours = outcome(blocked_attention(*heads, numbers), heads)
    exact = drawn()
    expected = outcome(F.scaled_dot_product_attention(*exact, attn_mask=numbers.double()), exact)
    assert_near(ours, expected, dtype)


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_with_dropout_too(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "drawn_seed", lambda: 42)
    heads, numbers = drawn(dtype), as_numbers(HIDDEN[:, None, None], torch.float32)
    ours = outcome(blocked_attention(*heads, numbers, 0.3), heads)
    exact = drawn()  # whose dropout is held against the formula above
    assert_near(ours, outcome(blocked_attention(*exact, numbers, 0.3), exact), dtype)


def assert_near(ours: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], dtype: torch.dtype) -> None:
    bound = 64 * torch.finfo(dtype).eps
    for mine, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine.double(), wanted, rtol=bound, atol=bound)


def test_blocks_are_chosen_in_training_on_a_cpu_where_torch_is_slow() -> None:
    query = torch.randn(1, 1, 3, 5)
    trained, half = query.clone().requires_grad_(), query.bfloat16().requires_grad_()
    assert not pays_in_blocks(query, None, 0.1)  # nothing is trained
    assert not pays_in_blocks(trained, None, 0.0)
    assert pays_in_blocks(trained, None, 0.1)
    assert pays_in_blocks(half, None, 0.0)
    assert not pays_in_blocks(half, torch.zeros(1, 1, 3, 3, requires_grad=True), 0.0)  # blocks give masks no gradient
    with torch.no_grad():
        assert not pays_in_blocks(half, None, 0.0)


def test_the_layer_can_do_without_either_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = drawn(torch.bfloat16)
    fast = outcome(attend(*heads, HIDDEN[:, None, None]), heads)
    monkeypatch.setattr("headscope.attention.functional.pays_in_blocks", lambda *_: False)
    plain = outcome(attend(*heads, HIDDEN[:, None, None]), heads)
    torch.testing.assert_close(fast, plain, rtol=0.05, atol=0.05)
