"""The written-out sums of our network, held against torch's gradients with the gates held fixed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bert_family import peer
from headscope.data.batching import Batch
from headscope.heads import contributions
from headscope.heads.capture import ablate
from headscope.heads.contributions import Contributions, decompose, explain, share_among_heads
from headscope.heads.linear import FixedNetwork, Shares, is_linear_here
from headscope.model.architecture import architecture_from
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.model.families import architecture_of
from headscope.model.objective import ONE_CLASS, Reading
from headscope.model.opened import frozen_layers
from headscope.settings.config import ModelConfig

T, CLASSES, VOCABULARY, NGRAMS = 7, 3, 41, 13
SIZES = {"d_model": 12, "num_heads": 3, "num_layers": 3, "feedforward_size": 17, "dropout": 0.0}
SCRATCH: dict[str, dict[str, Any]] = {
    "three layers": {},
    "mean": {"pooling": "mean"},
    "maximum": {"pooling": "max"},
    "additive": {"pooling": "additive"},
    "causal, learned positions": {"positions": "learned", "causal": True, "pooling": "mean"},
    "shared keys, a window": {"num_kv_heads": 1, "window": 2},
    "shared projection": {"attention": "shared_projection"},
    "evidence": {"evidence": True},
}
OPENED: dict[str, dict[str, Any]] = {
    "bert": {},
    "electra": {"embedding_size": 20, "hidden_act": "relu"},
    "distilbert": {},
    "roberta": {"hidden_act": "silu"},
    "modernbert": {"local_attention": 4, "classifier_pooling": "mean"},
}
LENGTHS = torch.tensor([[7], [4], [5]])
PADDING = torch.arange(T) >= LENGTHS
IDS = torch.randint(5, VOCABULARY, (3, T), generator=torch.manual_seed(0)).masked_fill(PADDING, 0)


def drawn(model: nn.Module) -> Any:
    """Return a network whose every weight, bias and norm is random, in float64."""
    model = model.double().eval()
    generator = torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return model


def scratch(**options: Any) -> TextClassifier:
    config = ModelConfig(**{"evidence": False} | SIZES | options)
    torch.manual_seed(0)
    model = TextClassifier(architecture_from(config, VOCABULARY, T), CLASSES, NGRAMS)
    if model.evidence is not None:
        nn.init.normal_(model.evidence.ratio)
    return drawn(model)  # type: ignore[no-any-return]


def opened(family: str, **options: Any) -> TextClassifier:
    encoder = peer(family, "ForSequenceClassification", **options).config.to_dict()
    return drawn(TextClassifier(architecture_of(encoder), CLASSES))  # type: ignore[no-any-return]


def on_features(members: int) -> nn.Module:
    features = frozen_layers(peer("bert").config.to_dict(), [1, 3])
    config = ModelConfig(**SIZES | {"num_layers": 2, "evidence": False})
    made = [
        TextClassifier(architecture_from(config, VOCABULARY, T), CLASSES, features=features)
        for _ in range(members)
    ]
    return drawn(made[0] if members == 1 else Ensemble(made, features))  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda options=options: scratch(**options) for name, options in SCRATCH.items()},
    **{name: lambda n=name, o=options: opened(n, **o) for name, options in OPENED.items()},
    "above frozen layers": lambda: on_features(1),
    "three above frozen layers": lambda: on_features(3),
}


def inputs_of(model: Any) -> tuple[Any, ...]:
    if getattr(model, "evidence", None) is None:
        return (IDS, PADDING)
    places = torch.tensor([1, 2, 2, 3, 8, 9, 15, 16, 17])
    ngrams = (torch.arange(len(places)) % NGRAMS, places, torch.zeros(3, dtype=torch.long))
    return (IDS, PADDING, None, ngrams)


@pytest.fixture
def by_gradients(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets torch's gradients compute, as for a model that is not ours."""
    return lambda: monkeypatch.setattr(contributions, "is_linear_here", lambda model: False)


def parts_of(model: nn.Module) -> tuple[Contributions, Shares]:
    given = (model, inputs_of(model), T, lambda logits: logits)
    return decompose(*given), share_among_heads(*given)


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_parts_and_shares_are_those_of_gradients(
    name: str, by_gradients: Callable[[], None], unchecked_shapes: None
) -> None:
    model = MODELS[name]()
    assert is_linear_here(model)
    parts, shares = parts_of(model)
    with torch.no_grad():
        assert_same(parts.logits, model(*inputs_of(model)))
    assert parts.missed.abs().max() < 1e-12
    by_gradients()
    expected, expected_shares = parts_of(model)
    assert expected.words.abs().max() > 0.01
    assert_same(parts.words, expected.words)
    assert_same(parts.biases, expected.biases)
    for of_layer, theirs in zip(parts.heads, expected.heads, strict=True):
        assert_same(of_layer, theirs)
    for field in ("past", "past_biases", "unobserved"):
        assert_same(getattr(shares, field), getattr(expected_shares, field))
    for field in ("heads", "head_biases"):
        pairs = zip(getattr(shares, field), getattr(expected_shares, field), strict=True)
        for of_layer, theirs in pairs:
            assert_same(of_layer, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_totals_are_the_sums_of_cells_and_cells_of_some_heads_are_those_of_all(
    name: str, unchecked_shapes: None
) -> None:
    model = MODELS[name]()
    with torch.no_grad():
        network = FixedNetwork.of(model, inputs_of(model))
        directions = torch.eye(CLASSES).double()[:, None].expand(-1, len(IDS), -1)
        every = [range(block.attention.values.shape[1]) for block in network.blocks]
        cells = network.shares(directions, every)
        some = network.shares(directions, [[2, 0], *([] for _ in every[1:])])
        totals = network.totals(directions)
    for total, (tokens, biases) in zip(totals, cells, strict=True):
        assert tokens.abs().max() > 1e-6
        assert_same(total, (tokens.sum(dim=-1) + biases).permute(1, 2, 0))  # [N, B, H]
    for found, expected in zip(some[0], cells[0], strict=True):
        assert_same(found, expected[[2, 0]])


def test_ablated_heads_add_nothing(by_gradients: Callable[[], None]) -> None:
    model = opened("bert")
    with ablate(model, {(0, 1): "zero", (1, 0): "uniform"}):
        parts, shares = parts_of(model)
        assert (shares.heads[0][:, 1] == 0).all()
        by_gradients()
        expected, _ = parts_of(model)
    assert_same(parts.logits, expected.logits)
    assert_same(parts.words, expected.words)


def one_text(model: nn.Module) -> tuple[nn.Module, Batch, list[str], Reading]:
    batch = Batch(IDS[:1], None, None, torch.zeros(1, dtype=torch.long), torch.zeros(1).long())
    return (model, batch, [*"abcdefg"], Reading(["x", "y", "z"], ONE_CLASS, 1.3))


def test_cells_are_computed_once_and_for_the_heads_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    shares = FixedNetwork.shares

    def counted(network: FixedNetwork, directions: Tensor, chosen: Any) -> Any:
        asked.append(sum(map(len, chosen)))
        return shares(network, directions, chosen)

    monkeypatch.setattr(FixedNetwork, "shares", counted)
    found = explain(*one_text(opened("bert", num_hidden_layers=6)))  # of 3 heads each
    assert found.head_sums.shape == (6, 3)
    assert asked == []
    table = str(found).splitlines()
    named = sum(line.startswith("layer ") for line in table)
    assert named < 18
    assert asked == [named]
    assert str(found).splitlines() == table
    whole = found.heads
    assert asked == [named, 18 - named]
    np.testing.assert_allclose(whole.sum(-1) + found.head_biases, found.head_sums, atol=1e-9)
    np.testing.assert_allclose(whole.sum(axis=(0, 1)) + found.past, found.words, atol=1e-9)
    below = found.of_layers(found.layers[:2])
    np.testing.assert_allclose(below.heads, whole[:2])
    np.testing.assert_allclose(below.past, found.past + whole[2:].sum(axis=(0, 1)), atol=1e-12)
    assert asked == [named, 18 - named]


def test_cells_are_those_of_the_model_that_explained_the_text() -> None:
    model, *text = one_text(opened("bert"))
    found = explain(model, *text)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    with pytest.raises(RuntimeError, match="its weights have changed: explain the text again"):
        found.heads  # noqa: B018


def test_an_explanation_is_that_of_gradients(by_gradients: Callable[[], None]) -> None:
    given = one_text(opened("bert").float())
    found = explain(*given)
    by_gradients()
    expected = explain(*given)
    assert found.layers == expected.layers
    for field in ("words", "heads", "head_biases", "head_sums", "past", "through", "maps"):
        torch.testing.assert_close(
            torch.from_numpy(getattr(found, field)),
            torch.from_numpy(getattr(expected, field)),
            rtol=0,
            atol=1e-5,
        )
