"""Models of transformers: maps are those of their eager code, and observing changes nothing."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from heads.kinds import MODELS, OUTSIDE, VOCABULARY, D, H, made
from headscope.heads.capture import ablate, capture, headed_layers, observe

B, T = 3, 7
# What some of the layers' names have in them.
CALLED = {"Albert": "#", "T5": "EncDecAttention", "Bart": "encoder_attn"}


def inputs(kind: str = "Bert") -> dict[str, Tensor]:
    ids = torch.randint(4, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(T) < torch.tensor([[7], [5], [3]])).long()
    decoder = {"decoder_input_ids": ids[:, :5]} if kind == "T5" else {}
    return {"input_ids": ids, "attention_mask": mask, **decoder}


def eager_maps(model: Any, **given: Tensor) -> list[Tensor]:
    """Return the maps of the model's own eager code, in the order in which the layers run."""
    slow = copy.deepcopy(model)
    slow.set_attn_implementation("eager")
    found = slow(**given, output_attentions=True)
    if "encoder_attentions" not in found:
        return list(found.attentions)
    decoder = zip(found.decoder_attentions, found.cross_attentions, strict=True)
    return [*found.encoder_attentions, *(weights for both in decoder for weights in both)]


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


FEW = {"Bert", "GPT2"}
KINDS = [
    pytest.param(kind, marks=() if kind in FEW else pytest.mark.slow, id=kind) for kind in MODELS
]


@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_those_of_the_slow_code_and_the_output_is_the_same_to_the_last_digit(
    kind: str,
) -> None:
    model, given = made(kind), inputs(kind)
    before, output = model.config._attn_implementation, model(**given)[0]
    with capture(model) as maps:
        watched = model(**given)[0]
    assert torch.equal(watched, output)
    assert model.config._attn_implementation == before
    kept = given["attention_mask"].bool()
    slow = eager_maps(model, **given)
    assert len(maps) == len(slow) == (6 if kind in ("Bart", "T5") else 2)
    assert CALLED.get(kind, "") in list(maps)[-1]
    for weights, expected in zip(maps.values(), slow, strict=True):
        assert weights.dtype == torch.float32
        # What a padded query looks at is nobody's concern: the slow code and the kernel differ
        # there.
        queries = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        if weights.shape[2] == T:
            queries = kept[:, None, :, None]
        torch.testing.assert_close(weights * queries, expected * queries, rtol=0, atol=1e-6)
        assert weights[0].std() > 1e-3
    with capture(model, rows=[2, 0]) as some:
        model(**given)
    assert list(some) == list(maps)
    for name, weights in some.items():
        torch.testing.assert_close(weights, maps[name][[2, 0]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_head_can_be_ablated_and_the_output_changes(kind: str) -> None:
    model, given = made(kind), inputs(kind)
    output, before = model(**given)[0], model.config._attn_implementation
    layers = headed_layers(model)
    with capture(model) as maps:
        model(**given)
    assert list(layers) == list(maps)
    heads = [(name, head) for name, count in layers.items() for head in range(count)]
    assert len(heads) == len(maps) * H
    found = []
    for head in heads:
        with ablate(model, {head: "zero"}):
            found.append(model(**given)[0])
    assert all((changed - output).abs().max() > 1e-5 for changed in found)
    assert len(torch.stack(found).flatten(1).unique(dim=0)) == len(found)
    assert torch.equal(model(**given)[0], output)
    assert model.config._attn_implementation == before


def test_what_is_captured_within_what_is_changed_is_what_the_changed_model_looks_at() -> None:
    model, given = made("Bert"), inputs()
    first, second = headed_layers(model)
    with (
        capture(model) as outer,
        ablate(model, {(first, 1): "zero"}),
        capture(model, rows=[1]) as inner,
    ):
        model(**given)
    with capture(model) as plain:
        model(**given)
    assert torch.equal(inner[second], outer[second][[1]])
    assert torch.equal(plain[first], outer[first])
    assert (plain[second] - outer[second]).abs().max() > 1e-4
    assert model.config._attn_implementation == "sdpa"


def test_a_model_within_another_is_found_with_its_name() -> None:
    outer = nn.ModuleDict(
        {"torch": nn.MultiheadAttention(D, H), "bert": made("Bert", "ForSequenceClassification")}
    )
    names = [f"bert.bert.encoder.layer.{number}.attention.self" for number in (0, 1)]
    assert list(headed_layers(outer)) == ["torch", *names]
    with capture(outer) as maps:
        outer["bert"](**inputs())
        outer["torch"](*[torch.randn(T, B, D)] * 3)
    assert {weights.shape for weights in maps.values()} == {(B, H, T, T)}
    assert len(maps) == 3


def test_a_function_that_does_more_is_found_out_by_the_difference() -> None:
    """Weights times values are the head outputs, but not where sinks take their share."""
    model, given, calls = made("Bert"), inputs(), []
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def with_sinks(*args: Any, **options: Any) -> tuple[Tensor, None]:
        return 0.9 * sdpa(*args, **options)[0], None

    with observe(model, lambda name, call: calls.append(call)):
        model(**given)
    assert max(call.difference() for call in calls) < 1e-5
    assert [call.values.shape for call in calls] == [(B, H, T, D // H)] * 2
    AttentionInterface.register("sdpa", with_sinks)
    try:
        with observe(model, lambda name, call: calls.append(call)):
            model(**given)
    finally:
        AttentionInterface.register("sdpa", sdpa)
    assert min(call.difference() for call in calls[2:]) > 0.01


def test_an_unknown_attention_is_named() -> None:
    model = made("Bert")
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ValueError, match="got 'flash_attention_2'"), capture(model):
        pass


# --- outside the registry ---


@pytest.mark.parametrize("kind", OUTSIDE)
def test_models_outside_the_registry_are_asked_for_their_maps(kind: str) -> None:
    model, given = made(kind), inputs()
    output, used = model(**given)[0], model.config._attn_implementation
    with capture(model) as maps:
        watched = model(**given)[0]
    assert model.config._attn_implementation == used
    model.config._attn_implementation_internal = "eager"
    expected = model(**given, output_attentions=True).attentions
    torch.testing.assert_close(watched, output, rtol=0, atol=1e-5)
    assert list(maps) == ["attentions.0", "attentions.1"]
    for weights, own in zip(maps.values(), expected, strict=True):
        assert torch.equal(weights, own)
    assert headed_layers(model) == {}
    assert not model._forward_hooks


def test_one_that_gives_no_maps_is_named_and_never_an_empty_mapping() -> None:
    model, given = made("MPNet"), inputs()
    forward = type(model).forward
    silent = {"output_attentions": False}
    model.forward = lambda *args, **options: forward(model, *args, **options | silent)
    message = "MPNetModel: does not use transformers' AttentionInterface"
    with pytest.raises(ValueError, match=message), capture(model):
        model(**given)
    message = "Linear: expected attention layers"
    with pytest.raises(ValueError, match=message), capture(nn.Linear(2, 3)):
        pass


def test_one_that_bypasses_the_registry_is_named() -> None:
    model = made("GPT2", reorder_and_upcast_attn=True, attn_implementation="eager")
    with pytest.raises(ValueError, match="GPT2Model: none of its layers calls"), capture(model):
        model(**inputs())
    model.set_attn_implementation("sdpa")
    with capture(model) as maps:
        model(**inputs())
    assert len(maps) == 2
