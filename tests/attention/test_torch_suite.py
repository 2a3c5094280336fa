"""What torch's own tests of its layer ask, asked of ours: test/nn/test_multihead_attention.py of pytorch/pytorch.

Each test names the one of torch's that it stands for. Not asked: add_bias_kv and add_zero_attn, which our layer refuses.
Elsewhere our layer differs on purpose: a query that may look nowhere gets zeros where torch gives NaN, and what does not
fit is a ValueError with all shapes where torch raises AssertionError or RuntimeError.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, functional, merge_masks

HIDE = -math.inf


def by_hand(
    query: Tensor, key: Tensor, value: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:  # heads [B, H, T, E], hidden [B, 1, Q, K]
    """Return the joined sums [B, Q, D] and the weights, by exponentials and sums written out."""
    exponentials = (
        (query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])).exp().masked_fill(hidden, 0)
    )
    weights = (exponentials / exponentials.sum(-1, keepdim=True)).nan_to_num(0)
    return (weights @ value).transpose(1, 2).flatten(2), weights


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.tuples(
        st.integers(2, 10), st.integers(2, 10), st.integers(3, 10), st.sampled_from([4, 6, 8, 10])
    ),
    kdim=st.none() | st.integers(5, 20),
    is_padded=st.booleans(),
    is_saved=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize("average", [True, False])
def test_random_sizes_masks_and_saved_keys(
    sizes: tuple[int, int, int, int],
    kdim: int | None,
    is_padded: bool,
    is_saved: bool,
    seed: int,
    average: bool,
) -> None:
    """test_multihead_attention: no mask, padding, saved keys and values, all arguments, keys of a width of their own."""
    torch.manual_seed(seed)
    B, K, E, H = sizes
    D, width = E * H, kdim or E * H
    layer = MultiHeadAttention(D, H, kdim=kdim, vdim=kdim, batch_first=True, dtype=torch.float64)
    query, key = (
        torch.rand(B, 1, D, dtype=torch.float64),
        torch.rand(B, K, width, dtype=torch.float64),
    )
    look = torch.zeros(1, K, dtype=torch.float64).masked_fill(torch.rand(1, K) < 0.5, HIDE)
    padding = (torch.rand(1, K) < 0.5).expand(B, K) if is_padded else None
    weights = (layer.in_proj_weight.chunk(3) if width == D  # whether kdim says so or not
               else (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight))  # fmt: skip
    biases = layer.in_proj_bias.chunk(3)
    heads = [F.linear(tokens, weight, bias).view(B, -1, H, E).transpose(1, 2)
             for tokens, weight, bias in zip((query, key, key), weights, biases, strict=True)]  # fmt: skip
    hidden = (
        look.isneginf()[None, None]
        | (torch.zeros(B, K).bool() if padding is None else padding)[:, None, None]
    )
    if is_saved:  # keys and values of each head, kept from before
        heads[1:] = torch.rand(2, B, H, K, E, dtype=torch.float64)
        joined, found_weights = layer.attend_heads(
            *heads, merge_masks((B, H, 1, K), padding, look), padding, True
        )
        found, found_weights = (
            layer.out_proj(joined),
            found_weights.mean(1) if average else found_weights,
        )
    else:
        found, found_weights = layer(
            query, key, key, padding, attn_mask=look, average_attn_weights=average
        )
    sums, expected_weights = by_hand(*heads, hidden)
    torch.testing.assert_close(found, layer.out_proj(sums), rtol=0, atol=1e-12)
    expected_weights = expected_weights.mean(1) if average else expected_weights
    torch.testing.assert_close(found_weights, expected_weights, rtol=0, atol=1e-12)


def test_a_mask_for_each_text_is_that_texts_own() -> None:
    """test_multihead_attn_3d_attn_mask."""
    B, H, Q, K, D = 7, 4, 2, 3, 8
    layer, query, key = MultiHeadAttention(D, H), torch.rand(Q, B, D), torch.rand(K, B, D)
    mask = torch.zeros(B, Q, K).masked_fill(torch.rand(B, Q, K) < 0.5, HIDE)
    together = layer(query, key, key, attn_mask=mask.repeat_interleave(H, 0))[0]
    for row in range(B):
        alone = layer(query[:, [row]], key[:, [row]], key[:, [row]], attn_mask=mask[row])[0]
        torch.testing.assert_close(together[:, [row]], alone)


@pytest.mark.parametrize(
    ("D", "options"), [(2, {"bias": False}), (4, {"kdim": 2, "vdim": 2}), (4, {})]
)
def test_without_biases_and_without_the_packed_matrix(D: int, options: dict[str, Any]) -> None:
    """test_multihead_attn_no_bias, _in_proj_bias_none, _in_proj_weight_none, _fast_path_small_test."""
    layer = MultiHeadAttention(D, D, dtype=torch.float64, **options).eval()
    assert (layer.in_proj_bias is None) == (layer.out_proj.bias is None) == ("bias" in options)
    assert (layer.in_proj_weight is None) == ("kdim" in options)
    key = torch.rand(4, 4, layer.kdim, dtype=torch.float64)
    with torch.no_grad():
        query = torch.rand(4, 4, D, dtype=torch.float64)
        assert layer(*([query] * 3 if layer.kdim == D else [query, key, key]))[0].isfinite().all()


def bools(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool)


# Query, key, value; masks; what the message says. Sizes are 3 texts of 5 queries and 7 keys, width 4, 2 heads.
WRONG: dict[str, tuple[list[tuple[int, ...]], dict[str, Tensor], str]] = {
    "a key without a batch": ([(3, 5, 4), (7, 4), (3, 7, 4)], {}, "key [B, K, 4], .*; got [3, 5, 4], [7, 4], [3, 7, 4]"),
    "a value without a batch": ([(3, 5, 4), (3, 7, 4), (7, 4)], {}, "got [3, 5, 4], [3, 7, 4], [7, 4]"),
    "a query without a batch": ([(5, 4), (3, 7, 4), (7, 4)], {}, "query [Q, 4], key [K, 4], .*got [5, 4], [3, 7, 4]"),
    "one text, a batch of values": ([(5, 4), (7, 4), (3, 7, 4)], {}, "got [5, 4], [7, 4], [3, 7, 4]"),
    "four dimensions": ([(1, 3, 5, 4)] * 3, {}, "query [B, Q, 4].*got [1, 3, 5, 4]"),
    "one dimension": ([(4,)] * 3, {}, "query [B, Q, 4].*got [4]"),
    "more values than keys": ([(3, 5, 4), (3, 7, 4), (3, 64, 4)], {}, "got [3, 5, 4], [3, 7, 4], [3, 64, 4]"),
    "more keys than values": ([(3, 5, 4), (3, 7, 4), (3, 2, 4)], {}, "got [3, 5, 4], [3, 7, 4], [3, 2, 4]"),
    "one text's more values": ([(5, 4), (7, 4), (64, 4)], {}, "got [5, 4], [7, 4], [64, 4]"),
    "one key for all texts": ([(3, 5, 4), (1, 7, 4), (1, 7, 4)], {}, "got [3, 5, 4], [1, 7, 4], [1, 7, 4]"),
    "one query for all texts": ([(1, 5, 4), (3, 7, 4), (3, 7, 4)], {}, "got [1, 5, 4], [3, 7, 4]"),
    "another width": ([(3, 5, 6), (3, 7, 4), (3, 7, 4)], {}, "got [3, 5, 6]"),
    "padding of one dimension": (
        [(3, 5, 4), (3, 7, 4), (3, 7, 4)], {"key_padding_mask": bools(7)}, "key_padding_mask: expected [3, 7], got [7]"
    ),
    "one text's padding of two": (
        [(5, 4), (7, 4), (7, 4)], {"key_padding_mask": bools(1, 7)}, "key_padding_mask: expected [7], got [1, 7]"
    ),
    "a mask of one dimension": (
        [(3, 5, 4), (3, 7, 4), (3, 7, 4)], {"attn_mask": bools(7)}, "attn_mask: expected [5, 7] or [6, 5, 7], got [7]"
    ),
    "one text's mask of one dimension": (
        [(5, 4), (7, 4), (7, 4)], {"attn_mask": bools(7)}, "attn_mask: expected [5, 7] or [2, 5, 7], got [7]"
    ),
    "a mask of too many heads": (
        [(5, 4), (7, 4), (7, 4)], {"attn_mask": bools(5, 5, 7)}, "attn_mask: expected [5, 7] or [2, 5, 7], got [5, 5, 7]"
    ),
    "a mask turned round": (
        [(3, 5, 4), (3, 7, 4), (3, 7, 4)], {"attn_mask": bools(7, 5)}, "attn_mask: expected .* got [7, 5]"
    ),
    "padding elsewhere": (
        [(3, 5, 4), (3, 7, 4), (3, 7, 4)],
        {"key_padding_mask": torch.empty(3, 7, dtype=torch.bool, device="meta")},
        "key_padding_mask: expected a mask on cpu, as the query, got one on meta",
    ),
    "a mask elsewhere": (
        [(3, 5, 4), (3, 7, 4), (3, 7, 4)],
        {"attn_mask": torch.empty(5, 7, device="meta")},
        "attn_mask: expected a mask on cpu, as the query, got one on meta",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_fit_is_refused_with_all_shapes(name: str) -> None:
    """test_multihead_attn_invalid_shape and _fast_path_invalid_shape, and the sizes that torch compares elsewhere."""
    shapes, masks, words = WRONG[name]
    pattern = words.replace("[", r"\[").replace("]", r"\]")
    tensors = [torch.randn(shape) for shape in shapes]
    for batch_first in (True, False):
        layer = MultiHeadAttention(4, 2, batch_first=batch_first)
        if not batch_first:
            if tensors[0].dim() != 3 or not all(tensor.dim() == 3 for tensor in tensors):
                continue
            tensors = [tensor.transpose(0, 1) for tensor in tensors]
            pattern = (
                pattern if masks else r"query \[Q, B, 4\], key \[K, B, 4\], value \[K, B, 4\]; got "
            )
        for training, need_weights in ((True, True), (True, False), (False, True), (False, False)):
            with (
                torch.set_grad_enabled(training),
                pytest.raises(ValueError, match=pattern) as error,
            ):
                layer.train(training)(*tensors, need_weights=need_weights, **masks)
            assert "\n" not in str(error.value)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_give_what_each_text_gives_alone(layout: torch.layout) -> None:
    """test_multihead_attn_nested_tensor_outside_fast_path."""

    def nested(*lengths: int) -> Tensor:
        return torch.nested.nested_tensor(
            [torch.randn(length, 10) for length in lengths], layout=layout
        )

    layer, query, key, value = (
        MultiHeadAttention(10, 5, batch_first=True),
        nested(4, 6),
        nested(7, 16),
        nested(7, 16),
    )
    for tensors in ((query, query, query), (query, key, value)):
        output, weights = layer(*tensors)
        assert output.is_nested
        assert weights.shape == (2, 6, max(len(text) for text in tensors[1].unbind()))
        alone = [
            layer(*texts)[0] for texts in zip(*(tensor.unbind() for tensor in tensors), strict=True)
        ]
        for found, expected in zip(output.unbind(), alone, strict=True):
            torch.testing.assert_close(found, expected)
        added = query + output  # as a block adds them
        torch.testing.assert_close(added.unbind()[1], query.unbind()[1] + alone[1])
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert layer.eval()(query, query, query, need_weights=False)[0].is_nested
    for wrong in ((query, key, nested(7, 15)), (query, nested(7, 16, 2), nested(7, 16, 2)), (query, query, alone[0]),
                  [torch.nested.nested_tensor([])] * 3):  # fmt: skip
        with pytest.raises(ValueError, match="nested tensors: query"):
            layer(*wrong)


def test_both_masks_at_once_and_by_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_multihead_self_attn_two_masks_fast_path and _fast_path_mock; our fast path is torch's fused kernel."""
    B, T, D, H = 8, 5, 14, 7
    tokens, mask, padding = torch.rand(B, T, D), torch.rand(T, T) < 0.5, torch.rand(B, T) < 0.5
    layer, calls, kernel = (
        MultiHeadAttention(D, H, batch_first=True).eval(),
        [],
        F.scaled_dot_product_attention,
    )
    turned = tokens.transpose(0, 1)
    expected = F.multi_head_attention_forward(
        turned, turned, turned, D, H, layer.in_proj_weight, layer.in_proj_bias, layer.bias_k, layer.bias_v,
        layer.add_zero_attn, layer.dropout, layer.out_proj.weight, layer.out_proj.bias, training=layer.training,
        key_padding_mask=padding, need_weights=False, attn_mask=mask,
    )[0].transpose(0, 1)  # fmt: skip
    nowhere = (mask | padding[:, None]).all(-1)  # [B, T]
    monkeypatch.setattr(
        functional.F, "scaled_dot_product_attention", lambda *given: calls.append(1) or kernel(*given)
    )  # fmt: skip
    for need_weights in (True, False):
        found = layer(tokens, tokens, tokens, padding, need_weights, mask)[0]
        torch.testing.assert_close(found[~nowhere], expected[~nowhere])
    assert len(calls) == 1


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_type_of_the_layer_is_the_type_of_the_output(
    dtype: torch.dtype, batch_first: bool
) -> None:
    """test_multihead_attention_dtype and _dtype_batch_first, which torch asks on GPUs alone."""
    layer = MultiHeadAttention(128, 8, batch_first=batch_first).to(dtype)
    query, key, value = torch.randn(3, 8, 10, 128, dtype=dtype)
    for training in (True, False):
        with torch.set_grad_enabled(training):
            for need_weights in (True, False):
                output, _ = layer.train(training)(query, key, value, need_weights=need_weights)
                assert (output.shape, output.dtype) == (query.shape, dtype)


def test_a_bias_of_another_type_is_taken_as_the_weights() -> None:
    """test_multihead_attn_fast_path_query_and_bias_have_different_dtypes."""
    layer = MultiHeadAttention(4, 4, batch_first=True, dtype=torch.float64).eval()
    layer.in_proj_bias = nn.Parameter(torch.rand(12, dtype=torch.float16))
    query = torch.randn(4, 4, 4, dtype=torch.float64)
    output, _ = layer(query, query, query)
    assert output.dtype == torch.float64
    torch.testing.assert_close(layer(query, query.clone(), query.clone())[0], output)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
def test_an_encoder_with_padding_compiles_in_one_piece() -> None:
    """test_fast_path_check_with_mask_does_not_break_in_compile."""
    encoder = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        .double()
        .eval()
    )
    encoder.layers[0].self_attn = MultiHeadAttention(8, 2, batch_first=True, dtype=torch.float64)
    tokens, padding = torch.randn(1, 11, 8, dtype=torch.float64), torch.rand(1, 11) > 0.5
    padding[..., 0] = True
    found = torch.compile(encoder, backend="aot_eager", fullgraph=True)(
        tokens, src_key_padding_mask=padding
    )
    torch.testing.assert_close(found, encoder(tokens, src_key_padding_mask=padding))
