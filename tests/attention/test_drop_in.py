"""Our layer in the place of torch's: within torch's blocks, and under torch's own tools."""

import copy
import io

import pytest
import torch
from torch import nn

from headscope.attention import MultiHeadAttention

B, T, H, E = 2, 7, 3, 11
D = H * E


def layer(**options: object) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(D, H, batch_first=True, **options)


def tokens(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(B, T, D, dtype=dtype, generator=torch.manual_seed(1))


def padding() -> torch.Tensor:
    return torch.arange(T) >= torch.tensor([[7], [4]])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("masks", ["none", "padding", "causal", "both"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_encoder_layer_gives_the_same_with_ours_inside(training: bool, masks: str, norm_first: bool) -> None:
    torch.manual_seed(2)
    theirs = nn.TransformerEncoderLayer(
        D, H, 13, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).train(training)
    ours = copy.deepcopy(theirs)
    ours.self_attn = MultiHeadAttention(D, H, batch_first=True, dtype=torch.float64).train(training)
    ours.self_attn.load_state_dict(theirs.self_attn.state_dict(), strict=True)
    given = {
        "none": {},
        "padding": {"src_key_padding_mask": padding()},
        "causal": {"src_mask": torch.ones(T, T, dtype=torch.bool).triu(1), "is_causal": True},
        "both": {"src_mask": torch.ones(T, T, dtype=torch.bool).triu(1), "src_key_padding_mask": padding()},
    }[masks]
    used = []
    ours.self_attn.observer = used.append
    found, expected = ours(tokens(torch.float64), **given), theirs(tokens(torch.float64), **given)
    assert len(used) == 1, "torch's fast path went past our layer"
    kept = ~padding() if "padding" in masks or masks == "both" else torch.ones(B, T, dtype=torch.bool)
    torch.testing.assert_close(found[kept], expected[kept], rtol=0, atol=1e-12)


def test_a_whole_encoder_of_torchs_runs_on_ours() -> None:
    torch.manual_seed(3)
    block = nn.TransformerEncoderLayer(D, H, 13, dropout=0.0, batch_first=True, dtype=torch.float64)
    theirs = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
    ours = copy.deepcopy(theirs)
    for inner in ours.layers:
        replacement = MultiHeadAttention(D, H, batch_first=True, dtype=torch.float64)
        replacement.load_state_dict(inner.self_attn.state_dict())
        inner.self_attn = replacement.eval()
    given = {"src_key_padding_mask": padding()}
    found, expected = ours(tokens(torch.float64), **given), theirs(tokens(torch.float64), **given)
    torch.testing.assert_close(found[~padding()], expected[~padding()], rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_parameter_counts_are_those_of_the_formula(bias: bool, num_kv_heads: int) -> None:
    kv = num_kv_heads * E
    expected = D * D + 2 * kv * D + D * D + bias * (D + 2 * kv + D)
    assert sum(weight.numel() for weight in layer(bias=bias, num_kv_heads=num_kv_heads).parameters()) == expected


@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_copies_and_saved_states_compute_the_same(num_kv_heads: int) -> None:
    first, text = layer(num_kv_heads=num_kv_heads), tokens()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = MultiHeadAttention(D, H, batch_first=True, num_kv_heads=num_kv_heads)
    second.load_state_dict(torch.load(file, weights_only=True), strict=True)
    expected = first(text, text, text)[0]
    assert torch.equal(second(text, text, text)[0], expected)
    assert torch.equal(copy.deepcopy(first)(text, text, text)[0], expected)


@pytest.mark.usefixtures("unchecked_shapes")
def test_it_exports() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = layer()

        def forward(self, text: torch.Tensor, key_padding_mask: torch.Tensor) -> torch.Tensor:
            return self.attention(text, text, text, key_padding_mask, need_weights=False)[0]

    block = Block().eval()
    exported = torch.export.export(block, (tokens(), padding()))
    torch.testing.assert_close(exported.module()(tokens(), padding()), block(tokens(), padding()))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("need_weights", [True, False])
def test_it_compiles_in_one_piece(need_weights: bool) -> None:
    first, text = layer().eval(), tokens()

    def run(text: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return first(text, text, text, hidden, need_weights=need_weights)[0]

    # aot_eager follows the same graphs as inductor and needs no compiler on the machine.
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(text, padding()), run(text, padding()))


@pytest.mark.parametrize("need_weights", [True, False])
def test_autocast_computes_in_low_precision_and_keeps_the_parameters(need_weights: bool) -> None:
    first, text = layer().eval(), tokens()
    exact = first(text, text, text)[0]
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = first(text, text, text, padding(), need_weights=need_weights)
        bare = first(text, text, text, need_weights=need_weights)[0]
    assert output.dtype == torch.bfloat16
    assert first.in_proj_weight.dtype == torch.float32
    torch.testing.assert_close(bare.float(), exact, rtol=0, atol=0.02)
    if weights is not None:
        assert (weights[1, :, 4:] == 0).all()


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ({"key_padding_mask": torch.ones(B, T, dtype=torch.int64)}, "key_padding_mask takes booleans.*int64"),
        ({"attn_mask": torch.ones(T, T, dtype=torch.uint8)}, "attn_mask takes booleans.*uint8"),
        ({"attn_mask": torch.ones(T, T + 1, dtype=torch.bool)}, r"attn_mask takes \[7, 7\] or \[6, 7, 7\], got"),
        ({"attn_mask": torch.ones(B, T, T, dtype=torch.bool)}, r"attn_mask takes .* got \[2, 7, 7\]"),
        ({"key_padding_mask": torch.ones(B, T + 1, dtype=torch.bool)}, r"key_padding_mask takes \[2, 7\], got"),
    ],
    ids=["integers", "bytes", "another length", "no heads", "another text"],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_masks_that_do_not_fit_are_refused_by_name(masks: dict[str, torch.Tensor], words: str) -> None:
    text = tokens()
    with pytest.raises(ValueError, match=words):
        layer()(text, text, text, **masks)
