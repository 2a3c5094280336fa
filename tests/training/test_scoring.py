"""Scores against scikit-learn and counts by hand; logits in the split's own order whatever the batches."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss

from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.token_ids import EncodedTexts
from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.training.logits import split_logits
from headscope.training.scoring import scores


def test_scores_are_those_of_scikit_learn() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(997, 5), torch.randint(0, 5, (997,))
    found, predicted = scores(logits, labels), logits.argmax(1)
    assert found.accuracy == pytest.approx(accuracy_score(labels, predicted))
    assert found.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert found.loss == pytest.approx(log_loss(labels, logits.double().softmax(1)), abs=1e-5)
    assert found.confusion == confusion_matrix(labels, predicted).tolist()


def test_calibration_error_counted_by_hand() -> None:
    # 10 texts at confidence 0.9, of which 6 are right; 10 at 0.7, of which 7 are: (0.3 * 10 + 0 * 10) / 20.
    probabilities = torch.tensor([[0.9, 0.1]] * 10 + [[0.7, 0.3]] * 10)
    labels = torch.tensor([0] * 6 + [1] * 4 + [0] * 7 + [1] * 3)
    assert scores(probabilities.log(), labels).calibration_error == pytest.approx(0.15, abs=1e-6)


def test_logits_come_in_the_splits_own_order_and_padding_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 30, 43)
    ids = rng.integers(1, 17, lengths.sum()).astype(np.int32)
    texts = EncodedTexts(ids, np.concatenate([[0], np.cumsum(lengths)]), None, 0)
    model = TextClassifier(ModelConfig(d_model=6, num_heads=3, num_layers=1, feedforward_size=5), 17, 3, 30).eval()
    labels = rng.integers(0, 3, 43)
    loader = BatchLoader(TextBatches(texts, labels), TokenBudgetSampler(lengths, 64, seed=5))
    ticks = []
    logits, targets = split_logits(model, loader, torch.device("cpu"), tick=lambda: ticks.append(1))
    assert len(ticks) == len(loader) > 5
    assert targets.tolist() == labels.tolist()
    for row in (0, 7, 42):
        alone = torch.from_numpy(ids[texts.starts[row] : texts.starts[row + 1]].astype(np.int64))[None]
        torch.testing.assert_close(logits[row], model(alone)[0])
