"""The settings of every script but train."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headscope.data.config import DataConfig
from headscope.settings import setting
from headscope.training.config import ACCELERATORS

MISSING = "???"  # what Hydra takes for a key that must be given
DTYPES = ("float64", "float32", "bfloat16")
FORMATS = ("auto", "lines", "csv", "jsonl")


def _run_conflicts(run: str) -> Iterator[tuple[str, str]]:
    if not Path(run).is_dir():
        yield "run", f"got {run!r}, takes a folder that scripts/train.py has written"


@dataclass
class EvaluateConfig:
    """Score a finished run on a split, of its own data or of other data with the same labels."""

    run: str = setting(MISSING, "run folder")
    split: str | None = setting(None, "validation or test of the run's own data, or a split of other data")
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)
    data: DataConfig | None = setting(None, "other data; the run's own if left out")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if self.data is None and self.split not in (None, "train", "validation", "test"):
            yield "split", f"got {self.split!r}, takes train, validation or test for the run's own data"
        if self.data is not None and not self.data.path:
            yield "data", "reads other texts; leave every data.* out to score the run's own"


@dataclass
class PredictConfig:
    """Label texts with a finished run, in order, whatever the file's size."""

    run: str = setting(MISSING, "run folder")
    input: str = setting("-", "a file with lines, csv, tsv or jsonl; - for standard input")
    output: str = setting("-", "a csv or jsonl file; - for standard output, as jsonl")
    format: str = setting("auto", "form of the input; auto goes by the file's ending", choices=FORMATS)
    text_column: str | None = setting(None, "column with the text; the run's own if null")
    text_pair_column: str | None = setting(None, "column with the second text of a pair; the run's own if null")
    tokens_per_batch: int | None = setting(
        None, "positions of a batch, padding included; null: 2048 on a CPU, whose cache they fit, else 65536", minimum=1
    )
    precision: str = setting(
        "32-true",
        "bf16-mixed is quicker where there are instructions for it; probabilities then differ in the third digit",
        choices=("32-true", "bf16-mixed"),
    )
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if self.input != "-" and not Path(self.input).is_file():
            yield "input", f"got {self.input!r}, takes a file that exists, or - for standard input"
        if self.format == "auto" and Path(self.input).suffix.lower() in (".json", ".parquet"):
            yield "input", f"got {self.input!r}, takes jsonl, csv, tsv, or lines; convert it to one of them"
        if self.output != "-" and Path(self.output).suffix not in (".csv", ".jsonl"):
            yield (
                "output",
                f"got {self.output!r}, takes a name that ends in .csv or .jsonl, or - for standard output",
            )


@dataclass
class ExportConfig:
    """Write a finished run, which began with a checkpoint, as a folder that `transformers` loads."""

    run: str = setting(MISSING, "run folder; trained with model.path=... and model.pooling=pooler")
    output: str = setting(MISSING, "folder to be written; must not exist, or be empty")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        path = Path(self.output)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            yield "output", f"got {self.output!r}, takes a folder that does not exist or is empty"


@dataclass
class InspectConfig:
    """Show what every head does: with one text, or, without one, over a sample of the run's validation texts."""

    run: str = setting(MISSING, "run folder")
    text: str | None = setting(
        None, "the text; null measures every head over a sample of validation texts, of which texts=... says how many"
    )
    texts: int = setting(
        300, "without a text: so many of the validation texts are measured, drawn by the run's seed", minimum=1
    )
    text_pair: str | None = setting(None, "the second text, if the run was trained on pairs")
    label: str | None = setting(
        None, "its class, if known (of several: as they stand in the data); shown beside the prediction"
    )
    max_tokens: int = setting(256, "cut the text to so many tokens", minimum=2)
    output: str | None = setting(None, "the HTML file; below the run folder's inspect/ if null")
    font: str | None = setting(None, "font file for token names")
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if self.text is not None and not self.text.strip():
            yield "text", "is empty; takes a text"


@dataclass
class VerifyConfig:
    """Prove that the attention is right: every claim against an oracle that shares no code with it."""

    dtype: str = setting("float64", "type that is proved; oracles are float64", choices=DTYPES)
    device: str = setting("cpu", "where to compute; oracles run on the CPU", choices=("cpu", "cuda"))
    style: str = setting("table", "how the table is printed", choices=("table", "markdown"))


# What a size is where it is not given. Growth goes up to long texts, whose scores must fit into memory.
STEP_SIZES = {"batch": 32, "seq_len": 100, "d_model": 768, "num_heads": 8}
GROWTH_SIZES = {"batch": 1, "seq_len": 0, "d_model": 64, "num_heads": 2}


@dataclass
class TraceConfig:
    """Print the computation of multi-head attention step by step, as it was observed while it ran."""

    batch: int | None = setting(None, "texts at once; null: 32, or 1 with grow", minimum=1)
    seq_len: int | None = setting(None, "tokens of a text; null: 100; grow takes lengths instead", minimum=1)
    d_model: int | None = setting(None, "width of the model; null: 768, or 64 with grow", minimum=1)
    num_heads: int | None = setting(None, "heads, must divide d_model; null: 8, or 2 with grow", minimum=1)
    bias: bool = setting(True, "add a bias to each projection")
    device: str = setting("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    dtype: str = setting("float32", "type to compute in", choices=DTYPES)
    repeats: int = setting(7, "passes that are timed, after one that warms up; the median counts", minimum=1)
    grow: bool = setting(False, "show how work and time of each step grow with the length of a text")
    lengths: list[int] = setting([128, 256, 512, 1024, 2048, 4096, 8192], "lengths that grow goes through, rising")

    @property
    def sizes(self) -> dict[str, int]:
        """Return batch, seq_len, d_model and num_heads, as given or else as they are by default."""
        defaults = GROWTH_SIZES if self.grow else STEP_SIZES
        given = {name: getattr(self, name) for name in defaults}
        return {name: defaults[name] if number is None else number for name, number in given.items()}

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        d_model, num_heads = self.sizes["d_model"], self.sizes["num_heads"]
        if d_model > 0 and num_heads > 0 and d_model % num_heads:
            yield "num_heads", f"got {num_heads}, takes a divisor of d_model={d_model}"
        if self.grow and self.seq_len is not None:
            yield "seq_len", "is of no use with grow=true; takes lengths=[128,256,512]"
        if len(self.lengths) < 2 or self.lengths[0] < 1 or self.lengths != sorted(set(self.lengths)):
            yield "lengths", f"got {self.lengths}, takes two or more rising numbers, from 1 on"
