"""Several processes train as one would: the same steps, the same folder, one message when one of them fails."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headscope.cli.main import main
from headscope.config import TrainConfig, TrainerConfig
from headscope.data import datamodule
from headscope.data.datamodule import TextDataModule
from headscope.errors import ConfigError
from headscope.run import load_run
from headscope.training import distributed as processes
from headscope.training import module
from headscope.training import train as train_module
from headscope.training.distributed import LostProcessError, check_devices, is_worker, joined
from headscope.training.module import total_steps
from headscope.training.train import train
from training import joined_run
from training_runs import reviews, write

Maker = Callable[..., TrainConfig]


# What is told before anything starts.


def test_devices_and_machines_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"trainer\.num_nodes: got 2; start the command on each machine, by torchrun",
    ):
        check_devices(TrainerConfig(num_nodes=2, accelerator="cpu"))
    monkeypatch.setattr(processes, "best_device", lambda *_: torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(
        ConfigError, match=r"trainer\.devices: expected at most 1, the devices .*, got 2"
    ):
        check_devices(TrainerConfig(devices=2))


def test_who_has_started_this_process_is_read_from_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(devices: int, **environment: str) -> bool:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            return is_worker(TrainerConfig(devices=devices))

    assert not found(2)
    assert found(2, SLURM_PROCID="1", SLURM_NTASKS="2")
    # A batch script: it starts the processes itself.
    assert not found(2, SLURM_PROCID="0", SLURM_NTASKS="1")
    assert not found(1, SLURM_PROCID="0", SLURM_NTASKS="1")
    assert found(2, TORCHELASTIC_RUN_ID="a", WORLD_SIZE="2")
    with pytest.raises(
        ConfigError,
        match=r"trainer\.devices: expected .*=2, the number of processes that torchrun .* got 1",
    ):
        found(1, TORCHELASTIC_RUN_ID="a", WORLD_SIZE="2")


def test_the_end_of_another_process_is_told_apart_from_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"RANK": "1", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *_, **__: None)
    settings = TrainerConfig(devices=2, accelerator="cpu")
    with pytest.raises(LostProcessError, match="process 1: another process"), joined(settings):
        raise RuntimeError(
            "[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"
        )
    with pytest.raises(RuntimeError, match="shapes"), joined(settings):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_more_processes_than_batches_are_refused(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config()
    data = TextDataModule(config.data, config.tokenizer, 0)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 99)
    with pytest.raises(
        ConfigError, match=r"trainer\.devices: expected at most \d+ processes, .*got 99; lower it"
    ):
        data.sampler("train")


def test_steps_are_counted_anew_behind_the_epochs_that_are_done() -> None:
    settings = TrainerConfig(max_epochs=5, accumulate=2)
    assert total_steps(settings, 7) == 20
    assert total_steps(settings, 13, epochs_done=3, steps_done=12) == 12 + 2 * 7
    settings.max_steps = 17
    assert total_steps(settings, 13, epochs_done=3, steps_done=12) == 17


# Two processes on this machine, started as a user starts them.


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    return Path(write(folder / "reviews.csv", reviews()))


def command(texts: Path, folder: Path, name: str, *more: str) -> list[str]:
    return [
        "train", f"data.path={texts}", f"data.cache_dir={texts.parent}", f"outputs_dir={folder}", f"name={name}",
        "trainer.accelerator=cpu", "trainer.devices=2", "baseline=false", "data.tokens_per_batch=256",
        "data.max_length=32", "tokenizer.vocab_size=300", "model.d_model=12", "model.num_heads=3",
        "model.feedforward_size=24", "inspection.causes=4", "inspection.most_wrong=0", "trainer.progress=false", *more,
    ]  # fmt: skip


QUICK = ("inspection.enabled=false", "trainer.max_epochs=1")
DROPPING = ("model.dropout=0.3", "trainer.max_epochs=4")


def started(words: list[str]) -> "subprocess.Popen[str]":
    environment = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::UserWarning"}
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    process = started(["headscope", *words])
    output, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def run_here(*words: str) -> None:
    """Run a command of one process in this one, which has imported everything already."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


def files(folder: Path) -> set[str]:
    """Return the names below a run folder, without steps and times."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {re.sub(r"(step_|tfevents).*", r"\1", name) for name in names}


@pytest.mark.slow
def test_twenty_steps_of_two_processes_are_those_of_the_joined_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "chosen_precision", lambda settings: "64-true")
    monkeypatch.setattr(train_module, "chosen_precision", lambda settings: "64-true")
    ports = [free_port() for _ in joined_run.CASES]
    script = [str(Path(joined_run.__file__)), str(tmp_path), *ports]  # torchrun takes a path
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [*torchrun, *script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    monkeypatch.setattr(datamodule, "TokenBudgetSampler", joined_run.Joined)
    for name in joined_run.CASES:
        train(joined_run.configuration(tmp_path, name, devices=1))
        one, two = (
            torch.load(tmp_path / f"outputs/{name}-{on}/checkpoints/last.ckpt", weights_only=True)
            for on in (1, 2)
        )
        assert one["global_step"] == two["global_step"] == 20
        assert {
            weight.dtype for weight in one["state_dict"].values() if weight.is_floating_point()
        } == {torch.float64}
        for key, weight in one["state_dict"].items():
            torch.testing.assert_close(weight, two["state_dict"][key], rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def two(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of two processes that nothing has broken off."""
    folder = tmp_path_factory.mktemp("unbroken")
    done = run(*command(texts, folder, "two", *DROPPING))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch  2") == 1
    assert [line for line in done.stderr.splitlines() if "note:" not in line] == []
    return folder / "two"


@pytest.mark.slow
def test_a_run_of_two_processes_leaves_what_one_leaves_and_is_used_as_that(
    texts: Path, two: Path, tmp_path: Path
) -> None:
    run_here(*command(texts, tmp_path, "one", *DROPPING, "trainer.devices=1"))
    one = tmp_path / "one"
    assert files(two) == files(one)
    trained = load_run(two)
    assert trained.config.trainer.devices == 2
    steps = [
        json.loads((folder / "heads/index.json").read_text())["steps"] for folder in (one, two)
    ]
    assert len(steps[0]) == len(steps[1]) == 5  # before training and at each validation
    run_here("evaluate", f"run={two}", "accelerator=cpu")
    assert trained.predict(["a lovely film"])[0].label in ("good", "bad")


@pytest.mark.slow
def test_two_machines_are_joined_by_torchrun(texts: Path, tmp_path: Path) -> None:
    words = command(texts, tmp_path, "two", *QUICK, "trainer.devices=1", "trainer.num_nodes=2")
    starter = ["torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    starter.append(f"--rdzv-endpoint=localhost:{free_port()}")
    nodes = [started([*starter, "-m", "headscope", *words]) for _ in range(2)]
    said = [node.communicate(timeout=120) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert sum(output.count("epoch  1") for output, _ in said) == 1
    assert load_run(tmp_path / "two").labels == ["bad", "good"]


def after(words: str, process: "subprocess.Popen[str]") -> None:
    """Wait until a process has printed these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(process.communicate()[1])


def children(process: "subprocess.Popen[str]") -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    return [int(number) for number in found.stdout.split()]


@pytest.mark.slow
def test_ctrl_c_saves_the_run_which_goes_on_to_the_same_end(
    texts: Path, two: Path, tmp_path: Path
) -> None:
    process = started(["headscope", *command(texts, tmp_path, "broken", *DROPPING)])
    after("epoch  1", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    line = rf"stopped by Ctrl-C at step \d+; resume it: headscope train resume={tmp_path}/broken"
    assert (process.returncode, bool(re.fullmatch(line, errors.strip()))) == (130, True), errors
    assert run("train", f"resume={tmp_path}/broken").returncode == 0
    broken, whole = (
        (folder / "model.safetensors").read_bytes() for folder in (tmp_path / "broken", two)
    )
    assert broken == whole


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_other_and_the_run_goes_on_with_one(
    texts: Path, tmp_path: Path
) -> None:
    process = started(["headscope", *command(texts, tmp_path, "run", "trainer.max_epochs=40")])
    after("epoch  2", process)
    workers = children(process)
    assert len(workers) == 2
    begun = time.monotonic()
    os.kill(workers[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begun < 30
    again = f"resume it: headscope train resume={tmp_path}/run"
    assert errors == f"error: process 1 of 2 was killed by SIGKILL; {again}\n"
    assert process.returncode == 1
    with pytest.raises(ProcessLookupError):
        os.kill(workers[0], 0)
    # The last checkpoint is that of an epoch's end.
    run_here("train", f"resume={tmp_path}/run", "trainer.devices=1", "trainer.max_epochs=6")
    assert load_run(tmp_path / "run").config.trainer.devices == 1


@pytest.mark.slow
def test_when_the_parent_is_killed_its_processes_save_the_run_and_end(
    texts: Path, tmp_path: Path
) -> None:
    process = started(
        ["headscope", *command(texts, tmp_path, "run", *QUICK, "trainer.max_epochs=400")]
    )
    after("epoch  1", process)
    process.kill()
    # The pipe is theirs too: it closes when they have ended.
    _, errors = process.communicate(timeout=60)
    assert errors.strip().startswith("stopped by SIGTERM at step")


@pytest.mark.slow
def test_a_sweep_of_two_processes_a_job_goes_on_after_one_that_fails(
    texts: Path, tmp_path: Path
) -> None:
    words = command(texts, tmp_path, "sweep", *QUICK, "optimizer.gradient_clip=0")
    found = run(*words, "-m", "optimizer.learning_rate=1e30,0.01")
    assert found.returncode == 1, found.stderr
    assert "error: the loss is NaN or infinite at step" in found.stderr
    with (tmp_path / "sweep/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"].split(":")[0] for row in rows] == ["failed", "done"]
