"""What a run folder keeps beside the network's weights, and the files' names. Free of lightning and scikit-learn."""

import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.evidence import EvidenceVocabulary, load_evidence
from headscope.files import write_whole
from headscope.model.objective import ONE_CLASS, AnyClasses, Objective
from headscope.model.pretrained.architecture import Architecture, load_architecture
from headscope.training.config import TrainConfig

ENCODER, THRESHOLDS, EVIDENCE = "encoder.json", "thresholds.json", "evidence.safetensors"
CALIBRATION, MOST_WRONG, METRICS, HEADS = "calibration.json", "most_wrong.html", "metrics.json", "heads.json"
WEIGHTS, MADE_OF_WEIGHTS = "model.safetensors", (CALIBRATION, MOST_WRONG, METRICS, HEADS, THRESHOLDS)  # of no others


def save_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def kept_architecture(folder: Path, config: TrainConfig) -> Architecture | None:
    """Read encoder.json; None for a run from scratch, which has none.

    Raises:
        ValueError: if it is broken.
    """
    return None if config.model.path is None else load_architecture(folder / ENCODER)


def kept_evidence(folder: Path, config: TrainConfig) -> EvidenceVocabulary | None:
    """Read evidence.safetensors; None for a run whose tokens carry no evidence.

    Raises:
        ValueError: if it is broken.
    """
    return load_evidence(folder / EVIDENCE) if config.model.evidence else None


def objective_of(config: TrainConfig) -> Objective:
    """Return what the configuration says that labels are."""
    return AnyClasses() if config.data.multi_label else ONE_CLASS


def save_thresholds(folder: Path, labels: list[str], thresholds: Float[Tensor, " C"]) -> None:
    """Write thresholds.json."""
    save_json(folder / THRESHOLDS, dict(zip(labels, thresholds.tolist(), strict=True)))


def kept_objective(folder: Path, config: TrainConfig, labels: list[str]) -> Objective:
    """Return what labels are, with the thresholds of thresholds.json if there is one.

    Raises:
        ValueError: if it is broken.
    """
    path, objective = folder / THRESHOLDS, objective_of(config)
    if not config.data.multi_label or not path.exists():
        return objective
    kept = json.loads(path.read_text(encoding="utf-8"))
    try:
        thresholds = torch.tensor([kept[label] for label in labels], dtype=torch.float64)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{THRESHOLDS}: takes a number for each of {', '.join(labels[:20])}") from error
    return AnyClasses(thresholds)


def load_temperature(folder: Path) -> float:
    """Read the temperature in calibration.json; 1 for a run that has none, as older ones.

    Raises:
        ValueError: if it is broken.
    """
    path = folder / CALIBRATION
    if not path.is_file():
        return 1.0
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is no JSON: {error}") from error
    temperature = content.get("temperature") if isinstance(content, dict) else None
    if not isinstance(temperature, (int, float)) or not 0 < temperature < float("inf"):
        raise ValueError(f"{path}: temperature is {temperature!r}, takes a number above 0")
    return float(temperature)


def training_fact(folder: Path, name: str) -> Any:
    """Return one of the facts of training in metrics.json; None where it is not known, as before the run's end."""
    return _facts(folder, "training").get(name)


def facts_of_data(folder: Path) -> dict[str, Any]:
    """Return the facts of the texts in metrics.json; empty before the run's end."""
    return _facts(folder, "data")


def _facts(folder: Path, part: str) -> dict[str, Any]:
    path = folder / METRICS
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")).get(part, {}) if path.is_file() else {}
    return found
