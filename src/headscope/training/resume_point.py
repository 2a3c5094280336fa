"""Where a run stands that goes on: its labels, and how far it has come. Told before anything is written."""

import json
from pathlib import Path
from typing import Any

import torch

from headscope.errors import ConfigError, RunError, listed
from headscope.training.config import TrainConfig


def check_labels(folder: Path, labels: list[str]) -> None:
    """Refuse texts whose labels are no longer those of the logits: the file has changed since.

    Raises:
        RunError: with both lists.
    """
    path = folder / "labels.json"
    if path.is_file() and (kept := json.loads(path.read_text(encoding="utf-8"))) != labels:
        raise RunError(
            f"resume={folder}: was trained on the labels {listed(kept)}, and its data now have {listed(labels)}; "
            "give it the data that it had, or start a new run"
        )


def check_length(config: TrainConfig, last: Path) -> None:
    """Refuse a length that the run has gone beyond.

    Args:
        config: of the run that goes on.
        last: its last checkpoint; where there is none, nothing is done yet.

    Raises:
        ConfigError: that says how far it has come.
    """
    if not last.is_file():
        return
    epochs, steps = _done(last)
    for key, wanted, done, unit in (
        ("max_epochs", config.trainer.max_epochs, epochs, "epochs"),
        ("max_steps", config.trainer.max_steps, steps, "steps"),
    ):
        if wanted is not None and wanted < done:
            raise ConfigError(
                f"trainer.{key}: got {wanted}, but resume={config.resume} has done {done} {unit}; take more"
            )


def check_batches(config: TrainConfig, before: TrainConfig, last: Path) -> None:
    """Refuse batches of another size in the middle of an epoch: which texts are left of it could not be told.

    Raises:
        ConfigError: that says so.
    """
    new, old = config.data.tokens_per_batch, before.data.tokens_per_batch
    if new == old or not last.is_file():
        return
    if not _progress(_loaded(last))["is_last_batch"]:
        raise ConfigError(
            f"data.tokens_per_batch: got {new}, but resume={config.resume} was stopped within an epoch of batches of "
            f"{old}; leave it out until that epoch is over"
        )


def _done(last: Path) -> tuple[int, int]:
    """Return whole epochs and optimizer steps. A checkpoint is written within its epoch, often at its very end."""
    kept = _loaded(last)
    return kept["epoch"] + bool(_progress(kept)["is_last_batch"]), kept["global_step"]


def _progress(kept: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = kept["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    return found


def _loaded(last: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(last, map_location="cpu", weights_only=True, mmap=True)
    return found
