"""A run that begins with a checkpoint: its tokenizer, its sizes, its weights, and a folder that needs no checkpoint."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from bert_family import FAMILIES, HEADS, HIDDEN, LAYERS, PLACES, WIDTH, write_checkpoint
from headscope.commands.config import EvaluateConfig, InspectConfig, PredictConfig
from headscope.commands.evaluate import evaluate
from headscope.commands.inspect import inspect, measure
from headscope.commands.predict import predict
from headscope.errors import ConfigError
from headscope.inspection.record import read_index, read_step
from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.model.pretrained.checkpoint import find_checkpoint, load_weights
from headscope.settings import problems
from headscope.training.config import OptimizerConfig, TrainConfig
from headscope.training.folder import load_run
from headscope.training.run import train
from headscope.training.study import special_tokens

Maker = Callable[..., TrainConfig]


@pytest.fixture
def configured(small_config: Maker, tmp_path: Path) -> Maker:
    """Return a maker of configurations of runs that begin with a tiny checkpoint in `tmp_path / "checkpoint"`."""

    def make(family: str = "bert", name: str = "run", model: ModelConfig | None = None) -> TrainConfig:
        config = small_config(name, max_epochs=1)
        with Path(config.data.path).open(encoding="utf-8", newline="") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
        folder = write_checkpoint(tmp_path / "checkpoint", family, texts)
        return replace(config, model=replace(model or ModelConfig(), path=str(folder), evidence=False))

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_from_a_checkpoint_can_be_used_without_it(family: str, configured: Maker, tmp_path: Path) -> None:
    config = configured(family)
    report = train(config)
    shutil.rmtree(tmp_path / "checkpoint")
    run = load_run(report.folder)
    assert run.config == config
    model = run.config.model
    assert (model.d_model, model.num_heads, model.num_layers, model.feedforward_size) == (WIDTH, HEADS, LAYERS, HIDDEN)
    assert (run.config.data.max_length, model.positions) == (PLACES, "learned")
    assert run.tokenizer.truncation["max_length"] == PLACES
    assert run.tokenizer.padding is None
    assert evaluate(EvaluateConfig(run=str(report.folder), accelerator="cpu")) == report.test
    index = read_index(report.folder / "heads")
    assert (len(index.layers), index.heads, index.steps[0].step) == (LAYERS, [HEADS] * LAYERS, 0)
    first, last = ("<s>", "</s>") if "roberta" in family else ("[CLS]", "[SEP]")
    assert (index.texts[0].tokens[0], index.texts[0].tokens[-1]) == (first, last)
    special = special_tokens(run.tokenizer)
    assert special.fixed == (run.tokenizer.token_to_id(first), run.tokenizer.token_to_id(last))
    assert special.separators == (run.tokenizer.token_to_id(last),)


def test_every_script_works_on_such_a_run(configured: Maker, tmp_path: Path) -> None:
    folder = train(configured("xlm-roberta")).folder
    (tmp_path / "texts.txt").write_text("a lovely film\nan awful day with rain\n")
    output = tmp_path / "labels.csv"
    assert predict(PredictConfig(str(folder), str(tmp_path / "texts.txt"), str(output), accelerator="cpu")) == 2
    page = inspect(InspectConfig(run=str(folder), text="a lovely film", accelerator="cpu"))
    assert f"{LAYERS} layers, {HEADS} heads, width {WIDTH}" in page.read_text(encoding="utf-8")
    measured = json.loads(measure(InspectConfig(run=str(folder), texts=8, accelerator="cpu")).read_text())
    assert len(measured["heads"]) == LAYERS


def test_training_begins_with_the_checkpoints_weights(configured: Maker, tmp_path: Path) -> None:
    config = configured()
    config.optimizer = OptimizerConfig(learning_rate=1e-20, weight_decay=0.0)
    config.trainer.ema_decay = None
    weights, kept = load_file(tmp_path / "checkpoint/model.safetensors"), load_run(train(config).folder).model
    assert torch.equal(kept.embedding.token.weight, weights["embeddings.word_embeddings.weight"])
    block = "encoder.layer.2.attention"
    heads = [weights[f"{block}.self.{name}.weight"] for name in ("query", "key", "value")]
    assert torch.equal(kept.encoder.blocks[2].attention.in_proj_weight, torch.cat(heads))
    assert torch.equal(kept.encoder.blocks[2].attention.out_proj.bias, weights[f"{block}.output.dense.bias"])


@pytest.mark.parametrize("frozen", [0, 2, LAYERS])
def test_frozen_layers_stay_as_they_are_and_the_others_learn(frozen: int, configured: Maker, tmp_path: Path) -> None:
    config = configured(model=ModelConfig(frozen_layers=frozen))
    config.trainer.ema_decay = None  # an average of equal numbers differs from them by rounding
    model = load_run(train(config).folder).model
    before = loaded(tmp_path / "checkpoint")
    parts = ["embedding", *(f"encoder.blocks.{number}" for number in range(LAYERS))]
    changed = [
        any(not torch.equal(new, old) for new, old in zip(one.parameters(), other.parameters(), strict=True))
        for one, other in ((model.get_submodule(part), before.get_submodule(part)) for part in parts)
    ]
    assert changed == [False] * (frozen + 1) + [True] * (LAYERS - frozen)


def loaded(folder: Path) -> TextClassifier:
    checkpoint = find_checkpoint(str(folder))
    model = TextClassifier(ModelConfig(), 1, 2, 1, architecture=checkpoint.architecture)
    load_weights(model, checkpoint)
    return model


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pairs_of_texts_are_trained_on_with_and_without_types(family: str, configured: Maker, tmp_path: Path) -> None:
    config = configured(family)
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "other", "label"])
        words = [a + b for a in "abcdefghi" for b in "jklmnopqr"]
        writer.writerows((f"a {word} film", f"the {word[::-1]} day", number % 2) for number, word in enumerate(words))
    config.data = replace(config.data, path=str(path), text_pair_column="other")
    report = train(config)
    assert evaluate(EvaluateConfig(run=str(report.folder), accelerator="cpu")) == report.test
    index = read_index(report.folder / "heads")
    shown = zip(index.texts[0].tokens, index.texts[0].segments or [], strict=True)
    start, end = ("[CLS]", "[SEP]") if family == "bert" else ("<s>", "</s>")
    assert [token for token, segment in shown if segment is None] == [start, *[end] * (2 if family == "bert" else 3)]
    crossing = read_step(report.folder / "heads" / index.steps[-1].file)["numbers/crossing/mean"]
    assert ((crossing > 0) & (crossing < 1)).all()
    types = load_run(report.folder).model.embedding.segment
    assert types.num_embeddings == (2 if family == "bert" else 1)


def test_a_resumed_run_needs_no_checkpoint(configured: Maker, tmp_path: Path) -> None:
    config = configured()
    folder = train(config).folder
    shutil.rmtree(tmp_path / "checkpoint")
    again = replace(config, resume=str(folder), trainer=replace(config.trainer, max_epochs=2))
    assert list(problems(again)) == []
    assert train(again).facts_of_training["epochs"] == 2
    assert load_run(folder).model.encoder.blocks[0].attention.num_heads == HEADS


def test_a_run_without_its_encoder_is_refused_by_name(configured: Maker) -> None:
    folder = train(configured()).folder
    (folder / "encoder.json").write_text("[]")
    with pytest.raises(Exception, match=r"encoder\.json: does not describe an encoder"):
        load_run(folder)
    (folder / "encoder.json").unlink()
    with pytest.raises(Exception, match=r"encoder\.json missing"):
        load_run(folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_heads": 11}, "model.num_heads: got 11, and the checkpoint of model.path has 3"),
        ({"frozen_layers": 4}, "model.frozen_layers: got 4, and the checkpoint has 3 layers"),
    ],
)
def test_what_contradicts_the_checkpoint_is_refused_with_its_key(
    options: dict[str, int], words: str, configured: Maker, tmp_path: Path
) -> None:
    config = configured(model=ModelConfig(**options))
    with pytest.raises(ConfigError) as refusal:
        train(config)
    assert str(refusal.value).startswith(words)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ""}, "model.path: is missing; give it as model.path=..."),
        ({"path": "./nowhere"}, "model.path: got './nowhere', takes a folder that exists"),
        ({"frozen_layers": 1}, "model.frozen_layers: got 1, takes null without model.path"),
        ({"revision": "v1"}, "model.revision: got 'v1', takes null without model.path"),
        ({"path": "some/id", "window": 3}, "model.window: got 3, but model.path was trained with None"),
        ({"path": "some/id", "attention": "shared_projection"}, "model.attention: got 'shared_projection'"),
    ],
)
def test_what_does_not_go_with_a_checkpoint_is_refused_early(options: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(TrainConfig(model=ModelConfig(**options))))


def test_the_checkpoints_tokenizer_is_the_runs(configured: Maker, tmp_path: Path) -> None:
    config = configured("roberta")
    config.data.max_length = 16
    folder = train(config).folder
    kept, theirs = (
        json.loads(Tokenizer.from_file(str(path / "tokenizer.json")).to_str())
        for path in (folder, tmp_path / "checkpoint")
    )
    assert kept["truncation"]["max_length"] == 16
    assert {**kept, "truncation": 0, "padding": 0} == {**theirs, "truncation": 0, "padding": 0}


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.5), (0.5, 1.0), (0.5, 0.8)])
def test_a_resumed_run_takes_other_rates_for_its_layers(before: float, after: float, configured: Maker) -> None:
    config = configured()
    config.optimizer.layer_decay = before
    folder = train(config).folder
    again = replace(
        config,
        resume=str(folder),
        trainer=replace(config.trainer, max_epochs=2),
        optimizer=replace(config.optimizer, layer_decay=after, learning_rate=0.25),
    )
    assert train(again).facts_of_training["epochs"] == 2
    (state,) = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["optimizer_states"]
    peaks = {group["initial_lr"] for group in state["param_groups"]}
    expected = {0.25 * after**distance for distance in range(LAYERS + 2)}
    assert sorted(peaks) == pytest.approx(sorted(expected))
    steps = {int(memory["step"]) for memory in state["state"].values()}
    assert steps == {torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"]}
