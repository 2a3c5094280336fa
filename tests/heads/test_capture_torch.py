"""Maps of torch's own attention layers, wherever they stand, and what these give without a head."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

from headscope.attention.multi_head import HeadedAttention
from headscope.heads.capture import capture, intervene, observe

B, Q, K, H, E = 3, 5, 7, 4, 6
D = H * E


def layer(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    made = nn.MultiheadAttention(D, H, dtype=torch.float64, **options)
    if made.in_proj_bias is not None:
        nn.init.normal_(made.in_proj_bias)
    return made.eval()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def padding() -> torch.Tensor:
    return torch.arange(K) >= torch.tensor([[7], [4], [6]])


def added(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, -torch.inf)


def block_mask(*shape: int) -> torch.Tensor:
    mask = torch.rand(*shape) < 0.4
    mask[..., 0] = False  # no query is left without a key, where torch gives NaN
    return mask


MASKS: dict[str, Callable[[], dict[str, Any]]] = {
    "none": dict,
    "padding": lambda: {"key_padding_mask": padding()},
    "padding as numbers": lambda: {"key_padding_mask": added(padding())},
    "soft padding": lambda: {"key_padding_mask": draw(B, K)},
    "mask": lambda: {"attn_mask": block_mask(Q, K)},
    "mask of each head": lambda: {"attn_mask": block_mask(B * H, Q, K)},
    "numbers": lambda: {"attn_mask": draw(Q, K)},
    "numbers of each head": lambda: {"attn_mask": draw(B * H, Q, K)},
    "both": lambda: {"attn_mask": block_mask(B * H, Q, K), "key_padding_mask": padding()},
    "causal": lambda: {"attn_mask": torch.ones(Q, K, dtype=torch.bool).triu(1), "is_causal": True},
}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{}, {"kdim": 10, "vdim": 9}, {"bias": False}])
def test_maps_are_the_weights_that_torch_returns(
    batch_first: bool, mask: str, options: dict[str, Any]
) -> None:
    model = layer(batch_first=batch_first, **options)
    inputs = [draw(B, Q, D), draw(B, K, model.kdim), draw(B, K, model.vdim)]
    if not batch_first:
        inputs = [tensor.transpose(0, 1) for tensor in inputs]
    masks = MASKS[mask]()
    output, expected = model(*inputs, average_attn_weights=False, **masks)
    with capture(model) as maps:
        watched, _ = model(*inputs, average_attn_weights=False, **masks)
    torch.testing.assert_close(maps[""], expected)
    torch.testing.assert_close(watched, output, rtol=0, atol=1e-12)
    with capture(model, [2, 0]) as maps:
        model(*inputs, need_weights=False, **masks)
    torch.testing.assert_close(maps[""], expected[[2, 0]])


@pytest.mark.parametrize(
    "masks", [{}, {"key_padding_mask": padding()[1]}, {"attn_mask": block_mask(H, Q, K)}]
)
def test_one_text_without_a_batch(masks: dict[str, torch.Tensor]) -> None:
    model, query, key = layer(), draw(Q, D), draw(K, D)
    _, expected = model(query, key, key, average_attn_weights=False, **masks)
    with capture(model) as maps:
        model(query, key=key, value=key, **masks)
    torch.testing.assert_close(maps[""], expected[None])


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_keys_that_are_no_tokens_are_refused(options: dict[str, bool]) -> None:
    model = nn.ModuleDict({"a": layer(**options)})
    with (
        pytest.raises(ValueError, match="a: expected add_bias_kv=False and add_zero_attn=False"),
        capture(model),
    ):
        pass
    with capture(model, kind=HeadedAttention):  # nobody asked for torch's layers
        pass


def test_low_precision_gives_maps_in_float32() -> None:
    model, tokens = layer(batch_first=True).to(torch.bfloat16), draw(B, Q, D).to(torch.bfloat16)
    with capture(model) as maps:
        model(tokens, tokens, tokens)
    assert maps[""].dtype == torch.float32
    torch.testing.assert_close(maps[""].sum(-1), torch.ones(B, H, Q))


@pytest.mark.usefixtures("unchecked_shapes")
def test_weights_times_values_are_the_head_outputs_but_for_dropout() -> None:
    model, calls = nn.ModuleDict({"a": layer(), "b": encoder().double()}), []
    tokens = draw(B, K, D)
    first = tokens.transpose(0, 1)
    with (
        torch.no_grad(),
        observe(model, lambda name, call: calls.append((name, call.difference()))),
    ):
        model["a"](first, first, first, padding())
        model["b"](tokens, src_key_padding_mask=padding())
        model["a"].train().dropout = 0.5
        model["a"](first, first, first)
    names = ["a", "b.layers.0.self_attn", "b.layers.1.self_attn", "a"]
    assert [name for name, _ in calls] == names
    assert max(difference for _, difference in calls[:-1]) < 1e-12
    assert calls[-1][1] > 0.01


# --- inside torch's blocks ---


def encoder(layers: int = 2, **options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(D, H, 2 * D, batch_first=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that norm_first rules nested tensors out
        model = nn.TransformerEncoder(block, layers)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture(autouse=True)
def _nested_tensors_warn_of_themselves() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
        yield


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": padding()}])
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}])
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
        attention = first.self_attn
        _, expected = attention(
            inputs, inputs, inputs, masks.get("src_key_padding_mask"), average_attn_weights=False
        )
    kept = ~padding() if masks else torch.ones(B, K, dtype=torch.bool)
    queries = kept[:, None, :, None].expand(-1, H, -1, K)
    torch.testing.assert_close(maps["layers.0.self_attn"][queries], expected[queries])
    assert maps["layers.1.self_attn"].shape == (B, H, K, K)


@pytest.mark.usefixtures("unchecked_shapes")
def test_maps_of_packed_texts_are_as_wide_as_the_longest() -> None:
    model, tokens = encoder(), torch.randn(B, K + 3, D)
    mask = torch.cat([padding(), torch.ones(B, 3, dtype=torch.bool)], dim=1)
    with torch.no_grad():
        output = model(tokens, src_key_padding_mask=mask)
        with capture(model) as maps:
            watched = model(src=tokens, src_key_padding_mask=mask)
    torch.testing.assert_close(watched, output)
    assert (watched[:, :K][padding()] == 0).all()  # still packed: padding is left out
    weights = maps["layers.1.self_attn"]
    assert weights.shape == (B, H, K, K)
    assert (weights.masked_select(padding()[:, None, None]) == 0).all()


def test_decoders_have_two_layers_of_attention_each() -> None:
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, 2 * D), 1).eval()
    target, memory = torch.randn(Q, B, D), torch.randn(K, B, D)
    causal = nn.Transformer.generate_square_subsequent_mask(Q)
    output = model(
        target, memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding()
    )
    with capture(model) as maps:
        watched = model(
            target, memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding()
        )
    torch.testing.assert_close(watched, output, rtol=0, atol=1e-6)
    assert (maps["layers.0.self_attn"].triu(1) == 0).all()
    across = maps["layers.0.multihead_attn"]
    assert across.shape == (B, H, Q, K)
    assert (across.masked_select(padding()[:, None, None]) == 0).all()


# --- without a head ---


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    "masks", [{}, {"src_key_padding_mask": padding()}], ids=["whole", "padded"]
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_without_a_head_an_encoder_gives_what_it_gives_without_its_columns(
    mode: Callable[[], AbstractContextManager[None]], masks: dict[str, torch.Tensor]
) -> None:
    """On the fast path of eval mode too, where padded texts are packed."""
    model, tokens = encoder().double(), draw(B, K, D)
    with mode():
        whole = model(tokens, **masks)
        for number in range(2):
            weight = model.layers[number].self_attn.out_proj.weight
            for head in range(H):
                kept = weight.data.clone()
                weight.data[:, head * E : (head + 1) * E] = 0
                expected = model(tokens, **masks)
                weight.data.copy_(kept)
                with intervene(model, {(f"layers.{number}.self_attn", head): "zero"}):
                    changed = model(tokens, **masks)
                torch.testing.assert_close(changed, expected, rtol=0, atol=1e-12)
                assert (changed - whole).abs().max() > 1e-3
