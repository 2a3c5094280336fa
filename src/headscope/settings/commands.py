"""The settings of the commands that use a finished run, or explain attention."""

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from headscope.ground.errors import ConfigError, existing_runs
from headscope.settings.checks import (
    MOST,
    STRICT,
    Conflicts,
    PathText,
    Settings,
    fault,
    format_conflicts,
    key,
    override,
)
from headscope.settings.config import (
    REPORT,
    REPORT_WORDS,
    ROLES,
    Accelerator,
    Count,
    DataConfig,
    Integer,
    Seed,
    is_run,
)

Dtype = Literal["float64", "float32", "bfloat16"]
THE_RUNS = "null: the run's"


def _run_folder(run: str) -> str:
    if not is_run(Path(run)):
        raise fault("a run folder", existing_runs(run))
    return run


RunFolder = Annotated[PathText, AfterValidator(_run_folder), Field(description="run folder")]
Language = Annotated[
    Literal["auto", "en", "ja"],
    Field(description="language of what is printed; auto: the environment's (LANG)"),
]
Device = Annotated[Accelerator, Field(description="where to compute")]


@dataclass(config=STRICT, frozen=True)
class WritesFile(Settings):
    """A command that writes the file `output`."""

    endings: ClassVar[tuple[str, ...]] = (".html",)
    overwrite: bool = Field(
        default=False, kw_only=True, description="replace the output if it exists"
    )

    def outputs(self) -> list[Path]:
        """Return every file that the command writes where the user says, `output` first."""
        output = getattr(self, "output", None)
        if output is None or output == "-":
            return []
        return [Path(output)]

    def _conflicts(self) -> Conflicts:
        yield from super()._conflicts()
        for number, path in enumerate(self.outputs()):
            file = f"a place where {path.name}" if number else "a file that"
            if number == 0 and path.suffix not in self.endings:
                yield "output", f"a name that ends in {' or '.join(self.endings)}"
            elif path.exists() and not path.is_file():
                yield "output", f"{file} is a file" if number else "the name of a file"
            elif path.exists() and path.stat().st_size and not self.overwrite:
                yield "output", f"{file} does not exist", "overwrite=true replaces it"


Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(config=STRICT, frozen=True, kw_only=True)
class Abstains(Settings):
    """A command that leaves texts without an answer, by at most one of these keys."""

    min_confidence: Share | None = key(
        None,
        "abstain below this probability, and on texts unlike those of training: the "
        "prediction is empty, the column abstained says why",
        kw_only=True,
    )
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = key(
        None,
        "the same, below the probability from which this share of validation texts was right",
        kw_only=True,
    )

    def abstains_by(self) -> list[str]:
        """Return which of the keys are given."""
        names = [field.name for field in fields(Abstains)]
        return [name for name in names if getattr(self, name) is not None]

    def _conflicts(self) -> Conflicts:
        yield from super()._conflicts()
        for name in self.abstains_by()[1:]:
            yield name, f"null with {self.abstains_by()[0]}", "give one of the two"


@dataclass(config=STRICT, frozen=True)
class OtherDataConfig(DataConfig):
    """Other data for a finished run; columns that are not given are those of the run's own data."""

    path: PathText = key("", "a Hub id, a directory, a file, or the import path of a loader")
    text_column: str | None = key(None, THE_RUNS)  # type: ignore[assignment]
    text_pair_column: str | None = key(None, THE_RUNS)
    label_column: str | None = key(None, THE_RUNS)  # type: ignore[assignment]
    label_separator: str | None = key(None, THE_RUNS)  # type: ignore[assignment]

    def like(self, own: DataConfig) -> "OtherDataConfig":
        """Return the same, with what was not given taken from the run's own data."""
        columns = ("text_column", "text_pair_column", "label_column", "label_separator")
        inherited = {name: getattr(own, name) for name in columns if getattr(self, name) is None}
        try:
            return override(self, {"multi_label": own.multi_label, **inherited})
        except ConfigError as error:
            raise ConfigError(re.sub("^", "data.", str(error), flags=re.M)) from None


@dataclass(config=STRICT, frozen=True)
class LabelledTextsConfig(Settings):
    """A finished run, and a split of its own data or other data with the same labels."""

    run: RunFolder
    split: str | None = key(
        None, "train, validation or test of the run's own data, or a split of data"
    )
    accelerator: Device = "auto"
    data: OtherDataConfig | None = key(None, "other data; null: the run's own")

    def _conflicts(self) -> Conflicts:
        yield from super()._conflicts()
        if self.data is None and self.split not in (None, *ROLES):
            yield "split", "train, validation or test for the run's own data"


def words_file(page: Path) -> Path:
    """Return the csv of a report's words: of october.html october.words.csv."""
    return page.parent / f"{page.stem}.words.csv"


@dataclass(config=STRICT, frozen=True)
class ReportConfig(LabelledTextsConfig, WritesFile):
    """Write what a run learned over many texts: words of each class and head, and every text."""

    output: PathText = key("report.html", "HTML file; of a.html the words are in a.words.csv")
    seconds: Annotated[float, Field(gt=0)] = key(
        20.0, "for contributions of words; every text is predicted"
    )

    def outputs(self) -> list[Path]:
        """Return the page, and the table that is written beside it."""
        return [*super().outputs(), self.words]

    @property
    def words(self) -> Path:
        """The csv of the words: that of the run, where its own report is made up for."""
        page = Path(self.output)
        is_own = self.data is None and self.split in (None, "test")
        own = Path(self.run, REPORT_WORDS)
        if is_own and page.resolve() == Path(self.run, REPORT).resolve() and not own.exists():
            return own
        return words_file(page)


@dataclass(config=STRICT, frozen=True)
class EvaluateConfig(LabelledTextsConfig, Abstains):
    """Score a finished run on its test split, or on other data with the same labels."""

    against: PathText | None = key(
        None,
        "another run folder, or a csv, jsonl or xlsx file with a column prediction and a row for "
        "each of these texts: the difference on the same texts, with its interval",
    )

    def _conflicts(self) -> Conflicts:
        yield from super()._conflicts()
        if self.against is not None and not Path(self.against).exists():
            yield "against", "a run folder or a file", existing_runs(self.against)


@dataclass(config=STRICT, frozen=True)
class PredictConfig(WritesFile, Abstains):
    """Label texts with a finished run, in order, whatever the file's size."""

    endings = (".csv", ".jsonl")
    run: RunFolder
    input: PathText = key("-", "lines, csv, tsv, jsonl, json, parquet or xlsx; -: standard input")
    output: PathText = key(
        "-",
        "csv (' precedes formulas of spreadsheets; a BOM if the input is xlsx) or jsonl; "
        "-: standard output",
    )
    format: Literal["auto", "lines", "csv", "tsv", "jsonl", "json"] = key(
        "auto", "format of the input; auto: by the file's extension"
    )
    encoding: str = key("utf-8", "text encoding, such as cp1252 or cp932")
    separator: str | None = key(None, "column delimiter of csv or tsv; null: comma or tab")
    text_column: str | None = key(None, "column with the text; null: the run's")
    text_pair_column: str | None = key(None, "column with the second text; null: the run's")
    reasons: bool = key(False, "add a column with the words that decided")
    tokens_per_batch: Count | None = key(
        None, "tokens per batch, padding included; null: 2048 on a CPU, else 65536"
    )
    precision: Literal["32-true", "bf16-mixed"] = key(
        "32-true", "bf16-mixed changes probabilities in the third digit"
    )
    accelerator: Device = "auto"

    def _conflicts(self) -> Conflicts:
        source = Path(self.input)
        if self.input != "-" and not source.is_file():
            yield "input", "a file that exists, or - for standard input"
        yield from super()._conflicts()
        yield from format_conflicts(self.encoding, self.separator, "")
        if source.is_file() and Path(self.output).exists() and source.samefile(self.output):
            yield "output", "another file than the input"


@dataclass(config=STRICT, frozen=True)
class ExportConfig(Abstains):
    """Write a finished run as ONNX, with a front end that needs no torch.

    It abstains as `headscope predict` does by the same keys; without one on unfamiliar texts alone.
    """

    run: RunFolder
    output: PathText = Field(description="folder to be written; must not exist, or be empty")
    reasons: bool = key(False, "write reasons.onnx too: the words that decided, without torch")

    def _conflicts(self) -> Conflicts:
        yield from super()._conflicts()
        path = Path(self.output)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            yield "output", "a folder that does not exist or is empty"

    def _absent(self) -> Iterator[str]:
        yield from super()._absent()
        for package in ("onnx", "onnxscript"):
            if find_spec(package) is None:
                remedy = "from the clone: pip install -e '.[onnx]'"
                yield f"export: {package} is not installed; {remedy}"


@dataclass(config=STRICT, frozen=True)
class LabelsConfig(WritesFile):
    """Find texts whose label is probably wrong."""

    endings = (".csv", ".jsonl")
    run: RunFolder
    output: PathText = key("labels.csv", "csv file, with a BOM for spreadsheets, or jsonl")
    id_column: str | None = key(None, "column of the data that names a row in the output")
    folds: Integer = key(5, "networks to train, each without one part of the texts", ge=2, le=20)


@dataclass(config=STRICT, frozen=True)
class InspectConfig(WritesFile):
    """Show what every attention head does with one text."""

    run: RunFolder
    text: str = Field(description="the text")
    text_pair: str | None = key(None, "second text, for a model trained on pairs")
    max_tokens: Integer | None = key(
        None, "truncate the text to N tokens; null: as the run does", ge=2, le=MOST
    )
    output: PathText | None = key(None, "HTML file; null: in the run folder's inspect/")
    accelerator: Device = "auto"

    def _conflicts(self) -> Conflicts:
        for name in ("text", "text_pair"):
            text = getattr(self, name)
            if text is not None and not text.strip():
                yield name, "a text that is not empty"
        yield from super()._conflicts()


@dataclass(config=STRICT, frozen=True)
class PageConfig(WritesFile):
    """Write a page on which you type a text and see every head decide, without a server."""

    run: RunFolder
    output: PathText = key("page.html", "HTML file")
    dtype: Literal["float32", "float16", "int8"] | None = key(
        None,
        "type of the stored weights; null: int8 on a checkpoint, else float32. The page says what "
        "it changes",
    )
    max_mb: Annotated[float, Field(gt=0, le=1000)] = key(64.0, "largest page in MB")
    examples: Annotated[int, Field(ge=0, le=60)] = key(
        9,
        "validation texts to choose from, right, wrong and unsure ones; 0: no text of the data",
    )


@dataclass(config=STRICT, frozen=True)
class VerifyConfig(Settings):
    """Check the attention against torch and independent implementations."""

    dtype: Dtype = key("float64", "type to prove; oracles are float64")
    device: Literal["cpu", "cuda"] = key("cpu", "device; oracles run on the CPU")
    show: Literal["all", "published"] = key(
        "all", "every claim, or the numbers of an article beside ours"
    )
    lang: Language = "auto"


@dataclass(config=STRICT, frozen=True)
class TraceConfig(Settings):
    """Print multi-head attention step by step: shapes, values, cost and time."""

    batch: Count = key(32, "batch size")
    seq_len: Count = key(100, "tokens per text")
    d_model: Count = key(768, "width of the model; with weights theirs")
    num_heads: Count = key(8, "attention heads; must divide the width")
    bias: bool = key(True, "add a bias to each projection; with weights as in these")
    seed: Seed = key(0, "draws the tokens, then the layer")
    weights: PathText | None = key(
        None,
        "a layer of torch.nn.MultiheadAttention: its state dict, as torch.save or safetensors "
        "writes it; null: one is drawn",
    )
    mask: Literal["padding", "causal", "none"] = key(
        "padding", "hide the padding of texts of several lengths, or later tokens"
    )
    device: Literal["auto", "cpu", "cuda"] = key("auto", "where to compute")
    dtype: Dtype = key("float32", "type to compute in")
    repeats: Count = key(5, "timed passes after one for warm-up; the median counts")
    lang: Language = "auto"

    def _conflicts(self) -> Conflicts:
        if self.weights is None and self.d_model % self.num_heads:
            yield "num_heads", f"a divisor of d_model={self.d_model}"
