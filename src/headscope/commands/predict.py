"""predict(config): labels and probabilities for the texts of a file of any size, in the file's order.

The file is taken in windows of a few thousand rows. A window's texts are sorted by length among themselves, which
saves most of the padding, and while the network reads one window, another thread cuts the next one into tokens.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from headscope.config import PredictConfig
from headscope.data.batching import EncodedTexts, TextBatches, encode_texts
from headscope.errors import DataError, separator_hint
from headscope.files import replacing
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Objective
from headscope.training.folder import TOKENS_PER_BATCH, Run, best_device, load_run
from headscope.training.predict import split_logits

ROWS_AT_ONCE = 4096  # with batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more
CHARACTERS_AT_ONCE = 16_000_000  # a window of long texts has fewer rows, so that its memory is bounded too
Texts = list[tuple[str, ...]]  # of each row, one text or a pair
Row = dict[str, Any]
RowWriter = Callable[[Mapping[str, Any]], None]  # writes one row; the first fixes a csv file's columns
BEYOND = "\0"  # key of the cells that a row has beyond the columns
ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the columns prediction and one probability for each class; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are joined as in the data.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left then.
    """
    run = load_run(Path(config.run))
    device = best_device(config.accelerator)
    positions = config.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, 65536)
    precision = torch.bfloat16 if config.precision == "bf16-mixed" else torch.float32
    columns = _columns(config, run)
    join = run.config.data.label_separator.join if Path(config.output).suffix == ".csv" else None

    def label(texts: EncodedTexts) -> Tensor:
        return probabilities(run.model, texts, positions, device, precision, run.objective, run.temperature)

    rows = read_rows(config.input, config.format, columns[0])
    done = 0
    console = Console(stderr=True)
    is_typed = config.input == "-" and sys.stdin.isatty()
    if is_typed:
        form = {"csv": "csv", "tsv": "tsv", "jsonl": "one JSON object a line"}.get(config.format, "one text a line")
        note = f"reads standard input, {form}, ended by Ctrl-D (for a file: input=...)"  # it would seem to hang
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    look = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    with (
        ThreadPoolExecutor(max_workers=1) as pool,
        row_writer(config.output) as write,
        Progress(*look, console=console, disable=is_typed or not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)
        windows = _windows(rows, columns, config.input)
        for window, texts in _ahead(windows, lambda texts: encode_texts(run.tokenizer, texts, run.evidence), pool):
            for row in labelled(window, label(texts), run.labels, run.objective, join):
                write(row)
            done += len(window)
            progress.update(task, completed=done)
    if config.output != "-":
        console.print(f"{done} texts labelled: {config.output}", highlight=False, markup=False, soft_wrap=True)
    elif done == 0:
        console.print("0 texts", highlight=False)
    return done


def _columns(config: PredictConfig, run: Run) -> list[str]:
    data = run.config.data
    pair = config.text_pair_column or data.text_pair_column
    return [config.text_column or data.text_column, *([pair] if data.text_pair_column and pair else [])]


def _texts(row: Row, columns: list[str], source: str, number: int) -> tuple[str, ...]:
    missing = [column for column in columns if not isinstance(row.get(column), str)]
    if missing:
        raise DataError(
            f"{source}, row {number}: no text in column {missing[0]!r}; it has {', '.join(map(str, row))} "
            "(name the column with text_column=...)"
        )
    return tuple(row[column] for column in columns)


def _windows(rows: Iterator[Row], columns: list[str], source: str) -> Iterator[tuple[list[Row], Texts]]:
    """Yield the rows, some thousands at once, each with its text or pair of texts."""
    window: list[Row] = []
    texts: Texts = []
    characters = 0
    for number, row in enumerate(rows, start=1):
        window.append(row)
        texts.append(_texts(row, columns, source, number))
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


def probabilities(
    model: TextClassifier,
    texts: EncodedTexts,
    tokens_per_batch: int,
    device: torch.device,
    precision: torch.dtype = torch.float32,
    objective: Objective = ONE_CLASS,
    temperature: float = 1.0,
) -> Tensor:
    """Return [N, C] probabilities in the order of the texts, computed in batches of like length.

    Logits are divided by the temperature, in float64, so that a text keeps its label.
    """
    batches = TextBatches(texts)
    ordered = (batches[rows] for rows in by_length(texts.lengths, tokens_per_batch))
    logits, _ = split_logits(model, ordered, device, precision)
    return objective.probabilities(logits.double() / temperature)


def by_length(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield lists of rows, the longest texts first, that padded to their longest fill at most tokens_per_batch.

    Training's batches mix texts whose lengths differ by up to 8, so that they differ from epoch to epoch; here nothing
    is drawn, and the padding that this would cost is saved. A text longer than the budget is a batch of its own.
    """
    order: list[int] = np.argsort(-lengths, kind="stable").tolist()
    start = 0
    while start < len(order):
        count = max(1, tokens_per_batch // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count


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
    with _opened(path) as file:
        try:
            yield from _parsed(file, form, text_column, shown)
        except UnicodeDecodeError as error:
            raise DataError(f"{shown}: is not UTF-8 ({error.reason}); convert it, e.g. with iconv") from error


@contextmanager
def _opened(path: str) -> Iterator[Iterable[str]]:
    if path == "-":
        sys.stdin.reconfigure(encoding="utf-8-sig", newline="")  # type: ignore[union-attr]
        yield sys.stdin
    else:
        # utf-8-sig: a byte order mark, as spreadsheets write it, is not part of the first column's name.
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            yield file


def _parsed(file: Iterable[str], form: str, text_column: str, shown: str) -> Iterator[Row]:
    if form == "lines":
        yield from ({text_column: line.rstrip("\r\n")} for line in file)
    elif form == "jsonl":
        yield from _json_rows(file, shown)
    else:
        csv.field_size_limit(2**31 - 1)  # a text may be longer than the 131,072 characters that csv allows by default
        reader = csv.DictReader(file, delimiter="\t" if form == "tsv" else ",", restkey=BEYOND, strict=True)
        try:
            for row in reader:
                _check_cells(row, reader, "tab" if form == "tsv" else "comma", shown)
                yield row
        except csv.Error as error:
            raise DataError(f"{shown}, line {reader.line_num}: is not {form}: {error}") from error


def _check_cells(row: Row, reader: "csv.DictReader[str]", mark: str, shown: str) -> None:
    """Refuse a row with more cells than columns: a text with a comma and no quotes would be cut at it.

    Empty cells at the end, as spreadsheets leave them, are dropped.
    """
    beyond = row.pop(BEYOND, [])
    if any(beyond):
        names = list(reader.fieldnames or [])
        raise DataError(
            f"{shown}, line {reader.line_num}: has {len(names) + len(beyond)} cells, the first line has {len(names)}; "
            f"put quotes around a text with a {mark} in it{separator_hint(','.join(names))}"
        )


def _json_rows(file: Iterable[str], shown: str) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{shown}, line {number}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f'{shown}, line {number}: takes an object such as {{"text": "..."}}, got {line[:60]!r}')
        broken = [name for name, value in row.items() if isinstance(value, str) and not _is_whole(value)]
        if broken:  # of all forms JSON's escapes alone can write it
            raise DataError(
                f"{shown}, row {number}: column {broken[0]!r} holds half a character (a surrogate such as "
                "\\ud83d alone), which no encoding has; mend or drop the row"
            )
        yield row


def _is_whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def row_writer(path: str) -> Iterator[RowWriter]:
    """Give a function that writes rows to a csv or jsonl file, or to standard output as jsonl for `-`.

    The file appears, whole, when the block is left without an error.
    """
    if path == "-":
        yield _jsonl(sys.stdout)
        return
    target = Path(path)
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield _csv(file) if target.suffix == ".csv" else _jsonl(file)


def _jsonl(file: TextIO) -> RowWriter:
    encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder anew for every row

    def write(row: Mapping[str, Any]) -> None:
        file.write(encode(row) + "\n")

    return write


def _csv(file: TextIO) -> RowWriter:
    writers: list[csv.DictWriter[str]] = []

    def write(row: Mapping[str, Any]) -> None:
        if not writers:
            writers.append(csv.DictWriter(file, list(row)))
            writers[0].writeheader()
        try:
            writers[0].writerow(row)
        except ValueError as error:
            raise DataError(f"a csv file has the same columns in every row: {error}; write a .jsonl file") from error

    return write
