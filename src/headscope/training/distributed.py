"""Several processes that train one network, as torchrun starts them.

N processes, numbered by their rank, each compute a batch of every step. DistributedDataParallel
averages their gradients (Li et al. 2020, PyTorch Distributed), so all take the same step. Rank 0
alone writes. torchrun watches the processes: one that dies ends the others.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from headscope.ground.errors import ConfigError, RunError
from headscope.runs.prediction import best_device

LONGEST_WAIT = timedelta(hours=12)  # for rank 0 to prepare the data, or to record
Shared = TypeVar("Shared")


@contextmanager
def joined(accelerator: str) -> Iterator[None]:
    """Let this process be one of those that torchrun has started; alone without torchrun.

    Raises:
        ConfigError: if this machine has fewer GPUs than processes.
    """
    device = best_device(accelerator, "trainer.accelerator")
    if not dist.is_torchelastic_launched() or os.environ["WORLD_SIZE"] == "1":
        yield
        return
    backend = "gloo"
    if device.type == "cuda":
        count = int(os.environ["LOCAL_WORLD_SIZE"])
        if count > torch.cuda.device_count():
            raise ConfigError(
                f"torchrun --nproc-per-node: expected at most {torch.cuda.device_count()}, the "
                f"GPUs that torch finds on this machine, got {count}"
            )
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"  # the CPU's numbers are agreed on without waiting for a GPU
    dist.init_process_group(backend, timeout=LONGEST_WAIT)
    yield


def is_shared() -> bool:
    """Tell whether several processes train together now."""
    return dist.is_initialized() and dist.get_world_size() > 1


def is_rank_zero() -> bool:
    """Tell whether this process writes: rank 0, or the only one."""
    return not is_shared() or dist.get_rank() == 0


@contextmanager
def _together() -> Iterator[None]:
    """Raise a RunError where torch raises what its backend says about a process that has ended."""
    try:
        yield
    except RuntimeError as error:
        rank = dist.get_rank()
        raise RunError(f"process {rank}: another process has ended, which reports why") from error


@_together()
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


@_together()
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
