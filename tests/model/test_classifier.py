"""The network: padding changes nothing, places matter, and every part has the parameters it should."""

import pytest
import torch

from headscope.inspection.capture import capture
from headscope.model.classifier import TextClassifier
from headscope.model.config import POOLINGS, POSITIONS, ModelConfig
from headscope.model.embedding import sinusoidal_positions
from headscope.model.pooling import first_pooling, max_pooling, mean_pooling

VOCABULARY, CLASSES, LENGTH = 53, 3, 29


def classifier(num_segments: int = 1, **options: object) -> TextClassifier:
    torch.manual_seed(0)
    config = ModelConfig(d_model=22, num_heads=11, num_layers=2, feedforward_size=31, evidence=False, **options)
    return TextClassifier(config, VOCABULARY, CLASSES, LENGTH, num_segments).double().eval()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_padded_within_a_batch_gets_the_logits_it_gets_alone(positions: str, pooling: str) -> None:
    model = classifier(positions=positions, pooling=pooling)
    lengths = [5, 13, 7]
    ids = torch.zeros(3, 13, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(1, VOCABULARY, (length,))
    padding = torch.arange(13) >= torch.tensor(lengths)[:, None]
    together = model(ids, padding)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(model(ids[row : row + 1, :length])[0], together[row], rtol=0, atol=1e-12)
    ids[padding] = 7  # whatever stands at padding is not looked at
    torch.testing.assert_close(model(ids, padding), together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
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
    assert sum(weight.numel() for weight in classifier(positions="learned").parameters()) == expected
    assert sum(weight.numel() for weight in classifier(positions="rotary").parameters()) == expected - LENGTH * d


def test_poolings_leave_padding_out() -> None:
    tokens = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [100.0, 100.0]]])
    padding = torch.tensor([[False, False, True]])
    assert first_pooling(tokens, padding).tolist() == [[1, -5]]
    assert mean_pooling(tokens, padding).tolist() == [[2, -3]]
    assert max_pooling(tokens, padding).tolist() == [[3, -1]]
    assert mean_pooling(tokens).tolist() == tokens.mean(1).tolist()
    assert max_pooling(tokens).tolist() == [[100, 100]]


def test_berts_pooler_is_a_layer_on_the_first_token() -> None:
    tokens, pooler = torch.randn(3, 5, 22, dtype=torch.float64), classifier(pooling="pooler").pool
    expected = torch.tanh(tokens[:, 0] @ pooler.dense.weight.T + pooler.dense.bias)
    torch.testing.assert_close(pooler(tokens, torch.zeros(3, 5, dtype=torch.bool)), expected)


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoidal_positions(7, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    torch.testing.assert_close(table[3, 2], torch.tensor(3 / 10_000 ** (2 / 6)).sin())
    torch.testing.assert_close(table[5, 5], torch.tensor(5 / 10_000 ** (4 / 6)).cos())


def test_every_parameter_gets_a_gradient_and_padding_stays_zero() -> None:
    model = classifier().train()
    model(torch.randint(1, VOCABULARY, (3, LENGTH))).square().sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []
    assert model.embedding.token.weight[0].abs().max() == 0


def test_capture_sees_every_layer_and_changes_nothing() -> None:
    model = classifier()
    ids = torch.randint(1, VOCABULARY, (3, 7))
    before = model(ids)
    with capture(model, rows=[0, 2]) as maps:
        torch.testing.assert_close(model(ids), before, rtol=0, atol=1e-12)  # watched, the last block makes all vectors
    assert list(maps) == ["encoder.blocks.0.attention", "encoder.blocks.1.attention"]
    assert all(weights.shape == (2, 11, 7, 7) for weights in maps.values())
    with capture(model) as none_yet:
        pass
    model(ids)
    assert none_yet == {}
