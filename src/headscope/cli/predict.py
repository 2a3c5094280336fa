"""predict(config): labels and probabilities for the texts of a file of any size, in its order.

Rows are taken in windows of a few thousand. A window's texts are sorted by length among themselves,
which saves most of the padding, and while the network reads one window, another thread tokenizes
the next. What comes slowly, down a pipe or from a keyboard, is answered as it comes.

jsonl holds what was read. A csv file is opened by spreadsheets, which compute what begins like a
formula: there a ' is put in front of it, as OWASP advises (CSV Injection), but not in front of a
number such as -1.5; and control characters become U+FFFD.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from pydantic_core import to_json
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from headscope.abstaining import chosen_confidence, reasons_to_abstain
from headscope.command_settings import PredictConfig
from headscope.data.batching import EncodedTexts, encode_texts
from headscope.data.rows import Row, is_blank, read_rows
from headscope.errors import (
    ConfigError,
    DataError,
    RunError,
    listed,
    separator_hint,
)
from headscope.files import replacing
from headscope.model.objective import ONE_CLASS, Objective
from headscope.prediction import best_device, probabilities
from headscope.run import TOKENS_PER_BATCH, Run, load_run
from headscope.terminal import csv_cell, show_line, terminal

# With batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more.
ROWS_AT_ONCE = 4096
REASONS = "reasons"  # columns
ABSTAINED = "abstained"
WORDS_OF_REASON = 5
CHARACTERS_AT_ONCE = 16_000_000  # a window of long texts has fewer rows: its memory is bounded too
Texts = list[tuple[str, ...]]  # of each row, one text or a pair
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
    data = run.config.data
    device = best_device(config.accelerator)
    tokens_per_batch = config.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, 65536)
    precision = torch.bfloat16 if config.precision == "bf16-mixed" else torch.float32
    columns = [config.text_column or data.text_column]
    if data.text_pair_column:
        columns.append(config.text_pair_column or data.text_pair_column)
    join = data.label_separator.join if config.output.endswith(".csv") else None
    console = terminal(Console(stderr=True))

    def say(text: str) -> None:
        show_line(console, text)

    is_typed = config.input == "-" and sys.stdin is not None and sys.stdin.isatty()
    if is_typed:  # it would seem to hang
        say("reading standard input until Ctrl-D; for a file: input=...")
    bar = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    num_rows = 0
    num_blank = 0
    num_unfamiliar = 0
    num_abstained = 0
    added = [*added_columns(run.labels), *[ABSTAINED] * (least is not None)]
    added += [REASONS] * config.reasons
    with (
        ThreadPoolExecutor(max_workers=1) as pool,
        row_writer(config.output, [*columns, *added]) as write,
        Progress(*bar, console=console, disable=is_typed or not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)

        def encode(texts: Texts) -> EncodedTexts:
            return encode_texts(run.tokenizer, texts, run.evidence)

        def answer(rows: list[Row], texts: EncodedTexts) -> None:
            nonlocal num_unfamiliar, num_abstained
            shares = probabilities(
                run.model,
                texts,
                tokens_per_batch,
                device,
                precision,
                run.objective,
                run.temperature,
            )
            if not shares.isfinite().all():
                raise RunError(f"run={run.folder}: its weights are damaged: probabilities are NaN")
            is_unfamiliar = run.is_unfamiliar(texts)
            num_unfamiliar += int(is_unfamiliar.sum())
            more: dict[str, Sequence[str]] = {}
            if least is not None:
                confidence = shares.max(dim=-1).values.numpy()
                more[ABSTAINED] = reasons_to_abstain(confidence, is_unfamiliar, least)
                num_abstained += sum(map(bool, more[ABSTAINED]))
            if config.reasons:
                pairs = zip(rows, shares, strict=True)
                more[REASONS] = [_reason(run, row, columns, each) for row, each in pairs]
            for row in labelled(rows, shares, run.labels, run.objective, join, more):
                write(row)
            progress.advance(task, len(rows))

        windows = Windows(encode, answer, pool)
        source = (config.input, config.format, columns[0], config.encoding, config.separator)
        for row in read_rows(*source, keys="", before_waiting=windows.finish):
            texts = _texts(row, columns, f"{config.input}, row {num_rows}")
            windows.add(row, texts)
            num_rows += 1
            num_blank += any(map(is_blank, texts))
        windows.finish()
    if num_blank:
        say(f"note: {num_blank} of {num_rows} texts are empty; they get the prediction for no text")
    if least is not None:
        say(
            f"abstained on {num_abstained} of {num_rows} texts, {num_unfamiliar} of them unfamiliar"
        )
    elif num_unfamiliar:
        say(
            f"note: {num_unfamiliar} of {num_rows} texts are unlike those of training; "
            "min_confidence=... or target_accuracy=... leaves them without a label"
        )
    if config.output != "-":
        say(f"texts labelled: {num_rows}, in {config.output}")
    elif num_rows == 0:
        say("0 texts")
    return num_rows


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


def _reason(run: Run, row: Row, columns: Sequence[str], shares: Tensor) -> str:
    """Return the words that add most to the likeliest class of a row, such as `good +1.2`."""
    texts = tuple(row[column] for column in columns)
    text = texts[0] if len(texts) == 1 else texts
    likeliest = run.labels[int(shares.argmax())]
    return run.explain(text, likeliest).word_line(WORDS_OF_REASON)


def _texts(row: Row, columns: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the row's text or pair of texts."""
    for column in columns:
        if not isinstance(row.get(column), str):
            raise DataError(
                f"{where}: no text in column {column!r}; it has {listed(list(row))} "
                f"(name the column with text_column=...){separator_hint(list(row), keys='')}"
            )
    return tuple(row[column] for column in columns)


class Windows:
    """Windows of rows: one is tokenized while the one before it is answered.

    Only tokenizing is left to the other thread, which it does without Python's lock. Rows are read
    in this one: a thread that waits for standard input could not be stopped by Ctrl-C.
    """

    def __init__(
        self,
        encode: Callable[[Texts], EncodedTexts],
        answer: Callable[[list[Row], EncodedTexts], None],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.encode = encode
        self.answer = answer
        self.pool = pool
        self.rows: list[Row] = []  # of the window that is being filled
        self.texts: Texts = []
        self.num_characters = 0
        self.encoding: tuple[list[Row], Future[EncodedTexts]] | None = None

    def add(self, row: Row, texts: tuple[str, ...]) -> None:
        """Take a row; where it fills a window, answer the window before."""
        self.rows.append(row)
        self.texts.append(texts)
        self.num_characters += sum(map(len, texts))
        if len(self.rows) == ROWS_AT_ONCE or self.num_characters >= CHARACTERS_AT_ONCE:
            self._advance()

    def finish(self) -> None:
        """Answer all rows that were taken."""
        self._advance()
        self._advance()

    def _advance(self) -> None:
        """Begin to tokenize the rows that were taken, and answer those before them."""
        before = self.encoding
        self.encoding = None
        if self.rows:
            self.encoding = (self.rows, self.pool.submit(self.encode, self.texts))
        self.rows = []
        self.texts = []
        self.num_characters = 0
        if before is not None:
            rows, texts = before
            self.answer(rows, texts.result())


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
