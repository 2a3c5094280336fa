"""Heads recorded while transformers.Trainer fine-tunes: the training stays the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import headscope
from foreign_classifiers import classifier, made_up
from headscope.record.reader import read_index, read_step
from headscope.record.schema import Index, weights_from

pytestmark = pytest.mark.slow
TEXTS, LABELS = made_up(48)
SHOWN = ["the film was not bad", "good"]


def fine_tuned(folder: Path, callbacks: list[Any], **options: Any) -> Any:
    """Fine-tune a tiny BERT for two epochs of twelve steps, and return the trainer."""
    pytest.importorskip(
        "accelerate", reason="transformers.Trainer needs it: pip install 'headscope[test]'"
    )
    model, tokenizer = classifier(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    data: Any = [
        dict(tokenizer(text), labels=label) for text, label in zip(TEXTS, LABELS, strict=True)
    ]
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "save_strategy": "no",
    }
    arguments = transformers.TrainingArguments(
        str(folder), use_cpu=True, disable_tqdm=True, **(settings | options)
    )  # fmt: skip
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=data[:8],
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    trainer.train()
    return trainer


def callback(**options: Any) -> headscope.HeadsCallback:
    _, tokenizer = classifier()
    return headscope.HeadsCallback(tokenizer, SHOWN, TEXTS, LABELS, **options)


def record_of(recorded: headscope.HeadsCallback) -> tuple[Path, Index]:
    return recorded.recorder.folder, read_index(recorded.recorder.folder)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eval_strategy": "steps", "eval_steps": 5, "report_to": "tensorboard"},
        {"bf16": True, "gradient_accumulation_steps": 3, "eval_strategy": "epoch"},
    ],
    ids=["defaults", "tensorboard", "bfloat16"],
)
def test_the_training_is_the_same_to_the_last_digit(
    options: dict[str, Any], tmp_path: Path
) -> None:
    recorded = callback()
    with_it = fine_tuned(tmp_path / "with", [recorded], **options).model
    without = fine_tuned(tmp_path / "without", [], **options).model.state_dict()
    assert all(torch.equal(tensor, without[name]) for name, tensor in with_it.state_dict().items())
    assert with_it.config._attn_implementation == "eager"
    folder, index = record_of(recorded)
    steps = {0: [0, 24], 5: [0, 5, 10, 15, 20, 24], 3: [0, 4, 8]}[
        options.get("eval_steps", 3 if "bf16" in options else 0)
    ]
    assert [step.step for step in index.steps] == steps
    assert index.kept == steps[-1]
    assert folder == tmp_path / "with/heads"


def test_the_record_has_maps_numbers_and_what_depends_on_each_head(tmp_path: Path) -> None:
    recorded = callback(folder=tmp_path / "record")
    trainer = fine_tuned(tmp_path / "out", [recorded])
    folder, index = record_of(recorded)
    assert folder == tmp_path / "record/heads"
    assert list((tmp_path / "record").glob("events.out.tfevents.*"))
    assert (index.layers, index.heads, index.classes) == (
        ["layer 0", "layer 1", "layer 2"],
        [3] * 3,
        ["blame", "praise"],
    )
    assert [(text.tokens[1], text.special, text.readout) for text in index.texts] == [
        ("the", [0, 6], 0),
        ("good", [0, 2], 0),
    ]
    first, last = (read_step(folder / step.file) for step in index.steps)
    model, tokenizer = trainer.model.eval(), trainer.processing_class
    with torch.no_grad():
        own = model(**tokenizer(SHOWN[0], return_tensors="pt"), output_attentions=True)
    shown = weights_from(last["text_0/layer_2/levels"], last["text_0/layer_2/scales"])
    np.testing.assert_allclose(shown, own.attentions[2][0], atol=1 / 255)
    np.testing.assert_allclose(last["text_0/probabilities"], own.logits[0].softmax(0), atol=1e-6)
    assert first["numbers/entropy/mean"].shape == (3, 3)
    assert "numbers/loss_zeroed/mean" not in first
    assert recorded.study is not None
    effects = [mean for mean, _ in recorded.study.loss_increases().values()]
    np.testing.assert_allclose(last["numbers/loss_zeroed/mean"].ravel(), effects, rtol=1e-5)
    assert (last["numbers/loss_zeroed/error"] > 0).all()
    assert "48 texts" in index.notes["causes"]


def test_the_best_weights_are_studied_where_they_are_kept(tmp_path: Path) -> None:
    recorded = callback()
    options = {
        "eval_strategy": "steps",
        "eval_steps": 6,
        "save_strategy": "steps",
        "save_steps": 6,
        "learning_rate": 0.05,
    }
    trainer = fine_tuned(tmp_path, [recorded], load_best_model_at_end=True, **options)
    folder, index = record_of(recorded)
    assert trainer.state.best_model_checkpoint.endswith(f"-{index.kept}")
    kept = next(step for step in index.steps if step.step == index.kept)
    assert "numbers/loss_zeroed/mean" in read_step(folder / kept.file)
    before = [step.file for step in index.steps]
    trainer.evaluate()  # after the training: of no new step
    assert [step.file for step in record_of(recorded)[1].steps] == before


def test_without_labelled_texts_maps_and_numbers_are_recorded_and_no_effects(
    tmp_path: Path,
) -> None:
    _, tokenizer = classifier()
    recorded = headscope.HeadsCallback(tokenizer, SHOWN)
    fine_tuned(tmp_path, [recorded])
    folder, index = record_of(recorded)
    last = read_step(folder / index.steps[-1].file)
    assert "numbers/entropy/mean" in last
    assert "numbers/loss_zeroed/mean" not in last
    assert index.kept is None
    assert recorded.study is None


def test_what_it_is_made_of_is_checked_at_once() -> None:
    for shown, options, message in [
        ("one text", {}, "expected a list of texts"),
        (SHOWN, {"texts": TEXTS}, "expected both or neither"),
    ]:
        with pytest.raises(ValueError, match=message):
            headscope.HeadsCallback(None, shown, **options)
