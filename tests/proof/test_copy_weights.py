"""Every form of multi-head attention equals every other through carried weights."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, SharedProjectionAttention
from headscope.attention.reference import FourLinearAttention, PackedAttention, PaperAttention
from headscope.proof.copy_weights import copy_weights, read_weights, write_weights

B, Q, K, H, E = 2, 5, 7, 3, 11
D = H * E
FORMS = [
    PaperAttention,
    PackedAttention,
    FourLinearAttention,
    MultiHeadAttention,
    nn.MultiheadAttention,
]


def made(
    form: type[nn.Module], bias: bool = True, seed: int = 0, D: int = D, H: int = H
) -> nn.Module:
    torch.manual_seed(seed)
    options = {"batch_first": True} if form in FORMS[3:] else {}
    layer = form(
        D, H, **({} if form is SharedProjectionAttention else {"bias": bias}), **options
    ).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


def run(
    layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return output and weights of each head; `hidden`, of two to four dimensions, is given as each form takes it."""
    if isinstance(layer, PaperAttention | PackedAttention):
        return layer(query, key, value, hidden)
    if isinstance(layer, FourLinearAttention):
        return layer(query, key, value, None if hidden is None else (~hidden).int())
    mask = hidden if hidden is None or hidden.dim() != 3 else hidden[:, None]
    if isinstance(layer, SharedProjectionAttention):
        return layer(query, key, value, attn_mask=mask)
    if mask is not None:  # [B * H, Q, K]
        mask = mask.expand(len(query), layer.num_heads, query.shape[1], key.shape[1]).flatten(0, 1)
    return layer(query, key, value, attn_mask=mask, average_attn_weights=False)


def inputs() -> list[Tensor]:
    torch.manual_seed(1)
    return [
        torch.randn(B, length, D, dtype=torch.float64, requires_grad=True) for length in (Q, K, K)
    ]


def close(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


MASKS = [
    None,
    torch.ones(1, Q, K, dtype=torch.bool).triu(1),
    (torch.arange(K) >= torch.tensor([[6], [3]]))[:, None],
    torch.ones(Q, K, dtype=torch.bool).triu(1),
    (torch.arange(K) >= torch.tensor([[6], [3]]))[:, None, None],
    torch.arange(B * H * Q * K).view(B, H, Q, K) % 5 == 3,
]


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations(FORMS, 2)), ids=lambda form: form.__name__
)
@pytest.mark.parametrize("bias", [True, False])
def test_every_form_equals_every_other_and_weights_come_back(
    source: type[nn.Module], target: type[nn.Module], bias: bool
) -> None:
    first, second, back, tensors = (
        made(source, bias),
        made(target, bias, 2),
        made(source, bias, 3),
        inputs(),
    )
    copy_weights(first, second)
    for hidden in MASKS:
        results = []
        for layer in (first, second):
            output, weights = run(layer, *tensors, hidden)
            results.append((output, weights, *torch.autograd.grad(output.sin().sum(), tensors)))
        close(*results)
    copy_weights(second, back)
    assert all(
        torch.equal(*pair) for pair in zip(first.parameters(), back.parameters(), strict=True)
    )


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float64])
@pytest.mark.parametrize(
    "shape", [(Q, K), (1, K), (B, Q, K), (B, 1, K), (B, 1, Q, K), (B, 1, 1, K), (B, H, Q, K)]
)
def test_the_four_linear_form_reads_ones_and_zeros_of_every_shape_and_type(
    shape: tuple[int, ...], kind: torch.dtype
) -> None:
    torch.manual_seed(4)
    form, tensors = made(FourLinearAttention), inputs()
    hidden = torch.rand(shape) < 0.5
    hidden[..., 0] = False
    output, weights = form(*tensors, (~hidden).to(kind))
    four = hidden[:, None] if len(shape) == 3 else hidden
    assert output.shape == (B, Q, D)
    assert weights[four.expand(B, H, Q, K)].count_nonzero() == 0
    oracle = made(nn.MultiheadAttention)
    copy_weights(form, oracle)
    close((output, weights), run(oracle, *tensors, four))


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("shape", [(K,), (Q, K + 1), (3, Q, K), (B, 2, Q, K), (1, 1, B, Q, K)])
def test_a_mask_that_does_not_fit_the_scores_is_refused(
    form: type[nn.Module], shape: tuple[int, ...]
) -> None:
    mask = torch.zeros(shape, dtype=torch.bool)
    with pytest.raises(
        ValueError,
        match=rf"broadcasts to \[2, 3, 5, 7\], got \[{', '.join(map(str, shape))}\]",
    ):
        made(form)(*inputs(), mask)


def test_a_mask_of_numbers_to_add_is_not_read_as_ones_and_zeros() -> None:
    with pytest.raises(ValueError, match="expected 1 where a query attends to a key, else 0"):
        made(FourLinearAttention)(
            *inputs(), torch.zeros(Q, K).masked_fill(torch.ones(Q, K).triu(1) == 1, -torch.inf)
        )


@pytest.mark.parametrize("form", [*FORMS[:4], SharedProjectionAttention])
@pytest.mark.usefixtures("unchecked_shapes")
def test_keys_and_values_of_different_lengths_or_batches_are_refused(form: type[nn.Module]) -> None:
    layer, (query, key, value) = made(form), inputs()
    for wrong in (
        (query, key, value[:, :4]),
        (query, key[:, :4], value),
        (query, key[:1], value[:1]),
        (query[:1], key, value),
    ):
        shapes = (
            ", ".join(str(list(tensor.shape)) for tensor in wrong)
            .replace("[", r"\[")
            .replace("]", r"\]")
        )
        with pytest.raises(ValueError, match=f"got {shapes}"):
            layer(*wrong)


def test_shared_projections_are_block_diagonal_ones() -> None:
    shared, paper, tensors = made(SharedProjectionAttention), made(PaperAttention), inputs()
    copy_weights(shared, paper)
    for hidden in MASKS:
        close(run(shared, *tensors, hidden), run(paper, *tensors, hidden))
    query, key, value = tensors
    close(
        shared(query, key, value, attn_mask=MASKS[2]), run(paper, *tensors, MASKS[2])
    )  # [B, 1, K], as it is
    hidden = MASKS[3].expand(B, Q, K)
    close(shared(query, key, value, attn_mask=hidden), run(paper, *tensors, hidden))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
def test_grouped_queries_equal_heads_with_repeated_keys(num_kv_heads: int) -> None:
    torch.manual_seed(5)
    grouped = MultiHeadAttention(
        42, 6, batch_first=True, num_kv_heads=num_kv_heads, dtype=torch.float64
    )
    nn.init.normal_(grouped.in_proj_bias)
    full = made(PaperAttention, D=42, H=6)
    copy_weights(grouped, full)
    query, key = (torch.randn(B, length, 42, dtype=torch.float64) for length in (Q, K))
    for tensors in ((query, query, query), (query, key, key)):
        close(grouped(*tensors, average_attn_weights=False), full(*tensors))
    assert grouped.in_proj_weight.shape == (42 + 2 * num_kv_heads * 7, 42)
    own = MultiHeadAttention(42, 6, batch_first=True, num_kv_heads=num_kv_heads, kdim=13, vdim=17)
    output, weights = own(torch.randn(B, Q, 42), torch.randn(B, K, 13), torch.randn(B, K, 17))
    assert (output.shape, weights.shape) == ((B, Q, 42), (B, Q, K))
    assert own.k_proj_weight.shape == (num_kv_heads * 7, 13)


def test_what_cannot_be_carried_is_refused_by_name() -> None:
    paper, shared = made(PaperAttention), made(SharedProjectionAttention)
    for source, target, error, words in [
        (nn.Linear(3, 3), paper, TypeError, "Linear"),
        (paper, shared, TypeError, "SharedProjectionAttention"),
        (made(PaperAttention, bias=False), made(FourLinearAttention), ValueError, "biases"),
        (nn.MultiheadAttention(D, H, kdim=13), paper, ValueError, "another width than queries"),
    ]:
        with pytest.raises(error, match=words):
            copy_weights(source, target)
    with pytest.raises(ValueError, match="another width"):
        write_weights(nn.MultiheadAttention(D, H, bias=False), read_weights(paper))


@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 3]),
    lengths=st.tuples(st.sampled_from([1, 2, 5, 13]), st.sampled_from([1, 3, 7, 17])),
    heads=st.sampled_from([1, 2, 3, 5]),
    width=st.sampled_from([1, 2, 7]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 1000),
)
def test_any_size(
    batch: int, lengths: tuple[int, int], heads: int, width: int, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    paper = PaperAttention(heads * width, heads).to(dtype)
    query, key = (torch.randn(batch, length, heads * width, dtype=dtype) for length in lengths)
    hidden = torch.rand(batch, *lengths) < 0.4
    hidden[..., 0] = False
    for form in FORMS[1:]:
        layer = made(form, D=heads * width, H=heads).to(dtype)
        copy_weights(paper, layer)
        for found, expected in zip(
            run(layer, query, key, key, hidden), paper(query, key, key, hidden), strict=True
        ):
            torch.testing.assert_close(
                found, expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5
            )


def test_the_four_linear_form_looks_everywhere_where_it_may_look_nowhere() -> None:
    weights = run(made(FourLinearAttention), *inputs(), torch.ones(B, Q, K, dtype=torch.bool))[1]
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / K))
