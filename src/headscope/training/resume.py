"""Resuming: what the last checkpoint of a run holds, and which settings may change since.

The place in the epoch is kept by `headscope.data.batching.BatchLoader`, the random state by
`headscope.training.module.ClassifierModule`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout

from headscope.ground.errors import ConfigError, RunError
from headscope.ground.files import PARTIAL, reading
from headscope.runs.folder import CONFIG, WEIGHTS, load_model
from headscope.runs.setup import Setup, fixed_settings
from headscope.settings.config import TrainConfig, read_config

LAST = Path("checkpoints", "last.ckpt")  # below the run folder
NEW_RUN = "leave it out, or start a new run"


class Resumed(NamedTuple):
    """The last checkpoint of a run, and how far it has come; an unfinished epoch does not count."""

    path: Path
    setup: Setup
    epochs: int
    steps: int


def load_last(folder: Path, allow_code: bool = False) -> Resumed | None:
    """Return the checkpoint to resume from; None if none was written yet.

    Raises:
        RunError: if it is missing or damaged, or names code that is not allowed.
    """
    path = folder / LAST
    if not path.exists() and not (folder / WEIGHTS).exists():
        return None
    with reading(path, folder):
        content: dict[str, Any] = torch.load(path, "cpu", weights_only=True, mmap=True)
        kept = content["setup"]
        setup = Setup.read(kept["metadata"], kept["tensors"], folder / path.name, allow_code)
        progress = content["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        # Lightning counts from 0, and at a validation the epoch is done but not counted yet.
        epochs = content["epoch"] + bool(progress["is_last_batch"])
        last = Resumed(path, setup, epochs, content["global_step"])
    if (folder / WEIGHTS).exists():
        model, *_ = load_model(folder, allow_code)
        if model.identity() != setup.identity():
            raise RunError(f"resume={folder}: {LAST} is another run's; put back its own")
    return last


def resumed_config(folder: Path) -> TrainConfig:
    """Return the settings of a run's last checkpoint, of config.yaml where none was written yet."""
    last = load_last(folder, allow_code=True)  # training checks it
    return read_config(folder / CONFIG) if last is None else last.setup.config


def check_resumed(config: TrainConfig, last: Resumed) -> None:
    """Raise a ConfigError for settings that do not fit the weights of a run or its progress."""
    changes = []
    now = fixed_settings(config)
    for key, old in fixed_settings(last.setup.config).items():
        if now[key] != old:
            changes.append(
                f"{key}: expected {old!r}, as resume={config.resume} was trained with, "
                f"got {now[key]!r}; {NEW_RUN}"
            )
    for key, count in (("max_epochs", last.epochs), ("max_steps", last.steps)):
        limit = getattr(config.trainer, key)
        if limit is not None and limit < count:
            changes.append(
                f"trainer.{key}: expected at least {count}, which resume={config.resume} has done, "
                f"got {limit}"
            )
    if changes:
        raise ConfigError("\n".join(changes))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from a run's folder, and clear what a killed one has left."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    lock = FileLock(path, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"{folder}: another process trains this run; wait for its end") from None
    try:
        for partial in folder.glob(f"checkpoints/{PARTIAL}*"):
            partial.unlink()
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()
