"""Resuming: what the last checkpoint of a run holds, and which settings may change since.

The place in the epoch is kept by `headscope.data.batching.BatchLoader`, the random state by
`headscope.training.module.ClassifierModule`.
"""

import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from pydantic_core import from_json

from headscope.ground.errors import ConfigError, RunError
from headscope.ground.files import PARTIAL, check_links, reading
from headscope.runs.folder import CONFIG, WEIGHTS, load_setup
from headscope.runs.setup import Setup, fixed_settings
from headscope.settings.config import TrainConfig, config_of, read_config

LAST = Path("checkpoints", "last.ckpt")  # below the run folder
NEW_RUN = "leave it out, or start a new run"


class Resumed(NamedTuple):
    """The last checkpoint of a run, and how far it has come; an unfinished epoch does not count."""

    path: Path
    setup: Setup
    epochs: int
    steps: int
    fast_bfloat16: bool | None = None  # see `headscope.training.module`; None of an older run


def load_last(folder: Path, own: Collection[str] = ()) -> Resumed | None:
    """Return the checkpoint to resume from; None if none was written yet.

    Raises:
        RunError: if it is missing or damaged, or names other code than the import paths in `own`.
    """
    path = folder / LAST
    if not path.exists() and not (folder / WEIGHTS).exists():
        return None
    with reading(path, folder):
        with zipfile.ZipFile(path) as archive:
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"{damaged} is not what was written: its checksum is another")
        content = _content(path)
        kept = content["setup"]
        setup = Setup.read(kept["metadata"], kept["tensors"], folder / path.name, own)
        state = content["state_dict"].items()
        weights = {name.removeprefix("model."): weight for name, weight in state}
        if setup.are_of_1_0(weights):
            raise RunError(
                f"resume={folder}: expected a run of this version, got one of 1.0 on a checkpoint, "
                "whose optimizer has other parameters; it answers as it did, or train a new run"
            )
        setup.check_weights(weights)
        progress = content["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        # Lightning counts from 0, and at a validation the epoch is done but not counted yet.
        epochs = content["epoch"] + bool(progress["is_last_batch"])
        is_fast = content.get("fast_bfloat16")
        last = Resumed(path, setup, epochs, content["global_step"], is_fast)
    if (folder / WEIGHTS).exists() and load_setup(folder, own).identity() != setup.identity():
        raise RunError(f"resume={folder}: {LAST} is another run's; put back its own")
    return last


def resumed_config(folder: Path) -> TrainConfig:
    """Return the settings of a run's last checkpoint, of config.yaml where none was written yet.

    Nothing else is read, and nothing is built; whether the code that they name may be run is for
    the caller to ask.
    """
    path = folder / LAST
    if not path.exists() and not (folder / WEIGHTS).exists():
        return read_config(folder / CONFIG)
    with reading(path, folder):
        settings = _content(path)["setup"]["metadata"]["settings"]
        return config_of(from_json(settings), folder / path.name)


def _content(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds; ValueError if it claims more than the file has."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("is compressed, which no checkpoint is")
    content: dict[str, Any] = torch.load(path, "cpu", weights_only=True, mmap=True)
    if sum(weight.nbytes for weight in content["state_dict"].values()) > path.stat().st_size:
        raise ValueError("has larger tensors than the file")
    return content


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
    check_links(folder)
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
