"""The settings of a training run: default, bounds and meaning of each key, and conflicts of keys.

The classes are pydantic dataclasses: a wrong value raises when an object is created. Values that
are changed later, and the files that a configuration names, are checked by `check`. Nothing here
imports torch, so that `--help` and mistakes are answered at once.
"""

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import Field, Strict
from pydantic.dataclasses import dataclass

from headscope.ground.errors import ConfigError, RunError, existing_runs
from headscope.ground.files import TRY_ANOTHER, read_text, reading
from headscope.settings.checks import (
    MOST,
    STRICT,
    Conflicts,
    Settings,
    format_conflicts,
    literal,
    message,
    validate,
)
from headscope.settings.extension import is_import_path

EMBEDDED = "licenses"
FILE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt")
TokenizerKind = Literal["words", "bpe", "wordpiece", "unigram"]
TOKENIZERS = get_args(TokenizerKind)
ATTENTIONS = ("multi_head", "shared_projection")
PoolingKind = Literal["first", "mean", "max", "additive", "dot", "general", "concat"]
POOLINGS = get_args(PoolingKind)
Position = Literal["learned", "sinusoidal", "rotary"]
POSITIONS = get_args(Position)
# Keys of the model that have a meaning with model.path.
WITH_PATH = ("path", "revision", "frozen_layers", "dropout", "attention_dropout", "evidence")
NO_TRANSFORMERS = "needs transformers, which is not installed: pip install -e '.[pretrained]'"
Accelerator = Literal["auto", "cpu", "gpu", "mps"]
Metric = Literal["macro_f1", "accuracy", "loss"]
LESS_IS_BETTER = ("loss",)
Integer = Annotated[int, Strict()]  # true is no 1
Count = Annotated[Integer, Field(ge=1, le=MOST)]
Seed = Annotated[Integer, Field(ge=0, lt=2**32)]  # numpy's seeds
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=0.5)]


def is_local(path: str) -> bool:
    """Tell a path on this machine from a Hub id (`name` or `organisation/name`)."""
    if is_import_path(path):
        return False
    looks_local = path.startswith((".", "/", "~")) or path.endswith(FILE_ENDINGS)
    return looks_local or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path) or Path(path).exists()


def expanded(path: str) -> Path:
    """Return a path with "~" replaced by the home directory, if that user exists."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises otherwise


def absolute(path: str) -> str:
    """Return a local path as an absolute one; a Hub id stays as it is."""
    if path == EMBEDDED or not is_local(path):
        return path
    result = str(expanded(path).absolute())
    return path if re.search("[\ud800-\udfff]", result) else result  # below a name that is no UTF-8


@dataclass(config=STRICT)
class DataConfig(Settings):
    """Where texts and labels come from, and how they are split and batched."""

    path: str = Field(
        default=EMBEDDED,
        description="'licenses' (embedded), a Hub id, a directory, a csv, tsv, json, jsonl, "
        "parquet or txt file, or the import path of a loader, my_package:load",
    )
    name: str | None = Field(default=None, description="configuration of a Hub dataset")
    revision: str | None = Field(default=None, description="branch, tag or commit of a Hub dataset")
    validation_path: str | None = Field(default=None, description="file of the validation split")
    test_path: str | None = Field(default=None, description="file of the test split")
    encoding: str = Field(default="utf-8", description="text encoding, such as cp1252 or shift_jis")
    separator: str | None = Field(
        default=None, description="column delimiter of csv or tsv files; null: comma or tab"
    )
    text_column: str = Field(default="text", description="column with the text")
    text_pair_column: str | None = Field(default=None, description="column with the second text")
    label_column: str = Field(default="label", description="column with the label")
    multi_label: bool = Field(
        default=False, description="a text has any number of labels: lists, or strings to split"
    )
    label_separator: str = Field(
        default=";", description="delimiter of labels with multi_label; empty strings have none"
    )
    train_split: str = Field(default="train", description="split to train on")
    validation_split: str | None = Field(
        default="validation", description="split for model selection; else cut from train"
    )
    test_split: str | None = Field(default="test", description="test split; else cut from train")
    validation_share: Share = Field(default=0.1, description="share of train for validation")
    test_share: Share = Field(default=0.1, description="share of train for the test split")
    split_seed: Seed = Field(default=0, description="seed of these cuts, not that of the run")
    limit: Count | None = Field(default=None, description="texts per split, drawn by split_seed")
    drop_rows: str | None = Field(
        default=None, description="file of `headscope labels`: texts to leave out or to correct"
    )
    drop_empty: bool = Field(
        default=False, description="drop rows with an empty text or label instead of an error"
    )
    max_length: Integer = Field(
        default=256, ge=4, le=1_000_000, description="maximum tokens; longer texts are truncated"
    )
    tokens_per_batch: Count = Field(default=2048, description="tokens per batch, padding included")
    cache_dir: str | None = Field(
        default=None, description="cache of tokenizers and token ids; null: the user's"
    )

    def file_of(self, split: str) -> str:
        """Return what a split is read from: its own file, or the path of the whole source."""
        files = {
            self.validation_split or "validation": self.validation_path,
            self.test_split or "test": self.test_path,
        }
        return files.get(split) or self.path

    def absent(self) -> Iterator[str]:
        """Yield a message for each file that does not exist."""
        for key in ("path", "validation_path", "test_path"):
            path = getattr(self, key)
            if path and path != EMBEDDED and is_local(path) and not expanded(path).exists():
                expected = "a file or directory that exists"
                yield message(f"data.{key}", expected, path, "or a Hub id: fancyzhx/ag_news")
            elif key != "path" and path is not None and not expanded(self.path).is_file():
                expected = f"null, as data.path={self.path} is not a file"
                yield message(f"data.{key}", expected, path, "give both as files")

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        if not self.path:
            remedy = "give data.path=..., or leave out every data.* key"
            yield "path", "a file, directory or Hub id", remedy
        if self.tokens_per_batch < self.max_length:
            yield "tokens_per_batch", f"at least data.max_length={self.max_length}"
        splits = [self.train_split, self.validation_split, self.test_split]
        for key, others in (("validation_split", splits[:1]), ("test_split", splits[:2])):
            if getattr(self, key) in others:
                yield key, "a split of its own: train, validation and test must differ"
        if self.label_separator == "":
            yield "label_separator", "what separates two labels, such as ';'"
        yield from format_conflicts(self.encoding, self.separator, "data.")
        columns: dict[str | None, str] = {}
        for key in ("text_column", "text_pair_column", "label_column"):
            column = getattr(self, key)
            if column is not None and column in columns:
                yield key, f"another column than data.{columns[column]}"
            columns[column] = key


@dataclass(config=STRICT)
class TokenizerConfig(Settings):
    """A tokenizer trained on the training split alone."""

    kind: TokenizerKind = Field(
        default="words", description="whole words, byte-level BPE, WordPiece or Unigram"
    )
    vocab_size: Integer = Field(
        default=8000,
        ge=300,
        le=10_000_000,
        description="size of the vocabulary with special tokens",
    )
    min_frequency: Count = Field(default=2, description="minimum frequency (not with unigram)")
    lowercase: bool = Field(default=True, description="lower-case texts after NFKC normalization")


@dataclass(config=STRICT)
class ModelConfig(Settings):
    """A Transformer encoder with a classification head, or a checkpoint of transformers."""

    d_model: Integer = Field(default=128, ge=1, le=65_536, description="width of the model")
    num_heads: Count = Field(default=4, description="attention heads; must divide d_model")
    num_layers: Integer = Field(default=2, ge=1, le=1000, description="number of encoder blocks")
    feedforward_size: Integer = Field(
        default=512, ge=1, le=1_000_000, description="hidden size of the feed-forward layers"
    )
    attention: str = Field(
        default="multi_head",
        examples=[*ATTENTIONS],
        description="multi_head; shared_projection: heads are slices of the embedding and share "
        "one projection; or an import path",
    )
    num_kv_heads: Count | None = Field(
        default=None,
        description="heads of keys and values; fewer than num_heads: grouped-query attention, "
        "1: multi-query",
    )
    causal: bool = Field(default=False, description="mask later tokens")
    window: Count | None = Field(default=None, description="mask tokens further away than this")
    positions: Position = Field(default="rotary", description="position encoding")
    pooling: PoolingKind = Field(
        default="first",
        description="first: [CLS], which tokens reach through heads alone; with the others tokens "
        "bypass attention: mean, max, or from additive on a learned query",
    )
    dropout: Fraction = Field(default=0.1, description="dropout of embeddings, branches and head")
    attention_dropout: Fraction = Field(
        default=0.0, description="dropout of attention weights; above 0: no fused CPU kernel"
    )
    evidence: bool = Field(
        default=True,
        description="each token carries counted evidence: log-count ratios of the classes for its "
        "word, its word pair and its character n-grams, from the training split",
    )
    evidence_dropout: Fraction = Field(default=0.3, description="share of n-grams dropped per step")
    path: str | None = Field(
        default=None,
        description="checkpoint of transformers, a directory or a Hub id, which decides the "
        "network but for its dropout; null: from scratch",
    )
    revision: str | None = Field(
        default=None,
        description="branch, tag or commit of path or features on the Hub; null: the main branch",
    )
    features: str | None = Field(
        default=None,
        description="checkpoint of transformers, a directory or a Hub id, whose hidden states are "
        "the vectors that the encoder reads; it stays as it is. null: embeddings, learned",
    )
    features_layer: Count = Field(default=3, description="the layer of features that is read")
    frozen_layers: Annotated[Integer, Field(ge=0)] | None = Field(
        default=None,
        description="with path: freeze the embeddings and the first N layers; null: train all",
    )

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        if self.attention not in ATTENTIONS and not is_import_path(self.attention):
            yield "attention", f"one of {', '.join(ATTENTIONS)} or an import path"
        if self.path is not None:
            yield from self._checkpoint_conflicts()
            return
        if self.features == "":
            yield "features", "a directory or a Hub id", "such as google-bert/bert-base-uncased"
        if self.frozen_layers is not None:
            yield "frozen_layers", "null without model.path"
        if self.revision is not None and self.features is None:
            yield "revision", "null without model.path or model.features"
        if self.causal and self.pooling == "first":
            yield "causal", "false with model.pooling=first: [CLS] comes first and sees no token"
        if self.d_model % self.num_heads:
            yield "num_heads", f"a divisor of model.d_model={self.d_model}"
        elif self.positions == "rotary" and self.d_model // self.num_heads % 2:
            yield "positions", "learned or sinusoidal with an odd d_model / num_heads"
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield "positions", "learned or rotary with an odd model.d_model"
        if self.num_kv_heads is not None and self.attention == "shared_projection":
            yield "num_kv_heads", "null with model.attention=shared_projection"
        elif self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            yield "num_kv_heads", f"a divisor of model.num_heads={self.num_heads}"

    @property
    def checkpoint(self) -> tuple[str, str | None]:
        """The key that names a checkpoint of transformers, and the checkpoint; None without one."""
        if self.features is not None:
            return "model.features", self.features
        return "model.path", self.path

    def _checkpoint_conflicts(self) -> Conflicts:
        """Yield what does not go with a checkpoint, which decides the network."""
        if not self.path:
            yield "path", "a directory or a Hub id", "such as google-bert/bert-base-uncased"
        if self.evidence:
            yield "evidence", "false with model.path", "add model=pretrained"
        for key, field in self.__pydantic_fields__.items():  # type: ignore[attr-defined]
            if key in WITH_PATH or getattr(self, key) in (field.default, False):
                continue
            yield key, f"{literal(field.default)} with model.path", "leave it out"


@dataclass(config=STRICT)
class OptimizerConfig(Settings):
    """AdamW with warm-up and cosine decay, and the loss."""

    learning_rate: float = Field(
        default=5e-4, gt=0, description="peak learning rate; with model.path about 1e-4"
    )
    final_share: float = Field(
        default=0.0, ge=0, le=1, description="final learning rate as a share of the peak"
    )
    warmup_share: float = Field(default=0.1, ge=0, le=1, description="share of steps for warm-up")
    weight_decay: float = Field(
        default=0.01, ge=0, description="weight decay; none for biases and norms"
    )
    evidence_rate: float = Field(
        default=5e-2, gt=0, description="learning rate of n-gram weights, which do not decay"
    )
    beta1: Fraction = Field(default=0.9, description="AdamW: decay of the first moment")
    beta2: Fraction = Field(default=0.98, description="AdamW: decay of the second moment")
    gradient_clip: float = Field(default=1.0, ge=0, description="maximum gradient norm; 0: none")
    label_smoothing: Fraction = Field(
        default=0.0,
        description="share of the target spread over all classes (multi_label: yes and no)",
    )
    class_weights: Literal["none", "balanced"] = Field(
        default="none",
        description="balanced: classes are weighted by inverse frequency (multi_label: presence "
        "and absence of a class weigh the same)",
    )


@dataclass(config=STRICT)
class TrainerConfig(Settings):
    """How long and where to train."""

    accelerator: Accelerator = Field(default="auto", description="where to train")
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = Field(
        default="auto", description="auto: bf16-mixed on a GPU that supports it, else 32-true"
    )
    max_epochs: Count = Field(default=2, description="maximum number of epochs")
    max_steps: Count | None = Field(default=None, description="maximum number of optimizer steps")
    epoch_steps: Count = Field(
        default=125,
        description="minimum number of steps of an epoch: of few texts it makes several passes",
    )
    accumulate: Count = Field(default=1, description="batches per optimizer step")
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="decay of the moving average of the weights, which is validated and saved, "
        "such as 0.99; null: none",
    )
    patience: Count | None = Field(
        default=None, description="stop after N validations without a lower loss; null: never"
    )
    logger: Literal["tensorboard", "csv", "mlflow", "wandb"] = Field(
        default="tensorboard", description="where metrics go, beside TensorBoard"
    )
    progress: bool = Field(default=True, description="show a progress bar")

    def absent(self) -> Iterator[str]:
        """Yield a message for a logger that is not installed."""
        if self.logger in ("mlflow", "wandb") and find_spec(self.logger) is None:
            expected = f"tensorboard or csv without the package {self.logger}"
            yield message("trainer.logger", expected, self.logger, f"pip install {self.logger}")


@dataclass(config=STRICT)
class InspectionConfig(Settings):
    """Attention maps and measures of every head, at step 0 and at each validation."""

    enabled: bool = Field(default=True, description="record attention during training")
    num_probes: Integer = Field(default=4, ge=0, le=64, description="probe texts, from validation")
    probes: list[str] = Field(default=[], description="your own probe texts instead")
    max_tokens: Integer = Field(
        default=64,
        ge=2,
        le=MOST,
        description="probe texts from validation have at most N tokens",
    )
    numbers: bool = Field(default=True, description="measure every head on validation texts")
    texts: Count | None = Field(
        default=300, description="number of validation texts to measure on, drawn once; null: all"
    )
    every: Count | None = Field(default=None, description="also record maps every N steps")
    budget: Count = Field(
        default=256, description="MiB of recorded maps; near it, steps are thinned out evenly"
    )
    causes: Annotated[Integer, Field(ge=0, le=MOST)] = Field(
        default=800,
        description="validation texts on which each head is ablated, half of which order the "
        "heads; 0: none. Of more than 12 heads fewer, at least 100",
    )
    font: str | None = Field(
        default=None, description="font file for class names in pictures; null: the first found"
    )


@dataclass(config=STRICT)
class SweepConfig(Settings):
    """How the jobs of a sweep, or the trials of a search, are compared."""

    metric: Metric = Field(default="macro_f1", description="validation score that ranks settings")


@dataclass(config=STRICT)
class TrainConfig(Settings):
    """Everything that decides a run; saved with it."""

    name: str | None = Field(
        default=None, description="run folder below outputs_dir; null: by the data and the time"
    )
    outputs_dir: str = Field(default="outputs", description="parent of the run folders")
    resume: str | None = Field(
        default=None, description="run folder to resume, with its settings but for keys given"
    )
    seed: Seed = Field(default=0, description="seed of weights, dropout and the order of batches")
    baseline: bool = Field(default=True, description="score TF-IDF + logistic regression too")
    control: Literal["uniform"] | None = Field(
        default=None,
        description="uniform: train the same network with averages in place of attention too",
    )
    sweep: SweepConfig = Field(default_factory=SweepConfig, description="comparison")
    data: DataConfig = Field(default_factory=DataConfig, description="texts")
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig, description="tokenizer")
    model: ModelConfig = Field(default_factory=ModelConfig, description="network")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="optimizer")
    trainer: TrainerConfig = Field(default_factory=TrainerConfig, description="trainer")
    inspection: InspectionConfig = Field(default_factory=InspectionConfig, description="heads")

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        if self.name is None:
            return
        path = Path(self.name)
        is_below = path.name and not path.is_absolute() and ".." not in path.parts
        if not is_below or not self.name.isprintable():
            yield "name", "the name of a folder below outputs_dir"
        elif any(len(os.fsencode(part)) > 255 for part in path.parts):
            yield "name", "at most 255 bytes"

    @property
    def import_paths(self) -> dict[str, str]:
        """Return the settings that may name code of the user's own, by their keys."""
        return {"model.attention": self.model.attention, "data.path": self.data.path}

    def absent(self) -> Iterator[str]:
        """Yield a message for each file, checkpoint or package that is not on this machine."""
        yield from super().absent()
        if self.resume is not None and not is_run(Path(self.resume)):
            yield message("resume", "a run folder", self.resume, existing_runs(self.resume))
        key, path = self.model.checkpoint  # a resumed run has weights of its own
        if path and self.resume is None and is_local(path) and not expanded(path).is_dir():
            remedy = "or a Hub id: google-bert/bert-base-uncased"
            yield message(key, "a directory that exists", path, remedy)
        if path and find_spec("transformers") is None:
            yield f"{key}: {NO_TRANSFORMERS}"
        for key, value in self.import_paths.items():
            package = re.split("[.:]", value)[0]
            if is_import_path(value) and find_spec(package) is None:
                expected = f"an installed module {package}"
                yield message(key, expected, value, "or put it on PYTHONPATH")


def is_run(folder: Path) -> bool:
    """Whether a folder has a run, which may not have ended or not have a checkpoint yet."""
    names = ("model.safetensors", "checkpoints/last.ckpt", "config.yaml")
    return any((folder / name).is_file() for name in names)


def read_config(path: Path) -> TrainConfig:
    """Return the settings in a run's config.yaml, checked, or raise a RunError.

    Files that they name may be gone. Nothing in it is resolved or run.
    """
    folder = path.parent
    if not folder.is_dir() or not path.exists():
        raise RunError(f"run={folder}: expected a run folder, found no {path.name} in it")
    text = read_text(path)
    with reading(path):
        content = yaml.safe_load(text)  # in C, deep nesting would crash the process
        if not isinstance(content, dict):
            raise ValueError("expected keys with their values")
        if "inspection" not in content:  # the last group
            raise ValueError("is truncated: it has no inspection")
    return config_of(content, path)


def config_of(content: Any, path: Path) -> TrainConfig:
    """Return the settings that a run's file `path` holds as a dictionary, or raise a RunError."""
    try:
        return validate(TrainConfig, content)
    except ConfigError as error:
        lines = str(error).replace("\n", "; ")
        raise RunError(
            f"run={path.parent}: {path.name} does not fit this version of headscope: {lines}; "
            f"{TRY_ANOTHER}"
        ) from None
