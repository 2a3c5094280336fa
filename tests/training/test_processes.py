"""Processes that torchrun starts train as one would: the same steps, the same folder, the same scores."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from headscope.cli.main import main
from headscope.data import datamodule
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError
from headscope.runs.run import load_run
from headscope.settings.config import TrainConfig
from headscope.training import distributed, module
from headscope.training import trainer as train_module
from headscope.training.callbacks import RunCheckpoint
from headscope.training.distributed import joined
from headscope.training.module import total_steps
from headscope.training.train import train
from training import joined_run
from training_runs import reviews, weights_of, write

Maker = Callable[..., TrainConfig]


# What is said before anything starts.


@pytest.mark.parametrize("words", [["train", "-m", "seed=0,1"], ["evaluate", "run=."]])
def test_torchrun_starts_one_run_of_train_and_nothing_else(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err.startswith("error: torchrun: expected one run of train, no ")


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TORCHELASTIC_RUN_ID": "a",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "best_device", lambda *_: torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with (
        pytest.raises(ConfigError, match=r"torchrun --nproc-per-node: .* at most 1, .* got 2"),
        joined("gpu"),
    ):
        pass


def test_with_few_batches_training_is_refused_and_each_process_validates_all(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config()
    data = TextDataModule(config.data, config.tokenizer, 0)
    alone = list(data.sampler("validation"))
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 98)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 99)
    with pytest.raises(
        ConfigError, match=r"torchrun --nproc-per-node: .* at most \d+ processes .*got 99; lower it"
    ):
        data.sampler("train")
    assert list(data.sampler("validation")) == alone


def test_another_number_of_processes_is_refused() -> None:
    checkpoint = {"best": None, "random_state": torch.zeros(2, 8)}
    trainer = Trainer(accelerator="cpu", logger=False)
    with pytest.raises(ConfigError, match=r"expected 2 processes in all, .* got 1"):
        RunCheckpoint.on_load_checkpoint(
            RunCheckpoint.__new__(RunCheckpoint), trainer, LightningModule(), checkpoint
        )


def test_steps_are_those_of_all_epochs_or_max_steps(small_config: Maker) -> None:
    settings = small_config(max_epochs=5, accumulate=2).trainer
    assert total_steps(settings, 7) == 20
    assert total_steps(replace(settings, max_steps=17), 7) == 17


# Two processes on this machine.


def torchrun(*words: str, output: int = subprocess.PIPE) -> "subprocess.Popen[str]":
    starter = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, *starter], env=environment, stdout=output, stderr=output, text=True
    )


def finished(process: "subprocess.Popen[str]") -> str:
    """Return what it has printed, once it has ended well."""
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return output


@pytest.mark.slow
def test_twenty_steps_of_two_processes_are_those_of_one_that_takes_two_batches_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(torchrun(joined_run.__file__, str(tmp_path)))
    for place in (module, train_module):
        monkeypatch.setattr(place, "chosen_precision", lambda settings: "64-true")
    monkeypatch.setattr(datamodule, "TokenBudgetSampler", joined_run.Joined)
    train(joined_run.configuration(tmp_path, "one"))
    one, two = (
        torch.load(tmp_path / f"outputs/{name}/checkpoints/last.ckpt", weights_only=True)
        for name in ("one", "two")
    )
    assert one["global_step"] == two["global_step"] == 20
    weights = one["state_dict"]
    floats = {weight.dtype for weight in weights.values() if weight.is_floating_point()}
    assert floats == {torch.float64}
    for key, weight in weights.items():
        torch.testing.assert_close(weight, two["state_dict"][key], rtol=0, atol=1e-12)


def files(folder: Path) -> set[str]:
    """Return the names below a run folder, without steps and times."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {re.sub(r"(step_|tfevents).*", r"\1", name) for name in names}


@pytest.mark.slow
def test_two_processes_with_one_validation_text_leave_what_one_leaves_and_go_on_after_a_stop(
    tmp_path: Path,
) -> None:
    texts = write(tmp_path / "reviews.csv", reviews())
    other = write(tmp_path / "other.csv", [{"text": "a lovely old film", "label": "good"}])
    words = [
        "train", f"data.path={texts}", f"data.validation_path={other}", f"data.cache_dir={tmp_path}", f"outputs_dir={tmp_path}",
        "trainer.accelerator=cpu", "trainer.max_epochs=8", "trainer.epoch_steps=1", "trainer.progress=false", "baseline=false", "data.max_length=32",
        "data.tokens_per_batch=256", "tokenizer.vocab_size=300", "model.d_model=12", "model.num_heads=3",
        "model.feedforward_size=24", "model.dropout=0.3", "inspection.ablation_texts=0",
    ]  # fmt: skip
    assert finished(torchrun("-m", "headscope", *words, "name=two")).count("epoch  2") == 1
    with pytest.raises(SystemExit) as ended:
        main([*words, "name=one"])
    assert not ended.value.code
    assert files(tmp_path / "two") == files(tmp_path / "one")
    metrics = json.loads((tmp_path / "two/metrics.json").read_text())
    training = metrics["training"]
    assert training["processes"] == 2
    assert training["best_validation_loss"] == pytest.approx(
        metrics["validation"]["loss"], abs=1e-6
    )
    assert load_run(tmp_path / "two").predict(["a lovely film"])[0].label in ("good", "bad")
    # Stopped by a signal to torchrun, and resumed: the same weights, to the bit.
    broken = torchrun("-m", "headscope", *words, "name=broken")
    assert broken.stdout is not None
    assert any("epoch  1" in line for line in broken.stdout)
    broken.send_signal(signal.SIGTERM)
    _, errors = broken.communicate(timeout=600)
    assert errors.count("stopped by SIGTERM at step") == 1, errors
    resume = ["train", f"resume={tmp_path}/broken"]
    finished(torchrun("-m", "headscope", *resume))
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "broken")
