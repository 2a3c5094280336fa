"""predict(config): labels and probabilities for the texts of a file of any size, in the file's order.

The file is taken in windows of a few thousand rows. A window's texts are sorted by length among themselves, which
saves most of the padding, and while the network reads one window, another thread cuts the next one into tokens.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from headscope.config import PredictConfig
from headscope.data.batching import EncodedTexts, encode_texts
from headscope.errors import DataError, separator_hint
from headscope.files import replacing
from headscope.model.objective import ONE_CLASS, Objective
from headscope.training.folder import TOKENS_PER_BATCH, best_device, load_run
from headscope.training.predict import probabilities

ROWS_AT_ONCE = 4096  # with batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more
CHARACTERS_AT_ONCE = 16_000_000  # a window of long texts has fewer rows, so that its memory is bounded too
Texts = list[tuple[str, ...]]  # of each row, one text or a pair
Row = dict[str, Any]
RowWriter = Callable[[Mapping[str, Any]], None]  # writes one row; the first fixes a csv file's columns
BEYOND = "\0"  # key of the cells that a row has beyond the columns
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character
ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the columns prediction and one probability for each class; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are joined as in the data.

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
    console = Console(stderr=True)
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    is_typed = config.input == "-" and sys.stdin.isatty()
    if is_typed:  # it would seem to hang
        form = {"csv": "csv", "tsv": "tsv", "jsonl": "one JSON object a line"}.get(config.format, "one text a line")
        say(f"reads standard input, {form}, ended by Ctrl-D (for a file: input=...)")
    look = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    done = 0
    with (
        ThreadPoolExecutor(max_workers=1) as pool,
        row_writer(config.output) as write,
        Progress(*look, console=console, disable=is_typed or not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)
        windows = _windows(read_rows(config.input, config.format, columns[0]), columns, config.input)
        for window, texts in _ahead(windows, lambda texts: encode_texts(run.tokenizer, texts, run.evidence), pool):
            shares = probabilities(run.model, texts, positions, device, precision, run.objective, run.temperature)
            for row in labelled(window, shares, run.labels, run.objective, join):
                write(row)
            done += len(window)
            progress.update(task, completed=done)
    if config.output != "-":
        say(f"{done} texts labelled: {config.output}")
    elif done == 0:
        say("0 texts")
    return done


def _windows(rows: Iterator[Row], columns: list[str], source: str) -> Iterator[tuple[list[Row], Texts]]:
    """Yield the rows, some thousands at once, each with its text or pair of texts."""
    window: list[Row] = []
    texts: Texts = []
    characters = 0
    for number, row in enumerate(rows, start=1):
        missing = [column for column in columns if not isinstance(row.get(column), str)]
        if missing:
            raise DataError(
                f"{source}, row {number}: no text in column {missing[0]!r}; it has {', '.join(map(str, row))} "
                "(name the column with text_column=...)"
            )
        window.append(row)
        texts.append(tuple(row[column] for column in columns))
        characters += sum(map(len, texts[-1]))
        if len(window) == ROWS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield window, texts
            window, texts, characters = [], [], 0
    if window:
        yield window, texts


def _ahead(
    windows: Iterator[tuple[list[Row], Texts]], encode: Callable[[Texts], EncodedTexts], pool: ThreadPoolExecutor
) -> Iterator[tuple[list[Row], EncodedTexts]]:
    """Yield each window with its token ids, made by the pool while whoever asks is busy with the window before.

    Only cutting into tokens is left to the other thread, which the tokenizer does without Python's lock. Rows are read
    in this one: a thread that waits for standard input could not be stopped by Ctrl-C.
    """
    before: tuple[list[Row], Future[EncodedTexts]] | None = None
    for window, texts in windows:
        coming = window, pool.submit(encode, texts)
        if before is not None:
            yield before[0], before[1].result()
        before = coming
    if before is not None:
        yield before[0], before[1].result()


def labelled(
    rows: list[Row],
    shares: Tensor,
    labels: list[str],
    objective: Objective = ONE_CLASS,
    join: Callable[[list[str]], str] | None = None,
) -> Iterator[Row]:
    """Yield the rows with what each is given and every class's probability, rounded to 6 digits."""
    names = [f"probability_{label}" for label in labels]
    rounded = shares.double().numpy().round(6).tolist()
    answers = objective.names(objective.given(shares), labels)
    for row, answer, values in zip(rows, answers, rounded, strict=True):
        if join is not None and isinstance(answer, list):
            answer = join(answer)
        yield {**row, "prediction": answer, **dict(zip(names, values, strict=True))}


def read_rows(path: str, form: str, text_column: str) -> Iterator[Row]:
    """Yield the rows of a file or, for `-`, of standard input.

    Args:
        path: a file, or `-`.
        form: lines (each is a text), csv, tsv, jsonl, or auto: by the file's ending, else lines.
        text_column: the name under which a line is handed on.

    Raises:
        DataError: for what is not UTF-8 or not of that form; it names the file and the line.
    """
    form = ENDINGS.get(Path(path).suffix.lower(), "lines") if form == "auto" else form
    shown = "standard input" if path == "-" else path
    # utf-8-sig: a byte order mark, as spreadsheets write it, is not part of the first column's name.
    if path == "-":
        sys.stdin.reconfigure(encoding="utf-8-sig", newline="")  # type: ignore[union-attr]
    with nullcontext(sys.stdin) if path == "-" else Path(path).open(encoding="utf-8-sig", newline="") as file:
        try:
            if form == "lines":
                yield from ({text_column: line.rstrip("\r\n")} for line in file)
            else:
                yield from _json_rows(file, shown) if form == "jsonl" else _table_rows(file, form, shown)
        except UnicodeDecodeError as error:
            raise DataError(f"{shown}: is not UTF-8 ({error.reason}); convert it, e.g. with iconv") from error


def _table_rows(file: Iterable[str], form: str, shown: str) -> Iterator[Row]:
    """Yield the rows of a csv or tsv file, without the empty cells at the end that spreadsheets leave.

    A row with more cells than columns is refused: a text with a comma and no quotes would be cut at it.
    """
    mark, delimiter = ("tab", "\t") if form == "tsv" else ("comma", ",")
    csv.field_size_limit(2**31 - 1)  # a text may be longer than the 131,072 characters that csv allows by default
    reader = csv.DictReader(file, delimiter=delimiter, restkey=BEYOND, strict=True)
    try:
        for row in reader:
            beyond = row.pop(BEYOND, [])
            if any(beyond):
                names = list(reader.fieldnames or [])
                raise DataError(
                    f"{shown}, line {reader.line_num}: has {len(names) + len(beyond)} cells, the first line has "
                    f"{len(names)}; put quotes around a text with a {mark} in it{separator_hint(','.join(names))}"
                )
            yield row
    except csv.Error as error:
        raise DataError(f"{shown}, line {reader.line_num}: is not {form}: {error}") from error


def _json_rows(file: Iterable[str], shown: str) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{shown}, line {number}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f'{shown}, line {number}: takes an object such as {{"text": "..."}}, got {line[:60]!r}')
        broken = [name for name, value in row.items() if isinstance(value, str) and SURROGATE.search(value)]
        if broken:  # of all forms JSON's escapes alone can write it
            raise DataError(
                f"{shown}, row {number}: column {broken[0]!r} holds half a character (a surrogate such as "
                "\\ud83d alone), which no encoding has; mend or drop the row"
            )
        yield row


@contextmanager
def row_writer(path: str) -> Iterator[RowWriter]:
    """Give a function that writes rows to a csv or jsonl file, or to standard output as jsonl for `-`.

    The file appears, whole, when the block is left without an error.
    """
    encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder anew for every row
    file: TextIO = sys.stdout
    writer: csv.DictWriter[str] | None = None

    def write_json(row: Mapping[str, Any]) -> None:
        file.write(encode(row) + "\n")

    def write_csv(row: Mapping[str, Any]) -> None:
        nonlocal writer
        if writer is None:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
        try:
            writer.writerow(row)
        except ValueError as error:
            raise DataError(f"a csv file has the same columns in every row: {error}; write a .jsonl file") from error

    if path == "-":
        yield write_json
        return
    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as opened:
        file = opened
        yield write_csv if path.endswith(".csv") else write_json
