"""A run folder: the files that training writes. One of them is the model.

    outputs/<name>/
        model.safetensors    the model: its best weights by tempered validation loss, and all that
                             decides an answer; the only file that is read to use a run
        metrics.json         scores, baseline, facts about data and training, seconds
        report.html          every test text, and the words that add most to each class
        words.csv            all of these words, and what passes through each head at them
        checkpoints/         last.ckpt, the only file that is read to resume a run
        heads/               the record of the attention heads, for TensorBoard's Heads tab
        events.out.tfevents… scalars and images for TensorBoard
        config.yaml, tokenizer.json, labels.json
                             copies for people; a run without a checkpoint starts with config.yaml

The metadata of model.safetensors are texts in JSON: settings, labels, tokenizer, encoder (a
checkpoint's config.json), ngrams (how they are numbered; their keys are a tensor), digests (of the
data), and chosen: what the validation texts have chosen. Nothing in it is unpickled. Free of
lightning, so that predicting starts fast.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import yaml
from pydantic import Field, TypeAdapter
from pydantic_core import from_json
from safetensors import safe_open
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.data.evidence import RECIPE, EvidenceVocabulary
from headscope.data.tokenizer import tokenizer_of
from headscope.ground.errors import RunError, existing_runs
from headscope.ground.files import digest, reading, write_atomic, write_text
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.model.pretrained import (
    Encoder,
    PretrainedClassifier,
    build_frozen,
    build_pretrained,
)
from headscope.runs.abstaining import Point
from headscope.settings.checks import flatten, override
from headscope.settings.config import TrainConfig, absolute, config_of, is_run
from headscope.settings.extension import check_allowed

CONFIG = "config.yaml"
WEIGHTS = "model.safetensors"
METRICS = "metrics.json"
REPORT = "report.html"
DERIVED_FILES = (METRICS, REPORT, "words.csv")  # made from the weights
SOURCES = ("data.path", "data.validation_path", "data.test_path", "data.drop_rows")
PATHS = (*SOURCES, "model.path", "model.features")
NGRAMS = "ngrams"  # a tensor beside those of the network
# Settings that decide what the network is, what it reads or which texts it has seen. A name that
# ends in a dot is a group.
STEPS = ("trainer.accumulate", "trainer.epoch_steps")
FIXED = ("name", "outputs_dir", "seed", "data.", "tokenizer.", "model.", *STEPS)
FREE = (
    *SOURCES,  # the digests of the texts tell whether they are the same
    "data.cache_dir",
    "model.dropout",
    "model.attention_dropout",
    "model.evidence_dropout",
    "model.frozen_layers",
)
Classifier = TextClassifier | PretrainedClassifier
Digests = dict[str, dict[str, Any]]  # of each split: its rows, texts and labels


@dataclass(frozen=True)
class Setup:
    """What the weights depend on. It is in the model's file, and in each checkpoint.

    `encoder` is a checkpoint's config.json, `evidence` are the known n-grams.
    """

    config: TrainConfig
    labels: list[str]
    tokenizer: Tokenizer
    digests: Digests
    encoder: Encoder | None = None
    evidence: EvidenceVocabulary | None = None

    def build(self) -> Classifier:
        """Return the untrained network."""
        model = self.config.model
        features = None
        if self.encoder is not None and model.features is None:
            return build_pretrained(self.encoder, model, self.labels)
        if self.encoder is not None:
            features = build_frozen(self.encoder, model.features_layer)
        return TextClassifier(
            model,
            self.tokenizer.get_vocab_size(),
            len(self.labels),
            self.config.data.max_length,
            2 if self.config.data.text_pair_column else 1,
            0 if self.evidence is None else len(self.evidence),
            features,
        )

    def identity(self) -> str:
        """Return a digest of the settings that cannot change and of the texts."""
        fixed = fixed_settings(self.config)
        return digest([json.dumps([fixed, self.digests], sort_keys=True)]).hex()

    def metadata(self) -> dict[str, str]:
        """Return all but the keys of n-grams, as texts of JSON."""
        content: dict[str, Any] = {
            "settings": asdict(kept_settings(self.config)),
            "labels": self.labels,
            "digests": self.digests,
        }
        if self.encoder is not None:
            content["encoder"] = self.encoder
        if self.evidence is not None:
            content[NGRAMS] = RECIPE
        texts = {key: json.dumps(value) for key, value in content.items()}
        return {"tokenizer": self.tokenizer.to_str(), **texts}

    def tensors(self) -> dict[str, Tensor]:
        """Return the keys of n-grams."""
        return {} if self.evidence is None else {NGRAMS: self.evidence.tensor()}

    @classmethod
    def read(
        cls,
        metadata: Mapping[str, str],
        tensors: Mapping[str, Tensor],
        path: Path,
        allow_code: bool,
    ) -> "Setup":
        """Return what `metadata` and `tensors` of the file `path` hold; for a block of `reading`.

        Raises:
            RunError: for settings of another version, or code that is not allowed.
        """
        config = config_of(from_json(metadata["settings"]), path)
        check_allowed(config.import_paths, path.parent, allow_code)
        labels = TypeAdapter(list[str]).validate_json(metadata["labels"])
        tokenizer = tokenizer_of(metadata["tokenizer"])
        tokenizer.enable_truncation(config.data.max_length)
        encoder = None
        if config.model.checkpoint[1] is not None:
            encoder = from_json(metadata["encoder"])
        evidence = None
        if config.model.evidence:
            if from_json(metadata[NGRAMS]) != RECIPE:
                raise ValueError("its n-grams are those of another version of headscope")
            evidence = EvidenceVocabulary.of(tensors[NGRAMS])
        digests = TypeAdapter(Digests).validate_json(metadata["digests"])
        return cls(config, labels, tokenizer, digests, encoder, evidence)


@dataclass(frozen=True)
class Chosen:
    """What the validation texts have chosen.

    Attributes:
        step: of the best weights.
        temperature: divides the logits before they become probabilities.
        thresholds: with data.multi_label the probability from which each class is predicted.
        most_unknown: share of unknown tokens beyond which a text is unfamiliar.
        curve: of confidence and accuracy, for target_accuracy; None with data.multi_label.
        is_finished: whether training has ended.
    """

    step: int = 0
    temperature: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    thresholds: list[Annotated[float, Field(ge=0, le=1)]] | None = None
    most_unknown: float = 1.0
    curve: list[Point] | None = None
    is_finished: bool = False

    def objective(self, config: TrainConfig) -> Objective:
        """Return the objective: one class for each text, or any number of them."""
        if not config.data.multi_label:
            return ONE_CLASS
        if self.thresholds is None:
            return MultiLabel()
        return MultiLabel(torch.tensor(self.thresholds, dtype=torch.float64))


def fixed_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that a resumed run has to keep."""
    return {
        key: value
        for key, value in flatten(asdict(with_absolute_paths(config))).items()
        if key.startswith(FIXED) and key not in FREE
    }


def save_model(folder: Path, setup: Setup, model: nn.Module, chosen: Chosen) -> None:
    """Write model.safetensors; before, remove what was made from the old weights."""
    for name in DERIVED_FILES:
        (folder / name).unlink(missing_ok=True)
    weights = model.state_dict().items()
    # A tensor that two layers share is written twice: a file has no shared ones.
    tensors = {name: weight.detach().cpu().clone().contiguous() for name, weight in weights}
    metadata = setup.metadata() | {"chosen": json.dumps(asdict(chosen))}
    content = save(tensors | setup.tensors(), metadata)
    write_atomic(folder / WEIGHTS, lambda temporary: temporary.write_bytes(content))


def load_model(folder: Path, allow_code: bool = False) -> tuple[Setup, Classifier, Chosen]:
    """Read model.safetensors; RunError if it is missing or damaged, or for code not allowed."""
    path = folder / WEIGHTS
    if not is_run(folder):
        raise RunError(f"run={folder}: expected a run folder; {existing_runs(str(folder))}")
    if not path.exists():
        raise RunError(
            f"run={folder}: has no {WEIGHTS}, so it did not finish; resume it: "
            f"headscope train resume={folder}"
        )
    with reading(path):
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        setup = Setup.read(metadata, tensors, path, allow_code)
        chosen = TypeAdapter(Chosen).validate_json(metadata["chosen"])
        tensors.pop(NGRAMS, None)
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("has values that are not finite")
        model = setup.build().eval()
        model.load_state_dict(tensors)
    return setup, model, chosen


# Copies for people.


def as_json(content: Any) -> str:
    """Return JSON as people read it."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def save_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, as_json(content))


def kept_settings(config: TrainConfig) -> TrainConfig:
    """Return the settings that a run keeps: not what it resumes, nor a cache of this machine."""
    return with_absolute_paths(override(config, {"resume": None, "data.cache_dir": None}))


def with_absolute_paths(config: TrainConfig) -> TrainConfig:
    """Return the settings with absolute paths, so that a run finds its texts from any folder."""
    values = flatten(asdict(config))
    return override(config, {key: absolute(values[key]) for key in PATHS if values[key]})


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write config.yaml."""
    content = asdict(kept_settings(config))
    write_text(folder / CONFIG, yaml.safe_dump(content, allow_unicode=True, sort_keys=False))


def save_copies(folder: Path, setup: Setup) -> None:
    """Write config.yaml, tokenizer.json and labels.json."""
    save_config(folder, setup.config)
    # The tokenizer's own `save` hides that the disk is full.
    write_text(folder / "tokenizer.json", setup.tokenizer.to_str(pretty=True))
    save_json(folder / "labels.json", setup.labels)
