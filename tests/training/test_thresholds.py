"""Thresholds: for each class the best there is, found by trying all of them, and what validation makes of them."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from headscope.model.objective import AnyClasses
from headscope.training.thresholds import AtBestThresholds, best_thresholds


def drawn(texts: int = 120, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(texts, classes, generator=random) < torch.tensor([0.5, 0.3, 0.1, 0.03])).to(torch.int8)
    logits = torch.randn(texts, classes, generator=random) + 1.5 * labels - torch.tensor([0.0, 1.0, 4.0, 6.0])
    return logits, labels


def test_no_threshold_has_a_higher_f1() -> None:
    logits, labels = drawn()
    probabilities, found = logits.double().sigmoid().numpy(), best_thresholds(logits, labels)
    for number, threshold in enumerate(found.tolist()):
        column, truth = probabilities[:, number], labels[:, number].numpy()
        reached = f1_score(truth, column >= threshold)
        assert reached == pytest.approx(max(f1_score(truth, column >= other) for other in column))
        assert np.abs(column - threshold).min() > 1e-9  # none lies so near that rounding would decide
        assert f1_score(truth, column >= 0.5, zero_division=0.0) <= reached


def test_a_class_that_no_text_has_keeps_a_half_and_one_that_all_have_is_given_to_all() -> None:
    logits = torch.tensor([[-3.0, -9.0, 1.0], [-2.0, -8.0, -1.0]])
    labels = torch.tensor([[0, 1, 1], [0, 1, 0]])
    found = best_thresholds(logits, labels)
    assert found[0] == 0.5
    assert AnyClasses(found).given(logits.sigmoid()).tolist() == [[False, True, True], [False, True, False]]


def test_validation_is_scored_at_its_own_best_thresholds_whatever_the_batches() -> None:
    logits, labels = drawn()
    given = AnyClasses(best_thresholds(logits, labels)).given(logits.double().sigmoid())
    for size in (7, 120):
        metric = AtBestThresholds()
        for rows in torch.arange(120).split(size):
            metric.update(logits[rows], labels[rows])
        assert metric.compute()["accuracy"].item() == pytest.approx(accuracy_score(labels, given))
        assert metric.compute()["macro_f1"].item() == pytest.approx(f1_score(labels, given, average="macro"))
        metric.reset()
        assert metric.logits == []
