"""What a network depends on, before it has learned anything: settings, labels, tokenizer, n-grams.

`Setup` travels with the weights: in model.safetensors, and in each checkpoint. It builds the
untrained network. `Chosen` is what the validation texts decide after training. Free of lightning,
so that predicting starts fast.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter
from pydantic_core import from_json
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.data.evidence import RECIPE, KnownNgrams
from headscope.data.tokenizer import tokenizer_of
from headscope.ground.errors import RunError
from headscope.ground.files import digest, without_home
from headscope.ground.mecab import write_tokenizer_json
from headscope.model.architecture import architecture_from
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.model.families import Description, architecture_of, family_of, why_not_opened
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.model.opened import OLD_FEATURES, OLD_PATH, frozen_layers, renamed
from headscope.model.others import others
from headscope.model.running import Undrawn
from headscope.runs.abstaining import Point
from headscope.settings.checks import flatten, override
from headscope.settings.config import TrainConfig, absolute, config_of
from headscope.settings.extension import check_allowed, is_import_path
from headscope.settings.named import NAMED

SOURCES = ("data.path", "data.validation_path", "data.test_path", "data.drop_rows")
CHECKPOINTS = ("model.path", "model.features")
PATHS = (*SOURCES, *CHECKPOINTS)
MOST_MIB_TABLES = 64  # of positions, which no file holds
NGRAMS = "ngrams"  # tensors beside those of the network
LEARNED = "learned"
# Settings that decide what the network is, what it reads or which texts it has seen. A name that
# ends in a dot is a group.
STEPS = ("trainer.accumulate", "trainer.epoch_steps")
FIXED = ("name", "outputs_dir", "seed", "data.", "tokenizer.", "model.", *STEPS)
FREE = (
    *SOURCES,  # the digests of the texts tell whether they are the same
    "data.group_column",
    "data.time_column",
    "data.cache_dir",
    "data.cache_gb",
    "model.dropout",
    "model.attention_dropout",
    "model.evidence_dropout",
    "model.frozen_layers",
)
Classifier = TextClassifier | Ensemble | nn.Module  # one that transformers computes
Digests = dict[str, dict[str, Any]]  # of each split: its rows, texts and labels


@dataclass(frozen=True)
class Setup:
    """What the weights depend on. It is in the model's file, and in each checkpoint.

    `encoder` is a checkpoint's config.json, `evidence` are the known n-grams, `learned` the keys of
    the training and validation texts, sorted: `headscope.data.splits.text_keys`.
    """

    config: TrainConfig
    labels: list[str]
    tokenizer: Tokenizer
    digests: Digests
    encoder: Description | None = None
    evidence: KnownNgrams | None = None
    learned: Tensor | None = None

    def build(self) -> Classifier:
        """Return the untrained network."""
        config = self.config.model
        if self.is_foreign:
            settings = (self.encoder or {}, config, self.labels)
            adapted: Classifier = others().pretrained.build_pretrained(*settings)
            return adapted
        counts = (len(self.labels), 0 if self.evidence is None else len(self.evidence))
        if self.encoder is not None and config.features is None:
            return TextClassifier(architecture_of(self.encoder, config), *counts)
        sizes = (self.tokenizer.get_vocab_size(), self.config.data.most_tokens)
        num_segments = 2 if self.config.data.text_pair_column else 1
        architecture = architecture_from(config, *sizes, num_segments)
        if self.encoder is None:
            return TextClassifier(architecture, *counts)
        features = frozen_layers(self.encoder, config.features_layer)
        number = config.members or 1
        members = [TextClassifier(architecture, *counts, features) for _ in range(number)]
        return members[0] if number == 1 else Ensemble(members, features)

    @property
    def is_foreign(self) -> bool:
        """Whether transformers computes the network, since it cannot be opened into ours."""
        return self.config.model.path is not None and bool(why_not_opened(self.encoder or {}))

    def are_of_1_0(self, weights: Iterable[str]) -> bool:
        """Whether weights have the names of 1.0, where transformers computed every checkpoint."""
        old = (OLD_PATH, OLD_FEATURES)
        return not self.is_foreign and any(name.startswith(old) for name in weights)

    def renamed(self, weights: Mapping[str, Tensor]) -> tuple["Setup", dict[str, Tensor]]:
        """Return weights under the names of today, and the setup of their network.

        Below model.features runs of 1.0 had a network that ended where it was read, so ModernBERT's
        last norm followed that layer.
        """
        encoder = self.encoder
        if encoder is None or not self.are_of_1_0(weights):
            return self, dict(weights)
        if self.config.model.features is not None:
            layers = self.config.model.features_layer
            highest = max(layers) if isinstance(layers, list) else layers
            encoder = encoder | {family_of(encoder).keys["num_layers"]: highest}
        setup = replace(self, encoder=encoder)
        with Undrawn(shapes_only=True):
            network = setup.build()
        return setup, renamed(network, encoder, weights)

    def check_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Raise a ValueError if these are not the network's weights, before it takes any memory.

        An own layer, whose code is allowed, is not asked: it is tried when it is built.
        """
        if is_import_path(self.config.model.attention):
            return
        if self.config.model.num_layers > len(weights):
            raise ValueError(
                f"model.num_layers={self.config.model.num_layers}: more than its tensors"
            )
        model = self.config.model
        width = {"rotary": model.d_model // model.num_heads, "sinusoidal": model.d_model}
        _check_tables(4 * self.config.data.most_tokens * width.get(model.positions, 0))
        with torch.device("meta") if self.is_foreign else Undrawn(shapes_only=True):
            network = self.build()
        expected = network.state_dict()
        for name, weight in expected.items():
            if name not in weights or weights[name].shape != weight.shape:
                got = list(weights[name].shape) if name in weights else "none"
                raise ValueError(
                    f"{name}: expected {list(weight.shape)} by its settings, got {got}"
                )
        buffers = network.named_buffers()
        _check_tables(sum(table.nbytes for name, table in buffers if name not in expected))

    def identity(self) -> str:
        """Return a digest of the settings that cannot change and of the texts."""
        fixed = fixed_settings(self.config)
        return digest([json.dumps([fixed, self.digests], sort_keys=True)]).hex()

    def metadata(self) -> dict[str, str]:
        """Return all but the keys of n-grams, as texts of JSON."""
        content: dict[str, Any] = {
            "settings": kept_settings(self.config),
            "labels": self.labels,
            "digests": self.digests,
        }
        if self.encoder is not None:
            content["encoder"] = self.encoder
        if self.evidence is not None:
            content[NGRAMS] = RECIPE
        texts = {key: json.dumps(value) for key, value in content.items()}
        return {"tokenizer": write_tokenizer_json(self.tokenizer), **texts}

    def tensors(self) -> dict[str, Tensor]:
        """Return the keys of n-grams."""
        return {} if self.evidence is None else {NGRAMS: self.evidence.tensor()}

    @classmethod
    def read(
        cls,
        metadata: Mapping[str, str],
        tensors: Mapping[str, Tensor],
        path: Path,
        allow_code: bool | Collection[str],
    ) -> "Setup":
        """Return what `metadata` and `tensors` of the file `path` hold; for a block of `reading`.

        Raises:
            RunError: for settings of another version, an encoder that only 1.0 could have below
                model.features, or code that is not allowed.
        """
        config = config_of(from_json(metadata["settings"]), path)
        check_allowed(config.import_paths, f"run={path.parent}", allow_code)
        labels = TypeAdapter(list[str]).validate_json(metadata["labels"])
        if len(set(labels)) < len(labels):
            raise ValueError("labels: expected different names, got one twice")
        tokenizer = tokenizer_of(metadata["tokenizer"])
        tokenizer.enable_truncation(config.data.most_tokens)
        encoder = None
        if config.model.checkpoint[1] is not None:
            encoder = from_json(metadata["encoder"])
            if config.model.features is not None and (why := why_not_opened(encoder)):
                remedy = "train a new run on another encoder"
                raise RunError(f"run={path.parent}: model.features: {why}; {remedy}")
        evidence = None
        if config.model.has_evidence:
            if from_json(metadata[NGRAMS]) != RECIPE:
                raise ValueError("its n-grams are those of another version of headscope")
            evidence = KnownNgrams.of(tensors[NGRAMS])
        digests = TypeAdapter(Digests).validate_json(metadata["digests"])
        return cls(config, labels, tokenizer, digests, encoder, evidence, tensors.get(LEARNED))


@dataclass(frozen=True)
class Chosen:
    """What the validation texts have chosen.

    Attributes:
        step: of the best weights.
        temperature: divides the logits before they become probabilities.
        thresholds: with data.multi_label the probability from which each class is predicted.
        most_unknown: share of unknown tokens beyond which a text is unfamiliar.
        curve: of confidence and accuracy, which the page shows; None with data.multi_label.
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


def _check_tables(size: int) -> None:
    """Raise a ValueError for positions of too many bytes: they are computed, and in no file."""
    if size > MOST_MIB_TABLES * 2**20:
        raise ValueError(
            f"data.max_length: expected tables of positions of at most {MOST_MIB_TABLES} MiB, "
            f"got {size >> 20}"
        )


def fixed_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that a resumed run has to keep."""
    return {
        key: value
        for key, value in flatten(asdict(with_absolute_paths(config))).items()
        if key.startswith(FIXED) and key not in FREE
    }


def kept_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that a run keeps: not what it resumes, nor a cache of this machine."""
    kept = override(config, {"resume": None, "data.cache_dir": None})
    found: dict[str, Any] = without_home(asdict(with_absolute_paths(kept)))
    return found


def with_absolute_paths(config: TrainConfig) -> TrainConfig:
    """Return the settings with absolute paths, so that a run finds its texts from any folder."""
    values = flatten(asdict(config))
    named = {key for key in CHECKPOINTS if values[key] in NAMED}  # a short name is no path
    paths = {key: absolute(values[key]) for key in PATHS if values[key] and key not in named}
    return override(config, paths)
