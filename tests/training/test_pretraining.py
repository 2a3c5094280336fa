"""Runs whose encoder guesses hidden tokens before it sees a label."""

import io
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tokenizers import Tokenizer

from bert_family import write_checkpoint
from headscope.data.batching import TextBatches
from headscope.data.datamodule import TextDataModule
from headscope.data.hiding import hide, mask_id_of, ordinary_tokens
from headscope.errors import ConfigError, TrainingError
from headscope.model.config import ModelConfig
from headscope.model.masked_tokens import MaskedTokenModel
from headscope.training import pretraining, session
from headscope.training.config import PretrainingConfig, TrainConfig
from headscope.training.folder import build_model, load_run
from headscope.training.run import train
from headscope.training.session import Session
from interrupting import InterruptAt

Maker = Callable[..., TrainConfig]
EPOCHS = 15
LEARNS = ("embedding.", "encoder.")


@pytest.fixture
def pretrained(small_config: Maker) -> Maker:
    """Return a maker of configurations of runs that guess hidden tokens first."""

    def make(name: str = "run", epochs: int = 2, **trainer: object) -> TrainConfig:
        return replace(small_config(name, **trainer), pretraining=PretrainingConfig(epochs=epochs, learning_rate=1e-2))

    return make


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_run(folder).model.state_dict()


def watched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """Return what will be the weights before and after pretraining."""
    found: list[dict[str, torch.Tensor]] = []
    original = pretraining.pretrain

    def watch(model: Any, *rest: Any) -> Any:
        found.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        result = original(model, *rest)
        found.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return result

    monkeypatch.setattr(session, "pretrain", watch)
    return found


def write_couples(path: Path) -> None:
    """Write texts of words that come in couples: what is hidden can be known from the word beside it."""
    rng = random.Random(0)
    couples = ["black white", "hot cold", "day night", "salt pepper", "north south", "left right", "up down"]
    rows = [" ".join(rng.choices(couples, k=5)) for _ in range(480)]
    path.write_text("text,label\n" + "".join(f"{row},{number % 2}\n" for number, row in enumerate(rows)))


def test_the_encoder_learns_and_what_is_learned_is_said(pretrained: Maker) -> None:
    screen, config = io.StringIO(), pretrained(epochs=EPOCHS, max_epochs=1)
    config.model = ModelConfig(d_model=64, num_layers=2, feedforward_size=128, dropout=0.0)
    config.pretraining.learning_rate = 3e-3
    write_couples(Path(config.data.path))
    report = train(config, Console(file=screen, width=200))
    found = json.loads((report.folder / "metrics.json").read_text())["training"]["pretraining"]
    vocabulary = load_run(report.folder).model.embedding.token.num_embeddings
    assert found["validation loss"] < math.log(vocabulary) - 1  # what one who knows nothing has
    assert found["validation accuracy"] > 0.8  # the most frequent token is 17 % of them; 0.97 and, in bfloat16, 0.95
    batches = report.facts_of_training["steps"]  # of the one epoch of training
    assert (found["epochs"], found["steps"]) == (EPOCHS, EPOCHS * batches)
    assert "pretraining" in report.seconds
    lines = [line for line in screen.getvalue().splitlines() if line.startswith("pretraining: epoch")]
    assert len(lines) == EPOCHS
    assert f"hidden tokens guessed {100 * found['validation accuracy']:.1f} %" in lines[-1]
    events = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload()
    losses = events.Scalars("pretraining/validation_loss")
    assert [event.step for event in losses] == [batches * (epoch + 1) for epoch in range(EPOCHS)]
    assert losses[-1].value == pytest.approx(found["validation loss"])
    steps = [event.step for event in events.Scalars("pretraining/loss")]
    assert steps == list(range(20, EPOCHS * batches + 1, 20))
    own = [event.step for event in events.Scalars("validation/loss")]
    assert own == [batches - 1]  # training counts from a start of its own, and Lightning from 0


def test_a_loss_is_that_of_each_hidden_token_of_the_split(pretrained: Maker) -> None:
    config = pretrained()
    data = TextDataModule(config.data, config.tokenizer, 0)
    torch.manual_seed(0)
    model = MaskedTokenModel(build_model(config, data.tokenizer, data.corpus.labels)).eval()
    ordinary, mask_id = ordinary_tokens(data.tokenizer), mask_id_of(data.tokenizer)
    module = pretraining.MaskedTokenModule(model, ordinary, mask_id, 0.15, config.optimizer, 10)
    batches, losses, right = TextBatches(data.encoded["validation"]), [], []
    for index, rows in enumerate(([0, 1, 2, 3, 4, 5, 6, 7, 8], [9], [10, 11])):  # of unlike numbers of tokens
        batch = batches[rows]
        module.validation_step(batch, index)
        generator = torch.Generator().manual_seed(index)
        shown, hidden = hide(batch.token_ids, ordinary, mask_id, 0.15, generator)
        logits = model(shown, hidden, batch.key_padding_mask).log_softmax(dim=-1)
        wanted = batch.token_ids[hidden]
        losses += [-float(row[token].detach()) for row, token in zip(logits, wanted, strict=True)]
        right += (logits.argmax(dim=-1) == wanted).tolist()
    assert float(module.validation_loss.compute()) == pytest.approx(sum(losses) / len(losses))
    assert float(module.validation_accuracy.compute()) == pytest.approx(sum(right) / len(right))


def test_steps_of_several_batches_are_written_once(pretrained: Maker) -> None:
    report = train(pretrained(epochs=9, max_epochs=1, accumulate=3))
    events = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload()
    found = report.facts_of_training["pretraining"]
    assert found["steps"] == 9 * report.facts_of_training["steps"]
    assert [event.step for event in events.Scalars("pretraining/loss")] == list(range(20, found["steps"] + 1, 20))


def test_embedding_and_encoder_alone_have_moved(pretrained: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(monkeypatch)
    config = pretrained(max_epochs=1)
    config.model.ngrams, config.model.pooling = True, "additive"
    report = train(config)
    before, after = found
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    learns = {name for name, _ in load_run(report.folder).model.named_parameters() if name.startswith(LEARNS)}
    assert moved == learns
    assert torch.equal(after["embedding.token.weight"][0], torch.zeros(12))  # that of padding


def test_no_label_is_looked_at(pretrained: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(monkeypatch)
    train(pretrained("one", max_epochs=1))
    watch = session.pretrain

    def blindfold(model: Any, data: TextDataModule, *rest: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(data, "labels", lambda role: np.zeros(len(data.corpus.splits[role]), dtype=np.int64))
            return watch(model, data, *rest)

    monkeypatch.setattr(session, "pretrain", blindfold)
    train(pretrained("other", max_epochs=1))
    _, one, _, other = found
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_stopped_pretraining_begins_again_and_ends_as_an_unbroken_run(
    pretrained: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = train(pretrained("unbroken"))
    config, trainer_of = pretrained("stopped"), pretraining.new_trainer
    with monkeypatch.context() as patch:
        patch.setattr(
            pretraining,
            "new_trainer",
            lambda config, folder, callbacks, *rest: trainer_of(config, folder, [*callbacks, InterruptAt(3)], *rest),
        )
        with pytest.raises(KeyboardInterrupt, match=r"stopped while pretraining, .* begin anew: resume=.*stopped"):
            train(config)
    folder = Path(config.outputs_dir) / "stopped"
    assert not (folder / "model.safetensors").exists()
    report = train(replace(config, resume=str(folder)))
    assert report.test == unbroken.test
    kept, wanted = weights(folder), weights(unbroken.folder)
    assert all(torch.equal(kept[name], wanted[name]) for name in wanted)


def test_a_resumed_training_does_not_guess_tokens_again(pretrained: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken = train(pretrained("unbroken"))
    config, callbacks = pretrained("stopped"), Session._callbacks
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_callbacks", lambda *args: [*callbacks(*args), InterruptAt(2)])
        with pytest.raises(KeyboardInterrupt, match="stopped at step"):
            train(config)
    found = watched(monkeypatch)
    report = train(replace(config, resume=str(Path(config.outputs_dir) / "stopped")))
    assert found == []
    assert report.facts_of_training["pretraining"] == unbroken.facts_of_training["pretraining"]
    kept, wanted = weights(report.folder), weights(unbroken.folder)
    assert all(torch.equal(kept[name], wanted[name]) for name in wanted)


def test_a_loss_that_is_no_number_names_its_own_rate(pretrained: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pretrained()
    monkeypatch.setattr(
        "headscope.training.pretraining.F.cross_entropy", lambda logits, *_, **__: logits.sum() * math.nan
    )
    with pytest.raises(TrainingError, match=r"not a number at step 1\. .*none yet\. Try a lower pretraining\.learning"):
        train(config)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_checkpoint_learns_on_and_one_without_a_mask_is_refused(
    family: str, pretrained: Maker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = pretrained(max_epochs=1)
    texts = Path(config.data.path).read_text().splitlines()
    folder = write_checkpoint(tmp_path / "checkpoint", family, texts)
    config.model = replace(config.model, path=str(folder), d_model=128, num_heads=4, num_layers=2, feedforward_size=512)
    found = watched(monkeypatch)
    kept = replace(config, model=replace(config.model))
    train(kept)
    name = "encoder.blocks.0.attention.in_proj_weight"
    assert not torch.equal(found[0][name], found[1][name])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    text = json.dumps(tokenizer).replace("[MASK]", "[OTHER]").replace("<mask>", "<other>")
    (folder / "tokenizer.json").write_text(text)
    assert Tokenizer.from_str(text).token_to_id("[MASK]") is None
    with pytest.raises(ConfigError, match=r"pretraining\.epochs: takes a tokenizer with a token \[MASK\] or <mask>"):
        train(replace(config, name="other"))
    assert not (Path(config.outputs_dir) / "other").exists()
