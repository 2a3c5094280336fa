"""Several processes that train one network: who starts them, how they agree, how they end.

N processes, numbered by their rank, each compute a batch of every step. DistributedDataParallel
averages their gradients (Li et al. 2020, PyTorch Distributed), so all take the same step. torch's
elastic agent, the engine of torchrun, starts and watches them: one that dies ends the others. Rank
0 alone writes.
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
from headscope.prediction import best_device
from headscope.run_folder import CONFIG, save_config
from headscope.signals import signals_taken, stop

LONGEST_WAIT = timedelta(hours=12)  # for rank 0 to prepare the data, or to record
SECONDS_TO_SAVE = 120  # after a signal; then processes are killed
LOST = re.compile(
    "gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|DistBackend|DistNetwork|DistStore"
    "|TCPStore"
)
Shared = TypeVar("Shared")


class LostProcessError(RunError):
    """Another process of this run has ended, which reports why."""

    exit_code = 1


class FailedProcessError(UserError):
    """One of the processes has failed; `exit_code` is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def process_count(settings: TrainerConfig) -> int:
    """Return N: one process for each device of each machine."""
    return settings.devices * settings.num_nodes


def is_worker(settings: TrainerConfig) -> bool:
    """Tell whether this process is one of N, started by torchrun, srun or `launch`.

    Raises:
        ConfigError: if torchrun has started another number of processes.
    """
    count = process_count(settings)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        started = int(os.environ["WORLD_SIZE"])
        if started != count:
            raise ConfigError(
                f"trainer.devices: expected trainer.devices * trainer.num_nodes={started}, the "
                f"number of processes that torchrun has started, got {count}"
            )
        return count > 1
    # A batch script of Slurm that starts one process has another SLURM_NTASKS.
    is_slurm_task = "SLURM_PROCID" in os.environ and "RANK" not in os.environ
    return is_slurm_task and os.environ.get("SLURM_NTASKS") == str(count) and count > 1


def check_devices(settings: TrainerConfig) -> None:
    """Raise a ConfigError for devices that this machine lacks, or machines that nobody starts."""
    device = best_device(settings.accelerator, "trainer.accelerator")
    count = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device.type, settings.devices)
    if settings.devices > count:
        raise ConfigError(
            f"trainer.devices: expected at most {count}, the devices that torch finds on this "
            f"machine, got {settings.devices}"
        )
    if settings.num_nodes > 1 and not is_worker(settings):
        raise ConfigError(
            f"trainer.num_nodes: got {settings.num_nodes}; start the command on each machine, by "
            "torchrun or srun: see docs/scaling.md"
        )


# The processes themselves.


@contextmanager
def joined(settings: TrainerConfig) -> Iterator[None]:
    """Let this process be one of N; LostProcessError if another one ends."""
    if "RANK" not in os.environ:
        _set_environment_from_slurm()
    if "OMP_NUM_THREADS" not in os.environ:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // local))
    backend = "gloo"
    if best_device(settings.accelerator).type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"  # the CPU's numbers are agreed on without waiting for a GPU
    try:
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
        yield
    except RuntimeError as error:
        if not LOST.search(f"{type(error).__name__}: {error}"):
            raise
        raise LostProcessError(
            f"process {os.environ['RANK']}: another process of this run has ended"
        ) from error


def _set_environment_from_slurm() -> None:
    """Set torch's variables from those of srun."""
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
    """Tell whether this process writes: rank 0, or the only one."""
    return not is_shared() or dist.get_rank() == 0


def all_reduce_max(number: int) -> int:
    """Return the largest of the processes' numbers; also a barrier."""
    if not is_shared():
        return number
    largest = torch.tensor(number)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)


def all_gather(values: Tensor) -> list[Tensor]:
    """Return the tensors of all processes, on the CPU and of one shape, by rank."""
    if not is_shared():
        return [values]
    gathered = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, values)
    return gathered


def broadcast(value: Shared) -> Shared:
    """Return the value of rank 0."""
    values = [value]
    if is_shared():
        dist.broadcast_object_list(values)
    return values[0]


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Let rank 0 pass the block before the others, which find in the cache what it prepared."""
    if not is_rank_zero():
        all_reduce_max(0)
    yield
    if is_rank_zero():
        all_reduce_max(0)


# The process that starts them.


def launch(config: TrainConfig) -> None:
    """Train in `trainer.devices` processes of this machine, and return when all have ended.

    Each runs `python -m headscope.training.worker` on one file, the whole configuration: no process
    but this one has read a command line.

    Raises:
        FailedProcessError: with the message and the exit code of the process that failed first.
        SystemExit: after a signal, which the processes have got too, and have saved the run.
    """
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder, signals_taken(stop):
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
        logging.disable(logging.CRITICAL)  # the agent writes a page about each failure
        try:
            words = ("-m", "headscope.training.worker", str(Path(folder, CONFIG)))
            elastic_launch(settings, sys.executable)(*words)
        except ChildFailedError as failed:
            raise _error_of(failed, config) from None
        except SignalException as stopped:
            sys.exit(128 + stopped.sigval)
        finally:
            logging.disable(logging.NOTSET)


def _error_of(failed: ChildFailedError, config: TrainConfig) -> FailedProcessError:
    """Return the message of the process that failed first, or how it ended."""

    def order(entry: tuple[int, ProcessFailure]) -> tuple[bool, bool, int]:
        _, failure = entry
        lost = failure.error_file_data.get("lost")
        is_consequence = lost is True or failure.exitcode == -signal.SIGTERM
        return is_consequence, lost is None, failure.timestamp

    rank, failure = min(failed.failures.items(), key=order)
    if "lost" in failure.error_file_data:
        return FailedProcessError(failure.message, failure.exitcode)
    end = f"ended with exit code {failure.exitcode}"
    if failure.exitcode < 0:
        end = f"was killed by {failure.signal_name()}"
    folder = Path(config.outputs_dir, str(config.name))
    remedy = f"; resume it: headscope train resume={folder}" if (folder / CONFIG).exists() else ""
    count = process_count(config.trainer)
    return FailedProcessError(f"process {rank} of {count} {end}{remedy}", 1)


def report_error(error: Exception) -> int:
    """Leave a process's error message to the one that launched it; return the exit code."""
    content = {
        "message": message_of(error),
        "timestamp": int(time.time()),
        "lost": isinstance(error, LostProcessError),
    }
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(content), encoding="utf-8")
    return error.exit_code if isinstance(error, UserError) else 1


def end_with_parent() -> None:
    """Have Linux send SIGTERM when the parent is gone, so that this process saves the run and ends.

    Elsewhere a killed parent leaves it running.
    """
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
