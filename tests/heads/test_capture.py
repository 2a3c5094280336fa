"""Maps of torch's and our own layers, wherever they stand; verify checks those of the formula."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

from headscope.attention import MultiHeadAttention
from headscope.heads.capture import capture, observe

B, Q, K, H, E = 3, 5, 7, 4, 6
D = H * E
PADDING = torch.arange(K) >= torch.tensor([[7], [4], [6]])


def layer(kind: type[nn.Module] = nn.MultiheadAttention, **options: Any) -> Any:
    torch.manual_seed(0)
    made: Any = kind(D, H, dtype=torch.float64, **options)
    if made.in_proj_bias is not None:
        nn.init.normal_(made.in_proj_bias)
    return made.eval()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def block_mask(*shape: int) -> torch.Tensor:
    mask = torch.rand(*shape) < 0.4
    mask[..., 0] = False  # no query is left without a key, where torch gives NaN
    return mask


HIDDEN = torch.zeros(B, K, dtype=torch.float64).masked_fill(PADDING, -torch.inf)
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "padding as numbers": {"key_padding_mask": HIDDEN},
    "soft padding": {"key_padding_mask": draw(B, K)},
    "mask": {"attn_mask": block_mask(Q, K)},
    "numbers of each head": {"attn_mask": draw(B * H, Q, K)},
    "both": {"attn_mask": block_mask(B * H, Q, K), "key_padding_mask": PADDING},
    "causal": {"attn_mask": torch.ones(Q, K, dtype=torch.bool).triu(1), "is_causal": True},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{}, {"kdim": 10, "vdim": 9}, {"bias": False}])
def test_maps_are_the_weights_that_torch_returns(mask: str, options: dict[str, Any]) -> None:
    for batch_first in (False, True):
        model = layer(batch_first=batch_first, **options)
        inputs = [draw(B, Q, D), draw(B, K, model.kdim), draw(B, K, model.vdim)]
        if not batch_first:
            inputs = [tensor.transpose(0, 1) for tensor in inputs]
        output, expected = model(*inputs, average_attn_weights=False, **MASKS[mask])
        with capture(model) as maps:
            watched, _ = model(*inputs, average_attn_weights=False, **MASKS[mask])
        torch.testing.assert_close(maps[""], expected)
        torch.testing.assert_close(watched, output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masks", [{}, {"key_padding_mask": PADDING[1]}])
def test_one_text_without_a_batch(masks: dict[str, torch.Tensor]) -> None:
    model, query, key = layer(), draw(Q, D), draw(K, D)
    _, expected = model(query, key, key, average_attn_weights=False, **masks)
    with capture(model) as maps:
        model(query, key=key, value=key, **masks)
    torch.testing.assert_close(maps[""], expected[None])


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiHeadAttention])
@pytest.mark.parametrize("rows", [[1], [2, 0], slice(1, 3)])
def test_rows_are_chosen_and_gradients_are_as_before(kind: Any, rows: list[int] | slice) -> None:
    model, tokens = layer(kind, batch_first=True), draw(B, K, D)
    expected = torch.autograd.grad(model(*[tokens] * 3)[0].sum(), model.in_proj_weight)
    with capture(model) as everything, capture(model, rows) as chosen:
        output, _ = model(tokens, tokens, tokens, PADDING)
        output, _ = model(tokens, tokens, tokens, need_weights=False)
    torch.testing.assert_close(chosen[""], everything[""][rows], rtol=0, atol=1e-12)
    found = torch.autograd.grad(output.sum(), model.in_proj_weight)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_keys_that_are_no_tokens_are_refused(options: dict[str, bool]) -> None:
    model = nn.ModuleDict({"a": layer(**options)})
    refused = pytest.raises(ValueError, match="a: expected add_bias_kv=False and add_zero_attn")
    with refused, capture(model):
        pass


def test_low_precision_gives_maps_in_float32() -> None:
    model, tokens = layer(batch_first=True).to(torch.bfloat16), draw(B, Q, D).to(torch.bfloat16)
    with capture(model) as maps:
        model(tokens, tokens, tokens)
    assert maps[""].dtype == torch.float32
    torch.testing.assert_close(maps[""].sum(-1), torch.ones(B, H, Q))


@pytest.mark.usefixtures("unchecked_shapes")
def test_weights_times_values_are_the_head_outputs_but_for_dropout() -> None:
    model = nn.ModuleDict({"a": layer(), "b": encoder().double()})
    calls: list[tuple[str, float]] = []
    tokens = draw(B, K, D)
    first = tokens.transpose(0, 1)
    noted = observe(model, lambda name, call: calls.append((name, call.difference())))
    with torch.no_grad(), noted:
        model["a"](first, first, first, PADDING)
        model["b"](tokens, src_key_padding_mask=PADDING)
        model["a"].train().dropout = 0.5
        model["a"](first, first, first)
    names = ["a", "b.layers.0.self_attn", "b.layers.1.self_attn", "a"]
    assert [name for name, _ in calls] == names
    assert max(difference for _, difference in calls[:-1]) < 1e-12
    assert calls[-1][1] > 0.01


# --- inside torch's blocks ---


def encoder(**options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(D, H, 2 * D, batch_first=True, **options)
    model = nn.TransformerEncoder(block, 2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture(autouse=True)
def _torch_warns_of_nested_tensors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors|enable_nested_tensor")
        yield


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": PADDING}])
@pytest.mark.parametrize("options", [{}, {"norm_first": True}])
def test_the_fast_path_of_encoders_gives_maps_too(
    mode: Callable[[], AbstractContextManager[None]],
    masks: dict[str, torch.Tensor],
    options: dict[str, Any],
) -> None:
    model, tokens = encoder(**options), torch.randn(B, K, D)
    with mode():
        output = model(tokens, **masks)
        with capture(model) as maps:
            watched = model(tokens, **masks)
    torch.testing.assert_close(watched, output)  # at padding too, where nested tensors leave zeros
    assert list(maps) == ["layers.0.self_attn", "layers.1.self_attn"]
    first = model.layers[0]
    with torch.no_grad():
        inputs = first.norm1(tokens) if options.get("norm_first") else tokens
        padding = masks.get("src_key_padding_mask")
        _, expected = first.self_attn(*[inputs] * 3, padding, average_attn_weights=False)
    kept = ~PADDING if masks else torch.ones(B, K, dtype=torch.bool)
    queries = kept[:, None, :, None].expand(-1, H, -1, K)
    torch.testing.assert_close(maps["layers.0.self_attn"][queries], expected[queries])
    assert maps["layers.1.self_attn"].shape == (B, H, K, K)


@pytest.mark.usefixtures("unchecked_shapes")
def test_maps_of_packed_texts_are_as_wide_as_the_longest() -> None:
    model, tokens = encoder(), torch.randn(B, K + 3, D)
    mask = torch.cat([PADDING, torch.ones(B, 3, dtype=torch.bool)], dim=1)
    with torch.no_grad(), capture(model) as maps:
        watched = model(src=tokens, src_key_padding_mask=mask)
    assert (watched[:, :K][PADDING] == 0).all()  # still packed: padding is left out
    weights = maps["layers.1.self_attn"]
    assert weights.shape == (B, H, K, K)
    assert (weights.masked_select(PADDING[:, None, None]) == 0).all()


def test_decoders_have_two_layers_of_attention_each() -> None:
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, 2 * D), 1).eval()
    target, memory = torch.randn(Q, B, D), torch.randn(K, B, D)
    causal = nn.Transformer.generate_square_subsequent_mask(Q)
    masks = {"tgt_mask": causal, "tgt_is_causal": True, "memory_key_padding_mask": PADDING}
    output = model(target, memory, **masks)
    with capture(model) as maps:
        watched = model(target, memory, **masks)
    torch.testing.assert_close(watched, output, rtol=0, atol=1e-6)
    assert (maps["layers.0.self_attn"].triu(1) == 0).all()
    across = maps["layers.0.multihead_attn"]
    assert across.shape == (B, H, Q, K)
    assert (across.masked_select(PADDING[:, None, None]) == 0).all()
