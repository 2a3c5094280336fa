"""A run that begins with a checkpoint: its tokenizer, its sizes, its weights, and a folder that needs no checkpoint."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from bert_family import HEADS, HIDDEN, LAYERS, PLACES, WIDTH
from headscope.cli.evaluate import evaluate
from headscope.cli.inspect import inspect, measure
from headscope.cli.predict import predict
from headscope.command_settings import EvaluateConfig, InspectConfig, PredictConfig
from headscope.config import ModelConfig, OptimizerConfig, TrainConfig
from headscope.errors import ConfigError
from headscope.heads.study import special_tokens
from headscope.model.classifier import TextClassifier
from headscope.model.pretrained import find_checkpoint, load_weights
from headscope.record.reader import read_index, read_step
from headscope.run import load_run
from headscope.training.train import train
from headscope.validation import check
from training_runs import from_checkpoint


def quick(config: TrainConfig, steps: int = 2) -> TrainConfig:
    """Leave out what takes longest."""
    config.inspection.enabled, config.trainer.max_steps = False, steps
    return config


@pytest.mark.slow
@pytest.mark.parametrize("family", ["xlm-roberta", "bert"])
def test_a_run_from_a_checkpoint_can_be_used_by_every_command_without_it(
    family: str, tmp_path: Path
) -> None:
    config = from_checkpoint(tmp_path, family)
    config.trainer.max_steps = 3
    report = train(config)
    shutil.rmtree(tmp_path / "checkpoint")
    run, folder = load_run(report.folder), str(report.folder)
    assert run.config == config
    model = run.config.model
    assert (model.d_model, model.num_heads, model.num_layers, model.feedforward_size) == (
        WIDTH,
        HEADS,
        LAYERS,
        HIDDEN,
    )
    assert (run.config.data.max_length, model.positions) == (PLACES, "learned")
    assert run.tokenizer.truncation["max_length"] == PLACES
    assert run.tokenizer.padding is None
    index = read_index(report.folder / "heads")
    assert (len(index.layers), index.heads, index.steps[0].step) == (LAYERS, [HEADS] * LAYERS, 0)
    first, last = ("<s>", "</s>") if "roberta" in family else ("[CLS]", "[SEP]")
    assert (index.texts[0].tokens[0], index.texts[0].tokens[-1]) == (first, last)
    special = special_tokens(run.tokenizer)
    assert special.fixed == (run.tokenizer.token_to_id(first), run.tokenizer.token_to_id(last))
    assert special.separators == (run.tokenizer.token_to_id(last),)
    assert evaluate(EvaluateConfig(run=folder, accelerator="cpu")) == report.test
    (tmp_path / "texts.txt").write_text("a lovely film\nan awful day with rain\n")
    output = str(tmp_path / "labels.csv")
    assert (
        predict(PredictConfig(folder, str(tmp_path / "texts.txt"), output, accelerator="cpu")) == 2
    )
    page = inspect(InspectConfig(run=folder, text="a lovely film", accelerator="cpu"))
    assert f"layers: {LAYERS}, heads: {HEADS}, width {WIDTH}" in page.read_text(encoding="utf-8")
    measured = json.loads(
        measure(InspectConfig(run=folder, texts=8, accelerator="cpu")).read_text()
    )
    assert len(measured["heads"]) == LAYERS


def test_training_begins_with_the_checkpoints_weights_and_tokenizer(tmp_path: Path) -> None:
    config = quick(from_checkpoint(tmp_path, "roberta"))
    config.optimizer = OptimizerConfig(learning_rate=1e-20, weight_decay=0.0)
    config.data.max_length = 16
    folder, weights = train(config).folder, load_file(tmp_path / "checkpoint/model.safetensors")
    model = load_run(folder).model
    assert torch.equal(model.embedding.token.weight, weights["embeddings.word_embeddings.weight"])
    block = "encoder.layer.2.attention"
    heads = [weights[f"{block}.self.{name}.weight"] for name in ("query", "key", "value")]
    assert torch.equal(model.encoder.blocks[2].attention.in_proj_weight, torch.cat(heads))
    assert torch.equal(
        model.encoder.blocks[2].attention.out_proj.bias, weights[f"{block}.output.dense.bias"]
    )
    kept, theirs = (
        json.loads(Tokenizer.from_file(str(path / "tokenizer.json")).to_str())
        for path in (folder, tmp_path / "checkpoint")
    )
    assert kept["truncation"]["max_length"] == 16
    assert {**kept, "truncation": 0, "padding": 0} == {**theirs, "truncation": 0, "padding": 0}


@pytest.mark.parametrize("frozen", [0, 2])
def test_frozen_layers_stay_as_they_are_and_the_others_learn(frozen: int, tmp_path: Path) -> None:
    config = quick(from_checkpoint(tmp_path, frozen_layers=frozen))
    model, checkpoint = (
        load_run(train(config).folder).model,
        find_checkpoint(str(tmp_path / "checkpoint")),
    )
    before = TextClassifier(ModelConfig(), 1, 2, 1, architecture=checkpoint.architecture)
    load_weights(before, checkpoint)
    parts = ["embedding", *(f"encoder.blocks.{number}" for number in range(LAYERS))]
    changed = [
        any(
            not torch.equal(new, old)
            for new, old in zip(one.parameters(), other.parameters(), strict=True)
        )
        for one, other in (
            (model.get_submodule(part), before.get_submodule(part)) for part in parts
        )
    ]
    assert changed == [False] * (frozen + 1) + [True] * (LAYERS - frozen)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pairs_of_texts_are_trained_on_with_and_without_types(family: str, tmp_path: Path) -> None:
    words = [a + b for a in "abcdefghi" for b in "jklmnopqr"]
    rows = [
        {"text": f"a {word} film", "other": f"the {word[::-1]} day", "label": "xy"[number % 2]}
        for number, word in enumerate(words)
    ]
    config = from_checkpoint(tmp_path, family, rows)
    config.trainer.max_steps = 2
    report = train(config)
    index = read_index(report.folder / "heads")
    shown = zip(index.texts[0].tokens, index.texts[0].segments or [], strict=True)
    start, end = ("[CLS]", "[SEP]") if family == "bert" else ("<s>", "</s>")
    assert [token for token, segment in shown if segment is None] == [
        start,
        *[end] * (2 if family == "bert" else 3),
    ]
    crossing = read_step(report.folder / "heads" / index.steps[-1].file)["numbers/crossing/mean"]
    assert ((crossing[:-1] > 0) & (crossing[:-1] < 1)).all()
    types = load_run(report.folder).model.embedding.segment
    assert types.num_embeddings == (2 if family == "bert" else 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"num_heads": 11},
            "model.num_heads: expected 3, as in the checkpoint of model.path, got 11",
        ),
        (
            {"frozen_layers": 4},
            "model.frozen_layers: expected at most 3, the layers of the checkpoint, got 4",
        ),
    ],
)
def test_what_contradicts_the_checkpoint_is_refused_with_its_key(
    options: dict[str, int], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        train(from_checkpoint(tmp_path, **options))
    assert str(refusal.value).startswith(words)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ""}, "path\n.*expected a directory or a Hub id"),
        (
            {"path": "./nowhere", "evidence": False},
            "model.path: expected a directory that exists, got './nowhere'",
        ),
        ({"frozen_layers": 1}, "frozen_layers\n.*expected null without model.path"),
        ({"revision": "v1"}, "revision\n.*expected null without model.path"),
        ({"path": "some/id", "window": 3}, "window\n.*expected null with model.path"),
        (
            {"path": "some/id", "attention": "shared_projection"},
            "attention\n.*expected 'multi_head' with model.path",
        ),
    ],
)
def test_what_does_not_go_with_a_checkpoint_is_refused_early(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises((ValueError, ConfigError), match=words):
        check(TrainConfig(model=ModelConfig(**options)))


def test_a_resumed_run_needs_no_checkpoint_and_takes_other_rates_for_its_layers(
    tmp_path: Path,
) -> None:
    before, after = 0.8, 0.5
    config = quick(from_checkpoint(tmp_path), steps=3)
    config.optimizer.layer_decay = before
    folder = train(config).folder
    shutil.rmtree(tmp_path / "checkpoint")
    again = replace(
        config,
        resume=str(folder),
        trainer=replace(config.trainer, max_steps=5),
        optimizer=replace(config.optimizer, layer_decay=after, learning_rate=0.25),
    )
    check(again)
    assert train(again).facts_of_training["steps"] == 5
    last = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    (state,) = last["optimizer_states"]
    peaks = {group["initial_lr"] for group in state["param_groups"]}
    assert sorted(peaks) == pytest.approx(
        sorted({0.25 * after**distance for distance in range(LAYERS + 2)})
    )
    assert {int(memory["step"]) for memory in state["state"].values()} == {last["global_step"]}
