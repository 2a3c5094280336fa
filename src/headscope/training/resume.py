"""What a resumed run must keep: its settings, its labels, how far it has come. Checked before anything is written.

Imported without torch, so that a mistake is told at once.
"""

import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headscope.config import TrainConfig, absolute, is_local
from headscope.errors import ConfigError, RunError, UserWarningMessage, first_line, listed
from headscope.files import PARTIAL, read_json, reading
from headscope.validation import flatten

NEW_RUN = "leave it out, or start a new run"
JOB = "job.json"  # of a job of a sweep: what was overridden, and what of it all jobs have in common
DATA = "data.json"  # what tells whether the splits are those that the run was trained on
Digests = dict[str, dict[str, Any]]
# Below the run folder: what a resumed run goes on from, the first that can be read.
LAST, PREVIOUS, BEST = (
    Path("checkpoints", f"{name}.ckpt") for name in ("last", "last.previous", "best")
)
# Keys that decide what the network is, what it reads or which texts it has seen; with a dot at its end, a whole group.
KEPT = ("name", "outputs_dir", "seed", "data.", "tokenizer.", "model.")
FREE = (
    "data.tokens_per_batch",
    "data.cache_dir",
    "model.dropout",
    "model.attention_dropout",
    "model.frozen_layers",
)
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
    olds = flatten(asdict(before))
    for key, new in flatten(asdict(config)).items():
        old = olds[key]
        is_kept = key not in FREE and any(
            key == kept or (kept[-1] == "." and key.startswith(kept)) for kept in KEPT
        )
        # A run whose file was moved can only go on if it is told where to.
        is_gone = key in PATHS and old and is_local(old) and not Path(old).expanduser().exists()
        is_same = new == old or (key in PATHS and new and old and absolute(new) == absolute(old))
        if is_kept and not (is_same or is_gone):
            yield key, new, old


class RunLock:
    """Keep other processes from a run's folder until it is released, or this process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._lock = FileLock(folder / ".lock", blocking=False)

    def take(self) -> None:
        """Take it, and clear what a killed process has left; a RunError if another process has it."""
        path = Path(self._lock.lock_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            holder = path.read_text(encoding="utf-8")
            raise RunError(
                f"{path.parent}: another process{f', {holder},' if holder else ''} trains this run; wait for its end, "
                "or stop it"
            ) from None
        path.write_text(str(os.getpid()), encoding="utf-8")
        for partial in path.parent.glob(f"checkpoints/{PARTIAL}*"):  # of a process that was killed
            partial.unlink(missing_ok=True)

    def release(self) -> None:
        """Let go of it, if it was taken."""
        if self._lock.is_locked:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()


def resume_point(folder: Path) -> Path | None:
    """Return the checkpoint to go on from: the last, else the one before it, else the best; None if none was written.

    Raises:
        RunError: if there were some, and none can be read; or the best weights so far are lost.
    """
    faults: dict[Path, str] = {}
    for name in (LAST, PREVIOUS, BEST):
        try:
            kept = whole_checkpoint(folder / name)
        except ValueError as error:
            faults[name] = str(error)
            continue
        said = "; ".join(f"{name} {fault}" for name, fault in faults.items())
        if said:
            _note(f"resume={folder}: {said}; goes on from {name}, step {kept['global_step']}")
        if name != BEST and any(
            state.get("best_model_path") for state in kept["callbacks"].values()
        ):
            try:
                whole_checkpoint(folder / BEST)
            except ValueError as error:
                raise RunError(
                    f"resume={folder}: {BEST} {error}, with the best weights so far; put it back, or start a new run"
                ) from None
        return folder / name
    if any(os.path.lexists(folder / name) for name in (*faults, Path("model.safetensors"))):
        said = "; ".join(f"{name} {fault}" for name, fault in faults.items())
        raise RunError(
            f"resume={folder}: no checkpoint to go on from: {said}; put one back, or start a new run"
        )
    _note(f"resume={folder}: has no checkpoint yet, so it begins anew")
    return None


def whole_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint; a ValueError that says how it is damaged, or that it is missing."""
    if not path.is_file():
        raise ValueError("is no file" if os.path.lexists(path) else "is missing")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch would not notice bytes that have changed
        kept = _loaded(path)
        _ = kept["global_step"], kept["epoch"], kept["callbacks"], _progress(kept)
    except Exception as error:  # whatever its bytes are
        raise ValueError(
            f"is damaged ({first_line(error)[:80] or type(error).__name__})"
        ) from error
    if damaged:
        raise ValueError(f"is damaged ({damaged})")
    return kept


def _loaded(path: Path) -> dict[str, Any]:
    import torch  # the rest is checked before anything heavy is imported

    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return found


def _note(said: str) -> None:
    warnings.warn(UserWarningMessage(said), stacklevel=3)


def check_labels(folder: Path, labels: list[str]) -> None:
    """Refuse, by a RunError, texts whose labels are no longer those of the logits: the data have changed."""
    if (kept := read_json(folder / "labels.json", list)) != labels:
        raise RunError(
            f"resume={folder}: was trained on the labels {listed(kept)}, and its data now have {listed(labels)}; "
            "give it the data that it had, or start a new run"
        )


def check_places(folder: Path, names: Iterable[str]) -> None:
    """Refuse, by a RunError, what is no file and stands where the run will write one."""
    for path in (folder / name for name in names):
        if os.path.lexists(path) and not path.is_file():
            raise RunError(f"resume={folder}: {path.name} is no file; remove it")


def check_data(folder: Path, found: Digests) -> None:
    """Refuse, by a RunError, texts that are no longer those of the run: what it learned may stand in its test split."""
    if changed := changed_splits(folder, found):
        raise RunError(
            f"resume={folder}: its data have changed: {'; '.join(changed)}; give it the data that it had, or start a "
            "new run"
        )


def changed_splits(folder: Path, found: Digests) -> list[str]:
    """Say of each split that is found how it differs from what data.json says that the run had."""
    path = folder / DATA
    if not path.exists():
        _note(
            f"{folder}: has no {DATA}, as older runs, so whether its data are what they were is not known"
        )
        return []
    kept: Digests = read_json(path, dict)
    with reading(path):
        return [
            f"{role} {_change(kept[role], now)}" for role, now in found.items() if kept[role] != now
        ]


def _change(was: dict[str, Any], now: dict[str, Any]) -> str:
    if was["rows"] != now["rows"]:
        return f"had {was['rows']} rows, has {now['rows']}"
    changed = " and ".join(name for name in ("texts", "labels") if was[name] != now[name])
    return f"has other {changed}, or another order of its {now['rows']} rows"


def check_progress(config: TrainConfig, before: TrainConfig, resumed: Path) -> None:
    """Refuse, by a ConfigError, what does not fit how far the run has come.

    That is a length that it has passed, and, within an epoch, batches of another size or shared by another number of
    processes: which texts are left of it could not be told.
    """
    kept = _loaded(resumed)
    # Whole epochs: a checkpoint is written within its epoch, often at its very end.
    is_end = bool(_progress(kept)["is_last_batch"])
    epochs, steps = kept["epoch"] + is_end, kept["global_step"]
    for key, wanted, done, unit in (
        ("max_epochs", config.trainer.max_epochs, epochs, "epochs"),
        ("max_steps", config.trainer.max_steps, steps, "steps"),
    ):
        if wanted is not None and wanted < done:
            raise ConfigError(
                f"trainer.{key}: got {wanted}, but resume={config.resume} has done {done} {unit}; take more"
            )
    for group, key in (
        ("data", "tokens_per_batch"),
        ("trainer", "devices"),
        ("trainer", "num_nodes"),
    ):
        new, old = (getattr(getattr(settings, group), key) for settings in (config, before))
        if new != old and not is_end:
            raise ConfigError(
                f"{group}.{key}: got {new}, but resume={config.resume} was stopped within an epoch of {key}={old}; "
                "leave it out until that epoch is over"
            )


def steps_done(resumed: Path) -> tuple[int, int]:
    """Return the epochs that a run has finished, and its steps so far; (0, 0) within an epoch.

    The epochs to come may have another number of steps than those that are done.
    """
    kept = _loaded(resumed)
    return (kept["epoch"] + 1, kept["global_step"]) if _progress(kept)["is_last_batch"] else (0, 0)


def check_weights(resumed: Path, expected: Mapping[str, Any]) -> None:
    """Refuse, by a RunError, a checkpoint whose weights have other names or shapes than those expected."""
    found = {name: list(weight.shape) for name, weight in _loaded(resumed)["state_dict"].items()}
    wanted = {name: list(weight.shape) for name, weight in expected.items()}
    for name in [*wanted, *found]:
        if found.get(name) != wanted.get(name):
            shapes = " and ".join(
                f"is {shape or 'missing'} in {place}"
                for shape, place in (
                    (found.get(name), resumed.name),
                    (wanted.get(name), "the network of config.yaml and labels.json"),
                )
            )
            raise RunError(
                f"resume={resumed.parents[1]}: {name} {shapes}; put back the file that was changed"
            )


def _progress(kept: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = kept["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    return found
