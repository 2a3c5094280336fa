"""The network and its kinds of attention, pooling and masks: padding changes nothing, places matter."""

from typing import get_args

import pytest
import torch

from headscope.heads.capture import capture
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.embedding import sinusoidal_positions
from headscope.model.pooling import AttentionPooling, first_pooling, max_pooling, mean_pooling
from headscope.settings.config import ModelConfig, PoolingKind, Position

VOCABULARY, CLASSES, LENGTH = 53, 3, 29


def classifier(num_segments: int = 1, **options: object) -> TextClassifier:
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=22, num_heads=11, num_layers=2, feedforward_size=31, evidence=False, **options
    )
    return (
        TextClassifier(architecture_from(config, VOCABULARY, LENGTH, num_segments), CLASSES)
        .double()
        .eval()
    )


@pytest.mark.parametrize("positions", get_args(Position))
def test_the_order_of_tokens_matters(positions: str) -> None:
    model = classifier(positions=positions)
    ids = torch.randint(1, VOCABULARY, (1, 11))
    assert not torch.allclose(model(ids), model(ids.flip(1)), atol=1e-6)


def test_the_second_text_of_a_pair_is_told_from_the_first() -> None:
    model = classifier(num_segments=2)
    ids, first = torch.randint(1, VOCABULARY, (1, 11)), torch.zeros(1, 11, dtype=torch.int64)
    second = first.clone()
    second[:, 6:] = 1
    assert not torch.allclose(model(ids, None, first), model(ids, None, second), atol=1e-8)


def test_parameter_counts_are_those_of_the_formula() -> None:
    d, f, layers = 22, 31, 2
    block = 4 * d * d + 4 * d + 2 * d * f + f + d + 4 * d
    expected = VOCABULARY * d + LENGTH * d + layers * block + 2 * d + d * CLASSES + CLASSES
    assert (
        sum(weight.numel() for weight in classifier(positions="learned").parameters()) == expected
    )
    assert (
        sum(weight.numel() for weight in classifier(positions="rotary").parameters())
        == expected - LENGTH * d
    )


def test_poolings_leave_padding_out() -> None:
    tokens = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [100.0, 100.0]]])
    padding = torch.tensor([[False, False, True]])
    assert first_pooling(tokens, padding).tolist() == [[1, -5]]
    assert mean_pooling(tokens, padding).tolist() == [[2, -3]]
    assert max_pooling(tokens, padding).tolist() == [[3, -1]]
    assert mean_pooling(tokens).tolist() == tokens.mean(1).tolist()
    assert max_pooling(tokens).tolist() == [[100, 100]]


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoidal_positions(7, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    torch.testing.assert_close(table[3, 2], torch.tensor(3 / 10_000 ** (2 / 6)).sin())
    torch.testing.assert_close(table[5, 5], torch.tensor(5 / 10_000 ** (4 / 6)).cos())


def test_every_parameter_gets_a_gradient_and_padding_stays_zero() -> None:
    model = classifier().train()
    model(torch.randint(1, VOCABULARY, (3, LENGTH))).square().sum().backward()
    assert [
        name
        for name, weight in model.named_parameters()
        if weight.grad is None or not weight.grad.any()
    ] == []
    assert model.embedding.token.weight[0].abs().max() == 0


# --- the kinds of attention, of pooling and of masks that a configuration can ask for ---


T = 13
ATTENDING = ["additive", "dot", "general", "concat"]
KINDS: dict[str, dict[str, object]] = {
    "multi_head": {},
    "shared_projection": {"attention": "shared_projection"},
    "grouped": {"num_kv_heads": 3},
    "multi-query": {"num_kv_heads": 1},
    "causal": {"causal": True},
    "window": {"window": 2},
    "causal window": {"causal": True, "window": 2},
    "causal, shared": {"causal": True, "attention": "shared_projection"},
}


def config(**options: object) -> ModelConfig:
    sizes = {"d_model": 36, "num_heads": 6, "num_layers": 2, "feedforward_size": 31}
    return ModelConfig(**(sizes | {"evidence": False, "pooling": "mean"} | options))


def attending(**options: object) -> TextClassifier:
    torch.manual_seed(0)
    return (
        TextClassifier(architecture_from(config(**options), VOCABULARY, LENGTH), 3).double().eval()
    )


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([[5], [13], [7]])
    ids = torch.randint(1, VOCABULARY, (3, T), generator=torch.manual_seed(1))
    padding = torch.arange(T) >= lengths
    return ids.masked_fill(padding, 0), padding


READ = [
    {"positions": places, "pooling": pool}
    for places in get_args(Position)
    for pool in get_args(PoolingKind)
]


@pytest.mark.parametrize("options", [*KINDS.values(), *READ], ids=str)
def test_a_text_padded_within_a_batch_gets_the_logits_it_gets_alone(
    options: dict[str, object],
) -> None:
    model, (ids, padding) = attending(**options), texts()
    together = model(ids, padding)
    # Whatever stands at padding is not looked at.
    other = model(ids.masked_fill(padding, 7), padding)
    torch.testing.assert_close(other, together, rtol=0, atol=1e-12)
    for row in range(3):
        alone = model(ids[row : row + 1, ~padding[row]])
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-12)
    assert torch.isfinite(
        torch.autograd.grad(together.sum(), model.embedding.token.weight)[0]
    ).all()


@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_zero_where_nothing_may_be_seen_and_sum_to_one(kind: str) -> None:
    model, (ids, padding) = attending(**KINDS[kind]), texts()
    with capture(model, poolings=False) as maps:
        model(ids, padding)
    place = torch.arange(T)
    hidden = padding[:, None].expand(-1, T, -1)
    if model.encoder.causal:
        hidden = hidden | (place > place[:, None])
    if model.encoder.windows[0] is not None:
        hidden = hidden | ((place[:, None] - place).abs() > 2)
    assert len(maps) == 2
    for weights in maps.values():
        assert weights.shape == (3, 6, T, T)
        assert (weights[hidden[:, None].expand_as(weights)] == 0).all()
        seen = weights[1].sum(-1)  # the text without padding
        torch.testing.assert_close(seen, torch.ones_like(seen))


@pytest.mark.parametrize("pooling", ATTENDING)
def test_the_texts_vector_is_the_tokens_weighted_as_recorded_beside_the_heads(pooling: str) -> None:
    torch.manual_seed(0)
    model, (ids, padding) = attending(pooling=pooling), texts()
    with capture(model) as maps:
        model(ids, padding)
    blocks = ["encoder.blocks.0.attention", "encoder.blocks.1.attention"]
    assert list(maps) == [*blocks, "pool.attention"]
    pool = model.pool
    assert isinstance(pool, AttentionPooling)
    torch.nn.init.normal_(pool.query)
    tokens = torch.randn(3, T, 36, dtype=torch.float64)
    with capture(pool) as maps:
        vector = pool(tokens, padding)
    weights = maps["attention"]
    assert weights.shape == (3, 1, 1, T)
    assert (weights[:, 0, 0][padding] == 0).all()
    assert weights.std() > 1e-3
    torch.testing.assert_close(torch.einsum("bt,btd->bd", weights[:, 0, 0], tokens), vector)
    vector.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in pool.parameters())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_kv_heads": 4}, "should be a divisor of model.num_heads=6"),
        (
            {"num_kv_heads": 2, "attention": "shared_projection"},
            "should be null with model.attention=shared_projection",
        ),
        ({"attention": "sparse"}, "should be one of multi_head, shared_projection"),
        ({"window": 0}, "window"),
        ({"pooling": "last"}, "Input should be 'first', 'mean', 'max', 'additive', 'dot'"),
    ],
    ids=["no divisor", "shared twice", "unknown", "no window", "no pooling"],
)
def test_what_cannot_work_is_refused_with_its_key(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(**options)
