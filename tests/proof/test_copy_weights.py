"""What verify does not check of the forms: masks, errors, and grouped queries."""

import re
from typing import Any

import pytest
import torch
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


def inputs() -> list[Tensor]:
    torch.manual_seed(1)
    return [
        torch.randn(B, length, D, dtype=torch.float64, requires_grad=True) for length in (Q, K, K)
    ]


def close(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float64])
@pytest.mark.parametrize("shape", [(Q, K), (B, Q, K), (B, 1, K), (B, 1, 1, K), (B, H, Q, K)])
def test_the_four_linear_form_reads_ones_and_zeros_of_every_shape_and_type(
    shape: tuple[int, ...], kind: torch.dtype
) -> None:
    torch.manual_seed(4)
    form, oracle, (query, key, _) = made(FourLinearAttention), made(PaperAttention), inputs()
    hidden = torch.rand(shape) < 0.5
    hidden[..., 0] = False
    copy_weights(form, oracle)
    close(form(query, key, key, (~hidden).to(kind)), oracle(query, key, key, hidden))


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("shape", [(K,), (Q, K + 1), (3, Q, K), (B, 2, Q, K), (1, 1, B, Q, K)])
def test_a_mask_that_does_not_fit_the_scores_raises_an_error(
    form: type[nn.Module], shape: tuple[int, ...]
) -> None:
    mask = torch.zeros(shape, dtype=torch.bool)
    message = re.escape(f"broadcasts to [2, 3, 5, 7], got {list(shape)}")
    with pytest.raises(ValueError, match=message):
        made(form)(*inputs(), mask)


def test_a_mask_of_numbers_to_add_is_not_read_as_ones_and_zeros() -> None:
    with pytest.raises(ValueError, match="expected 1 where a query attends to a key, else 0"):
        made(FourLinearAttention)(
            *inputs(), torch.zeros(Q, K).masked_fill(torch.ones(Q, K).triu(1) == 1, -torch.inf)
        )


@pytest.mark.parametrize("form", [PaperAttention, FourLinearAttention, SharedProjectionAttention])
@pytest.mark.usefixtures("unchecked_shapes")
def test_keys_and_values_of_different_lengths_raise_an_error(form: type[nn.Module]) -> None:
    layer, (query, key, value) = made(form), inputs()
    with pytest.raises(ValueError, match=re.escape("got [2, 5, 33], [2, 7, 33], [2, 4, 33]")):
        layer(query, key, value[:, :4])


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
    own = MultiHeadAttention(42, 6, batch_first=True, num_kv_heads=num_kv_heads, kdim=13, vdim=17)
    output, weights = own(torch.randn(B, Q, 42), torch.randn(B, K, 13), torch.randn(B, K, 17))
    assert (output.shape, weights.shape) == ((B, Q, 42), (B, Q, K))
    assert own.k_proj_weight.shape == (num_kv_heads * 7, 13)


def test_what_cannot_be_copied_is_named() -> None:
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


def test_the_four_linear_form_has_uniform_weights_where_all_keys_are_masked() -> None:
    _, weights = made(FourLinearAttention)(*inputs(), torch.zeros(B, Q, K))
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / K))
