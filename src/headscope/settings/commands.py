"""The settings of the commands that use a finished run, or explain attention."""

import math
import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from headscope.ground.errors import ConfigError, existing_runs
from headscope.settings.checks import (
    MOST,
    STRICT,
    Conflicts,
    Settings,
    fault,
    format_conflicts,
    override,
)
from headscope.settings.config import Accelerator, Count, DataConfig, Integer, TrainConfig

Dtype = Literal["float64", "float32", "bfloat16"]


@dataclass(config=STRICT, kw_only=True)
class TuneConfig(TrainConfig):
    """A search: which settings vary, how often, and where it is stored."""

    space: str | None = Field(
        default=None, description="YAML file with the search space; null: configs/space.yaml"
    )
    trials: Count = Field(default=50, description="number of training runs, pruned ones included")
    storage: str | None = Field(
        default=None,
        description="database of the search, such as postgresql://host/name; null: study.db in "
        "its folder",
    )

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        yield from super().conflicts()
        if self.resume is not None:
            yield "resume", "null", "the same command again continues a search"


def _run_folder(run: str) -> str:
    if not Path(run).is_dir():
        raise fault("a run folder", existing_runs(run))
    return run


RunFolder = Annotated[str, AfterValidator(_run_folder)]


def output_conflicts(output: str, overwrite: bool, *endings: str) -> Conflicts:
    """Yield what is wrong with the name of a file that a command writes."""
    path = Path(output)
    if path.suffix not in endings:
        yield "output", f"a name that ends in {' or '.join(endings)}"
    elif path.exists() and not path.is_file():
        yield "output", "the name of a file"
    elif path.exists() and path.stat().st_size and not overwrite:
        yield "output", "a file that does not exist", "overwrite=true replaces it"


@dataclass(config=STRICT)
class OtherDataConfig(DataConfig):
    """Other data for a finished run; columns that are not given are those of the run's own data."""

    path: str = Field(
        default="", description="a Hub id, a directory, a file, or the import path of a loader"
    )
    text_column: str | None = Field(
        default=None, description="column with the text; null: the run's"
    )  # type: ignore[assignment]
    text_pair_column: str | None = Field(
        default=None, description="column with the second text of a pair; null: the run's"
    )
    label_column: str | None = Field(
        default=None, description="column with the label; null: the run's"
    )  # type: ignore[assignment]
    label_separator: str | None = Field(
        default=None, description="delimiter of labels; null: the run's"
    )  # type: ignore[assignment]

    def like(self, own: DataConfig) -> "OtherDataConfig":
        """Return the same, with what was not given taken from the run's own data."""
        columns = ("text_column", "text_pair_column", "label_column", "label_separator")
        inherited = {name: getattr(own, name) for name in columns if getattr(self, name) is None}
        try:
            return override(self, {"multi_label": own.multi_label, **inherited})
        except ConfigError as error:
            raise ConfigError(re.sub("^", "data.", str(error), flags=re.M)) from None


@dataclass(config=STRICT)
class LabelledTextsConfig(Settings):
    """A finished run, and a split of its own data or other data with the same labels."""

    run: RunFolder = Field(description="run folder")
    split: str | None = Field(
        default=None,
        description="train, validation or test of the run's own data, or a split of data",
    )
    accelerator: Accelerator = Field(default="auto", description="where to compute")
    data: OtherDataConfig | None = Field(
        default=None, description="other data; null: the run's own"
    )

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        if self.data is None and self.split not in (None, "train", "validation", "test"):
            yield "split", "train, validation or test for the run's own data"


@dataclass(config=STRICT)
class ReportConfig(LabelledTextsConfig):
    """Write what a run learned over many texts: words of each class and head, and every text."""

    output: str = Field(default="report.html", description="HTML file; words.csv is beside it")
    overwrite: bool = Field(default=False, description="replace the output if it exists")
    seconds: Annotated[float, Field(gt=0)] = Field(
        default=20.0, description="for the contributions of words; every text is predicted"
    )

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        yield from super().conflicts()
        yield from output_conflicts(self.output, self.overwrite, ".html")


@dataclass(config=STRICT)
class EvaluateConfig(LabelledTextsConfig):
    """Score a finished run on a split of its own data, or on other data with the same labels."""

    against: str | None = Field(
        default=None,
        description="another run folder, or a csv or jsonl file with a column prediction and a row "
        "for each of these texts: the difference on the same texts, with its interval",
    )

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        yield from super().conflicts()
        if self.against is not None and not Path(self.against).exists():
            yield "against", "a run folder or a file", existing_runs(self.against)


@dataclass(config=STRICT)
class PredictConfig(Settings):
    """Label texts with a finished run, in order, whatever the file's size."""

    run: RunFolder = Field(description="run folder")
    input: str = Field(
        default="-", description="lines, csv, tsv, jsonl, json or parquet; -: standard input"
    )
    output: str = Field(
        default="-",
        description="a csv file, in which ' precedes what spreadsheets read as a formula, or "
        "jsonl; -: standard output",
    )
    overwrite: bool = Field(default=False, description="replace the output if it exists")
    format: Literal["auto", "lines", "csv", "tsv", "jsonl", "json"] = Field(
        default="auto", description="format of the input; auto: by the file's extension"
    )
    encoding: str = Field(default="utf-8", description="text encoding, such as cp1252 or shift_jis")
    separator: str | None = Field(
        default=None, description="column delimiter of csv or tsv; null: comma or tab"
    )
    text_column: str | None = Field(
        default=None, description="column with the text; null: the run's"
    )
    text_pair_column: str | None = Field(
        default=None, description="column with the second text of a pair; null: the run's"
    )
    reasons: bool = Field(
        default=False, description="add a column with the words that decided; texts run one by one"
    )
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="abstain below this probability, and on texts unlike those of training: the "
        "prediction is empty, the column abstained says why",
    )
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="abstain below the probability from which this share of the validation texts "
        "was right, and on texts unlike those of training",
    )
    tokens_per_batch: Count | None = Field(
        default=None,
        description="tokens per batch, padding included; null: 2048 on a CPU, else 65536",
    )
    precision: Literal["32-true", "bf16-mixed"] = Field(
        default="32-true", description="bf16-mixed changes probabilities in the third digit"
    )
    accelerator: Accelerator = Field(default="auto", description="where to compute")

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        source = Path(self.input)
        if self.input != "-" and not source.is_file():
            yield "input", "a file that exists, or - for standard input"
        if self.output != "-":
            yield from output_conflicts(self.output, self.overwrite, ".csv", ".jsonl")
            if source.is_file() and Path(self.output).exists() and source.samefile(self.output):
                yield "output", "another file than the input"
        if self.min_confidence is not None and self.target_accuracy is not None:
            yield "target_accuracy", "null with min_confidence", "give one of the two"
        yield from format_conflicts(self.encoding, self.separator, "")


@dataclass(config=STRICT)
class ExportConfig(Settings):
    """Write a finished run as ONNX, with a front end that needs no torch."""

    run: RunFolder = Field(description="run folder")
    output: str = Field(description="folder to be written; must not exist, or be empty")

    def conflicts(self) -> Conflicts:
        """Yield a folder that is not empty, or a file."""
        path = Path(self.output)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            yield "output", "a folder that does not exist or is empty"


@dataclass(config=STRICT)
class LabelsConfig(Settings):
    """Find texts of all splits whose label is probably wrong."""

    run: RunFolder = Field(description="run folder")
    output: str | None = Field(
        default=None,
        description="csv or jsonl file; null: labels.csv in the run folder",
    )
    overwrite: bool = Field(default=False, description="replace an output file that exists")
    id_column: str | None = Field(
        default=None, description="column of the data that names a row, for the output; null: none"
    )
    folds: Integer = Field(
        default=5, ge=2, le=20, description="networks to train, each without one part of the texts"
    )

    @property
    def table(self) -> Path:
        """The output: by default in the run folder, or here where that cannot be written."""
        folder = self.run if os.access(self.run, os.W_OK) else "."
        return Path(self.output or Path(folder) / "labels.csv")

    def conflicts(self) -> Conflicts:
        """Yield a name that is no table's, or taken."""
        if self.output is not None:
            yield from output_conflicts(self.output, self.overwrite, ".csv", ".jsonl")
        elif self.table.exists() and not self.overwrite:
            yield "output", f"a name, as {self.table} exists", "overwrite=true replaces it"


@dataclass(config=STRICT)
class InspectConfig(Settings):
    """Show what every head does with one text, or over a sample of labelled texts."""

    run: RunFolder | None = Field(default=None, description="run folder")
    model: str | None = Field(
        default=None,
        description="instead of a run: a sequence classifier of transformers, a directory or Hub "
        "id (safetensors alone)",
    )
    classes: list[str] | None = Field(
        default=None,
        description="with model: names of its classes, in the order of its logits; null: its own, "
        "or those of data, in their order, where it has LABEL_0, LABEL_1 and so on",
    )
    text: str | None = Field(
        default=None,
        description="the text; null: measure every head over a sample of labelled texts",
    )
    texts: Count = Field(
        default=300,
        description="size of that sample, of the run's validation split or of data; ablations take "
        "up to 8 times as many where there is time",
    )
    data: OtherDataConfig | None = Field(
        default=None,
        description="with model: labelled texts, the test split or the only one, on which each "
        "head is ablated",
    )
    text_pair: str | None = Field(
        default=None, description="second text, for a model trained on pairs"
    )
    label: str | None = Field(
        default=None, description="class of the text, shown beside the prediction"
    )
    max_tokens: Integer = Field(
        default=256, ge=2, le=MOST, description="truncate the text to N tokens"
    )
    output: str | None = Field(
        default=None,
        description="HTML file; null: in the run folder's inspect/, with model in outputs/inspect/",
    )
    overwrite: bool = Field(default=False, description="replace the output if it exists")
    accelerator: Accelerator = Field(default="auto", description="where to compute")

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        if self.run is None and self.model is None:
            yield "run", "a run folder", "or give a classifier of transformers as model=..."
        elif self.run is not None and self.model is not None:
            yield "model", f"null with run={self.run}", "give one of the two"
        elif self.run is not None and self.data is not None:
            yield "data", "null with run=...", "data is for model=..."
        elif self.run is not None and self.classes is not None:
            yield "classes", "null with run=...", "a run knows its classes"
        elif self.model is not None and self.text is None and self.data is None:
            yield "text", "a text", "or give labelled texts to rank the heads: data.path=..."
        for key in ("text", "text_pair"):
            text = getattr(self, key)
            if text is not None and not text.strip():
                yield key, "a text that is not empty"
        if self.classes is not None and len({*self.classes}) < len(self.classes):
            yield "classes", "a name of its own for each class"
        if self.output is not None:
            yield from output_conflicts(self.output, self.overwrite, ".html")


@dataclass(config=STRICT)
class PageConfig(Settings):
    """Write a page on which you type a text and see every head decide, without a server."""

    run: RunFolder = Field(description="run folder")
    output: str = Field(default="page.html", description="HTML file")
    overwrite: bool = Field(default=False, description="replace the output if it exists")
    text: str | None = Field(
        default=None, description="the text in the box at first; null: the first example"
    )
    text_pair: str | None = Field(
        default=None, description="second text, for a model trained on pairs"
    )
    dtype: Literal["float32", "float16"] = Field(
        default="float32",
        description="type of the stored weights; float16 halves the page and changes logits by "
        "about 0.001",
    )
    max_mb: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=10.0, description="largest page in MB; a MiniLM needs 120"
    )
    examples: Annotated[int, Field(ge=0, le=60)] = Field(
        default=9,
        description="validation texts to choose from: right, wrong and unsure ones; 0: no text of "
        "the data is in the page",
    )

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        yield from output_conflicts(self.output, self.overwrite, ".html")
        if self.text_pair is not None and self.text is None:
            yield "text", "a text beside text_pair"


@dataclass(config=STRICT)
class VerifyConfig(Settings):
    """Prove that the attention is right, against oracles that share no code with it."""

    dtype: Dtype = Field(default="float64", description="type to prove; oracles are float64")
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="device; oracles run on the CPU"
    )
    style: Literal["table", "markdown"] = Field(default="table", description="format of the table")
    show: Literal["all", "published"] = Field(
        default="all", description="every claim, or the numbers of an article beside ours"
    )


@dataclass(config=STRICT)
class TraceConfig(Settings):
    """Print multi-head attention step by step: shapes, values, cost and time."""

    batch: Count = Field(default=32, description="batch size")
    seq_len: Count = Field(default=100, description="tokens per text")
    d_model: Count = Field(default=768, description="width of the model")
    num_heads: Count | None = Field(
        default=None, description="attention heads, must divide d_model; null: 8, 4, 2 or 1"
    )
    bias: bool = Field(default=True, description="add a bias to each projection")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="where to compute")
    dtype: Dtype = Field(default="float32", description="type to compute in")
    repeats: Count = Field(
        default=5, description="timed passes after one for warm-up; the median counts"
    )

    @property
    def heads(self) -> int:
        """Return num_heads, or by default the largest of 8, 4, 2 and 1 that divides d_model."""
        return self.num_heads or math.gcd(8, self.d_model)

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        if self.d_model % self.heads:
            yield "num_heads", f"a divisor of d_model={self.d_model}"
