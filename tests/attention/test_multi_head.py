"""MultiHeadAttention against torch.nn.MultiheadAttention, in float64, under every kind of mask."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headscope.attention import MultiHeadAttention

# All different primes: a swapped axis cannot pass.
B, Q, K, H, E = 2, 5, 7, 3, 11
D = H * E


def pair(**options: object) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Make our layer and torch's with the same weights, biases drawn too, in float64."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = MultiHeadAttention(D, H, batch_first=True, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def inputs(kdim: int = D, vdim: int = D) -> list[torch.Tensor]:
    torch.manual_seed(1)
    shapes = [(B, Q, D), (B, K, kdim), (B, K, vdim)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def padding() -> torch.Tensor:
    mask = torch.zeros(B, K, dtype=torch.bool)
    mask[0, 5:] = mask[1, 3:] = True
    return mask


MASKS = {
    "none": {},
    "padding": {"key_padding_mask": padding()},
    "boolean": {"attn_mask": torch.rand(Q, K, generator=torch.manual_seed(2)) < 0.4},
    "additive": {"attn_mask": torch.randn(Q, K, dtype=torch.float64, generator=torch.manual_seed(3))},
    "per head": {"attn_mask": torch.rand(B * H, Q, K, generator=torch.manual_seed(4)) < 0.3},
    "per head, additive": {"attn_mask": torch.randn(B * H, Q, K, dtype=torch.float64, generator=torch.manual_seed(5))},
    "padding and boolean": {
        "key_padding_mask": padding(),
        "attn_mask": torch.ones(Q, K, dtype=torch.bool).triu(1),
    },
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 13, "vdim": 17}], ids=str)
@pytest.mark.parametrize("average", [True, False])
def test_output_weights_and_gradients_equal_torchs(mask: str, options: dict, average: bool) -> None:
    ours, theirs = pair(**options)
    query, key, value = inputs(options.get("kdim", D), options.get("vdim", D))
    results = []
    for layer in (ours, theirs):
        output, weights = layer(query, key, value, average_attn_weights=average, **MASKS[mask])
        loss = (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()
        gradients = torch.autograd.grad(loss, [query, key, value, *layer.parameters()])
        results.append((output, weights, *gradients))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


@pytest.mark.parametrize("mask", MASKS)
def test_the_fused_path_equals_the_explicit_one(mask: str) -> None:
    ours, _ = pair()
    query, key, value = inputs()
    explicit, weights = ours(query, key, value, need_weights=True, **MASKS[mask])
    fused, nothing = ours(query, key, value, need_weights=False, **MASKS[mask])
    assert weights is not None
    assert nothing is None
    close(fused, explicit)
    by_hand = ours(query, key, value, average_attn_weights=False, **MASKS[mask])[1]
    heads = (value @ ours.in_proj_weight[2 * D :].T + ours.in_proj_bias[2 * D :]).unflatten(-1, (H, E)).transpose(1, 2)
    close(ours.out_proj((by_hand @ heads).transpose(1, 2).flatten(2)), fused)


def test_self_attention_uses_one_product_and_gives_the_same() -> None:
    ours, theirs = pair()
    query, *_ = inputs()
    close(ours(query, query, query)[0], theirs(query, query, query)[0])
    close(ours(query, query.clone(), query.clone())[0], ours(query, query, query)[0])


def test_unbatched_and_sequence_first_inputs() -> None:
    ours, theirs = pair()
    query, key, value = inputs()
    single = ours(query[0], key[0], value[0], key_padding_mask=padding()[0])
    for found, expected in zip(single, theirs(query[0], key[0], value[0], key_padding_mask=padding()[0]), strict=True):
        close(found, expected)
    ours.batch_first = theirs.batch_first = False
    turned = [tensor.transpose(0, 1) for tensor in (query, key, value)]
    for found, expected in zip(ours(*turned), theirs(*turned), strict=True):
        close(found, expected)


def test_causal_attention_needs_no_mask_beside_it() -> None:
    ours, theirs = pair()
    query, *_ = inputs()
    causal = torch.ones(Q, Q, dtype=torch.bool).triu(1)
    output, weights = ours(query, query, query, is_causal=True)
    expected = theirs(query, query, query, attn_mask=causal)
    close(output, expected[0])
    close(weights, expected[1])
    assert weights.triu(1).abs().max() == 0


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("additive", [True, False])
def test_a_query_with_every_key_masked_gives_zeros_and_finite_gradients(need_weights: bool, additive: bool) -> None:
    ours, _ = pair(bias=False)
    query, key, value = inputs()
    mask = torch.zeros(B, K, dtype=torch.bool)
    mask[1] = True
    given_mask = torch.zeros(B, K, dtype=torch.float64).masked_fill(mask, -torch.inf) if additive else mask
    output, weights = ours(query, key, value, key_padding_mask=given_mask, need_weights=need_weights)
    assert output[1].abs().max() == 0
    assert output[0].abs().max() > 0
    if weights is not None:
        assert weights[1].abs().max() == 0
        close(weights[0].sum(-1), torch.ones(Q, dtype=torch.float64))
    output.sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in (query, key, value))


def test_state_dicts_go_both_ways() -> None:
    for options in ({}, {"bias": False}, {"kdim": 13, "vdim": 17}):
        ours, theirs = pair(**options)
        theirs.load_state_dict(ours.state_dict(), strict=True)
        names = {name: tuple(parameter.shape) for name, parameter in theirs.named_parameters()}
        assert {name: tuple(parameter.shape) for name, parameter in ours.named_parameters()} == names
        query, key, value = inputs(options.get("kdim", D), options.get("vdim", D))
        close(copy.deepcopy(ours)(query, key, value)[0], ours(query, key, value)[0])


def test_it_starts_as_torchs_does() -> None:
    torch.manual_seed(55)
    ours = MultiHeadAttention(D, H)
    torch.manual_seed(55)
    theirs = nn.MultiheadAttention(D, H)
    limit = (6 / (D + 3 * D)) ** 0.5
    for layer in (ours, theirs):
        assert limit * 0.98 < layer.in_proj_weight.abs().max() <= limit
        assert layer.in_proj_bias.abs().max() == layer.out_proj.bias.abs().max() == 0
    torch.testing.assert_close(ours.in_proj_weight.std(), theirs.in_proj_weight.std(), rtol=0.05, atol=0)


def test_dropout_in_training_alone_and_the_returned_weights_are_those_used() -> None:
    ours, _ = pair(dropout=0.5)
    query, key, value = inputs()
    ours.train()
    output, weights = ours(query, key, value, average_attn_weights=False)
    assert 0.3 < (weights == 0).double().mean() < 0.7
    heads = (value @ ours.in_proj_weight[2 * D :].T + ours.in_proj_bias[2 * D :]).unflatten(-1, (H, E)).transpose(1, 2)
    close(ours.out_proj((weights @ heads).transpose(1, 2).flatten(2)), output)
    assert not torch.equal(
        ours(query, key, value, need_weights=False)[0], ours(query, key, value, need_weights=False)[0]
    )
    ours.eval()
    close(ours(query, key, value)[0], ours(query, key, value)[0])
    assert (ours(query, key, value)[1] > 0).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_heads": 4}, "divisible"),
        ({"num_heads": 0}, "divisible"),
        ({"add_bias_kv": True}, "add_bias_kv"),
        ({"add_zero_attn": True}, "add_zero_attn"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MultiHeadAttention(**({"embed_dim": D, "num_heads": H} | options))


@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 3]),
    queries=st.sampled_from([1, 2, 5, 13]),
    keys=st.sampled_from([1, 3, 7, 17]),
    heads=st.sampled_from([1, 2, 3, 5]),
    width=st.sampled_from([1, 2, 7]),
    data=st.data(),
)
def test_any_size_and_mask(batch: int, queries: int, keys: int, heads: int, width: int, data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    theirs = nn.MultiheadAttention(heads * width, heads, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(heads * width, heads, batch_first=True, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    query, key = (torch.randn(batch, length, heads * width, dtype=torch.float64) for length in (queries, keys))
    mask = torch.rand(batch, keys) < 0.5
    mask[:, 0] = False  # torch gives NaN where every key is masked
    for found, expected in zip(ours(query, key, key, mask), theirs(query, key, key, mask), strict=True):
        close(found, expected)
