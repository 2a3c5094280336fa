"""MultiHeadAttention against torch.nn.MultiheadAttention in float64, within torch's blocks, and under torch's tools."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from headscope.attention import MultiHeadAttention, RotaryPositions, functional, multi_head

# All different primes: a swapped axis cannot pass.
B, Q, K, H, E = 2, 5, 7, 3, 11
D = H * E
OPTIONS = [{}, {"bias": False}, {"kdim": 13, "vdim": 17}]


def pair(**options: Any) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Make our layer and torch's with the same weights, biases drawn too, in float64."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = MultiHeadAttention(D, H, batch_first=True, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def inputs(kdim: int = D, vdim: int = D, **_: Any) -> list[Tensor]:
    torch.manual_seed(1)
    shapes = [(B, Q, D), (B, K, kdim), (B, K, vdim)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def tokens(dtype: torch.dtype = torch.float64, texts: int = B) -> Tensor:
    return torch.randn(texts, K, D, dtype=dtype, generator=torch.manual_seed(1))


def explicit(layer: MultiHeadAttention, weights: Tensor, value: Tensor) -> Tensor:
    """Return the output as the formula has it, from the returned weights."""
    heads = (value @ layer.in_proj_weight[2 * D :].T + layer.in_proj_bias[2 * D :]).unflatten(
        -1, (H, E)
    )
    return layer.out_proj((weights @ heads.transpose(1, 2)).transpose(1, 2).flatten(2))


PADDING = torch.arange(K) >= torch.tensor([[5], [3]])
CAUSAL = torch.ones(K, K, dtype=torch.bool).triu(1)
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "boolean": {"attn_mask": torch.rand(Q, K, generator=torch.manual_seed(2)) < 0.4},
    "additive": {
        "attn_mask": torch.randn(Q, K, dtype=torch.float64, generator=torch.manual_seed(3))
    },
    "per head": {"attn_mask": torch.rand(B * H, Q, K, generator=torch.manual_seed(4)) < 0.3},
    "per head, additive": {
        "attn_mask": torch.randn(B * H, Q, K, dtype=torch.float64, generator=torch.manual_seed(5))
    },
    "padding and boolean": {"key_padding_mask": PADDING, "attn_mask": CAUSAL[:Q]},
}


@pytest.mark.parametrize("mask", MASKS)
def test_the_fused_path_equals_the_returned_weights_times_the_values(mask: str) -> None:
    ours, _ = pair()
    query, key, value = inputs()
    output, weights = ours(query, key, value, average_attn_weights=False, **MASKS[mask])
    fused, nothing = ours(query, key, value, need_weights=False, **MASKS[mask])
    assert nothing is None
    close(fused, output)
    close(explicit(ours, weights, value), output)


def test_causal_attention_needs_no_mask_and_reaches_the_kernel_by_its_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (ours, theirs), text, flags = pair(dropout=0.2), tokens(), []
    kernel = functional.F.scaled_dot_product_attention

    def observed(*arguments: Any) -> Tensor:
        flags.append(arguments[3:])
        return kernel(*arguments)

    expected = theirs.eval()(text, text, text, attn_mask=CAUSAL)
    monkeypatch.setattr(functional.F, "scaled_dot_product_attention", observed)
    close(ours.eval()(text, text, text, is_causal=True), expected)
    close(ours(text, text, text, need_weights=False, is_causal=True)[0], expected[0])
    assert flags == [(None, 0.0, True)]
    ours.train()(text, text, text, need_weights=False, is_causal=True)  # dropout needs the weights
    assert len(flags) == 1


def test_both_paths_read_a_mask_in_the_type_of_the_layer() -> None:
    layer, text = pair()[0].half(), tokens(torch.float16)
    mask = torch.zeros(K, K)
    mask[2] = -1e9  # -inf in 16 bits: all keys are masked
    found = [layer(text, text, text, None, need, mask)[0] for need in (True, False)]
    torch.testing.assert_close(*found, rtol=0, atol=2e-2)
    assert torch.equal(found[0][:, 2], layer.out_proj.bias.expand(B, -1))


class LargestTensor(TorchDispatchMode):
    """Notes how many numbers the largest tensor has that any operation makes."""

    numbers = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = operation(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.numel())
        return made


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("keys", [20_000, 19_997])
def test_causal_attention_over_20_000_tokens_makes_nothing_larger_than_the_projections(
    training: bool, keys: int
) -> None:
    with FakeTensorMode(), LargestTensor() as largest, torch.set_grad_enabled(training):
        layer = MultiHeadAttention(8, 2, batch_first=True).train(training)
        query = torch.randn(1, 20_000, 8)
        key = query if keys == 20_000 else query[:, :keys]
        output, _ = layer(query, key, key, need_weights=False, is_causal=True)
        if training:
            output.sum().backward()
    assert largest.numbers == 20_000 * (24 if keys == 20_000 else 8)


def test_causal_attention_to_more_or_fewer_keys_is_that_of_the_mask() -> None:
    ours, _ = pair()
    query, key, value = inputs()
    for tensors in ((query, key, value), (key, query, query)):
        Q, K = tensors[0].shape[1], tensors[1].shape[1]
        mask = torch.ones(Q, K, dtype=torch.bool).triu(1)
        for need_weights in (True, False):
            found = ours(*tensors, need_weights=need_weights, is_causal=True)
            close(found, ours(*tensors, need_weights=need_weights, attn_mask=mask))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_is_causal_holds_beside_another_mask(need_weights: bool, padded: bool) -> None:
    (ours, theirs), text = pair(), tokens()
    mask = torch.zeros(K, K).double()
    mask[:, 0] = -3.0
    padding = torch.zeros(B, K).double().masked_fill(PADDING, -torch.inf) if padded else None
    found, _ = ours(text, text, text, padding, need_weights, mask, is_causal=True)
    both = mask.masked_fill(CAUSAL, -torch.inf)
    close(found, theirs(text, text, text, padding, attn_mask=both)[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_gradients_are_torchs_where_a_mask_of_large_numbers_hides_all_keys(
    need_weights: bool,
) -> None:
    layers, query, found = pair(), inputs()[0], []
    mask = torch.zeros(Q, Q, dtype=torch.float64)
    mask[2], mask[0, 1:] = -1e9, -1e9
    for layer in layers:
        added = mask.clone().requires_grad_()
        output, _ = layer(query, query, query, attn_mask=added, need_weights=need_weights)
        loss = (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()
        found.append((output, *torch.autograd.grad(loss, [query, added, *layer.parameters()])))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("additive", [True, False])
def test_a_query_with_every_key_masked_gives_zeros_and_finite_gradients(
    need_weights: bool, additive: bool
) -> None:
    ours, _ = pair(bias=False)
    tensors = inputs()
    mask = torch.tensor([[False], [True]]).expand(B, K)
    given_mask = (
        torch.zeros(B, K, dtype=torch.float64).masked_fill(mask, -torch.inf) if additive else mask
    )
    output, weights = ours(*tensors, key_padding_mask=given_mask, need_weights=need_weights)
    assert output[1].abs().max() == 0
    assert output[0].abs().max() > 0
    if weights is not None:
        assert weights[1].abs().max() == 0
        close(weights[0].sum(-1), torch.ones(Q, dtype=torch.float64))
    output.sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in tensors)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_names_attributes_and_first_weights_are_torchs(options: dict[str, Any]) -> None:
    layers = pair(**options)
    ours, theirs = ({k: v.shape for k, v in layer.state_dict().items()} for layer in layers)
    assert list(ours.items()) == list(theirs.items())
    names = "bias_k bias_v add_zero_attn batch_first kdim vdim embed_dim num_heads head_dim"
    for name in names.split():
        assert getattr(layers[0], name) == getattr(layers[1], name), name
    drawn = MultiHeadAttention(D, H, **options)
    limit = (6 / (D + 3 * D)) ** 0.5  # Glorot's, as torch draws it
    if drawn.in_proj_weight is not None:
        assert limit * 0.98 < drawn.in_proj_weight.abs().max() <= limit
    assert drawn.in_proj_bias is None or not drawn.in_proj_bias.any()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_parameter_counts_and_saved_states(bias: bool, num_kv_heads: int) -> None:
    options: dict[str, Any] = {"bias": bias, "num_kv_heads": num_kv_heads, "batch_first": True}
    first, second = (MultiHeadAttention(D, H, **options) for _ in range(2))
    kv = num_kv_heads * E
    expected = D * D + 2 * kv * D + D * D + bias * (D + 2 * kv + D)
    assert sum(weight.numel() for weight in first.parameters()) == expected
    second.load_state_dict(first.state_dict(), strict=True)
    text = tokens(torch.float32)
    for other in (second, copy.deepcopy(first)):
        assert torch.equal(other(text, text, text)[0], first(text, text, text)[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropping_all_weights_leaves_the_bias_of_the_output(need_weights: bool) -> None:
    ours, theirs = pair(dropout=1.0)
    query, key, value = inputs()
    output = ours(query, key, value, need_weights=need_weights)[0]
    close(output, theirs(query, key, value, need_weights=need_weights)[0])
    close(output, ours.out_proj.bias.expand_as(output))


def test_dropout_in_training_alone_and_the_returned_weights_are_those_used() -> None:
    ours, _ = pair(dropout=0.5)
    query, key, value = inputs()
    output, weights = ours.train()(query, key, value, average_attn_weights=False)
    assert 0.3 < (weights == 0).double().mean() < 0.7
    close(explicit(ours, weights, value), output)
    first, second = (ours(query, key, value, need_weights=False)[0] for _ in range(2))
    assert not torch.equal(first, second)
    close(ours.eval()(query, key, value), ours(query, key, value))
    assert (ours(query, key, value)[1] > 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 4}, "divisible"),
        ({"embed_dim": 0, "num_heads": 1}, "divisible"),
        *(({"dropout": p}, "a probability from 0 to 1") for p in (1.5, -0.1, float("nan"))),
        ({"add_bias_kv": True}, "add_bias_kv"),
        ({"add_zero_attn": True}, "add_zero_attn"),
        *(({"num_kv_heads": number}, "divisible by num_kv_heads") for number in (0, 2)),
    ],
)
def test_unsupported_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**({"embed_dim": D, "num_heads": H} | options))


@settings(max_examples=40, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 3]),
    lengths=st.tuples(st.sampled_from([1, 2, 5, 13]), st.sampled_from([1, 3, 7, 17])),
    heads=st.sampled_from([1, 2, 3, 5]),
    width=st.sampled_from([1, 2, 7]),
    kdim=st.none() | st.sampled_from([5, 19]),
    average=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_size_and_mask(
    batch: int,
    lengths: tuple[int, int],
    heads: int,
    width: int,
    kdim: int | None,
    average: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    options: dict[str, Any] = {"kdim": kdim, "batch_first": True, "dtype": torch.float64}
    theirs = nn.MultiheadAttention(heads * width, heads, **options)
    ours = MultiHeadAttention(heads * width, heads, **options)
    ours.load_state_dict(theirs.state_dict())
    query, value = (torch.randn(batch, n, heads * width, dtype=torch.float64) for n in lengths)
    key = torch.randn(batch, lengths[1], kdim or heads * width, dtype=torch.float64)
    padding = torch.rand(batch, lengths[1]) < 0.5
    look = torch.rand(batch * heads, *lengths) < 0.5
    padding[:, 0] = look[..., 0] = False  # torch gives NaN where all keys are masked
    given_ = (query, key, value, padding, True, look, average)
    close(ours(*given_), theirs(*given_))


# In the place of torch's layer, within torch's blocks


def with_ours(theirs: nn.TransformerEncoder) -> tuple[nn.TransformerEncoder, list[Any]]:
    """Return a copy of an encoder with our layers in it, and the list of what they show."""
    ours: Any = copy.deepcopy(theirs)
    used: list[Any] = []
    for inner in ours.layers:
        layer = inner.self_attn
        replacement = MultiHeadAttention(
            layer.embed_dim, layer.num_heads, batch_first=True, dtype=torch.float64
        ).train(inner.training)
        replacement.load_state_dict(layer.state_dict(), strict=True)
        replacement.observers.append(used.append)
        inner.self_attn = replacement
    return ours, used


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_encoder_gives_the_same_with_ours_inside(
    training: bool, causal: bool, padded: bool, norm_first: bool
) -> None:
    torch.manual_seed(2)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    block = nn.TransformerEncoderLayer(D, H, 13, dtype=torch.float64, **options)
    theirs = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).train(training)
    ours, used = with_ours(theirs)
    masks: dict[str, Any] = {"mask": CAUSAL, "is_causal": True} if causal else {}
    masks |= {"src_key_padding_mask": PADDING} if padded else {}
    found, expected = ours(tokens(), **masks), theirs(tokens(), **masks)
    assert len(used) == 2, "torch's fast path bypassed our layer"
    kept = ~PADDING if padded else torch.ones(B, K, dtype=torch.bool)
    close(found[kept], expected[kept])


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_an_encoder_that_was_built_before_packs_its_padded_texts_and_ours_takes_them() -> None:
    torch.manual_seed(2)
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    theirs = nn.TransformerEncoder(block, 2).double().eval()
    ours, used = with_ours(theirs)
    assert ours.use_nested_tensor
    text = torch.randn(B, K, 8, dtype=torch.float64)
    with torch.no_grad():
        close(ours(text, src_key_padding_mask=PADDING), theirs(text, src_key_padding_mask=PADDING))
    assert used[-1].shape == (B, 2, 5, 5)  # packed, so that the longest text has no padding
    packed = torch.nested.as_nested_tensor([text[0], text[1, :3]])
    with pytest.raises(ValueError, match="nested tensors: expected one tensor as query, key and"):
        ours.layers[0].self_attn(packed, packed, text)


# Under torch's tools


def test_the_stated_difference_is_that_of_the_sums_which_the_layer_went_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, went_on, differences = pair()[0], [], []
    layer.observers.append(lambda seen: differences.append(seen.difference()))
    kernel = multi_head.attend

    def wrong(*given: Any) -> Tensor:
        went_on.append(kernel(*given) + 0.25 * (1 + len(went_on)))
        return went_on[-1]

    layer(*inputs(), need_weights=False)
    assert differences.pop() < 1e-12
    monkeypatch.setattr(multi_head, "attend", wrong)
    layer(*inputs(), need_weights=False)
    assert differences.pop() == pytest.approx(0.25)
    assert len(went_on) == 1
    halved = layer.bfloat16()
    monkeypatch.undo()
    halved(*(tensor.bfloat16() for tensor in inputs()), need_weights=False)
    assert 1e-4 < differences.pop() < 0.1  # the maps are in float32, the sums were not


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("need_weights", [True, False])
def test_it_compiles_and_exports_in_one_piece(need_weights: bool) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = pair()[0]

        def forward(self, text: Tensor, hidden: Tensor) -> Tensor:
            return self.attention(text, text, text, hidden, need_weights=need_weights)[0]

    block, given_ = Block().eval(), (tokens(), PADDING)
    # aot_eager follows the same graphs as inductor and needs no compiler on the machine.
    close(torch.compile(block, backend="aot_eager", fullgraph=True)(*given_), block(*given_))
    close(torch.export.export(block, given_).module()(*given_), block(*given_))


@pytest.mark.parametrize("need_weights", [True, False])
def test_autocast_computes_in_low_precision_and_keeps_the_parameters(need_weights: bool) -> None:
    layer, text = MultiHeadAttention(D, H, batch_first=True).eval(), tokens(torch.float32)
    exact = layer(text, text, text)[0]
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = layer(text, text, text, PADDING, need_weights=need_weights)
        bare = layer(text, text, text, need_weights=need_weights)[0]
    assert output.dtype == torch.bfloat16
    assert layer.in_proj_weight.dtype == torch.float32
    torch.testing.assert_close(bare.float(), exact, rtol=0, atol=0.02)
    if weights is not None:
        assert (weights[0, :, 5:] == 0).all()


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("dropout", "need_weights"), [(0.0, True), (0.3, True), (0.3, False)])
def test_second_derivatives_are_those_of_small_differences(
    dropout: float, need_weights: bool
) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(
        4, 2, dropout, batch_first=True, dtype=torch.float64, rotary=RotaryPositions(2, 3)
    )
    texts = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    hidden = torch.arange(3) >= torch.tensor([[2], [0]])  # the last text is all padding

    def output(text: Tensor) -> Tensor:
        torch.manual_seed(2)
        return layer(text, text, text, hidden, need_weights)[0]

    assert torch.autograd.gradcheck(output, texts)
    assert torch.autograd.gradgradcheck(output, texts)
