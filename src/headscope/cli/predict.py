"""predict(config): labels and probabilities for the texts of a file of any size, in its order.

Rows are taken in windows of a few thousand. A window's texts are sorted by length among themselves,
which saves most of the padding, and while the network reads one window, another thread tokenizes
the next.

jsonl holds what was read. A csv file is opened by spreadsheets, which compute what begins like a
formula: there a ' is put in front of it, as OWASP advises (CSV Injection), but not in front of a
number such as -1.5; and control characters become U+FFFD.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from pydantic_core import to_json
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from headscope.data.batching import EncodedTexts, encode_texts
from headscope.data.rows import Row, as_text, is_blank, no_column, read_rows
from headscope.ground.errors import ConfigError, DataError, RunError, listed, shown
from headscope.ground.files import replacing
from headscope.ground.terminal import csv_cell, show_line, terminal
from headscope.model.objective import ONE_CLASS, Objective
from headscope.runs.abstaining import chosen_confidence, reasons_to_abstain
from headscope.runs.prediction import best_device, probabilities
from headscope.runs.run import TOKENS_PER_BATCH, Run, load_run
from headscope.settings.commands import PredictConfig

# With batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more.
ROWS_AT_ONCE = 4096
REASONS = "reasons"  # columns
ABSTAINED = "abstained"
WORDS_OF_REASON = 5
CHARACTERS_AT_ONCE = 16_000_000  # a window of long texts has fewer rows: its memory is bounded too
Texts = tuple[str, ...]  # of a row, one text or a pair
Window = list[tuple[Row, Texts]]
RowWriter = Callable[[Mapping[str, Any]], object]

# JSON leaves these as they are: DEL and C1, which a terminal obeys, and two line ends of Unicode.
UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the prediction and each class's probability; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are
    joined as in the data. Columns of the input that have these names are kept as input_prediction
    and so on. With `min_confidence` or `target_accuracy` the prediction is empty where the column
    `abstained` has a reason: confidence, or unfamiliar. With `reasons`, a column has the words that
    add most to the log-odds of the prediction against the runner-up: `Run.explain`.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left.
    """
    run = load_run(config.run)
    least = _least_confidence(config, run)
    columns = _columns(config, run)
    console = terminal(Console(stderr=True))
    is_typed = config.input == "-" and sys.stdin is not None and sys.stdin.isatty()
    if is_typed:  # it would seem to hang
        show_line(console, "reading standard input until Ctrl-D; for a file: input=...")
    bar = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    counts: Counter[str] = Counter()
    added = [*added_columns(run.labels), *[ABSTAINED] * (least is not None)]
    added += [REASONS] * config.reasons

    def encode(window: Window) -> EncodedTexts:
        return encode_texts(run.tokenizer, [texts for _, texts in window], run.evidence)

    with (
        ThreadPoolExecutor(max_workers=1) as pool,
        row_writer(config.output, [*columns, *added]) as write,
        Progress(*bar, console=console, disable=is_typed or not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)
        rows = _rows(config, columns, counts)
        for window, texts in encoded_ahead(windows(rows), encode, pool):
            for row in _answers(config, run, window, texts, least, counts):
                write(row)
            progress.advance(task, len(window))
    _print_notes(console, config, counts, least)
    return counts["rows"]


def _columns(config: PredictConfig, run: Run) -> list[str]:
    """Return the names of the column with the text and, for pairs, of that with the second one."""
    data = run.config.data
    columns = [config.text_column or data.text_column]
    if data.text_pair_column:
        columns.append(config.text_pair_column or data.text_pair_column)
    return columns


def _rows(
    config: PredictConfig, columns: Sequence[str], counts: Counter[str]
) -> Iterator[tuple[Row, Texts]]:
    """Yield each row of the input with its text or pair of texts."""
    source = (config.input, config.format, columns[0], config.encoding, config.separator)
    for row in read_rows(*source, keys=""):
        where = f"{config.input}, row {counts['rows']}"
        texts = []
        for key, column in zip(("text_column", "text_pair_column"), columns, strict=False):
            if column not in row:
                raise DataError(f"{where}: {no_column(column, key, list(row), keys='')}")
            text = as_text(row[column])
            if text is None:
                raise DataError(f"{where}: {column!r} holds {shown(row[column])}, not text")
            texts.append(text)
        counts["rows"] += 1
        counts["empty"] += any(map(is_blank, texts))
        yield row, tuple(texts)


def windows(rows: Iterable[tuple[Row, Texts]]) -> Iterator[Window]:
    """Yield rows with their texts, some thousands together, fewer if they are long."""
    window: Window = []
    num_characters = 0
    for row, texts in rows:
        window.append((row, texts))
        num_characters += sum(map(len, texts))
        if len(window) == ROWS_AT_ONCE or num_characters >= CHARACTERS_AT_ONCE:
            yield window
            window = []
            num_characters = 0
    if window:
        yield window


def encoded_ahead(
    windows: Iterable[Window],
    encode: Callable[[Window], EncodedTexts],
    pool: ThreadPoolExecutor,
) -> Iterator[tuple[Window, EncodedTexts]]:
    """Yield each window with its encoded texts; the next one is tokenized in the meantime."""
    before: tuple[Window, Future[EncodedTexts]] | None = None
    for window in windows:
        now = (window, pool.submit(encode, window))
        if before is not None:
            yield before[0], before[1].result()
        before = now
    if before is not None:
        yield before[0], before[1].result()


def _answers(
    config: PredictConfig,
    run: Run,
    window: Window,
    texts: EncodedTexts,
    least: float | None,
    counts: Counter[str],
) -> Iterator[Row]:
    """Yield the rows of a window with what the run makes of their texts."""
    device = best_device(config.accelerator)
    shares = probabilities(
        run.model,
        texts,
        config.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, 65536),
        device,
        torch.bfloat16 if config.precision == "bf16-mixed" else torch.float32,
        run.objective,
        run.temperature,
    )
    if not shares.isfinite().all():
        raise RunError(f"run={run.folder}: its weights are damaged: probabilities are NaN")
    is_unfamiliar = run.is_unfamiliar(texts)
    counts["unfamiliar"] += int(is_unfamiliar.sum())
    more: dict[str, Sequence[str]] = {}
    if least is not None:
        confidence = shares.max(dim=-1).values.numpy()
        more[ABSTAINED] = reasons_to_abstain(confidence, is_unfamiliar, least)
        counts["abstained"] += sum(map(bool, more[ABSTAINED]))
    if config.reasons:
        pairs = zip(window, shares, strict=True)
        more[REASONS] = [_reason(run, texts, each) for (_, texts), each in pairs]
    join = run.config.data.label_separator.join if config.output.endswith(".csv") else None
    rows = [row for row, _ in window]
    yield from labelled(rows, shares, run.labels, run.objective, join, more)


def _reason(run: Run, texts: Texts, shares: Tensor) -> str:
    """Return the words that add most to the likeliest class of a text, such as `good +1.2`."""
    text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    likeliest = run.labels[int(shares.argmax())]
    return run.explain(text, likeliest).word_line(WORDS_OF_REASON)


def _print_notes(
    console: Console, config: PredictConfig, counts: Counter[str], least: float | None
) -> None:
    """Print what the reader of the answers should know."""
    rows = counts["rows"]
    if empty := counts["empty"]:
        note = f"note: {empty} of {rows} texts are empty; they get the prediction for no text"
        show_line(console, note)
    unfamiliar = counts["unfamiliar"]
    if least is not None:
        abstained = f"abstained on {counts['abstained']} of {rows} texts"
        show_line(console, f"{abstained}, {unfamiliar} of them unfamiliar")
    elif unfamiliar:
        remedy = "min_confidence=... or target_accuracy=... leaves them without a label"
        are = "texts are unlike those of training"
        show_line(console, f"note: {unfamiliar} of {rows} {are}; {remedy}")
    if config.output != "-":
        show_line(console, f"texts labelled: {rows}, in {config.output}")
    elif rows == 0:
        show_line(console, "0 texts")


def _least_confidence(config: PredictConfig, run: Run) -> float | None:
    """Return the probability below which a text gets no label; None if all get one."""
    if config.min_confidence is None and config.target_accuracy is None:
        return None
    key = "min_confidence" if config.target_accuracy is None else "target_accuracy"
    if run.config.data.multi_label:
        raise ConfigError(f"{key}: expected a run with one label a text; {run.folder} has several")
    if config.target_accuracy is None:
        return config.min_confidence
    if run.chosen.curve is None:
        raise RunError(f"run={run.folder}: did not finish; give min_confidence=...")
    return chosen_confidence(run.chosen.curve, config.target_accuracy)


def added_columns(labels: list[str]) -> list[str]:
    """Return the names of the columns that every row is given."""
    return ["prediction", *(f"probability_{label}" for label in labels)]


def labelled(
    rows: list[Row],
    shares: Tensor,
    labels: list[str],
    objective: Objective = ONE_CLASS,
    join: Callable[[list[str]], str] | None = None,
    more: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Row]:
    """Yield the rows with prediction, probabilities, rounded to 6 digits, and more columns."""
    names = added_columns(labels)
    more = more or {}
    taken = [*names, *more]
    rounded = shares.double().numpy().round(6).tolist()
    predictions = objective.names(objective.predicted(shares), labels)
    triples = zip(rows, predictions, rounded, strict=True)
    for number, (row, prediction, values) in enumerate(triples):
        if join is not None and isinstance(prediction, list):
            prediction = join(prediction)
        others = {name: column[number] for name, column in more.items()}
        if others.get(ABSTAINED):
            prediction = ""
        answer = dict(zip(names, [prediction, *values], strict=True))
        yield _renamed(row, taken) | answer | others


def _renamed(row: Row, taken: Sequence[str]) -> Row:
    """Return the row with another name, input_..., for each column whose name is taken."""

    def free(name: str) -> str:
        while name in taken or name in row:
            name = f"input_{name}"
        return name

    return {free(name) if name in taken else name: value for name, value in row.items()}


@contextmanager
def row_writer(path: str, columns: Sequence[str]) -> Iterator[RowWriter]:
    """Give a function that writes rows to a csv or jsonl file, or as jsonl to standard output, `-`.

    The file appears, whole, when the block ends without an error. The columns are those of a csv
    file without rows.
    """
    if path == "-":
        if sys.stdout is None:
            raise DataError("standard output is closed; name a file: output=...")
        sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)  # type: ignore[union-attr]
        yield lambda row: sys.stdout.write(_json(row) + "\n")
        return
    with (
        replacing(Path(path)) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        if path.endswith(".csv"):
            writer = _CsvWriter(file)
            yield writer.write
            if not writer.columns:
                writer.write_header(columns)
        else:
            yield lambda row: file.write(_json(row) + "\n")


class _CsvWriter:
    """Writes rows to a csv file; the first one fixes its columns."""

    def __init__(self, file: TextIO) -> None:
        self.writer = csv.writer(file)
        self.columns: list[str] = []

    def write_header(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.writer.writerow(map(csv_cell, columns))

    def write(self, row: Mapping[str, Any]) -> None:
        if not self.columns:
            self.write_header(list(row))
        if unknown := row.keys() - {*self.columns}:
            names = listed(sorted(unknown))
            raise DataError(
                f"output: expected the same columns in every row, got {names} later; "
                "write a .jsonl file"
            )
        self.writer.writerow(_cell(row.get(column, "")) for column in self.columns)


def _json(value: Any) -> str:
    """Return a line of JSON as the standard has it: null where Python has NaN or an infinity."""
    text = to_json(value, inf_nan_mode="null").decode()
    return UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _cell(value: Any) -> Any:
    return csv_cell(_json(value) if isinstance(value, dict | list) else value)
