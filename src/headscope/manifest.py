"""manifest.json: what decides a run's answers, by which a part of another run is noticed.

It has the sha256 digest of each file and of what metrics.json has for abstaining, the values of the
settings, and the temperature and the thresholds, which you may edit: then a note names them. Text
files may change their line ends, and the folder its place. Runs of before have none.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from headscope.config import TrainConfig
from headscope.errors import RunError, shown, warn
from headscope.files import MIB, check_is_file, read_json, reading, write_text
from headscope.validation import flatten, literal

if TYPE_CHECKING:
    from headscope.model.objective import Objective

MANIFEST = "manifest.json"
METRICS = "metrics.json"
DATA = "data.json"  # digests of the splits that the run was trained on, and the run's id
RUN_ID = "run_id"  # random, in data.json and in each checkpoint; older runs lack it
PARTS = (
    "model.safetensors",
    "tokenizer.json",
    "labels.json",
    "evidence.safetensors",
    "encoder.json",
)
SETTINGS = ("data.", "model.", "tokenizer.", "seed", "optimizer.layer_decay")  # or whole groups
# Of training alone; or names, on this machine or the Hub, of what the folder has by itself, or of
# texts, which data.json knows.
FREE = (
    "data.path",
    "data.validation_path",
    "data.test_path",
    "data.drop_rows",
    "data.cache_dir",
    "data.tokens_per_batch",
    "model.dropout",
    "model.attention_dropout",
    "model.evidence_dropout",
    "model.frozen_layers",
    "model.path",
    "model.revision",
)
PUT_BACK = "put the run's own back, or train again"


Manifest = dict[str, Any]  # files, metrics, settings, temperature, thresholds (None: one class)


def write_manifest(
    folder: Path,
    config: TrainConfig,
    labels: Sequence[str],
    objective: "Objective",
    temperature: float,
    metrics: Mapping[str, Any],
) -> None:
    """Write manifest.json of a run whose parts are written, but for `metrics` of metrics.json."""
    content: Manifest = {
        "files": {name: _digest(folder / name) for name in PARTS if (folder / name).exists()},
        "metrics": {key: _digest_of(value) for key, value in metrics.items()},
        "settings": _settings(config),
        "temperature": temperature,
        "thresholds": _thresholds(labels, objective),
    }
    write_text(folder / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def check_manifest(folder: Path, config: TrainConfig) -> Manifest | None:
    """Return manifest.json, or None without one; RunError for a part that is not the run's own."""
    if not (folder / MANIFEST).exists():
        return None
    manifest: Manifest = read_json(folder / MANIFEST, dict)
    with reading(folder / MANIFEST):
        settings = dict(manifest["settings"])
        files = dict(manifest["files"])
        metrics = dict(manifest.get("metrics", {}))  # older ones lack it
        float(manifest["temperature"])
        dict(manifest["thresholds"] or {})
    now = _settings(config)
    for key, value in settings.items():
        if key in now and now[key] != value:
            raise RunError(
                f"run={folder}: config.yaml: {key}: expected {literal(value)}, as in {MANIFEST}, "
                f"got {literal(now[key])}; {PUT_BACK}"
            )
    changed = [
        name
        for name in PARTS
        if (folder / name).exists() and files.get(name) != _digest(folder / name)
    ]
    if metrics and (folder / METRICS).exists():
        content = read_json(folder / METRICS, dict)
        if any(_digest_of(content.get(key)) != value for key, value in metrics.items()):
            changed.append(METRICS)
    if changed:
        raise RunError(
            f"run={folder}: {changed[0]} is not the run's own, by {MANIFEST}: it has changed since "
            f"training, or is another run's; {PUT_BACK}"
        )
    return manifest


def run_id(folder: Path) -> str | None:
    """Return the id in data.json; None for an older run."""
    path = folder / DATA
    identity = read_json(path, dict).get(RUN_ID) if path.exists() else None
    with reading(path):
        return TypeAdapter(str | None).validate_python(identity)


def note_edits(
    folder: Path,
    manifest: Manifest | None,
    labels: Sequence[str],
    objective: "Objective",
    temperature: float,
) -> None:
    """Warn of a temperature or thresholds that are not those of training, or of no manifest."""
    if manifest is None:
        if (folder / METRICS).exists():  # training has ended
            warn(
                f"run={folder}: has no {MANIFEST}, as older runs; whether its files belong "
                "together is unknown"
            )
        return
    if temperature != manifest["temperature"]:
        warn(
            f"run={folder}: the temperature in calibration.json is {temperature:.6g}, and was "
            f"{manifest['temperature']:.6g} after training; probabilities follow it"
        )
    before = manifest["thresholds"] or {}
    for label, value in (_thresholds(labels, objective) or {}).items():
        if label in before and value != before[label]:
            warn(
                f"run={folder}: the threshold of {shown(label)} in thresholds.json is {value:.6g}, "
                f"and was {before[label]:.6g} after training; predictions follow it"
            )


def _thresholds(labels: Sequence[str], objective: "Objective") -> dict[str, float] | None:
    """Return each class's threshold; None where a text has one class."""
    values = getattr(objective, "thresholds", None)
    return None if values is None else dict(zip(labels, values.tolist(), strict=True))


def _settings(config: TrainConfig) -> dict[str, Any]:
    flat = flatten(asdict(config))
    return {
        key: value for key, value in flat.items() if key.startswith(SETTINGS) and key not in FREE
    }


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with reading(path):
        check_is_file(path, 1024 * MIB if path.suffix == ".json" else None)
        if path.suffix == ".json":
            return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
