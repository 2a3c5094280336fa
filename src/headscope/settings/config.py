"""The settings of a training run: default, bounds and meaning of each key, and conflicts of keys.

The classes are frozen pydantic dataclasses: a wrong value raises when an object is created, and
`override` returns a changed one. The files that a configuration names are checked by `check`.
Nothing here imports torch, so that `--help` and mistakes are answered at once.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict
from pydantic.dataclasses import dataclass

from headscope.ground.errors import ConfigError, RunError, existing_runs
from headscope.ground.files import TRY_ANOTHER, from_yaml, read_text, reading
from headscope.settings.checks import (
    MOST,
    STRICT,
    Conflicts,
    PathText,
    Settings,
    fault,
    format_conflicts,
    key,
    literal,
    message,
    override,
    validate,
)
from headscope.settings.extension import CODE_KEYS, is_import_path
from headscope.settings.named import NAMED

EMBEDDED = "licenses"
ROLES = ("train", "validation", "test")  # the splits of a run
REPORT = "report.html"  # in a run folder
REPORT_WORDS = "words.csv"
# Also what is not read: such a path is no Hub id.
READ = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt", ".gz", ".bz2", ".xz")
FILE_ENDINGS = (*READ, ".zip", ".zst", ".xlsx", ".xls", ".ods")
RETIRED = ("data.sql",)  # keys that runs of 1.0 have
COLUMN_KEYS = ("text_column", "text_pair_column", "label_column", "group_column", "time_column")
SEVERAL = re.compile(r"[*?\[\],]|://")
ATTENTIONS = ("multi_head", "shared_projection")
PoolingKind = Literal["first", "mean", "max", "additive", "dot", "general", "concat"]
Position = Literal["learned", "sinusoidal", "rotary"]
# Keys of the model that have a meaning with model.path.
WITH_PATH = (
    "path",
    "revision",
    "frozen_layers",
    "dropout",
    "attention_dropout",
    "evidence",
    "evidence_dropout",
)
NO_TRANSFORMERS = "needs transformers, which is not installed: pip install -e '.[pretrained]'"
Accelerator = Literal["auto", "cpu", "gpu", "mps"]
Metric = Literal["macro_f1", "accuracy", "loss"]
LESS_IS_BETTER = ("loss",)
Integer = Annotated[int, Strict()]  # true is no 1
Count = Annotated[Integer, Field(ge=1, le=MOST)]
Seed = Annotated[Integer, Field(ge=0, lt=2**32)]  # numpy's seeds
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=0.5)]
# Tokens that max_length=auto reads at least and at most. Fewer save nothing where texts are short.
# Where the rest counts, 512 take twice the seconds, for a lower validation loss on one of two sets.
LEAST_AUTO = 256
MOST_AUTO = 512


def _length(value: Any) -> Any:
    """Return auto or a number of tokens; of a union, pydantic would give an error for each kind."""
    if value == "auto" or (type(value) is int and 4 <= value <= 1_000_000):
        return value
    raise fault("auto or an integer from 4 to 1000000", "auto reads 256 to 512 tokens")


def is_local(path: str) -> bool:
    """Tell a path on this machine from a Hub id (`name` or `organisation/name`)."""
    if is_import_path(path):
        return False
    looks_local = path.startswith((".", "/", "~")) or path.lower().endswith(FILE_ENDINGS)
    return looks_local or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path) or Path(path).exists()


def absolute(path: str) -> str:
    """Return a local path as an absolute one; a Hub id stays as it is."""
    if path == EMBEDDED or not is_local(path):
        return path
    result = str(Path(path).absolute())
    return path if re.search("[\ud800-\udfff]", result) else result  # below a name that is no UTF-8


@dataclass(config=STRICT, frozen=True)
class DataConfig(Settings):
    """Where texts and labels come from, and how they are split and batched."""

    path: PathText = key(
        EMBEDDED,
        "'licenses' (embedded), a Hub id, a directory, a csv, tsv, json, jsonl, parquet, xlsx or "
        "txt file, or the import path of a loader, my_package:load",
    )
    name: str | None = key(None, "configuration of a Hub dataset")
    revision: str | None = key(None, "branch, tag or commit of a Hub dataset")
    validation_path: PathText | None = key(None, "file of the validation split")
    test_path: PathText | None = key(None, "file of the test split")
    encoding: str = key("utf-8", "text encoding, such as cp1252 or cp932")
    separator: str | None = key(None, "delimiter of csv or tsv files; null: comma or tab")
    text_column: str = key("text", "column with the text")
    text_pair_column: str | None = key(None, "column with the second text")
    label_column: str = key("label", "column with the label")
    group_column: str | None = key(
        None, "column such as the customer or the thread: cuts and folds keep its texts together"
    )
    time_column: str | None = key(
        None, "column of dates (ISO 8601) or numbers: cuts take the latest texts"
    )
    multi_label: bool = key(False, "any number of labels a text: lists, or strings to split")
    label_separator: str = key(";", "delimiter of labels with multi_label")
    train_split: str = key("train", "split to train on")
    validation_split: str | None = key("validation", "validation split, else cut from train")
    test_split: str | None = key("test", "test split; else cut from train")
    validation_share: Share = key(0.1, "share of train for validation")
    test_share: Share = key(0.1, "share of train for the test split")
    split_seed: Seed = key(0, "seed of these cuts, not that of the run")
    limit: Count | None = key(None, "texts per split, drawn by split_seed")
    drop_rows: PathText | None = key(
        None, "file of `headscope labels`: rows to leave out or correct"
    )
    drop_empty: bool = key(False, "drop rows with an empty text or label instead of an error")
    max_length: Annotated[Literal["auto"] | int, BeforeValidator(_length)] = key(
        "auto",
        "maximum tokens; longer texts are truncated. auto: 256 where the rest counts too "
        "(model.evidence, no pairs); else what nine in ten training texts have, 256 to 512",
    )
    tokens_per_batch: Count = key(2048, "tokens per batch, padding included")
    cache_dir: PathText | None = key(None, "cache of texts, tokens, n-grams; null: the user's")
    cache_gb: float = key(
        20.0, "most GB of the cache; what is longest unused is removed. 0: no cache", ge=0
    )

    @property
    def most_tokens(self) -> int:
        """max_length as a number: of auto the most that it may become."""
        if self.max_length == "auto":
            return max(LEAST_AUTO, min(MOST_AUTO, self.tokens_per_batch))
        return self.max_length

    def file_of(self, split: str) -> str:
        """Return what a split is read from: its own file, or the path of the whole source."""
        files = {
            self.validation_split or "validation": self.validation_path,
            self.test_split or "test": self.test_path,
        }
        return files.get(split) or self.path

    def _absent(self) -> Iterator[str]:
        for name in ("path", "validation_path", "test_path"):
            path = getattr(self, name)
            if path and path != EMBEDDED and is_local(path) and not Path(path).exists():
                remedy = "or a Hub id: fancyzhx/ag_news"
                if SEVERAL.search(path):
                    remedy = "several files go into a directory; download what is at a URL"
                elif path.lower().endswith(FILE_ENDINGS):
                    remedy = f"the current directory is {Path.cwd()}"
                yield message(f"data.{name}", "a file or directory that exists", path, remedy)
            elif name != "path" and path is not None and not Path(self.path).is_file():
                expected = f"null, as data.path={self.path} is not a file"
                yield message(f"data.{name}", expected, path, "give both as files")

    def _conflicts(self) -> Conflicts:
        if not self.path:
            remedy = "give data.path=..., or leave out every data.* key"
            yield "path", "a file, directory or Hub id", remedy
        if self.group_column and self.time_column:
            yield "time_column", "null with data.group_column", "cuts are by group or by time"
        if self.tokens_per_batch < self.most_tokens:
            yield "tokens_per_batch", f"at least data.max_length={self.most_tokens}"
        splits = [self.train_split, self.validation_split, self.test_split]
        for name, others in (("validation_split", splits[:1]), ("test_split", splits[:2])):
            if getattr(self, name) in others:
                yield name, "a split of its own: train, validation and test must differ"
        if self.label_separator == "":
            yield "label_separator", "what separates two labels, such as ';'"
        yield from format_conflicts(self.encoding, self.separator, "data.")
        columns: dict[str | None, str] = {}
        for name in COLUMN_KEYS:
            column = getattr(self, name)
            if column is not None and column in columns:
                yield name, f"another column than data.{columns[column]}"
            columns[column] = name


@dataclass(config=STRICT, frozen=True)
class TokenizerConfig(Settings):
    """A tokenizer trained on the training split alone."""

    kind: Literal["words", "bpe"] = key("words", "whole words, or byte-level BPE")
    vocab_size: Integer = key(8000, "size of the vocabulary", ge=300, le=10_000_000)
    min_frequency: Count = key(2, "minimum frequency")
    lowercase: bool = key(True, "lower-case texts after NFKC normalization")


@dataclass(config=STRICT, frozen=True)
class ModelConfig(Settings):
    """A Transformer encoder with a classification head, or a checkpoint of transformers."""

    d_model: Integer = key(128, "width of the model", ge=1, le=65_536)
    num_heads: Count = key(4, "attention heads; must divide d_model")
    num_layers: Integer = key(2, "number of encoder blocks", ge=1, le=1000)
    feedforward_size: Integer = key(512, "hidden size of feed-forward layers", ge=1, le=1_000_000)
    attention: str = key(
        "multi_head",
        "multi_head; shared_projection: heads are slices of the embedding and share one "
        "projection; or an import path",
        examples=[*ATTENTIONS],
    )
    num_kv_heads: Count | None = key(None, "fewer than num_heads: grouped-query, 1: multi-query")
    causal: bool = key(False, "mask later tokens")
    window: Count | None = key(None, "mask tokens further away than this")
    positions: Position = key("rotary", "position encoding")
    pooling: PoolingKind = key(
        "first",
        "first: [CLS], which tokens reach through heads alone; with the others tokens "
        "bypass attention: mean, max, or from additive on a learned query",
    )
    dropout: Fraction = key(0.1, "dropout of embeddings, branches and head")
    attention_dropout: Fraction = key(0.0, "dropout of attention weights; above 0: slower on a CPU")
    evidence: bool | None = key(
        None,
        "each token carries counted evidence: log-count ratios of the classes for its word, its "
        "word pair and its character n-grams, from the training split; null: unless path is given",
    )
    evidence_dropout: Fraction = key(0.3, "share of n-grams dropped per step")
    path: PathText | None = key(
        None,
        "checkpoint of transformers, a directory, a Hub id or minilm, which decides the "
        "network but for its dropout; null: from scratch",
    )
    revision: str | None = key(None, "branch, tag or commit of path or features on the Hub")
    features: PathText | None = key(
        None,
        "checkpoint of transformers, a directory, a Hub id or minilm, whose hidden states are "
        "the vectors that the encoder reads; it stays as it is. null: embeddings, learned",
    )
    features_layer: Count | Annotated[list[Count], Field(min_length=1)] | None = key(
        None,
        "the layer of features that is read; several, as in [3,4,6], are mixed as learned; null: "
        "these of fewer than 2,000 texts, else 3",
    )
    members: Annotated[Integer, Field(ge=1, le=100)] | None = key(
        None, "networks on features, whose mean answers; null: 5 of fewer than 2,000 texts, else 1"
    )
    frozen_layers: Annotated[Integer, Field(ge=0)] | None = key(
        None, "with path: freeze the embeddings and the first N layers"
    )

    def _conflicts(self) -> Conflicts:
        if self.attention not in ATTENTIONS and not is_import_path(self.attention):
            yield "attention", f"one of {', '.join(ATTENTIONS)} or an import path"
        if self.path is not None:
            yield from self._checkpoint_conflicts()
            return
        if self.features is None and (self.members or 1) > 1:
            yield "members", "null without model.features"
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
    def has_evidence(self) -> bool:
        """Whether tokens carry counted evidence."""
        return self.path is None if self.evidence is None else self.evidence

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
        for name, field in self.__pydantic_fields__.items():  # type: ignore[attr-defined]
            if name in WITH_PATH or getattr(self, name) in (field.default, False):
                continue
            yield name, f"{literal(field.default)} with model.path", "leave it out"


@dataclass(config=STRICT, frozen=True)
class OptimizerConfig(Settings):
    """AdamW with warm-up and cosine decay, and the loss."""

    learning_rate: float = key(5e-4, "peak learning rate; with model.path about 1e-4", gt=0)
    warmup_share: float = key(0.1, "share of steps for warm-up", ge=0, le=1)
    weight_decay: float = key(0.01, "weight decay; none for biases and norms", ge=0)
    evidence_rate: float = key(
        5e-2, "learning rate of n-gram weights, over the passes of an epoch", gt=0
    )
    beta1: Fraction = key(0.9, "AdamW: decay of the first moment")
    beta2: Fraction = key(0.98, "AdamW: decay of the second moment")
    gradient_clip: float = key(1.0, "maximum gradient norm; 0: none", ge=0)
    contrastive: bool | None = key(
        False,
        "with model.path: learn by the supervised contrastive loss, in batches of half the tokens "
        "but 16 texts or as many as classes, and logistic regression; null: up to 2,000 texts or "
        "120 a class, if no such head is there",
    )
    class_weights: Literal["auto", "none", "balanced"] = key(
        "auto", "balanced: inverse frequency; auto: draw rare ones more often, from ten classes on"
    )


@dataclass(config=STRICT, frozen=True)
class TrainerConfig(Settings):
    """How long and where to train."""

    accelerator: Accelerator = key("auto", "where to train")
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = key(
        "auto", "auto: bf16-mixed where it is known to be faster, else 32-true"
    )
    compile: bool = key(False, "translate training steps by torch.compile: a minute, for a GPU")
    max_epochs: Count = key(2, "maximum number of epochs")
    max_steps: Count | None = key(None, "maximum number of optimizer steps")
    epoch_steps: Count = key(30, "minimum steps of an epoch, in passes; of N classes times N // 6")
    accumulate: Count = key(1, "batches per optimizer step")
    patience: Count | None = key(None, "stop after N validations without a lower loss")
    logger: Literal["tensorboard", "csv", "mlflow", "wandb"] = key(
        "tensorboard", "where metrics go, beside TensorBoard"
    )
    progress: bool = key(True, "show a progress bar")

    def _absent(self) -> Iterator[str]:
        if self.logger in ("mlflow", "wandb") and find_spec(self.logger) is None:
            expected = f"tensorboard or csv without the package {self.logger}"
            yield message("trainer.logger", expected, self.logger, f"pip install {self.logger}")


@dataclass(config=STRICT, frozen=True)
class InspectionConfig(Settings):
    """Attention maps and measures of every head, at step 0 and at each validation."""

    enabled: bool = key(True, "record attention during training")
    num_probes: Integer = key(4, "probe texts, from validation", ge=0, le=64)
    probes: list[str] = key([], "your own probe texts instead")
    max_tokens: Integer = key(64, "most tokens of a probe text", ge=2, le=MOST)
    texts: Count | None = key(300, "validation texts to measure on, drawn once; null: all")
    every: Count | None = key(None, "also record maps every N steps")
    ablation_texts: Annotated[Integer, Field(ge=0, le=MOST)] = key(
        800,
        "validation texts on which each head is ablated, half of which order the "
        "heads; 0: none. Of more than 12 heads fewer, at least 60",
    )


@dataclass(config=STRICT, frozen=True)
class SweepConfig(Settings):
    """How the jobs of a sweep are compared."""

    metric: Metric = key("macro_f1", "validation score that ranks settings")


@dataclass(config=STRICT, frozen=True)
class TrainConfig(Settings):
    """Train a Transformer text classifier and record what every attention head does."""

    name: str | None = key(None, "run folder below outputs_dir; null: by the data and the time")
    outputs_dir: PathText = key("outputs", "parent of the run folders")
    resume: PathText | None = key(
        None, "run folder to resume, with its settings but for keys given"
    )
    seed: Seed = key(0, "seed of weights, dropout and the order of batches")
    baseline: bool = key(True, "score TF-IDF + logistic regression too")
    control: Literal["uniform"] | None = key(
        None, "uniform: also train with averages in place of attention"
    )
    sweep: SweepConfig = Field(default_factory=SweepConfig, description="comparison")
    data: DataConfig = Field(default_factory=DataConfig, description="texts")
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig, description="tokenizer")
    model: ModelConfig = Field(default_factory=ModelConfig, description="network")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="optimizer")
    trainer: TrainerConfig = Field(default_factory=TrainerConfig, description="trainer")
    inspection: InspectionConfig = Field(default_factory=InspectionConfig, description="heads")

    def _conflicts(self) -> Conflicts:
        if self.name is None:
            return
        path = Path(self.name)
        is_below = path.name and not path.is_absolute() and ".." not in path.parts
        if not is_below or not self.name.isprintable():
            yield "name", "the name of a folder below outputs_dir"

    @property
    def import_paths(self) -> dict[str, str]:
        """Return the settings that may name code of the user's own, by their keys."""
        return dict(zip(CODE_KEYS, (self.model.attention, self.data.path), strict=True))

    def _absent(self) -> Iterator[str]:
        yield from super()._absent()
        if self.resume is not None and not is_run(Path(self.resume)):
            yield message("resume", "a run folder", self.resume, existing_runs(self.resume))
        name, path = self.model.checkpoint  # a resumed run has weights of its own
        is_path = path and path not in NAMED and is_local(path)
        if is_path and self.resume is None and not Path(path or "").is_dir():
            remedy = "or a Hub id: google-bert/bert-base-uncased"
            yield message(name, "a directory that exists", path, remedy)
        for name, value in self.import_paths.items():
            package = re.split("[.:]", value)[0]
            if is_import_path(value) and find_spec(package) is None:
                expected = f"an installed module {package}"
                yield message(name, expected, value, "or put it on PYTHONPATH")


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
    text = read_text(path, most=1)
    with reading(path):
        content = from_yaml(text)
        if not isinstance(content, dict):
            raise ValueError("expected keys with their values")
    return config_of(content, path)


def without_retired(content: Any) -> Any:
    """Return settings without the keys of earlier versions that are gone."""
    for gone in RETIRED:
        group, _, name = gone.rpartition(".")
        own = content.get(group) if isinstance(content, dict) else None
        if isinstance(own, dict) and name in own:
            content = content | {group: {each: own[each] for each in own if each != name}}
    return content


def config_of(content: Any, path: Path) -> TrainConfig:
    """Return the settings that a run's file `path` holds as a dictionary, or raise a RunError.

    Without a cache: no folder says where files are written.
    """
    try:
        config = validate(TrainConfig, without_retired(content))
        return override(config, {"resume": None, "data.cache_dir": None})
    except ConfigError as error:
        lines = str(error).replace("\n", "; ")
        raise RunError(
            f"run={path.parent}: {path.name} does not fit this version of headscope: {lines}; "
            f"{TRY_ANOTHER}"
        ) from None
