"""Scores against scikit-learn and counts by hand; logits in the split's own order whatever the batches."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss, multilabel_confusion_matrix

from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.token_ids import EncodedTexts
from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.model.objective import AnyClasses
from headscope.training.logits import split_logits
from headscope.training.scoring import MultiLabelScores, scores


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
    model = TextClassifier(
        ModelConfig(d_model=6, num_heads=3, num_layers=1, feedforward_size=5, evidence=False), 17, 3, 30
    ).eval()
    labels = rng.integers(0, 3, 43)
    loader = BatchLoader(TextBatches(texts, labels), TokenBudgetSampler(lengths, 64, seed=5))
    ticks = []
    logits, targets = split_logits(model, loader, torch.device("cpu"), tick=lambda: ticks.append(1))
    assert len(ticks) == len(loader) > 5
    assert targets.tolist() == labels.tolist()
    for row in (0, 7, 42):
        alone = torch.from_numpy(ids[texts.starts[row] : texts.starts[row + 1]].astype(np.int64))[None]
        torch.testing.assert_close(logits[row], model(alone)[0])


def test_scores_of_any_number_of_labels_are_those_of_scikit_learn() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(997, 5), torch.randint(0, 2, (997, 5), dtype=torch.int8)
    thresholds = torch.tensor([0.5, 0.2, 0.9, 0.4, 0.6], dtype=torch.float64)
    found, given = scores(logits, labels, AnyClasses(thresholds)), logits.double().sigmoid() >= thresholds
    assert isinstance(found, MultiLabelScores)
    assert found.accuracy == pytest.approx(accuracy_score(labels, given))
    assert found.micro_f1 == pytest.approx(f1_score(labels, given, average="micro"))
    assert found.macro_f1 == pytest.approx(f1_score(labels, given, average="macro"))
    columns = zip(labels.T.double(), logits.double().sigmoid().T, strict=True)
    assert found.loss == pytest.approx(np.mean([log_loss(truth, share) for truth, share in columns]), abs=1e-5)
    assert found.confusion == multilabel_confusion_matrix(labels, given).tolist()
    tables = found.tables(["a", "b", "c", "d", "e"])
    assert list(tables)[3] == "confusion/d"
    assert tables["confusion/d"] == (["not d", "d"], found.confusion[3])


def test_classes_that_no_text_has_or_is_given_are_left_out_of_macro_f1() -> None:
    labels = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    given = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    found = scores((given * 2 - 1).double(), labels, AnyClasses()).macro_f1
    assert found == pytest.approx(f1_score(labels, given, average="macro", zero_division=np.nan))
    assert found == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert scores(-torch.ones(3, 4), torch.zeros(3, 4, dtype=torch.int8), AnyClasses()).macro_f1 == 0


def test_calibration_error_of_any_number_of_labels_counted_by_hand() -> None:
    # 10 pairs at probability 0.9, of which 6 are there; 10 at 0.3, of which 3 are: (0.3 * 10 + 0 * 10) / 20.
    probabilities = torch.tensor([[0.9, 0.3]] * 10)
    labels = torch.tensor([[1, 1]] * 3 + [[1, 0]] * 3 + [[0, 0]] * 4)
    assert scores(probabilities.logit(), labels, AnyClasses()).calibration_error == pytest.approx(0.15, abs=1e-6)
