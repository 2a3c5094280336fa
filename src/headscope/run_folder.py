"""A run folder: the files that training writes and everything else reads.

    outputs/<name>/
        config.yaml          every setting, resolved
        tokenizer.json       the trained tokenizer, or the checkpoint's
        encoder.json         sizes of a pretrained encoder, with model.path
        labels.json          names of the classes, in the order of the logits
        data.json            the run's id, and a digest of each split, by which changes are noticed
        evidence.safetensors the known n-grams, with model.evidence
        model.safetensors    the best weights by validation loss
        thresholds.json      with data.multi_label: the probability from which a class is predicted
        calibration.json     the temperature of the probabilities; 1 in older runs, which lack it
        manifest.json        digests of what decides an answer; older runs lack it
        metrics.json         scores, baseline, facts about data and training, seconds
        validations.json     the scores of each validation
        errors.csv           the misclassified test texts, that of the highest loss first
        checkpoints/         best.ckpt, and last.ckpt, from which training resumes
        heads/               the record of the attention heads, for TensorBoard's Heads tab
        events.out.tfevents… scalars, images and texts for TensorBoard

Nothing in it is unpickled to use the model. Free of lightning, so that predicting starts fast.
"""

import filecmp
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, TypeAdapter
from safetensors.torch import load_file, load_model, save_model
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.config import TrainConfig, absolute, read_config
from headscope.data.evidence import EvidenceVocabulary, load_evidence
from headscope.data.tokenizer import load_tokenizer
from headscope.errors import listed, warn
from headscope.extension import check_allowed
from headscope.files import MIB, check_is_file, read_json, reading, replacing, write_text
from headscope.manifest import MANIFEST
from headscope.manifest import METRICS as METRICS
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.model.pretrained import Architecture, architecture_json, load_architecture
from headscope.validation import to_yaml

CONFIG = "config.yaml"
TOKENIZER = "tokenizer.json"
ENCODER = "encoder.json"
LABELS = "labels.json"
EVIDENCE = "evidence.safetensors"
WEIGHTS = "model.safetensors"
THRESHOLDS = "thresholds.json"
CALIBRATION = "calibration.json"
ERRORS = "errors.csv"
HEADS = "heads.json"
# Made from the weights:
DERIVED_FILES = (MANIFEST, CALIBRATION, ERRORS, METRICS, HEADS, THRESHOLDS)


# Reading a run folder.


def load_config(folder: Path, allow_code: bool = False) -> TrainConfig:
    """Read config.yaml and check its keys, types and values; for `allow_code` see `load_run`.

    Raises:
        RunError: if it is missing, does not fit this version, or names code that is not allowed.
    """
    config = read_config(folder / CONFIG)
    check_allowed(config.import_paths, folder, allow_code)
    return config


def load_labels(folder: Path) -> list[str]:
    """Read labels.json."""
    labels: list[str] = read_json(folder / LABELS, list[str])
    with reading(folder / LABELS):
        if not labels or len({*labels}) < len(labels):
            raise ValueError("expected names of classes, all different")
    return labels


def load_vocabulary(
    folder: Path, config: TrainConfig
) -> tuple[Tokenizer, Architecture | None, EvidenceVocabulary | None]:
    """Read tokenizer.json and, where the run has them, encoder.json and evidence.safetensors."""
    architecture = load_encoder(folder, config)
    path = folder / TOKENIZER
    max_length = config.data.max_length
    with reading(path):
        check_is_file(path, 1024 * MIB)
        tokenizer = load_tokenizer(path)
        truncation = tokenizer.truncation
        if truncation is not None and not 0 < truncation["max_length"] <= max_length:
            raise ValueError(f"does not truncate texts to data.max_length={max_length} tokens")
        tokenizer.enable_truncation(max_length)
        vocab_size = architecture.vocab_size if architecture else tokenizer.get_vocab_size()
        ids = [*tokenizer.get_vocab().values(), *tokenizer.encode("a", "b").ids]
        if max(ids + tokenizer.encode("a").ids) >= vocab_size:
            raise ValueError(f"has ids beyond the network's {vocab_size} tokens")
    evidence = load_evidence(folder / EVIDENCE) if config.model.evidence else None
    return tokenizer, architecture, evidence


def load_encoder(folder: Path, config: TrainConfig) -> Architecture | None:
    """Read encoder.json; None for a run from scratch, which has none."""
    return None if config.model.path is None else load_architecture(folder / ENCODER)


def build_model(
    config: TrainConfig,
    tokenizer: Tokenizer,
    labels: Sequence[str],
    architecture: Architecture | None = None,
    evidence: EvidenceVocabulary | None = None,
) -> TextClassifier:
    """Return the untrained network for a configuration, its tokens, classes and n-grams."""
    return TextClassifier(
        config.model,
        tokenizer.get_vocab_size(),
        len(labels),
        config.data.max_length,
        2 if config.data.text_pair_column else 1,
        architecture,
        0 if evidence is None else len(evidence),
    )


def load_weights(model: TextClassifier, path: Path) -> None:
    """Load model.safetensors; RunError if a name, shape, type or value does not fit the network."""
    with reading(path):
        check_is_file(path)
        tensors = load_file(path)
        check_shapes(tensors, model.state_dict())
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("has values that are not finite")
        missing, _ = load_model(model, path, strict=False)  # which knows tensors that share memory
        if missing:
            raise ValueError(f"lacks {listed([*missing])}")


def check_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless each tensor is expected, in its shape and type."""
    for name, tensor in tensors.items():
        if name not in expected:
            raise ValueError(f"{name}: the network of {CONFIG} and {LABELS} has no such tensor")
        wanted = expected[name]
        if (tensor.dtype, tensor.shape) != (wanted.dtype, wanted.shape):
            raise ValueError(
                f"{name}: expected {wanted.dtype} {[*wanted.shape]} by {CONFIG} and {LABELS}, "
                f"got {tensor.dtype} {[*tensor.shape]}"
            )


def objective_of(config: TrainConfig) -> Objective:
    """Return the objective: one class for each text, or any number of them."""
    return MultiLabel() if config.data.multi_label else ONE_CLASS


def load_objective(folder: Path, config: TrainConfig, labels: list[str]) -> Objective:
    """Return the objective, with data.multi_label with the thresholds of thresholds.json."""
    path = folder / THRESHOLDS
    if not config.data.multi_label or not path.exists():
        if config.data.multi_label and (folder / METRICS).exists():  # a finished run had them
            warn(f"{folder} has no {THRESHOLDS}: every class has the threshold 0.5")
        return objective_of(config)
    thresholds = read_json(path, dict[str, Annotated[float, Field(ge=0, le=1)]])
    with reading(path):
        if thresholds.keys() != {*labels}:
            raise ValueError(f"expected a number from 0 to 1 for each of {listed(labels)}")
    return MultiLabel(torch.tensor([thresholds[label] for label in labels], dtype=torch.float64))


def load_temperature(folder: Path) -> float:
    """Read the temperature from calibration.json, else from metrics.json; 1 if neither has it."""
    path = folder / CALIBRATION
    content: Any = {"temperature": 1.0}
    if path.exists():
        content = read_json(path)
    elif (path := folder / METRICS).exists():
        content = read_json(path, dict).get("calibration") or content
    with reading(path):
        bounds = Annotated[float, Field(ge=1e-6, le=1e6)]
        return float(TypeAdapter(bounds).validate_python(content["temperature"], strict=True))


def read_metric(folder: Path, name: str) -> Any:
    """Return one of the facts about training in metrics.json; None before the run has finished."""
    path = folder / METRICS
    if not path.exists():
        return None
    content = read_json(path, dict)
    with reading(path):
        return content["training"].get(name)


# Writing a run folder.


def save_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write config.yaml, with absolute paths, so that the run finds its texts from any folder."""

    def with_absolute(group: Any, *keys: str) -> Any:
        paths = {key: getattr(group, key) for key in keys}
        return replace(group, **{key: path and absolute(path) for key, path in paths.items()})

    config = replace(
        config,
        data=with_absolute(
            config.data, "path", "validation_path", "test_path", "drop_rows", "cache_dir"
        ),
        model=with_absolute(config.model, "path"),
        inspection=with_absolute(config.inspection, "font"),
    )
    write_text(folder / CONFIG, to_yaml(asdict(config)))


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write tokenizer.json."""
    # Its own `save` hides that the disk is full.
    write_text(folder / TOKENIZER, tokenizer.to_str(pretty=True))


def save_vocabulary(
    folder: Path,
    tokenizer: Tokenizer,
    labels: list[str],
    evidence: EvidenceVocabulary | None = None,
) -> None:
    """Write tokenizer.json, labels.json and, where n-grams are known, evidence.safetensors."""
    if evidence is not None:
        evidence.save(folder / EVIDENCE)
    save_tokenizer(folder, tokenizer)
    save_json(folder / LABELS, labels)


def save_architecture(folder: Path, architecture: Architecture) -> None:
    """Write encoder.json."""
    save_json(folder / ENCODER, architecture_json(architecture))


def save_thresholds(folder: Path, labels: list[str], thresholds: Float[Tensor, " C"]) -> None:
    """Write thresholds.json."""
    save_json(folder / THRESHOLDS, dict(zip(labels, thresholds.tolist(), strict=True)))


def save_weights(folder: Path, model: nn.Module) -> None:
    """Write model.safetensors; if the weights changed, remove what was made from the old ones."""
    path = folder / WEIGHTS
    with replacing(path) as temporary:
        save_model(model, str(temporary))
        if not (path.is_file() and filecmp.cmp(path, temporary, shallow=False)):
            for name in DERIVED_FILES:  # first: old scores never stand beside new weights
                (folder / name).unlink(missing_ok=True)
