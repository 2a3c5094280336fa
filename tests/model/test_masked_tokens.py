"""What guesses hidden tokens, against its formula written out."""

import math

import pytest
import torch

from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.model.masked_tokens import MaskedTokenModel

V, D, T = 23, 10, 7
SETTINGS = ModelConfig(d_model=D, num_heads=5, num_layers=2, feedforward_size=11, dropout=0.0)


@pytest.fixture
def model() -> MaskedTokenModel:
    torch.manual_seed(0)
    made = MaskedTokenModel(TextClassifier(SETTINGS, V, 3, T, num_segments=2)).double().eval()
    torch.nn.init.normal_(made.bias)
    return made


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.tensor([[2, 5, 9, 4, 17, 22, 3], [2, 4, 8, 3, 0, 0, 0]])
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    hidden[0, 3] = hidden[0, 4] = hidden[1, 1] = True
    return ids, hidden, ids == 0, torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]])


@torch.no_grad()
def test_the_logits_are_those_of_the_formula(model: MaskedTokenModel) -> None:
    ids, hidden, padding, segments = batch()
    found = model(ids, hidden, padding, segments)
    vectors = model.encoder(model.embedding(ids, segments), padding)
    linear, _, norm = model.guess
    for row, (text, place) in enumerate([(0, 3), (0, 4), (1, 1)]):
        middle = [float(linear.weight[i] @ vectors[text, place] + linear.bias[i]) for i in range(D)]
        middle = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in middle]
        mean = sum(middle) / D
        deviation = math.sqrt(sum((x - mean) ** 2 for x in middle) / D + norm.eps)
        normed = [float(norm.weight[i]) * (x - mean) / deviation + float(norm.bias[i]) for i, x in enumerate(middle)]
        for token in range(V):
            product = sum(float(model.embedding.token.weight[token, i]) * normed[i] for i in range(D))
            assert float(found[row, token]) == pytest.approx(product + float(model.bias[token]), abs=1e-12)


def test_embedding_and_encoder_learn_and_the_vector_of_padding_stays_zero(model: MaskedTokenModel) -> None:
    ids, hidden, padding, segments = batch()
    model(ids, hidden, padding, segments).logsumexp(dim=-1).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name
    assert model.embedding.token.weight.grad[0].abs().sum() == 0
    assert (model.embedding.token.weight.grad[1:].abs().sum(dim=1) > 0).all()  # each is an answer that may be wrong


def test_nothing_hidden_gives_no_logits(model: MaskedTokenModel) -> None:
    ids, hidden, *rest = batch()
    assert model(ids, torch.zeros_like(hidden), *rest).shape == (0, V)
