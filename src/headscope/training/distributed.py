"""Several processes that train one network: who starts them, how they agree, and how they end together.

N processes, numbered by their rank, each compute a batch of every step. DistributedDataParallel averages their
gradients (Li et al. 2020, PyTorch Distributed), so all take the same step. torch's elastic agent, the engine of
torchrun, starts them and watches over them: one that dies ends the others. Rank 0 alone writes.
"""

import ctypes
import json
import logging
import os
import re
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from torch import Tensor
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from headscope.config import TrainConfig, TrainerConfig
from headscope.errors import ConfigError, RunError, UserError, first_line, message_of
from headscope.run import CONFIG, best_device, save_config
from headscope.signals import signals_taken, stop

LONGEST_WAIT = timedelta(hours=12)  # for rank 0 to prepare the data, or to record
SECONDS_TO_SAVE = 120  # after a signal; then processes are killed
LOST = re.compile(
    "gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|DistBackend|DistNetwork|DistStore|TCPStore"
)
Shared = TypeVar("Shared")


class LostProcessError(RunError):
    """Another process of this training has ended. Why is said by that one."""

    exit_code = 1


class FailedProcessError(UserError):
    """One of the processes has failed; `exit_code` is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def process_count(settings: TrainerConfig) -> int:
    """Return N, how many processes train: one for each device of each machine."""
    return settings.devices * settings.num_nodes


def is_worker(settings: TrainerConfig) -> bool:
    """Tell whether this process is one of N, which torchrun, srun or `launch` has started.

    Raises:
        ConfigError: if there are more or fewer of them than the configuration says.
    """
    count = process_count(settings)
    if (
        os.environ.get("SLURM_NTASKS") == str(count)
        and "SLURM_PROCID" in os.environ
        and "RANK" not in os.environ
    ):
        return count > 1  # by srun. A batch script that starts one process has other numbers
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return False
    if (started := int(os.environ["WORLD_SIZE"])) != count:
        raise ConfigError(
            f"trainer.devices: got {settings.devices}, with trainer.num_nodes={settings.num_nodes}, but torchrun has "
            f"started {started} processes; their product must be the same"
        )
    return count > 1


def check_devices(settings: TrainerConfig) -> None:
    """Refuse, by a ConfigError, devices that this machine does not have, and several machines that nobody starts."""
    device = best_device(settings.accelerator, "trainer.accelerator")
    found = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device.type, settings.devices)
    if settings.devices > found:
        raise ConfigError(
            f"trainer.devices: got {settings.devices}, and torch finds {found} on this machine"
        )
    if settings.num_nodes > 1 and not is_worker(settings):
        raise ConfigError(
            f"trainer.num_nodes: got {settings.num_nodes}; start the command on each machine, by torchrun or srun: see "
            "docs/scaling.md"
        )


# The processes themselves.


@contextmanager
def joined(settings: TrainerConfig) -> Iterator[None]:
    """Let this process be one of N until the block is left; what the others' end does to it is a LostProcessError."""
    if "RANK" not in os.environ:
        _take_places_of_slurm()
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // local))
    is_on_gpu = best_device(settings.accelerator).type == "cuda"
    if is_on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    try:
        # What is agreed on is a number of the CPU, so that no GPU has to be waited for.
        dist.init_process_group("cpu:gloo,cuda:nccl" if is_on_gpu else "gloo", timeout=LONGEST_WAIT)
        yield
    except RuntimeError as error:
        if not LOST.search(f"{type(error).__name__}: {error}"):
            raise
        raise LostProcessError(
            f"process {os.environ['RANK']}: another process of this training has ended"
        ) from error


def _take_places_of_slurm() -> None:
    """Say in torch's variables what srun says in its own."""
    try:
        slurm = SLURMEnvironment(auto_requeue=False)
    except RuntimeError as error:  # about options of srun
        raise ConfigError(f"srun: {first_line(error)}") from None
    os.environ |= {
        "RANK": str(slurm.global_rank()),
        "LOCAL_RANK": str(slurm.local_rank()),
        "WORLD_SIZE": str(slurm.world_size()),
        "LOCAL_WORLD_SIZE": str(slurm.world_size() // int(os.environ.get("SLURM_NNODES", "1"))),
        "MASTER_ADDR": slurm.main_address,
        "MASTER_PORT": str(slurm.main_port),
    }


def is_shared() -> bool:
    """Tell whether several processes train together now."""
    return dist.is_initialized() and dist.get_world_size() > 1


def is_rank_zero() -> bool:
    """Tell whether this process is the one that writes: rank 0, or the only one."""
    return not is_shared() or dist.get_rank() == 0


def all_reduce_max(number: int) -> int:
    """Return the largest of the processes' numbers. All of them must ask at the same place."""
    if not is_shared():
        return number
    largest = torch.tensor(number)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)


def all_gather(values: Tensor) -> list[Tensor]:
    """Return the tensors of all processes, on the CPU and of one shape, by their ranks."""
    if not is_shared():
        return [values]
    found = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(found, values)
    return found


def broadcast(value: Shared) -> Shared:
    """Return the value that rank 0 has."""
    if not is_shared():
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def leave() -> bool:
    """Go on alone, after the last step, and tell whether this process is the first, which has more to do."""
    is_to_go_on = is_rank_zero()
    if dist.is_initialized():
        dist.destroy_process_group()
    return is_to_go_on


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Let rank 0 pass the block before the others do, so that they find in the cache what it has prepared."""
    if not is_rank_zero():
        all_reduce_max(0)
    yield
    if is_shared() and is_rank_zero():
        all_reduce_max(0)


# The process that starts them.


def launch(config: TrainConfig) -> None:
    """Train in `trainer.devices` processes of this machine, and return when all have ended.

    Each runs `python -m headscope.training.worker` on one file, which holds the whole configuration: no process but this one has
    read a command line.

    Raises:
        FailedProcessError: with the message and the exit code of the process that failed first.
        SystemExit: after a signal, which the processes have been told of, and have saved the run.
    """
    with (
        tempfile.TemporaryDirectory(prefix="headscope-") as folder,
        _quiet_agent(),
        signals_taken(stop),
    ):
        save_config(Path(folder), config)
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=config.trainer.devices,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",  # a free port
            local_addr="127.0.0.1",
            max_restarts=0,
            shutdown_timeout=SECONDS_TO_SAVE,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            elastic_launch(settings, sys.executable)(
                "-m", "headscope.training.worker", str(Path(folder) / CONFIG)
            )
        except ChildFailedError as failed:
            raise _error_of(failed, config) from None
        except SignalException as stopped:
            sys.exit(128 + stopped.sigval)


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Silence the agent, which writes a page about each failure; what is worth saying we say."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _error_of(failed: ChildFailedError, config: TrainConfig) -> FailedProcessError:
    """Return what the process that failed first has said, or how it ended."""

    def place(entry: tuple[int, ProcessFailure]) -> tuple[bool, bool, int]:
        _, failure = entry
        is_told, is_ended_by_us = (
            isinstance(failure.error_file_data.get("lost"), bool),
            failure.exitcode == -15,
        )
        return (
            bool(failure.error_file_data.get("lost")) or is_ended_by_us,
            not is_told,
            failure.timestamp,
        )

    rank, failure = min(failed.failures.items(), key=place)
    if "lost" in failure.error_file_data:
        return FailedProcessError(failure.message, failure.exitcode)
    how = (
        f"killed by {failure.signal_name()}"
        if failure.exitcode < 0
        else f"ended with exit code {failure.exitcode}"
    )
    folder = Path(config.outputs_dir) / str(config.name)
    again = f"; go on with: headscope train resume={folder}" if (folder / CONFIG).exists() else ""
    return FailedProcessError(
        f"process {rank} of {process_count(config.trainer)} was {how}{again}", 1
    )


def report_error(error: Exception) -> int:
    """Leave the message of a process's error to the one that has launched it, and return the exit code."""
    content = {
        "message": message_of(error),
        "timestamp": int(time.time()),
        "lost": isinstance(error, LostProcessError),
    }
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(content), encoding="utf-8")
    return error.exit_code if isinstance(error, UserError) else 1


def end_with_parent() -> None:
    """Have Linux send SIGTERM to this process when the one that started it is gone, so that it saves the run and ends.

    Elsewhere a killed parent leaves it running.
    """
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
