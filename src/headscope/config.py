"""The settings of a training: what each key means, its default, and which values it takes.

Texts, tokenizer, network, optimizer, trainer and inspection, joined in `TrainConfig`; those of the other commands are
in command_config.py. Free of torch and lightning, so that `--help` and mistakes are answered at once: values by
`settings.check`, unknown keys by `cli`.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import shown
from headscope.extension import OrImportPath, is_import_path, missing_package
from headscope.settings import setting

EMBEDDED = "licenses"
FILE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt")
SEGMENTERS = ("sudachi",)
TOKENIZERS = ("words", "bpe", "wordpiece", "unigram")
POSITIONS = ("learned", "sinusoidal", "rotary")
ATTENTIONS = ("multi_head", "shared_projection")
POOLINGS = ("first", "mean", "max", "pooler", "additive", "dot", "general", "concat")
PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed")
ACCELERATORS = ("auto", "cpu", "gpu", "mps")
METRICS = ("macro_f1", "accuracy", "loss")
LESS_IS_BETTER = ("loss",)
MAX_SEED = 2**32 - 1  # that numpy takes
Conflicts = Iterator[tuple[str, str]]  # (key, sentence)


def is_local(path: str) -> bool:
    """Tell a path on this machine from a Hub id (`name` or `organisation/name`)."""
    if is_import_path(path, ":"):
        return False
    looks_local = path.startswith((".", "/", "~")) or path.endswith(FILE_ENDINGS)
    return looks_local or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path) or Path(path).exists()


def expanded(path: str) -> Path:
    """Return a path with the home folder in the place of "~"; that of a user who is not there stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def absolute(path: str) -> str:
    """Return a path on this machine as it is from any folder; what is none, such as a Hub id, stays as it is."""
    if path == EMBEDDED or not is_local(path):
        return path
    found = str(expanded(path).absolute())
    return (
        path if re.search("[\ud800-\udfff]", found) else found
    )  # below a folder whose name is no UTF-8


def is_encoding(name: str) -> bool:
    """Tell whether Python knows an encoding of text by this name."""
    try:
        return "a".encode(name).decode(name) == "a"
    except (LookupError, ValueError):
        return False


def form_conflicts(encoding: str, separator: str | None, keys: str) -> Conflicts:
    """Yield what cannot be the form of a file of rows; `keys` is what stands before the keys on the command line."""
    if not is_encoding(encoding):
        takes = "takes the name of an encoding, such as utf-8, utf-16, cp1252 or shift_jis"
        yield "encoding", f"got '{shown(encoding)}', {takes}"
    if separator is not None and not re.fullmatch(r'\\t|[^"\r\n]', separator):
        takes = f"takes one sign, such as \"{keys}separator=';'\" or, for a tab, \"{keys}separator='\\t'\""
        yield "separator", f"got {separator[:60]!r}, {takes}"


@dataclass
class DataConfig:
    """Where texts and labels come from, and how they are cut into splits and batches."""

    path: str = setting(
        EMBEDDED,
        "'licenses' (embedded), a Hub id, a folder, a csv, tsv, json, jsonl, parquet or txt file, or the import path "
        "of a loader, my_package:load",
    )
    name: str | None = setting(None, "configuration of a Hub data set that has several")
    revision: str | None = setting(None, "branch, tag or commit of a Hub data set")
    validation_path: str | None = setting(None, "a separate file for validation, if path is a file")
    test_path: str | None = setting(None, "a separate file for the test, if path is a file")
    encoding: str = setting(
        "utf-8", "what the bytes of files of text mean, such as cp1252 or shift_jis"
    )
    separator: str | None = setting(
        None, "what stands between the cells of a csv or tsv file; null: comma or tab"
    )
    text_column: str = setting("text", "column with the text")
    text_pair_column: str | None = setting(None, "column with the second text of a pair")
    label_column: str = setting("label", "column with the label: integers, strings or a ClassLabel")
    multi_label: bool = setting(
        False, "a text has any number of labels: lists of them, or strings that are split"
    )
    label_separator: str = setting(
        ";", "with multi_label: what stands between labels; an empty string has no label"
    )
    train_split: str = setting("train", "split to train on")
    validation_split: str | None = setting(
        "validation", "split to choose by; cut from train where the source has none"
    )
    test_split: str | None = setting(
        "test", "split to report on; cut from train where the source has none"
    )
    validation_share: float = setting(
        0.1, "share of train that is cut off for validation", above=0, below=0.5
    )
    test_share: float = setting(
        0.1, "share of train that is cut off for the test", above=0, below=0.5
    )
    split_seed: int = setting(
        0,
        "seed of those cuts; apart from `seed`, so that runs can be compared",
        minimum=0,
        maximum=MAX_SEED,
    )
    limit: int | None = setting(
        None, "keep at most so many texts of each split, drawn by split_seed", minimum=1
    )
    drop_empty: bool = setting(
        False,
        "drop rows whose text or label is empty or null, and say how many, instead of refusing them",
    )
    max_length: int = setting(
        256, "longest text in tokens; the rest is cut off", minimum=4, maximum=1_000_000
    )
    tokens_per_batch: int = setting(2048, "positions of a batch, padding included", minimum=1)
    cache_dir: str | None = setting(
        None, "where tokenizers and token ids are kept; the user's cache folder by default"
    )

    def file_of(self, split: str) -> str:
        """Return what a split is read from, to name it in a message: its own file, or the path of the whole source."""
        files = {
            self.validation_split or "validation": self.validation_path,
            self.test_split or "test": self.test_path,
        }
        return files.get(split) or self.path

    def absent(self) -> Conflicts:
        """Yield what is not there."""
        if is_import_path(self.path, ":"):
            yield from missing_package("path", self.path)
        for key in ("path", "validation_path", "test_path"):
            path = getattr(self, key)
            if path and path != EMBEDDED and is_local(path) and not expanded(path).exists():
                takes = "takes a file or folder that exists (or a Hub id such as fancyzhx/ag_news)"
                yield key, f"got '{shown(path, 200)}', {takes}"
            elif key != "path" and path is not None and not expanded(self.path).is_file():
                yield (
                    key,
                    f"got {path!r}, but data.path={self.path!r} is no file; give both as files or neither",
                )

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        if not self.path:
            yield "path", "is missing; give it as data.path=<file, folder or Hub id>"
        if self.tokens_per_batch < self.max_length:
            takes = f"takes at least data.max_length={self.max_length}: one text must fit"
            yield "tokens_per_batch", f"got {self.tokens_per_batch}, {takes}"
        named = [
            split for split in (self.train_split, self.validation_split, self.test_split) if split
        ]
        if len(set(named)) < len(named):
            yield (
                "test_split",
                f"train, validation and test must be three splits, got {', '.join(named)}",
            )
        if self.label_separator == "":
            yield "label_separator", "is empty; takes what stands between two labels, such as ';'"
        yield from form_conflicts(self.encoding, self.separator, "data.")
        taken: dict[str, str] = {}
        for key in ("text_column", "text_pair_column", "label_column"):
            column = getattr(self, key)
            if column in taken:
                yield (
                    key,
                    f"got {column!r}, which is data.{taken[column]} too; takes a column of its own",
                )
            elif column is not None:
                taken[column] = key


@dataclass
class TokenizerConfig:
    """A tokenizer trained on the training split alone."""

    kind: str = setting(
        "words",
        "whole words, byte-level BPE, WordPiece, Unigram, or an import path",
        choices=OrImportPath(TOKENIZERS),
    )
    vocab_size: int = setting(
        8000,
        "words or pieces with a vector of their own, special tokens included",
        minimum=300,
        maximum=10_000_000,
    )
    min_frequency: int = setting(
        2, "how often a word or piece must occur to be kept (not Unigram)", minimum=1
    )
    lowercase: bool = setting(True, "lower-case texts after NFKC")
    segmenter: str | None = setting(
        None,
        "what finds words in Japanese, with kind=words: sudachi (pip install 'headscope[japanese]'); null: characters",
        choices=SEGMENTERS,
    )

    def absent(self) -> Conflicts:
        """Yield what is not there."""
        yield from missing_package("kind", self.kind)

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        if self.segmenter is not None and self.kind != "words":
            yield (
                "segmenter",
                f"got {self.segmenter!r}, takes null with tokenizer.kind={self.kind}: it finds words",
            )


@dataclass
class ModelConfig:
    """A Transformer encoder with a classification head: pre-norm from scratch, or that of a checkpoint."""

    d_model: int = setting(128, "width of every token's vector", minimum=1, maximum=65_536)
    num_heads: int = setting(4, "attention heads in each layer; must divide d_model", minimum=1)
    num_layers: int = setting(2, "encoder blocks", minimum=1, maximum=1000)
    feedforward_size: int = setting(
        512, "width of the hidden layer between two attention layers", minimum=1, maximum=1_000_000
    )
    attention: str = setting(
        "multi_head",
        "multi_head; shared_projection: the embedding is cut into heads, which share one projection; or an import path",
        choices=OrImportPath(ATTENTIONS),
    )
    num_kv_heads: int | None = setting(
        None,
        "heads of keys and values; fewer than num_heads share them: grouped-query attention, 1 for multi-query",
        minimum=1,
    )
    causal: bool = setting(False, "let no token look at a later one")
    window: int | None = setting(
        None, "let a token look at so many tokens on either side alone", minimum=1
    )
    positions: str = setting("rotary", "how a token's place enters", choices=POSITIONS)
    pooling: str = setting(
        "first",
        "which vector is the text's; first: that of [CLS], which tokens reach through heads alone; pooler: BERT's "
        "layer behind it; with the others tokens pass the heads by: mean, max, a learned query from additive on, or an "
        "import path",
        choices=OrImportPath(POOLINGS),
    )
    dropout: float = setting(
        0.1, "dropout on embeddings, on blocks' branches and before the head", minimum=0, below=1
    )
    attention_dropout: float = setting(
        0.0,
        "dropout on attention weights; above 0 it turns the fused kernel off on a CPU",
        minimum=0,
        below=1,
    )
    evidence: bool = setting(
        True,
        "each token carries what its word, its pair with the word before and its letters say about the classes, "
        "counted in the training texts",
    )
    evidence_dropout: float = setting(
        0.3, "share of n-grams left out at each training step", minimum=0, below=1
    )
    path: str | None = setting(
        None,
        "checkpoint of BERT's family: a folder or a Hub id, which decides about all sizes; null: from scratch",
    )
    revision: str | None = setting(
        None, "with path: branch, tag or commit of a Hub id; null for its main branch"
    )
    frozen_layers: int | None = setting(
        None,
        "with path: embeddings and so many of the first blocks do not learn; null: all learn",
        minimum=0,
    )

    def absent(self) -> Conflicts:
        """Yield what is not there."""
        yield from missing_package("attention", self.attention)
        yield from missing_package("pooling", self.pooling)

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        if self.path is not None:
            yield from self._conflicts_with_checkpoint()
            return
        if self.frozen_layers is not None:
            yield (
                "frozen_layers",
                f"got {self.frozen_layers}, takes null without model.path: nothing is trained yet",
            )
        if self.revision is not None:
            yield (
                "revision",
                f"got {self.revision!r}, takes null without model.path: nothing is loaded",
            )
        if self.causal and self.pooling in ("first", "pooler"):
            yield (
                "causal",
                f"got true with model.pooling={self.pooling}: [CLS] stands first and would see no token",
            )
        if self.num_heads < 1 or self.d_model < 1:
            return
        width = self.d_model // self.num_heads
        if self.d_model % self.num_heads:
            yield (
                "num_heads",
                f"got {self.num_heads}, takes a divisor of model.d_model={self.d_model}",
            )
        elif self.positions == "rotary" and width % 2:
            yield (
                "positions",
                f"rotary turns pairs of numbers: d_model / num_heads must be even, and it is {width}",
            )
        if self.num_kv_heads is not None and self.attention == "shared_projection":
            yield (
                "num_kv_heads",
                "the heads of model.attention=shared_projection share their projections already",
            )
        elif (
            self.num_kv_heads is not None
            and self.num_kv_heads >= 1
            and self.num_heads % self.num_kv_heads
        ):
            yield (
                "num_kv_heads",
                f"got {self.num_kv_heads}, takes a divisor of model.num_heads={self.num_heads}",
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield "positions", f"sinusoidal needs an even model.d_model, got {self.d_model}"

    def _conflicts_with_checkpoint(self) -> Conflicts:
        """Yield what a checkpoint does not go with. Its sizes are known only when it is read."""
        if not self.path:
            example = "a folder, or a Hub id such as google-bert/bert-base-uncased"
            yield "path", f"is missing; give it as model.path=... ({example})"
        plain = {
            "attention": "multi_head",
            "num_kv_heads": None,
            "causal": False,
            "window": None,
            "evidence": False,
        }
        for key, value in plain.items():
            if getattr(self, key) != value:
                yield (
                    key,
                    f"got {getattr(self, key)!r}, but model.path was trained with {value!r}; leave it out",
                )


@dataclass
class OptimizerConfig:
    """AdamW with warm-up and cosine decay, and what shapes the loss."""

    learning_rate: float = setting(5e-4, "peak learning rate; with model.path about 1e-4", above=0)
    final_share: float = setting(
        0.0, "learning rate at the end, as a share of the peak", minimum=0, maximum=1
    )
    warmup_share: float = setting(
        0.1, "share of all steps in which the learning rate rises", minimum=0, maximum=1
    )
    weight_decay: float = setting(
        0.01, "decay of matrices and tables; biases, norms and vectors have none", minimum=0
    )
    layer_decay: float = setting(
        1.0,
        "learning rate of a layer as a share of that of the layer above; 1 for all alike",
        above=0,
        maximum=1,
    )
    evidence_rate: float = setting(
        5e-2, "learning rate of the weights of n-grams, which are not decayed", above=0
    )
    beta1: float = setting(0.9, "AdamW: memory of the gradient", minimum=0, below=1)
    beta2: float = setting(0.98, "AdamW: memory of its square", minimum=0, below=1)
    gradient_clip: float = setting(1.0, "largest norm of the gradient; 0 for no limit", minimum=0)
    label_smoothing: float = setting(
        0.0,
        "share of the target spread over all classes, or over yes and no with data.multi_label",
        minimum=0,
        below=1,
    )
    class_weights: str = setting(
        "balanced",
        "balanced: rare classes weigh as much as frequent ones; with data.multi_label, having a class as much as not",
        choices=("none", "balanced"),
    )


@dataclass
class TrainerConfig:
    """How long, on what, and by which rules training goes on and ends."""

    accelerator: str = setting("auto", "where to train", choices=ACCELERATORS)
    devices: int = setting(
        1, "how many of them on each machine; a batch of every step for each", minimum=1
    )
    num_nodes: int = setting(
        1, "machines; above 1 torchrun or srun starts the command on each", minimum=1
    )
    precision: str = setting(
        "auto",
        "auto: bf16-mixed on a GPU that has instructions for it, 32-true elsewhere",
        choices=PRECISIONS,
    )
    max_epochs: int = setting(4, "passes over the training texts", minimum=1)
    max_steps: int | None = setting(None, "stop after so many optimizer steps", minimum=1)
    accumulate: int = setting(1, "batches per optimizer step", minimum=1)
    ema_decay: float | None = setting(
        None, "decay of the weights' moving average, which is validated and kept, such as 0.99; null for none",
        above=0, below=1,
    )  # fmt: skip
    patience: int | None = setting(
        None, "stop after so many validations without a better macro-F1; null for never", minimum=1
    )
    progress: bool = setting(True, "show a progress bar with the time left")


@dataclass
class InspectionConfig:
    """Maps and numbers of every head, at step 0 and at each validation."""

    enabled: bool = setting(True, "record attention while training")
    num_probes: int = setting(
        4, "texts of the validation split whose maps are shown", minimum=0, maximum=64
    )
    probes: list[str] = setting([], "texts of your own to show instead; a list of strings")
    max_tokens: int = setting(
        64,
        "probes are chosen among texts of at most so many tokens; of longer ones that you give, the largest weights "
        "of each query and an overview are kept, and pictures show the beginning",
        minimum=2,
    )
    numbers: bool = setting(True, "numbers of every head over texts of the validation split")
    texts: int | None = setting(
        300, "how many validation texts, drawn once, give these numbers; null: all", minimum=1
    )
    every: int | None = setting(
        None, "record maps every so many steps too; null: at validations alone", minimum=1
    )
    budget: int = setting(
        256, "MiB of recorded maps; near it, recorded steps are thinned out evenly", minimum=1
    )
    precision: str = setting(
        "uint8",
        "how weights are kept: bytes with a scale for each row, or float16",
        choices=("uint8", "float16"),
    )
    causes: int = setting(
        100,
        "validation texts on which, at the end, each head is switched off in turn; 0: none",
        minimum=0,
    )
    most_wrong: int | None = setting(
        20,
        "so many of the misclassified test texts, those of the highest loss, are shown with all heads in "
        "most_wrong.html; 0 or null for none",
        minimum=0,
        maximum=200,
    )
    font: str | None = setting(
        None, "font file for the names of classes in pictures; null: the first known one installed"
    )


@dataclass
class SweepConfig:
    """By what the jobs of a sweep, or the trials of a search, are compared."""

    metric: str = setting(
        "macro_f1",
        "validation score by which configurations are compared; never of the test split",
        choices=METRICS,
    )


@dataclass
class TrainConfig:
    """Everything that decides a run. The resolved form is kept in the run folder as config.yaml."""

    name: str | None = setting(
        None, "folder of the run below outputs_dir; null: named by the data and the time"
    )
    outputs_dir: str = setting("outputs", "where runs land")
    resume: str | None = setting(
        None, "run folder to continue, with its settings but for keys on the command line"
    )
    seed: int = setting(
        0, "seed of weights, dropout and order of batches", minimum=0, maximum=MAX_SEED
    )
    baseline: bool = setting(True, "score TF-IDF + logistic regression on the same split")
    sweep: SweepConfig = setting(SweepConfig, "comparison")
    data: DataConfig = setting(DataConfig, "texts")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "tokenizer")
    model: ModelConfig = setting(ModelConfig, "network")
    optimizer: OptimizerConfig = setting(OptimizerConfig, "optimizer")
    trainer: TrainerConfig = setting(TrainerConfig, "trainer")
    inspection: InspectionConfig = setting(InspectionConfig, "attention heads")

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        if self.name is not None:
            path = Path(self.name)
            if (
                not path.name
                or path.is_absolute()
                or ".." in path.parts
                or not self.name.isprintable()
            ):
                yield (
                    "name",
                    f"got {shown(repr(self.name), 200)}, takes the name of a folder below outputs_dir",
                )
            elif any(len(os.fsencode(part)) > 255 for part in path.parts):
                yield "name", f"got {shown(repr(self.name), 200)}, takes at most 255 bytes"

    def absent(self) -> Conflicts:
        """Yield what is not there."""
        if self.resume is not None and not (Path(self.resume) / "config.yaml").is_file():
            yield "resume", f"got {self.resume!r}, takes a run folder with a config.yaml in it"
        path = self.model.path  # of no interest to a resumed run, which has weights of its own
        if path and self.resume is None and not Path(path).expanduser().is_dir() and is_local(path):
            example = "or a Hub id such as google-bert/bert-base-uncased"
            yield "model.path", f"got {path!r}, takes a folder that exists ({example})"
