"""Evidence in the network: the sum it is, and where it goes; `headscope verify` ablates all heads of a classifier."""

import pytest
import torch
from torch import Tensor

from headscope.data.evidence import Ngrams
from headscope.heads.capture import ablate, capture, headed_layers
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.embedding import TokenEvidence
from headscope.settings.config import ModelConfig

NGRAMS, CLASSES, TEXTS, LENGTH = 13, 3, 5, 7


@pytest.fixture
def evidence() -> Ngrams:
    torch.manual_seed(0)
    places = torch.randint(0, TEXTS * LENGTH, (41,))
    places += places % LENGTH == 0  # none at [CLS]
    return Ngrams(torch.randint(0, NGRAMS, (41,)), places, torch.tensor([0, 1, 0, 1, 1]))


def filled(dropout: float = 0.0) -> TokenEvidence:
    layer = TokenEvidence(NGRAMS, CLASSES, dropout).double()
    layer.set_ratios(torch.randn(3, NGRAMS, CLASSES, dtype=torch.float64))
    torch.nn.init.normal_(layer.weight)
    return layer


@pytest.mark.parametrize("training", [False, True])
def test_a_token_says_the_sum_of_its_ngrams(evidence: Ngrams, training: bool) -> None:
    layer = filled().train(training)
    expected = torch.zeros(TEXTS, LENGTH, CLASSES, dtype=torch.float64)
    for ngram, place in zip(evidence.ids.tolist(), evidence.places.tolist(), strict=True):
        row, token = divmod(place, LENGTH)
        ratio = layer.fold_ratios[evidence.folds[row]] if training else layer.ratio
        expected[row, token] += layer.weight[ngram] * ratio[ngram]
    torch.testing.assert_close(layer(evidence, LENGTH), expected, atol=1e-12, rtol=0)


def test_the_sum_of_many_ngrams_at_a_token_is_scaled_by_the_root_of_their_number() -> None:
    layer = filled().eval()
    for count, scale in ((64, 1.0), (65, (64 / 65) ** 0.5), (640, 0.1**0.5)):
        many = Ngrams(
            torch.arange(count) % NGRAMS,
            torch.full((count,), 2),
            torch.zeros(1, dtype=torch.long),
        )
        expected = scale * (layer.weight * layer.ratio)[many.ids].sum(dim=0)
        torch.testing.assert_close(layer(many, LENGTH)[0, 2], expected)


def test_ngrams_are_dropped_whole_in_training_alone(evidence: Ngrams) -> None:
    layer = filled(dropout=0.5)
    torch.nn.init.ones_(layer.weight)
    one = Ngrams(torch.arange(NGRAMS), torch.arange(NGRAMS), torch.zeros(1, dtype=torch.long))
    said = layer(one, NGRAMS)[0] / layer.fold_ratios[0]
    assert {round(value, 9) for value in said.flatten().tolist()} == {0.0, 2.0}
    assert ((said == 0).all(dim=1) | (said != 0).all(dim=1)).all()
    torch.testing.assert_close(layer.eval()(one, NGRAMS)[0], layer.ratio)


def test_ratios_of_folds_are_not_kept() -> None:
    assert set(filled().state_dict()) == {"weight", "ratio"}


def classifier(**settings: object) -> TextClassifier:
    config = ModelConfig(
        **{"d_model": 12, "num_heads": 3, "num_layers": 3, "feedforward_size": 17, **settings}
    )  # type: ignore[arg-type]
    model = (
        TextClassifier(architecture_from(config, 31, LENGTH, 2), CLASSES, NGRAMS).double().eval()
    )
    if model.evidence is not None:
        model.evidence.set_ratios(torch.randn(3, NGRAMS, CLASSES, dtype=torch.float64))
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.5)
    return model


def inputs(model: TextClassifier, evidence: Ngrams) -> tuple[object, ...]:
    ids = 3 + (torch.arange(TEXTS * LENGTH).view(TEXTS, LENGTH) * 11) % 28
    ids[:, 0] = 2
    padding = torch.arange(LENGTH) >= torch.tensor([7, 5, 4, 6, 3])[:, None]
    segments = (torch.arange(LENGTH) > 3).long().expand(TEXTS, -1)
    return (ids, padding, segments, *([evidence] if model.evidence is not None else []))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_with_other_poolings_tokens_bypass_attention(pooling: str, evidence: Ngrams) -> None:
    model = classifier(pooling=pooling)
    off = {(name, head): "zero" for name in headed_layers(model) for head in range(3)}
    with torch.no_grad(), ablate(model, off):  # type: ignore[arg-type]
        blind = model(*inputs(model, evidence))
    assert not any(torch.equal(blind[0], row) for row in blind[1:])


@pytest.mark.parametrize(
    "settings", [{}, {"window": 2}, {"num_kv_heads": 1}, {"attention": "shared_projection"}]
)
def test_the_last_block_makes_the_same_first_vector_alone(
    settings: dict[str, object], evidence: Ngrams
) -> None:
    model = classifier(**settings)
    given = inputs(model, evidence)
    with torch.no_grad():
        alone = model(*given)
        with capture(model, poolings=False) as maps:  # watched, it makes all
            watched = model(*given)
    torch.testing.assert_close(alone, watched, atol=1e-12, rtol=0)
    assert {tuple(weights.shape) for weights in maps.values()} == {(TEXTS, 3, LENGTH, LENGTH)}


def test_evidence_reaches_the_values_past_the_norm(evidence: Ngrams) -> None:
    """Twice the evidence moves a value by twice as much, which a norm before it would not let through."""
    model = classifier(num_layers=1)
    block, seen = model.encoder.blocks[0], []
    block.attention.register_forward_hook(lambda layer, given, output: seen.append(given))
    tokens = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    said = torch.randn(2, LENGTH, CLASSES, dtype=torch.float64)
    for factor in (0.0, 1.0, 2.0):
        block(tokens, evidence=factor * said)
    shifts: list[Tensor] = [values[2] - seen[0][2] for values in seen[1:]]
    torch.testing.assert_close(shifts[1], 2 * shifts[0])
    assert shifts[0].abs().max() > 0.1
