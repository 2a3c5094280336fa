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


@dataclass
class PredictConfig:
    """Label texts with a finished run, in order, whatever the file's size."""

    run: str = setting(MISSING, "run folder")
    input: str = setting("-", "a file with lines, csv, tsv or jsonl; - for standard input")
    output: str = setting("-", "a csv or jsonl file; - for standard output, as jsonl")
    format: str = setting("auto", "form of the input; auto goes by the file's ending", choices=FORMATS)
    text_column: str | None = setting(None, "column with the text; the run's own if null")
    text_pair_column: str | None = setting(None, "column with the second text of a pair; the run's own if null")
    tokens_per_batch: int = setting(8192, "positions of a batch, padding included", minimum=1)
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if self.input != "-" and not Path(self.input).is_file():
            yield "input", f"got {self.input!r}, takes a file that exists, or - for standard input"
        if self.output != "-" and Path(self.output).suffix not in (".csv", ".jsonl"):
            yield (
                "output",
                f"got {self.output!r}, takes a name that ends in .csv or .jsonl, or - for standard output",
            )


@dataclass
class InspectConfig:
    """Show what every head does with one text."""

    run: str = setting(MISSING, "run folder")
    text: str = setting(MISSING, "the text")
    text_pair: str | None = setting(None, "the second text, if the run was trained on pairs")
    label: str | None = setting(None, "its class, if known; shown beside the prediction")
    max_tokens: int = setting(256, "cut the text to so many tokens", minimum=2)
    output: str | None = setting(None, "the HTML file; below the run folder's inspect/ if null")
    font: str | None = setting(None, "font file for token names")
    accelerator: str = setting("auto", "where to compute", choices=ACCELERATORS)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from _run_conflicts(self.run)
        if not self.text.strip():
            yield "text", "is empty; takes a text"


@dataclass
class VerifyConfig:
    """Prove that the attention is right: every claim against an oracle that shares no code with it."""

    dtype: str = setting("float64", "type that is proved; oracles are float64", choices=DTYPES)
    device: str = setting("cpu", "where to compute; oracles run on the CPU", choices=("cpu", "cuda"))
    style: str = setting("table", "how the table is printed", choices=("table", "markdown"))
