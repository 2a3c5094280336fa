"""Every form of multi-head attention against every other through carried weights, and the scores against loops."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headscope.attention import MultiHeadAttention, SharedProjectionAttention
from headscope.attention.reference import FourLinearAttention, PackedAttention, PaperAttention
from headscope.proof.carry import carry, read, write

B, Q, K, H, E = 2, 5, 7, 3, 11
D = H * E


def per_head(hidden: torch.Tensor | None, query: torch.Tensor, num_heads: int) -> torch.Tensor | None:
    """Return a mask [#B, #Q, K] as torch wants it, [B * H, Q, K]."""
    return None if hidden is None else hidden.expand(*query.shape[:2], -1).repeat_interleave(num_heads, 0)


class Ours(MultiHeadAttention):
    """Our layer with the arguments of the textbook forms."""

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__(d_model, num_heads, bias=bias, batch_first=True)

    def forward(self, query, key, value, hidden=None):  # type: ignore[no-untyped-def]
        mask = per_head(hidden, query, self.num_heads)
        return super().forward(query, key, value, attn_mask=mask, average_attn_weights=False)


class Torchs(nn.MultiheadAttention):
    """torch's layer with the arguments of the textbook forms."""

    def __init__(self, d_model: int, num_heads: int, bias: bool = True) -> None:
        super().__init__(d_model, num_heads, bias=bias, batch_first=True)

    def forward(self, query, key, value, hidden=None):  # type: ignore[no-untyped-def]
        mask = per_head(hidden, query, self.num_heads)
        return super().forward(query, key, value, attn_mask=mask, average_attn_weights=False)


class FourLinear(FourLinearAttention):
    """The form whose mask is the other way around, with the arguments of the others."""

    def forward(self, query, key, value, hidden=None):  # type: ignore[no-untyped-def]
        return super().forward(query, key, value, None if hidden is None else (~hidden).int())


FORMS = [PaperAttention, PackedAttention, FourLinear, Ours, Torchs]


def made(form: type[nn.Module], bias: bool = True, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layer = form(D, H, bias).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(B, length, D, dtype=torch.float64, requires_grad=True) for length in (Q, K, K)]


HIDDEN = {
    "none": None,
    "causal": torch.ones(1, Q, K, dtype=torch.bool).triu(1),
    "padding": (torch.arange(K) >= torch.tensor([[6], [3]]))[:, None],
}


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(FORMS, 2)), ids=lambda form: form.__name__)
@pytest.mark.parametrize("bias", [True, False])
def test_every_form_equals_every_other(source: type[nn.Module], target: type[nn.Module], bias: bool) -> None:
    first, second, tensors = made(source, bias), made(target, bias, seed=2), inputs()
    carry(first, second)
    for hidden in HIDDEN.values():
        results = []
        for layer in (first, second):
            output, weights = layer(*tensors, hidden)
            gradients = torch.autograd.grad(output.sin().sum(), tensors)
            results.append((output, weights, *gradients))
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_carrying_there_and_back_changes_nothing() -> None:
    first = made(PaperAttention)
    second, back = made(Torchs, seed=2), made(PaperAttention, seed=3)
    carry(first, second)
    carry(second, back)
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), back.parameters(), strict=True))


def test_shared_projections_are_block_diagonal_ones() -> None:
    shared, paper, tensors = made_shared(), made(PaperAttention), inputs()
    carry(shared, paper)
    for name, hidden in HIDDEN.items():
        mask = None if hidden is None else hidden if name == "padding" else hidden.expand(B, -1, -1)
        for found, expected in zip(shared(*tensors, attn_mask=mask), paper(*tensors, hidden), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert sum(weight.numel() for weight in shared.parameters()) == 3 * E * E + D * D + D


def made_shared(dropout: float = 0.0) -> SharedProjectionAttention:
    torch.manual_seed(4)
    return SharedProjectionAttention(D, H, dropout).double()


def test_shared_projections_drop_weights_and_outputs_in_training_alone() -> None:
    layer, tensors = made_shared(0.5), inputs()
    output, weights = layer(*tensors)
    assert 0.3 < (output == 0).double().mean() < 0.7
    assert 0.3 < (weights == 0).double().mean() < 0.7
    output, weights = layer.eval()(*tensors)
    assert (output != 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, Q, dtype=torch.float64))
    torch.testing.assert_close(layer(*tensors, need_weights=False)[0], output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
def test_grouped_queries_equal_heads_with_repeated_keys(num_kv_heads: int) -> None:
    torch.manual_seed(5)
    grouped = MultiHeadAttention(42, 6, batch_first=True, num_kv_heads=num_kv_heads, dtype=torch.float64)
    nn.init.normal_(grouped.in_proj_bias)
    full = PaperAttention(42, 6).double()
    carry(grouped, full)
    query, key = (torch.randn(B, length, 42, dtype=torch.float64) for length in (Q, K))
    for tensors in ((query, query, query), (query, key, key)):
        for found, expected in zip(grouped(*tensors, average_attn_weights=False), full(*tensors), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert grouped.in_proj_weight.shape == (42 + 2 * num_kv_heads * 7, 42)


def test_grouped_queries_with_keys_of_their_own_width() -> None:
    layer = MultiHeadAttention(42, 6, batch_first=True, num_kv_heads=2, kdim=13, vdim=17)
    output, weights = layer(torch.randn(B, Q, 42), torch.randn(B, K, 13), torch.randn(B, K, 17))
    assert output.shape == (B, Q, 42)
    assert weights.shape == (B, Q, K)
    assert layer.k_proj_weight.shape == (14, 13)


@pytest.mark.parametrize("num_kv_heads", [0, 4, 7])
def test_groups_that_do_not_divide_are_refused(num_kv_heads: int) -> None:
    with pytest.raises(ValueError, match="divisible by num_kv_heads"):
        MultiHeadAttention(42, 6, num_kv_heads=num_kv_heads)


def test_what_cannot_be_carried_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="Linear"):
        carry(nn.Linear(3, 3), made(PaperAttention))
    with pytest.raises(TypeError, match="SharedProjectionAttention"):
        carry(made(PaperAttention), made_shared())
    with pytest.raises(ValueError, match="bias"):
        carry(made(PaperAttention, bias=False), made(FourLinear))
    with pytest.raises(ValueError, match="other widths"):
        write(nn.MultiheadAttention(D, H, bias=False), read(made(PaperAttention)))
    with pytest.raises(ValueError, match="width of their own"):
        read(nn.MultiheadAttention(D, H, kdim=13))


@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 3]),
    lengths=st.tuples(st.sampled_from([1, 2, 5, 13]), st.sampled_from([1, 3, 7, 17])),
    heads=st.sampled_from([1, 2, 3, 5]),
    width=st.sampled_from([1, 2, 7]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 1000),
)
def test_any_size(batch: int, lengths: tuple[int, int], heads: int, width: int, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    paper = PaperAttention(heads * width, heads).to(dtype)
    query, key = (torch.randn(batch, length, heads * width, dtype=dtype) for length in lengths)
    hidden = torch.rand(batch, lengths[0], lengths[1]) < 0.4
    hidden[..., 0] = False
    for form in (PackedAttention, FourLinear, Ours, Torchs):
        layer = form(heads * width, heads).to(dtype)
        carry(paper, layer)
        for found, expected in zip(layer(query, key, key, hidden), paper(query, key, key, hidden), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


def test_the_four_linear_form_looks_everywhere_where_it_may_look_nowhere() -> None:
    layer, (query, key, value) = made(FourLinear), inputs()
    weights = layer(query, key, value, torch.ones(B, Q, K, dtype=torch.bool))[1]
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / K))
    assert math.isclose(float(weights.detach().sum()), B * H * Q)
