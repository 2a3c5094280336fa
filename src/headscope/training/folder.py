"""What a run folder holds, and how it is written and read. Free of lightning, so that predicting starts fast.

    outputs/<name>/
        config.yaml          every setting, resolved
        tokenizer.json       the trained tokenizer, or the checkpoint's
        encoder.json         what the encoder of a checkpoint looks like, where model.path named one
        labels.json          the classes' names, in the order of the logits
        evidence.safetensors with model.evidence: the known n-grams
        model.safetensors    the best weights by validation macro-F1
        thresholds.json      with data.multi_label: the probability from which on a text is given each class
        calibration.json     the temperature that probabilities are taken at; older runs have none, which is 1
        metrics.json         scores, baseline, facts about the data, seconds
        most_wrong.html      the test texts that the model is most wrong about, with all heads
        checkpoints/         best.ckpt and last.ckpt, to go on from
        events.out.tfevents… what TensorBoard shows

Nothing here has to be unpickled by who uses the model.
"""

import filecmp
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from tokenizers import Tokenizer

from headscope.data.evidence import EvidenceVocabulary
from headscope.data.tokenizer import as_json, load_tokenizer
from headscope.errors import ConfigError, RunError
from headscope.files import replacing, write_whole
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Objective
from headscope.model.pretrained.architecture import Architecture, architecture_json
from headscope.training.config import TrainConfig
from headscope.training.kept import (
    ENCODER,
    EVIDENCE,
    MADE_OF_WEIGHTS,
    WEIGHTS,
    kept_architecture,
    kept_evidence,
    kept_objective,
    load_temperature,
    save_json,
)

CONFIG = "config.yaml"


@dataclass(frozen=True)
class Run:
    """A finished run, ready to be used."""

    folder: Path
    config: TrainConfig
    tokenizer: Tokenizer
    labels: list[str]
    model: TextClassifier
    objective: Objective = ONE_CLASS
    temperature: float = 1.0  # by which logits are divided before they become probabilities
    evidence: EvidenceVocabulary | None = None  # the n-grams that its tokens may have


def build_model(
    config: TrainConfig,
    tokenizer: Tokenizer,
    labels: list[str],
    architecture: Architecture | None = None,
    evidence: EvidenceVocabulary | None = None,
) -> TextClassifier:
    """Return the untrained network that a configuration and what it reads and says ask for.

    Args:
        config: every setting.
        tokenizer: whose ids it reads.
        labels: the classes.
        architecture: of an encoder that is trained already.
        evidence: the n-grams that tokens may have.
    """
    num_segments = 2 if config.data.text_pair_column else 1
    return TextClassifier(
        config.model,
        tokenizer.get_vocab_size(),
        len(labels),
        config.data.max_length,
        num_segments,
        architecture,
        0 if evidence is None else len(evidence),
    )


def save_config(folder: Path, config: TrainConfig, put: Callable[..., Path] = write_whole) -> None:
    """Write config.yaml.

    Args:
        folder: of the run.
        config: every setting.
        put: `create_whole` for a new run, which raises FileExistsError where another has written one.
    """
    put(folder / CONFIG, lambda path: OmegaConf.save(OmegaConf.structured(config), path))


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write tokenizer.json."""
    text = as_json(tokenizer, pretty=True)  # its own `save` raises no OSError where the disk is full
    write_whole(folder / "tokenizer.json", lambda path: path.write_text(text, encoding="utf-8"))


def save_vocabulary(
    folder: Path, tokenizer: Tokenizer, labels: list[str], evidence: EvidenceVocabulary | None = None
) -> None:
    """Write tokenizer.json, labels.json and, where n-grams are known, evidence.safetensors."""
    if evidence is not None:
        evidence.save(folder / EVIDENCE)
    save_tokenizer(folder, tokenizer)
    save_json(folder / "labels.json", labels)


def save_architecture(folder: Path, architecture: Architecture) -> None:
    """Write encoder.json."""
    save_json(folder / ENCODER, architecture_json(architecture))


def save_weights(folder: Path, model: TextClassifier) -> None:
    """Write model.safetensors, and remove what was made of the weights that it held, unless they are the same."""
    path = folder / WEIGHTS
    with replacing(path) as temporary:
        save_model(model, str(temporary))
        if not (path.is_file() and filecmp.cmp(path, temporary, shallow=False)):
            for name in MADE_OF_WEIGHTS:  # before the new ones are there: older numbers must never stand beside them
                (folder / name).unlink(missing_ok=True)


def load_config(folder: Path) -> TrainConfig:
    """Read config.yaml, checking its keys and types.

    Raises:
        RunError: if there is none or it does not fit this version.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise RunError(f"run={folder}: no config.yaml there; takes a folder that scripts/train.py has written")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(TrainConfig), OmegaConf.load(path))
        return OmegaConf.to_object(merged)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise RunError(f"{path}: does not fit this version of headscope: {str(error).splitlines()[0]}") from error


def load_run(folder: Path) -> Run:
    """Load a run folder's model, in eval mode and on the CPU.

    Raises:
        RunError: if a file is missing or broken; the message names it.
    """
    config = load_config(folder)
    needed = [
        "tokenizer.json",
        "labels.json",
        WEIGHTS,
        *([ENCODER] if config.model.path else []),
        *([EVIDENCE] if config.model.evidence else []),
    ]
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise RunError(
            f"run={folder}: {', '.join(missing)} missing, so it did not finish; "
            f"go on with: python scripts/train.py resume={folder}"
        )
    try:
        tokenizer = load_tokenizer(folder / "tokenizer.json", config.tokenizer.segmenter)
        labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
        evidence = kept_evidence(folder, config)
        model = build_model(config, tokenizer, labels, kept_architecture(folder, config), evidence)
        load_model(model, str(folder / WEIGHTS))
        objective, temperature = kept_objective(folder, config, labels), load_temperature(folder)
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise RunError(f"run={folder}: a file there is broken: {str(error).splitlines()[0]}") from error
    return Run(folder, config, tokenizer, labels, model.eval(), objective, temperature, evidence)


def flat(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as one plain dictionary with dotted keys, for the HParams tab."""
    rows: dict[str, Any] = {}

    def walk(prefix: str, group: dict[str, Any]) -> None:
        for key, value in group.items():
            if isinstance(value, dict):
                walk(f"{prefix}{key}.", value)
            else:
                rows[f"{prefix}{key}"] = value if isinstance(value, (bool, int, float, str)) else str(value)

    walk("", asdict(config))
    return rows


def best_device(accelerator: str = "auto", key: str = "accelerator") -> torch.device:
    """Return the device to compute on.

    Args:
        accelerator: what was asked for.
        key: under which it was, to name in a message.

    Raises:
        ConfigError: if there is none of that kind.
    """
    if accelerator in ("auto", "gpu") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise ConfigError(f"{key}: got {accelerator!r}, and torch finds none on this machine; takes auto or cpu here")
    return torch.device("cpu")
