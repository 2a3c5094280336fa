"""The settings of the commands that use a finished run, or explain attention; those of a training are in config.py."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from headscope.config import ACCELERATORS, Conflicts, DataConfig, TrainConfig, form_conflicts
from headscope.settings import setting

DTYPES = ("float64", "float32", "bfloat16")
FORMATS = ("auto", "lines", "csv", "tsv", "jsonl", "json")
MISSING = "???"  # what Hydra takes for a key that must be given


@dataclass
class TuneConfig(TrainConfig):
    """A search: which settings vary, how often, and where it is kept. The other settings are those of each training."""

    space: str = setting(
        MISSING,
        "file of what varies, like configs/sweep/learning.yaml, or the name of one of those",
    )
    trials: int = setting(
        50, "how many trainings, those that were stopped early among them", minimum=1
    )
    storage: str | None = setting(
        None,
        "database that keeps the search, such as postgresql://host/name; null: study.journal in its folder",
    )


def _output_conflicts(output: str, overwrite: bool) -> Conflicts:
    path = Path(output)
    if path.exists() and not path.is_file():
        yield "output", f"got {output!r}, which is no file; takes the name of one"
    elif path.exists() and path.stat().st_size and not overwrite:
        yield (
            "output",
            f"got {output!r}, which is there already; takes another name, or overwrite=true to replace it",
        )


def _run_conflicts(run: str) -> Conflicts:
    if not Path(run).is_dir():
        yield "run", f"got {run!r}, takes a folder that `headscope train` has written"


@dataclass
class OtherDataConfig(DataConfig):
    """Other data for a finished run. They have the columns of the run's own, unless they are told to have others."""

    text_column: str | None = setting(None, "column with the text; the run's own if null")  # type: ignore[assignment]
    text_pair_column: str | None = setting(
        None, "column with the second text of a pair; the run's own if null"
    )
    label_column: str | None = setting(None, "column with the label; the run's own if null")  # type: ignore[assignment]
    label_separator: str | None = setting(  # type: ignore[assignment]
        None,
        "where a text has any number of labels: what stands between them; the run's own if null",
    )

    def like(self, own: DataConfig) -> "OtherDataConfig":
        """Return the same, with what was not told taken from the run's own data."""
        columns = ("text_column", "text_pair_column", "label_column", "label_separator")
        kept = {name: getattr(own, name) for name in columns if getattr(self, name) is None}
        return replace(self, multi_label=own.multi_label, **kept)


@dataclass
class EvaluateConfig:
    """Score a finished run on a split, of its own data or of other data with the same labels."""

    run: str = setting(MISSING, "run folder")
    split: str | None = setting(
        None, "validation or test of the run's own data, or a split of other data"
    )
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)
    data: OtherDataConfig | None = setting(None, "other data; the run's own if left out")

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if self.data is None and self.split not in (None, "train", "validation", "test"):
            yield (
                "split",
                f"got {self.split!r}, takes train, validation or test for the run's own data",
            )
        if self.data is not None and not self.data.path:
            yield "data", "reads other texts; leave every data.* out to score the run's own"


@dataclass
class PredictConfig:
    """Label texts with a finished run, in order, whatever the file's size."""

    run: str = setting(MISSING, "run folder")
    input: str = setting("-", "a file with lines, csv, tsv, jsonl or json; - for standard input")
    output: str = setting(
        "-",
        "a csv file, in which a ' stands before what spreadsheets take for a formula, or jsonl; - for standard output",
    )
    overwrite: bool = setting(False, "replace the output if it is there already")
    format: str = setting(
        "auto", "form of the input; auto goes by the file's ending", choices=FORMATS
    )
    encoding: str = setting(
        "utf-8", "what the bytes of the input mean, such as cp1252 or shift_jis"
    )
    separator: str | None = setting(
        None, "what stands between the cells of csv or tsv; null: comma or tab"
    )
    text_column: str | None = setting(None, "column with the text; the run's own if null")
    text_pair_column: str | None = setting(
        None, "column with the second text of a pair; the run's own if null"
    )
    tokens_per_batch: int | None = setting(
        None,
        "positions of a batch, padding included; null: 2048 on a CPU, whose cache they fit, else 65536",
        minimum=1,
    )
    precision: str = setting(
        "32-true",
        "bf16-mixed is quicker where there are instructions for it; probabilities then differ in the third digit",
        choices=("32-true", "bf16-mixed"),
    )
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if self.input != "-" and not Path(self.input).is_file():
            yield "input", f"got {self.input!r}, takes a file that exists, or - for standard input"
        if self.format == "auto" and Path(self.input).suffix.lower() == ".parquet":
            yield (
                "input",
                f"got {self.input!r}, takes csv, tsv, jsonl, json or lines; convert it to one of them",
            )
        if self.output != "-" and Path(self.output).suffix not in (".csv", ".jsonl"):
            yield (
                "output",
                f"got {self.output!r}, takes a name that ends in .csv or .jsonl, or - for standard output",
            )
        if self.output != "-":
            yield from _output_conflicts(self.output, self.overwrite)
            if (
                Path(self.input).is_file()
                and Path(self.output).exists()
                and Path(self.input).samefile(self.output)
            ):
                yield "output", f"got {self.output!r}, which is the input; takes another name"
        yield from form_conflicts(self.encoding, self.separator, "")


@dataclass
class ExportConfig:
    """Write a finished run, which began with a checkpoint, as a folder that `transformers` loads."""

    run: str = setting(MISSING, "run folder; trained with model.path=... and model.pooling=pooler")
    output: str = setting(MISSING, "folder to be written; must not exist, or be empty")

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        path = Path(self.output)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            yield "output", f"got {self.output!r}, takes a folder that does not exist or is empty"


@dataclass
class InspectConfig:
    """Show what every head does: with one text, or, without one, over a sample of labelled texts."""

    run: str | None = setting(None, "run folder")
    model: str | None = setting(
        None,
        "instead of a run: a sequence classifier of transformers, a folder or Hub id; safetensors alone",
    )
    text: str | None = setting(
        None, "the text; null measures every head over a sample of labelled texts"
    )
    texts: int = setting(
        300,
        "how many labelled texts are drawn: of the run's validation split, or of data",
        minimum=1,
    )
    data: OtherDataConfig | None = setting(
        None,
        "for model=: labelled texts, the test split or the only one, on which each head is switched off in turn",
    )
    text_pair: str | None = setting(None, "the second text, if the model was trained on pairs")
    label: str | None = setting(
        None, "its class, if known (several as in the data); shown beside the prediction"
    )
    max_tokens: int = setting(256, "cut the text to so many tokens", minimum=2)
    output: str | None = setting(
        None,
        "the HTML file; below the run folder's inspect/ if null, or for model= below outputs/inspect/",
    )
    overwrite: bool = setting(False, "replace the output if it is there already")
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        if self.run is not None:
            yield from _run_conflicts(self.run)
        if self.run is None and self.model is None:
            yield (
                "run",
                "is missing; give it as run=outputs/..., or a classifier of transformers as model=...",
            )
        elif self.run is not None and self.model is not None:
            yield "model", f"got {self.model!r} and run={self.run}; takes one of the two"
        elif self.run is not None and self.data is not None:
            yield "data", "is for model=...; a run has its own texts, so leave every data.* out"
        elif self.model is not None and self.text is None and self.data is None:
            yield (
                "text",
                "is missing; give a text, or labelled texts to rank the heads: data.path=...",
            )
        if self.data is not None and not self.data.path:
            yield "data.path", "is missing; takes labelled texts"
        for key, text in (("text", self.text), ("text_pair", self.text_pair)):
            if text is not None and not text.strip():
                yield key, "is empty; takes a text"
            elif text is not None and re.search(
                "[\ud800-\udfff]", text
            ):  # as Python puts for what it cannot decode
                yield key, "is not UTF-8; takes a text"
        if self.output is not None:
            if Path(self.output).suffix != ".html":
                yield "output", f"got {self.output!r}, takes a name that ends in .html"
            yield from _output_conflicts(self.output, self.overwrite)


@dataclass
class VerifyConfig:
    """Prove that the attention is right: every claim against an oracle that shares no code with it."""

    dtype: str = setting("float64", "type that is proved; oracles are float64", choices=DTYPES)
    device: str = setting(
        "cpu", "where to compute; oracles run on the CPU", choices=("cpu", "cuda")
    )
    style: str = setting("table", "how the table is printed", choices=("table", "markdown"))
    show: str = setting(
        "all", "every claim, or an article's numbers beside ours", choices=("all", "published")
    )


@dataclass
class TraceConfig:
    """Print multi-head attention step by step: the shape, the cost and the time of each step."""

    batch: int | None = setting(None, "texts at once; null: 32, or 1 with grow", minimum=1)
    seq_len: int | None = setting(
        None, "tokens of a text; null: 100; with grow one more length", minimum=1
    )
    d_model: int = setting(768, "width of the model", minimum=1)
    num_heads: int | None = setting(
        None, "heads, must divide d_model; null: 8, 4, 2 or 1", minimum=1
    )
    bias: bool = setting(True, "add a bias to each projection")
    device: str = setting("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    dtype: str = setting("float32", "type to compute in", choices=DTYPES)
    repeats: int = setting(
        5, "passes that are timed, after one that warms up; the median counts", minimum=1
    )
    grow: bool = setting(
        False, "show how work and time of each step grow with the length of a text"
    )
    lengths: list[int] = setting(
        [128, 256, 512, 1024, 2048], "lengths that grow goes through, rising"
    )

    @property
    def sizes(self) -> dict[str, int]:
        """Return batch, seq_len, d_model and num_heads, as given or else as they are by default."""
        batch, heads = 1 if self.grow else 32, math.gcd(8, self.d_model)
        given = {
            "batch": (self.batch, batch),
            "seq_len": (self.seq_len, 100),
            "num_heads": (self.num_heads, heads),
        }
        sizes = {
            name: default if number is None else number for name, (number, default) in given.items()
        }
        return sizes | {"d_model": self.d_model}

    @property
    def all_lengths(self) -> list[int]:
        """Return the lengths that grow goes through, seq_len among them if it is given."""
        return sorted({*self.lengths, *([] if self.seq_len is None else [self.seq_len])})

    def conflicts(self) -> Conflicts:
        """Yield what no single key can say."""
        d_model, num_heads = self.sizes["d_model"], self.sizes["num_heads"]
        if d_model > 0 and num_heads > 0 and d_model % num_heads:
            yield "num_heads", f"got {num_heads}, takes a divisor of d_model={d_model}"
        if (
            len(self.lengths) < 2
            or self.lengths[0] < 1
            or self.lengths != sorted(set(self.lengths))
        ):
            yield "lengths", f"got {self.lengths}, takes two or more rising numbers, from 1 on"
