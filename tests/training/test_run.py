"""Whole trainings in seconds: what is left in the folder, what the seed decides, ends that are not the last epoch."""

import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from rich.console import Console

from headscope.commands.inspect import measure
from headscope.config import InspectConfig, TrainConfig
from headscope.data.datamodule import TextDataModule
from headscope.errors import ConfigError, RunError, TrainingError
from headscope.settings import problems
from headscope.training.callbacks import Patience
from headscope.training.folder import load_run
from headscope.training.module import ClassifierModule
from headscope.training.predict import split_logits
from headscope.training.run import train
from headscope.training.scores import scores
from training_runs import Trained, changed, events_of, reviews

Maker = Callable[..., TrainConfig]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_run(folder).model.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_run_learns_and_leaves_everything_needed_to_use_it(plain: Trained) -> None:
    report, folder = plain.report, plain.folder
    assert report.test.accuracy > 0.9
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] == report.test.accuracy
    assert metrics["baseline"]["accuracy"] > 0.9
    assert 0 < metrics["seconds"]["inspection (within training)"] < metrics["seconds"]["training"]
    assert 0 <= metrics["data"]["share of padding"] < 0.5
    assert json.loads((folder / "labels.json").read_text()) == ["bad", "good"]
    run = load_run(folder)
    assert run.config == report.config
    data = TextDataModule(run.config.data, run.config.tokenizer, 0, run.tokenizer, run.evidence or False)
    logits, targets = split_logits(run.model, data.loader("test"), torch.device("cpu"))
    assert scores(logits, targets) == report.test  # the kept model is the one that was scored
    assert not list(folder.rglob("*.pkl"))
    for checkpoint in (folder / "checkpoints").iterdir():
        torch.load(checkpoint, weights_only=True)  # nothing that would have to be trusted


def test_the_kept_weights_are_the_best_of_validation_and_of_equals_those_of_the_lower_loss(plain: Trained) -> None:
    events, facts = events_of(plain.folder), plain.report.facts_of_training
    found = zip(events.Scalars("validation/macro_f1"), events.Scalars("validation/loss"), strict=True)
    best = max(found, key=lambda pair: (pair[0].value, -pair[1].value))[0]
    assert facts["kept step"] == best.step + 1  # Lightning logs before it counts the step
    kept = f"kept: the weights of epoch {facts['kept epoch']} (step {facts['kept step']} of {facts['steps']})"
    assert kept in plain.screen


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return {}


@pytest.mark.parametrize(
    ("key", "value", "is_same"),
    [
        ("name", "again", True),
        ("inspection.enabled", False, True),
        ("inspection.every", 2, True),
        ("seed", 1, False),
        ("optimizer.label_smoothing", 0.2, False),
        ("optimizer.class_weights", "none", False),
    ],
)
def test_seed_and_optimizer_decide_the_weights_and_inspection_does_not(
    small_config: Maker, short: dict[str, torch.Tensor], key: str, value: object, is_same: bool
) -> None:
    rows = [row for number, row in enumerate(reviews()) if number % 4]  # one class is rarer than the other
    if not short:
        short |= weights(train(small_config(rows=rows, max_steps=6)).folder)
    found = weights(train(changed(small_config("other", rows, max_steps=6), key, value)).folder)
    assert same(found, short) == is_same


def test_max_steps_ends_with_a_validation_and_batches_accumulate_to_steps(small_config: Maker) -> None:
    config = small_config(max_steps=3, accumulate=2)
    config.inspection.num_probes = 0
    report = train(config)
    assert report.facts_of_training["steps"] == 3
    events = events_of(report.folder)
    assert [scalar.step for scalar in events.Scalars("heads/layer_0/head_0/entropy")] == [0, 3]
    # A run without probes is measured all the same.
    output = io.StringIO()
    found = measure(InspectConfig(run=str(report.folder), texts=8, accelerator="cpu"), Console(file=output, width=200))
    assert len(json.loads(found.read_text())["heads"]) == 2
    assert "heads.json\n" in output.getvalue()  # and not "in the run's record", which it has not


def test_accumulated_batches_are_fewer_steps(plain: Trained, small_config: Maker) -> None:
    config = small_config(max_epochs=1, accumulate=3)
    config.inspection.enabled = False
    batches = plain.report.facts_of_training["steps"] // 4
    assert train(config).facts_of_training["steps"] == -(-batches // 3)


def test_a_loss_that_is_not_a_number_stops_with_step_and_checkpoint(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, step = small_config(), ClassifierModule.training_step
    config.inspection.enabled = False

    def spoilt(module: ClassifierModule, batch: object, index: int) -> torch.Tensor:
        loss = step(module, batch, index)
        return loss * float("nan") if module.trainer.global_step == 14 else loss

    monkeypatch.setattr(ClassifierModule, "training_step", spoilt)
    with pytest.raises(TrainingError, match=r"step 15.*last\.ckpt"):
        train(config)
    kept = torch.load(Path(config.outputs_dir) / "run/checkpoints/last.ckpt", weights_only=True)
    assert kept["global_step"] < 15
    assert all(torch.isfinite(tensor).all() for tensor in kept["state_dict"].values())


def test_weights_that_the_last_step_spoilt_are_not_saved(small_config: Maker) -> None:
    """No loss tells: the only one is of the step before."""
    config = small_config(max_epochs=1)
    config.data.tokens_per_batch, config.optimizer.learning_rate, config.optimizer.warmup_share = 2**16, 1e30, 0.0
    with pytest.raises(TrainingError, match=r"after step 1\. Last good checkpoint: none yet"):
        train(config)
    assert not list((Path(config.outputs_dir) / "run").rglob("*.ckpt"))


def test_early_stopping_ends_when_nothing_gets_better(small_config: Maker) -> None:
    config = small_config(max_epochs=40, patience=2)
    config.inspection.enabled = False
    config.optimizer.learning_rate = config.optimizer.evidence_rate = 1e-12
    assert train(config).facts_of_training["epochs"] < 10


def test_a_resumed_run_has_the_patience_of_today() -> None:
    before = Patience(2)
    before.wait_count, before.stopped_epoch = 1, 3
    after = Patience(10)
    after.load_state_dict(before.state_dict())
    assert (after.patience, after.wait_count, after.stopped_epoch) == (10, 1, 3)


def test_a_taken_name_is_refused_and_nothing_is_overwritten(plain: Trained) -> None:
    before = (plain.folder / "metrics.json").read_bytes()
    with pytest.raises(RunError, match="holds a run already"):
        train(plain.report.config)
    assert (plain.folder / "metrics.json").read_bytes() == before


def test_of_two_runs_of_one_name_the_second_is_refused(small_config: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have loaded their texts by the time that the first writes to the folder."""
    config, load = small_config(max_epochs=1), TextDataModule.__init__
    folder = Path(config.outputs_dir) / "run"

    def slow(*args: object) -> None:
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("of the first")
        load(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(TextDataModule, "__init__", slow)
    with pytest.raises(RunError, match="holds a run already; choose another name"):
        train(config)
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]
    assert (folder / "config.yaml").read_text() == "of the first"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_loaded(small_config: Maker) -> None:
    config = small_config(accelerator="gpu")
    with pytest.raises(ConfigError, match=r"trainer\.accelerator: got 'gpu', and torch finds none on this machine"):
        train(config)
    assert not Path(config.outputs_dir).exists()
    config.trainer.devices = 2
    assert [line for line in problems(config) if line.startswith("trainer.devices: got 2, takes 1")]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"broken", "broken"),
        ("labels.json", b"[", "broken"),
        ("tokenizer.json", b"{}", "broken"),
        ("config.yaml", b"surprise: 1", "does not fit"),
        ("model.safetensors", None, "did not finish"),
        ("config.yaml", None, "no config.yaml"),
        ("calibration.json", b"{", "broken: .*calibration"),
        ("calibration.json", b"[]", "broken: .*calibration"),
        ("calibration.json", b'{"temperature": 0}', "broken: .*calibration"),
        ("calibration.json", b'{"temperature": "2"}', "broken: .*calibration"),
        ("calibration.json", b'{"temperature": Infinity}', "broken: .*calibration"),
        ("calibration.json", b"\xed\xa0\xbd", "broken: .*calibration"),
    ],
)
def test_a_run_folder_with_a_broken_file_is_refused_by_name(
    plain: Trained, tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    folder = plain.copy(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(RunError, match=words):
        load_run(folder)


def test_texts_of_one_word_can_be_trained_on_and_studied(small_config: Maker) -> None:
    letters = "abcdefghijkl"
    rows = [{"text": a + b, "label": "xy"[number % 2]} for number, (a, b) in enumerate(product(letters, letters))]
    config = small_config(rows=rows, max_epochs=1)
    config.tokenizer.kind, config.inspection.causes = "wordpiece", 8
    assert train(config).test.accuracy >= 0


def test_too_few_steps_are_told_and_enough_are_not(
    plain: Trained, small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.training.run.FEW_STEPS", 2)
    output, config = io.StringIO(), small_config(max_steps=2)
    config.inspection.enabled = False
    assert train(config, Console(file=output, width=200)).most_wrong is None  # which is part of inspection
    assert "raise trainer.max_epochs" in plain.screen
    assert "raise trainer.max_epochs" not in output.getvalue()
