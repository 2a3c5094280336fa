"""What a resumed run must keep: its settings, its labels, how far it has come. Checked before anything is written.

Imported without torch, so that a mistake is told at once.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headscope.config import TrainConfig, is_local
from headscope.errors import ConfigError, RunError, listed
from headscope.settings import described

NEW_RUN = "leave it out, or start a new run"
LAST = Path("checkpoints", "last.ckpt")  # below the run folder: what a resumed run goes on from
# Keys that decide what the network is, what it reads or which texts it has seen; with a dot at its end, a whole group.
KEPT = ("name", "outputs_dir", "seed", "data.", "tokenizer.", "model.")
FREE = ("data.tokens_per_batch", "data.cache_dir", "model.dropout", "model.attention_dropout", "model.frozen_layers")
PATHS = ("data.path", "data.validation_path", "data.test_path", "model.path")


def check_kept(config: TrainConfig, before: TrainConfig) -> None:
    """Refuse, with a line for each changed key, settings that do not fit the weights of the run `before`."""
    found = [
        f"{key}: got {new!r}, but resume={config.resume} was trained with {old!r}; {NEW_RUN}"
        for key, new, old in _changed(config, before)
    ]
    if found:
        raise ConfigError("\n".join(found))


def _changed(config: TrainConfig, before: TrainConfig) -> Iterator[tuple[str, Any, Any]]:
    """Yield what must not change and has: (key, new value, old value)."""
    for (key, new, _), (_, old, _) in zip(described(config), described(before), strict=True):
        is_kept = key not in FREE and any(key == kept or (kept[-1] == "." and key.startswith(kept)) for kept in KEPT)
        # A run whose file was moved can only go on if it is told where to.
        is_gone = key in PATHS and old and is_local(old) and not Path(old).expanduser().exists()
        if new != old and is_kept and not is_gone:
            yield key, new, old


def check_labels(folder: Path, labels: list[str]) -> None:
    """Refuse, by a RunError, texts whose labels are no longer those of the logits: the data have changed."""
    path = folder / "labels.json"
    if path.is_file() and (kept := json.loads(path.read_text(encoding="utf-8"))) != labels:
        raise RunError(
            f"resume={folder}: was trained on the labels {listed(kept)}, and its data now have {listed(labels)}; "
            "give it the data that it had, or start a new run"
        )


def check_length(config: TrainConfig, last: Path) -> None:
    """Refuse, by a ConfigError, a length that the run has passed, by its last checkpoint, if there is one."""
    if not last.is_file():
        return
    kept = _loaded(last)
    # Whole epochs: a checkpoint is written within its epoch, often at its very end.
    epochs, steps = kept["epoch"] + bool(_progress(kept)["is_last_batch"]), kept["global_step"]
    for key, wanted, done, unit in (
        ("max_epochs", config.trainer.max_epochs, epochs, "epochs"),
        ("max_steps", config.trainer.max_steps, steps, "steps"),
    ):
        if wanted is not None and wanted < done:
            raise ConfigError(
                f"trainer.{key}: got {wanted}, but resume={config.resume} has done {done} {unit}; take more"
            )


def check_batches(config: TrainConfig, before: TrainConfig, last: Path) -> None:
    """Refuse batches of another size within an epoch: which texts are left of it could not be told."""
    new, old = config.data.tokens_per_batch, before.data.tokens_per_batch
    if new == old or not last.is_file():
        return
    if not _progress(_loaded(last))["is_last_batch"]:
        raise ConfigError(
            f"data.tokens_per_batch: got {new}, but resume={config.resume} was stopped within an epoch of batches of "
            f"{old}; leave it out until that epoch is over"
        )


def _progress(kept: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = kept["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    return found


def _loaded(last: Path) -> dict[str, Any]:
    import torch  # the rest is checked before anything heavy is imported

    found: dict[str, Any] = torch.load(last, map_location="cpu", weights_only=True, mmap=True)
    return found
