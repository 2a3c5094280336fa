"""predict(config): labels and probabilities for the texts of a file of any size, in the file's order.

Rows are taken in windows of a few thousand. A window's texts are sorted by length among themselves, which saves most
of the padding, and while the network reads one window, another thread cuts the next one into tokens. What comes slowly,
down a pipe or from a keyboard, is answered as it comes.

What is written as jsonl is what was read. A csv file is opened by spreadsheets, which compute what begins like a
formula: there a ' is put in front of it, as OWASP advises (CSV Injection), but not in front of a number such as -1.5;
and control characters become U+FFFD. Whoever needs each text letter by letter writes jsonl.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from headscope.data.batching import EncodedTexts, encode_texts
from headscope.data.rows import Row, is_blank, read_rows
from headscope.errors import DataError, RunError, listed, separator_hint
from headscope.files import replacing
from headscope.model.objective import ONE_CLASS, Objective
from headscope.options import PredictConfig
from headscope.run import TOKENS_PER_BATCH, best_device, load_run, probabilities
from headscope.terminal import printable, terminal

ROWS_AT_ONCE = 4096  # with batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more
CHARACTERS_AT_ONCE = (
    16_000_000  # a window of long texts has fewer rows, so that its memory is bounded too
)
Texts = list[tuple[str, ...]]  # of each row, one text or a pair
RowWriter = Callable[
    [Mapping[str, Any]], object
]  # writes one row; the first fixes a csv file's columns

FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)  # full-width too, which Japanese Excel takes
NUMBER = re.compile(
    r"[-+][\d\s.,:%/()+-]*([eE][-+]?\d+)?"
)  # also -5 %, +1 (555) 123: no letter, nothing to call
# Python's JSON leaves these as they are: DEL and C1, which a terminal obeys, and two that some take for line ends.
UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")
ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False
).encode  # json.dumps would make one anew for every row


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the columns prediction and one probability for each class; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are joined as in the data.
    Columns of the input that have these names already are kept as input_prediction and so on.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left then.
    """
    run = load_run(Path(config.run))
    data, device = run.config.data, best_device(config.accelerator)
    positions = config.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, 65536)
    precision = torch.bfloat16 if config.precision == "bf16-mixed" else torch.float32
    pair = (config.text_pair_column or data.text_pair_column) if data.text_pair_column else None
    columns = [config.text_column or data.text_column, *([pair] if pair else [])]
    join = data.label_separator.join if Path(config.output).suffix == ".csv" else None
    console = terminal(Console(stderr=True))
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    is_typed = config.input == "-" and sys.stdin is not None and sys.stdin.isatty()
    if is_typed:  # it would seem to hang
        form = {"csv": "csv", "tsv": "tsv", "jsonl": "one JSON object a line"}.get(
            config.format, "one text a line"
        )
        say(f"reads standard input, {form}, ended by Ctrl-D (for a file: input=...)")
    look = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    done, blank = 0, []  # how many rows, and which have an empty text
    with (
        ThreadPoolExecutor(max_workers=1) as pool,
        row_writer(config.output, [*columns, *added_columns(run.labels)]) as write,
        Progress(*look, console=console, disable=is_typed or not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)

        def answer(window: list[Row], texts: EncodedTexts) -> None:
            shares = probabilities(
                run.model, texts, positions, device, precision, run.objective, run.temperature
            )
            if not shares.isfinite().all():
                raise RunError(
                    f"run={run.folder}: its probabilities are no numbers; its weights are damaged"
                )
            for row in labelled(window, shares, run.labels, run.objective, join):
                write(row)
            progress.advance(task, len(window))

        windows = Windows(
            lambda texts: encode_texts(run.tokenizer, texts, run.evidence), answer, pool
        )
        given = config.input, config.format, columns[0], config.encoding, config.separator
        for row in read_rows(*given, keys="", before_waiting=windows.finish):
            texts = _texts(row, columns, f"{config.input}, row {done}")
            if any(map(is_blank, texts)):
                blank.append(f"row {done}")
            windows.add(row, texts)
            done += 1
        windows.finish()
    if blank:
        say(
            f"note: {len(blank)} of {done} texts are empty, and get what the model says of none: {listed(blank)}"
        )
    if config.output != "-":
        say(f"{done} texts labelled: {config.output}")
    elif done == 0:
        say("0 texts")
    return done


def _texts(row: Row, columns: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the row's text or pair of texts."""
    missing = [column for column in columns if not isinstance(row.get(column), str)]
    if missing:
        raise DataError(
            f"{where}: no text in column {missing[0]!r}; it has {listed(list(row))} "
            f"(name the column with text_column=...){separator_hint(list(row), keys='')}"
        )
    return tuple(row[column] for column in columns)


class Windows:
    """Rows that wait to be answered, in windows: one is cut into tokens while the one before it is answered.

    Only cutting into tokens is left to the other thread, which the tokenizer does without Python's lock. Rows are read
    in this one: a thread that waits for standard input could not be stopped by Ctrl-C.
    """

    def __init__(
        self,
        encode: Callable[[Texts], EncodedTexts],
        answer: Callable[[list[Row], EncodedTexts], None],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.encode, self.answer, self.pool = encode, answer, pool
        self.rows: list[Row] = []  # of the window that is being filled
        self.texts: Texts = []
        self.characters = 0
        self.before: tuple[list[Row], Future[EncodedTexts]] | None = None

    def add(self, row: Row, texts: tuple[str, ...]) -> None:
        """Take a row; where it fills a window, answer the window before."""
        self.rows.append(row)
        self.texts.append(texts)
        self.characters += sum(map(len, texts))
        if len(self.rows) == ROWS_AT_ONCE or self.characters >= CHARACTERS_AT_ONCE:
            self._close()

    def finish(self) -> None:
        """Answer all rows that were taken."""
        if self.rows:
            self._close()
        self._answer_before()

    def _close(self) -> None:
        coming = self.rows, self.pool.submit(self.encode, self.texts)
        self.rows, self.texts, self.characters = [], [], 0
        self._answer_before()
        self.before = coming

    def _answer_before(self) -> None:
        if self.before is not None:
            rows, coming = self.before
            self.before = None
            self.answer(rows, coming.result())


def added_columns(labels: list[str]) -> list[str]:
    """Return the names of the columns that every row is given."""
    return ["prediction", *(f"probability_{label}" for label in labels)]


def labelled(
    rows: list[Row],
    shares: Tensor,
    labels: list[str],
    objective: Objective = ONE_CLASS,
    join: Callable[[list[str]], str] | None = None,
) -> Iterator[Row]:
    """Yield the rows with what each is given and every class's probability, rounded to 6 digits."""
    names = added_columns(labels)
    taken = set(names)
    rounded = shares.double().numpy().round(6).tolist()
    answers = objective.names(objective.predicted(shares), labels)
    for row, answer, values in zip(rows, answers, rounded, strict=True):
        if join is not None and isinstance(answer, list):
            answer = join(answer)
        yield {**_renamed(row, taken), **dict(zip(names, [answer, *values], strict=True))}


def _renamed(row: Row, taken: set[str]) -> Row:
    """Return the row with another name, input_..., for each column whose name is taken."""
    if taken.isdisjoint(row):
        return row

    def free(name: str) -> str:
        while name in taken or name in row:
            name = f"input_{name}"
        return name

    return {free(name) if name in taken else name: value for name, value in row.items()}


@contextmanager
def row_writer(path: str, columns: Sequence[str]) -> Iterator[RowWriter]:
    """Give a function that writes rows to a csv or jsonl file, or at once to standard output as jsonl for `-`.

    The file appears, whole, when the block is left without an error. The columns are those of a csv file without rows.
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
        if not path.endswith(".csv"):
            yield lambda row: file.write(_json(row) + "\n")
            return
        writer: csv.DictWriter[str] | None = None

        def write_csv(row: Mapping[str, Any]) -> None:
            nonlocal writer
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writerow({name: _cell(name) for name in row})
            try:
                writer.writerow({name: _cell(value) for name, value in row.items()})
            except ValueError as error:
                message = (
                    f"a csv file has the same columns in every row: {error}; write a .jsonl file"
                )
                raise DataError(message) from error

        yield write_csv
        if writer is None:
            csv.writer(file).writerow(map(_cell, columns))


def _json(value: Any) -> str:
    """Return a line of JSON as the standard has it: null where Python has NaN or an infinity."""
    try:
        try:
            text = ENCODE(value)
        except ValueError:
            text = ENCODE(_with_null(value))
    except RecursionError as error:
        raise DataError("a row is nested too deeply to be written") from error
    return (
        text if text.isprintable() else UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    )


def _with_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_null(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(_with_null, value))
    return None if isinstance(value, float) and value - value != 0 else value


def _cell(value: Any) -> Any:
    """Return what a csv file holds: no formula, and no control character but for tabs and line ends."""
    if isinstance(value, dict | list):
        value = _json(value)
    if not isinstance(value, str):
        return value
    text = value if value.isprintable() else "\r".join(map(printable, value.split("\r")))
    return (
        f"'{text}"
        if text.lstrip().startswith(FORMULA) and not NUMBER.fullmatch(text.strip())
        else text
    )
