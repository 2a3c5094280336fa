"""Few texts on a checkpoint: the contrastive loss, the head read off by logistic regression, and when both are chosen."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from bert_family import write_checkpoint
from headscope.data.batching import TextBatches
from headscope.ground.errors import ConfigError
from headscope.model.classifier import TextClassifier
from headscope.model.families import architecture_of
from headscope.model.opened import load_weights
from headscope.runs.run import load_run
from headscope.settings.config import TrainConfig
from headscope.training.contrastive import contrastive_loss, fit_head
from headscope.training.train import train
from training_runs import (
    changed,
    comments,
    from_checkpoint,
    reviews,
    unbroken_and_resumed,
    weights_of,
)


def test_the_loss_is_that_of_the_paper_written_out() -> None:
    torch.manual_seed(0)
    vectors, labels = torch.randn(7, 5), [0, 1, 0, 2, 1, 0, 3]  # 2 and 3 are alone in their class
    unit = [vector / np.linalg.norm(vector) for vector in vectors.double().numpy()]
    found = []
    for i, own in enumerate(labels):
        others = [a for a in range(7) if a != i]
        all_of_them = sum(math.exp(unit[i] @ unit[a] / 0.1) for a in others)
        positive = [p for p in others if labels[p] == own]
        logs = [math.log(math.exp(unit[i] @ unit[p] / 0.1) / all_of_them) for p in positive]
        found.append(-sum(logs) / max(1, len(positive)))
    loss = contrastive_loss(vectors, torch.tensor(labels))
    assert loss.item() == pytest.approx(sum(found) / 7, rel=1e-5)


@pytest.mark.parametrize("num_classes", [2, 5])
def test_the_head_gives_the_probabilities_of_logistic_regression(num_classes: int) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(53) % num_classes
    vectors = generator.normal(size=(53, 7)) + 3 * np.eye(7)[labels]
    scaled = vectors / np.linalg.norm(vectors, axis=1).mean()
    expected = LogisticRegression(max_iter=1000).fit(scaled, labels).predict_proba(scaled)
    head = nn.Linear(7, num_classes).double()
    fit_head(head, torch.from_numpy(vectors), torch.from_numpy(labels))
    found = head(torch.from_numpy(vectors)).softmax(dim=-1)
    assert np.abs(found.detach().numpy() - expected).max() < 1e-4


def contrastive(folder: Path, **model: object) -> TrainConfig:
    """Return a run on a tiny BERT whose loss is chosen by the number of texts."""
    config = changed(from_checkpoint(folder, **model), "optimizer.contrastive", None)
    return replace(config, inspection=replace(config.inspection, enabled=False))


@pytest.mark.parametrize("other", ["FEW_TEXTS", "FEW_OF_A_CLASS"])  # one bound is enough
def test_of_few_texts_the_vectors_learn_and_the_head_is_read_off_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(f"headscope.training.prepare.{other}", 1)
    report = train(changed(contrastive(tmp_path), "trainer.epoch_steps", 1))
    assert report is not None
    assert (report.config.optimizer.contrastive, report.config.model.frozen_layers) == (True, 1)
    assert report.facts_of_training["steps"] == 2 * 17  # two passes, batches of 16 texts
    run = load_run(report.folder)
    model = run.model
    encoder = run.setup.encoder
    assert isinstance(model, TextClassifier)
    assert encoder is not None
    before = TextClassifier(architecture_of(encoder), 2).eval()
    load_weights(before, encoder, tmp_path / "checkpoint")
    inputs = TextBatches(run.encode([(row["text"],) for row in reviews()]))[[*range(240)]].inputs
    labels = torch.arange(240) % 2
    with torch.no_grad():
        vectors = model.text_vectors(*inputs)
        assert (model.head(vectors) - model(*inputs)).abs().max() < 1e-5
        first = before.text_vectors(*inputs)
        assert contrastive_loss(vectors, labels) < contrastive_loss(first, labels)
    # Logistic regression alone leaves the two rows of two classes with opposite signs.
    assert (model.head.weight[0] + model.head.weight[1]).abs().max() < 1e-6


def test_a_batch_has_about_as_many_texts_as_there_are_classes(tmp_path: Path) -> None:
    rows = [row | {"label": str(number % 40)} for number, row in enumerate(reviews())]
    report = train(changed(contrastive(tmp_path, rows=rows), "trainer.epoch_steps", 1))
    assert report is not None
    assert report.facts_of_training["steps"] == 2 * 7  # of 34 texts


def test_a_resumed_run_ends_as_an_unbroken_one(
    tmp_path: Path, interrupt_at: Callable[..., None]
) -> None:
    config = contrastive(tmp_path)
    unbroken, resumed = unbroken_and_resumed(config, tmp_path / "checkpoint", interrupt_at)
    assert weights_of(unbroken.folder) == weights_of(resumed.folder)


def test_a_checkpoint_with_such_a_head_keeps_it_and_its_loss(tmp_path: Path) -> None:
    config = contrastive(tmp_path)
    texts = [row["text"] for row in reviews()]
    write_checkpoint(tmp_path / "checkpoint", "bert", texts, "ForSequenceClassification")
    report = train(config)
    assert report is not None
    assert (report.config.optimizer.contrastive, report.config.model.frozen_layers) == (False, None)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("model.path", None, "without a model.path that opens"),
        ("model.evidence", True, "with model.evidence, whose weights it does not learn"),
        ("optimizer.class_weights", "balanced", "with optimizer.class_weights=balanced"),
        (
            "data.tokens_per_batch",
            32,
            "with texts of 13 tokens, of which a batch has fewer than 16",
        ),
    ],
)
def test_where_it_cannot_be_it_is_said(tmp_path: Path, key: str, value: object, why: str) -> None:
    config = changed(changed(contrastive(tmp_path), "optimizer.contrastive", True), key, value)
    with pytest.raises(ConfigError, match=f"optimizer.contrastive: expected false {why}"):
        train(config)


def test_of_several_labels_a_text_it_is_not_chosen(tmp_path: Path) -> None:
    report = train(contrastive(tmp_path, rows=comments()))
    assert report is not None
    assert report.config.optimizer.contrastive is False
