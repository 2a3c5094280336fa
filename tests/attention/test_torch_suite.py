"""What torch's own tests of its layer ask, asked of ours: test/nn/test_multihead_attention.py of pytorch/pytorch.

Each test names the one of torch's that it stands for; their numerical ones are in test_multi_head.py. Our layer differs
on purpose: add_bias_kv and add_zero_attn raise an error, a query whose keys are all masked gets zeros where torch gives
NaN, and what does not fit is a ValueError with all shapes.
"""

import pytest
import torch
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention


def bools(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool)


# Query, key, value; masks; what the message says. Sizes are 3 texts of 5 queries and 7 keys, width 4, 2 heads.
WRONG: dict[str, tuple[list[tuple[int, ...]], dict[str, Tensor], str]] = {
    "a key without a batch": ([(3, 5, 4), (7, 4), (3, 7, 4)], {}, "key [B, K, 4], .*; got [3, 5, 4], [7, 4], [3, 7, 4]"),
    "a query without a batch": ([(5, 4), (3, 7, 4), (7, 4)], {}, "query [Q, 4], key [K, 4], .*got [5, 4], [3, 7, 4]"),
    "four dimensions": ([(1, 3, 5, 4)] * 3, {}, "query [B, Q, 4].*got [1, 3, 5, 4]"),
    "more values than keys": ([(3, 5, 4), (3, 7, 4), (3, 64, 4)], {}, "got [3, 5, 4], [3, 7, 4], [3, 64, 4]"),
    "one key for all texts": ([(3, 5, 4), (1, 7, 4), (1, 7, 4)], {}, "got [3, 5, 4], [1, 7, 4], [1, 7, 4]"),
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
    "a mask of too many heads": (
        [(5, 4), (7, 4), (7, 4)], {"attn_mask": bools(5, 5, 7)}, "attn_mask: expected [5, 7] or [2, 5, 7], got [5, 5, 7]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_does_not_fit_raises_an_error_with_all_shapes(name: str) -> None:
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
        for need_weights in (True, False):
            with pytest.raises(ValueError, match=pattern) as error:
                layer(*tensors, need_weights=need_weights, **masks)
            assert "\n" not in str(error.value)


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
    for need_weights in (True, False):
        output, _ = layer(query, key, value, need_weights=need_weights)
        assert (output.shape, output.dtype) == (query.shape, dtype)


def test_a_bias_of_another_type_is_taken_as_the_weights() -> None:
    """test_multihead_attn_fast_path_query_and_bias_have_different_dtypes."""
    layer = MultiHeadAttention(4, 4, batch_first=True, dtype=torch.float64).eval()
    layer.in_proj_bias = nn.Parameter(torch.rand(12, dtype=torch.float16))
    query = torch.randn(4, 4, 4, dtype=torch.float64)
    output, _ = layer(query, query, query)
    assert output.dtype == torch.float64
    torch.testing.assert_close(layer(query, query.clone(), query.clone())[0], output)
