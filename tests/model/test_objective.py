"""Any number of classes: loss, probabilities and answers, against torch and by hand."""

import pytest
import torch
import torch.nn.functional as F

from headscope.model.objective import MultiLabel, SingleLabel

LABELS = ["a", "b", "c"]


@pytest.fixture
def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(50, 3, dtype=torch.float64), torch.randint(0, 2, (50, 3), dtype=torch.int8)


def test_the_loss_is_the_mean_over_texts_and_classes(
    drawn: tuple[torch.Tensor, torch.Tensor],
) -> None:
    logits, labels = drawn
    p, y = 1 / (1 + (-logits).exp()), labels.double()
    entropies = -(y * p.log() + (1 - y) * (1 - p).log())
    torch.testing.assert_close(MultiLabel().loss(logits, labels), entropies.mean())
    torch.testing.assert_close(MultiLabel().losses(logits, labels), entropies.mean(dim=1))
    torch.testing.assert_close(MultiLabel().probabilities(logits), p)


def test_a_text_weighs_as_its_class_does(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, weights = drawn[0], torch.tensor([0.3, 19.0, 1.5], dtype=torch.float64)
    labels = torch.arange(50) % 3
    losses = [
        -weights[label] * row.log_softmax(-1)[label]
        for row, label in zip(logits, labels, strict=True)
    ]
    wanted = sum(losses) / weights[labels].sum()
    torch.testing.assert_close(SingleLabel().loss(logits, labels, weights), wanted)


def test_weights_count_the_texts_that_have_a_class(
    drawn: tuple[torch.Tensor, torch.Tensor],
) -> None:
    logits, labels = drawn
    weights = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)
    log_p, log_q = F.logsigmoid(logits), F.logsigmoid(-logits)
    y = labels.double()
    wanted = -(torch.where(labels.bool(), weights, 1.0) * (y * log_p + (1 - y) * log_q)).mean()
    torch.testing.assert_close(MultiLabel().loss(logits, labels, weights), wanted)


def test_the_loss_of_bfloat16_is_computed_in_float32() -> None:
    logits = torch.tensor([[8.0, -8.0]], dtype=torch.bfloat16)
    loss = MultiLabel().loss(logits, torch.tensor([[1, 0]]))
    assert loss.dtype == torch.float32
    torch.testing.assert_close(
        loss, MultiLabel().loss(logits.double(), torch.tensor([[1, 0]])).float()
    )


def test_balanced_weights_give_those_with_a_class_the_say_of_those_without() -> None:
    weights = MultiLabel().balanced_weights(torch.tensor([10.0, 50.0, 0.0, 100.0]), 100)
    assert weights.tolist() == pytest.approx([9, 1, 100, 0.01])


def test_a_text_is_predicted_to_have_each_class_whose_probability_reaches_its_threshold() -> None:
    shares = torch.tensor([[0.5, 0.2, 0.9], [0.49, 0.1, 0.1]])
    chosen = MultiLabel(torch.tensor([0.6, 0.2, 0.9], dtype=torch.float64))
    assert MultiLabel().predicted(shares).tolist() == [[True, False, True], [False, False, False]]
    assert chosen.predicted(shares).tolist() == [[False, True, True], [False, False, False]]
    assert chosen.names(chosen.predicted(shares), LABELS) == [["b", "c"], []]


def test_correct_is_all_classes_and_no_other() -> None:
    logits = torch.tensor([[1.0, -1.0, 1.0]]).repeat(3, 1)
    labels = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 1]], dtype=torch.int8)
    assert MultiLabel().correct(logits, labels).tolist() == [True, False, False]
    strict = MultiLabel(torch.tensor([0.9, 0.5, 0.5]))
    assert strict.correct(logits, labels).tolist() == [False, False, True]
    assert MultiLabel().has(labels, 3).tolist() == labels.bool().tolist()


def test_one_class_is_the_likeliest(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, objective = drawn[0], SingleLabel()
    labels = torch.randint(0, 3, (50,))
    predicted = objective.predicted(objective.probabilities(logits))
    assert predicted.sum(dim=1).tolist() == [1] * 50
    assert objective.names(predicted, LABELS) == [LABELS[best] for best in logits.argmax(dim=1)]
    has = objective.has(labels, 3)
    assert objective.names(has, LABELS) == [LABELS[label] for label in labels]
    assert torch.equal(objective.correct(logits, labels), (predicted == has).all(dim=1))
    torch.testing.assert_close(
        objective.losses(logits, labels).mean(), objective.loss(logits, labels)
    )
