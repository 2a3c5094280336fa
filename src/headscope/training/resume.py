"""What a resumed run must keep: settings, labels, data and progress; checked before any write.

Imported without torch, so that a mistake is reported at once.
"""

import os
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from headscope.config import TrainConfig, absolute, is_local
from headscope.errors import ConfigError, RunError, first_line, listed, warn
from headscope.files import PARTIAL, read_json, reading
from headscope.manifest import DATA, RUN_ID, check_manifest, run_id
from headscope.validation import flatten

JOB = "job.json"  # of a job of a sweep: its overrides, and those that all jobs share
VALIDATIONS = "validations.json"
LAST = Path("checkpoints", "last.ckpt")  # below the run folder
BEST = Path("checkpoints", "best.ckpt")
NEW_RUN = "leave it out, or start a new run"
PUT_BACK = "put it back, or start a new run"
# Keys that decide what the network is, what it reads or which texts it has seen; or whole groups.
KEPT = ("name", "final", "outputs_dir", "seed", "data.", "tokenizer.", "model.")
FREE = (
    "data.tokens_per_batch",
    "data.cache_dir",
    "model.dropout",
    "model.attention_dropout",
    "model.frozen_layers",
)
PATHS = ("data.path", "data.validation_path", "data.test_path", "model.path")
Digests = dict[str, dict[str, Any]]


def check_kept(config: TrainConfig, before: TrainConfig) -> None:
    """Raise a ConfigError, a line per key, for settings that do not fit the weights of `before`.

    RunError for a part of the folder that is not the run's own.
    """
    check_manifest(Path(str(config.resume)), before)
    resumed = f"resume={config.resume} was trained with"
    changes = [
        f"{key}: got {new!r}, but {resumed} {old!r}; {NEW_RUN}"
        for key, new, old in _changed(config, before)
    ]
    decay = config.optimizer.layer_decay
    old_decay = before.optimizer.layer_decay
    if (decay < 1) != (old_decay < 1):  # AdamW's state is numbered by the groups of parameters
        changes.append(f"optimizer.layer_decay: got {decay}, but {resumed} {old_decay}; {NEW_RUN}")
    if changes:
        raise ConfigError("\n".join(changes))


def _changed(config: TrainConfig, before: TrainConfig) -> Iterator[tuple[str, Any, Any]]:
    """Yield what must not change and has: (key, new value, old value)."""
    olds = flatten(asdict(before))
    for key, new in flatten(asdict(config)).items():
        old = olds[key]
        if key in FREE or not any(key == kept or key.startswith(kept) for kept in KEPT):
            continue
        is_same = new == old
        if key in PATHS and old and is_local(old):
            # A run whose file was moved can only be resumed if it is given the new place.
            is_gone = not Path(old).expanduser().exists()
            is_same = is_gone or (bool(new) and absolute(new) == absolute(old))
        if not is_same:
            yield key, new, old


class RunLock:
    """Keep other processes from a run's folder until it is released, or this process ends."""

    def __init__(self, folder: Path) -> None:
        self._lock = FileLock(folder / ".lock", blocking=False)
        self._path = folder / ".lock"

    def take(self) -> None:
        """Take it, and clear what a killed process has left; RunError if another one has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            holder = self._path.read_text(encoding="utf-8")
            raise RunError(
                f"{self._path.parent}: process {holder or 'unknown'} trains this run; "
                "wait for its end, or stop it"
            ) from None
        self._path.write_text(str(os.getpid()), encoding="utf-8")
        for partial in self._path.parent.glob(f"checkpoints/{PARTIAL}*"):
            partial.unlink(missing_ok=True)

    def release(self) -> None:
        """Let go of it, if it was taken."""
        if self._lock.is_locked:
            self._path.unlink(missing_ok=True)
            self._lock.release()


def resume_point(folder: Path) -> Path | None:
    """Return the checkpoint to resume from; None, with a note, if none was written.

    Raises:
        RunError: if it, or the best checkpoint that it names, is damaged or another run's.
    """
    for path in (folder / LAST, folder / BEST):  # a kill may come between best and last
        if os.path.lexists(path):
            callbacks = _own_checkpoint(path)["callbacks"]
            if any(state.get("best_model_path") for state in callbacks.values()):
                _own_checkpoint(folder / BEST)
            return path
    if os.path.lexists(folder / "model.safetensors"):
        raise RunError(f"resume={folder}: has no {LAST}; {PUT_BACK}")
    warn(f"resume={folder}: has no checkpoint yet, so it starts anew")
    return None


def with_run_id(digests: Digests) -> dict[str, Any]:
    """Return what data.json of a new run has."""
    return {RUN_ID: uuid.uuid4().hex, **digests}


def _own_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint's content; RunError too for a changed byte, or one of another run."""
    content = load_checkpoint(path, test=True)
    folder = path.parents[1]
    expected = run_id(folder)
    found = content.get(RUN_ID)
    if found != expected and (folder / DATA).exists():
        raise RunError(
            f"resume={folder}: {path.parent.name}/{path.name}: expected a checkpoint of run "
            f"{expected or 'without an id'}, as in {DATA}, got one of run "
            f"{found or 'without an id'}; {PUT_BACK}"
        )
    return content


def load_checkpoint(path: Path, test: bool = False) -> dict[str, Any]:
    """Return a checkpoint's content, read as needed; RunError if it is missing or damaged.

    With `test` all of its bytes are read: a checkpoint is a zip, which has a checksum of each part.
    """
    import torch  # the rest is checked before anything heavy is imported

    name = f"resume={path.parents[1]}: {path.parent.name}/{path.name}"
    if not path.is_file():
        raise RunError(f"{name} is not a file; {PUT_BACK}")
    try:
        if test:
            _test_zip(path)
        content: dict[str, Any] = torch.load(path, "cpu", weights_only=True, mmap=True)
        _ = content["callbacks"], _progress(content)
    except Exception as error:  # whatever its bytes are
        raise RunError(f"{name} is damaged: {first_line(error)[:80]}; {PUT_BACK}") from error
    return content


def _test_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if (part := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{part} has another checksum than it was written with")


class Progress(NamedTuple):
    """How far a run has come; an epoch that is not finished does not count."""

    epochs: int
    steps: int
    is_epoch_end: bool


def _progress(checkpoint: dict[str, Any]) -> Progress:
    batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    is_end = bool(batches["is_last_batch"])
    # Lightning counts from 0, and saves an epoch's checkpoint at its very end.
    return Progress(checkpoint["epoch"] + is_end, checkpoint["global_step"], is_end)


def progress_of(resumed: Path) -> Progress:
    """Return the progress of a run at its checkpoint."""
    return _progress(load_checkpoint(resumed))


def check_files(folder: Path, names: tuple[str, ...]) -> None:
    """Raise a RunError for a folder or pipe where the run will write a file, or damaged scores."""
    for path in (folder / name for name in names):
        if os.path.lexists(path) and not path.is_file():
            raise RunError(f"resume={folder}: {path.name} is not a file; remove it")
    load_validations(folder / VALIDATIONS)


def load_validations(path: Path) -> list[dict[str, int | float]]:
    """Return the scores of the validations before; [] before the first."""
    if not os.path.lexists(path):
        return []
    entries: list[dict[str, int | float]] = read_json(path, list[dict[str, int | float]])
    with reading(path):
        _ = [entry["step"] for entry in entries]
    return entries


def check_data(folder: Path, labels: list[str], digests: Digests) -> None:
    """Raise a RunError for other labels or texts: what was learned may be in the test split now."""
    if (kept := read_json(folder / "labels.json", list)) != labels:
        problem = (
            f"was trained on the labels {listed(kept)}, and its data now have {listed(labels)}"
        )
    elif changes := changed_splits(folder, digests):
        problem = f"its data have changed, by {DATA}: {'; '.join(changes)}"
    else:
        return
    raise RunError(f"{folder}: {problem}; give it the data that it had, or start a new run")


def changed_splits(folder: Path, digests: Digests) -> list[str]:
    """Return the splits that differ from data.json, and in what: rows, texts or labels."""
    path = folder / DATA
    kept: Digests = read_json(path, dict)
    with reading(path):
        return [
            f"{role} ({', '.join(name for name in now if now[name] != kept[role][name])})"
            for role, now in digests.items()
            if now != kept[role]
        ]


def check_progress(config: TrainConfig, before: TrainConfig, resumed: Path) -> None:
    """Raise a ConfigError for what does not fit the progress of the run.

    That is a length that it has passed, and, within an epoch, batches of another size: which texts
    are left of the epoch would be unknown.
    """
    progress = progress_of(resumed)
    for key, count in (("max_epochs", progress.epochs), ("max_steps", progress.steps)):
        limit = getattr(config.trainer, key)
        if limit is not None and limit < count:
            raise ConfigError(
                f"trainer.{key}: expected at least {count}, which resume={config.resume} has done, "
                f"got {limit}"
            )
    if progress.is_epoch_end:
        return
    new = config.data.tokens_per_batch
    old = before.data.tokens_per_batch
    if new != old:
        raise ConfigError(
            f"data.tokens_per_batch: expected {old} within an epoch of resume={config.resume}, "
            f"got {new}; leave it out until that epoch is over"
        )


def check_weights(resumed: Path, weights: Mapping[str, Any]) -> None:
    """Raise a RunError if a checkpoint's weights have other names or shapes than the network's."""
    stored = load_checkpoint(resumed)["state_dict"]
    for name in {**weights, **stored}:
        shapes = [
            [*tensors[name].shape] if name in tensors else None for tensors in (weights, stored)
        ]
        if shapes[0] != shapes[1]:
            raise RunError(
                f"resume={resumed.parents[1]}: {resumed.name}: {name}: expected shape {shapes[0]} "
                f"by config.yaml and labels.json, got {shapes[1]}; put back the changed file"
            )
