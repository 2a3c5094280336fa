"""Any source of texts as a DatasetDict: the default data, a Hub id, a folder, files, or your own function.

Rows of csv, tsv, jsonl, json and txt files are read by Python's own modules, for training and for predict alike.
`datasets` would read them by pandas, which takes the first cell of a row with too many cells as its index, so that
`good, film,1` becomes the text " film"; and by pyarrow, which takes a label such as "2024-01-02" as a time.
"""

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
import select
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict

from headscope.config import EMBEDDED, DataConfig, expanded, is_local
from headscope.data.columns import text_columns, texts_among, tuples
from headscope.data.licenses import load_licenses
from headscope.data.tokenizer import beginning, max_characters
from headscope.errors import DataError, separator_hint, shown
from headscope.extension import called, is_import_path, resolve
from headscope.files import cache_folder, temporary_path

Row = dict[str, Any]
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "lines",
}
WHOLE = re.compile(r"\s*(0|-?[1-9][0-9]{0,17})\s*")  # 007 is a name
LABELLED = re.compile(r"\s*((?:__label__\S*\s*)*)(.*)", re.DOTALL)
ROWS_PER_BATCH = 100  # of an Arrow file; a batch holds at most 2 GiB of text
PATIENCE = 0.01  # seconds that a pipe may take to fill again before it counts as slow


def load_source(config: DataConfig) -> DatasetDict:
    """Return the source's own splits and columns, unchecked.

    `data.path` is `licenses` (the default data), a Hub id, a folder in Hub layout (data files, perhaps a card), a
    folder with one folder of .txt files for each class (below train/ and test/ or not), a csv, tsv, json, jsonl,
    parquet or txt file (lines of `__label__name text`, as fastText reads them), or `my_package:load`, a function that
    is called with `config` and returns rows by split.

    Raises:
        ConfigError: if that function cannot be imported or called.
        DataError: if the source cannot be found or read; the message names the file, the row and the reason.
        OSError: if the cache cannot be written.
    """
    cache = cache_folder(config.cache_dir)
    if config.path == EMBEDDED:
        return DatasetDict({config.train_split: load_licenses(cache)})
    if is_import_path(config.path, ":"):
        return load_own(config)
    path = expanded(config.path)
    try:
        if not is_local(config.path):
            return datasets.load_dataset(config.path, config.name, revision=config.revision)
        if path.is_dir():
            return load_class_folders(path, config) or load_hub_folder(path, config)
        files = {
            config.train_split: config.path,
            config.validation_split or "validation": config.validation_path,
            config.test_split or "test": config.test_path,
        }
        return DatasetDict(
            {split: load_files([expanded(file)], config) for split, file in files.items() if file}
        )
    except DataError:
        raise
    except Exception as error:  # `datasets` and pyarrow raise some twenty classes
        raise DataError(f"data.path={config.path}: {reason(error)}") from error


def load_own(config: DataConfig) -> DatasetDict:
    """Return what your function returns: split -> rows, a `datasets.Dataset` or dictionaries by column."""
    where = f"data.path={config.path}"
    splits = called("data.path", config.path, resolve("data.path", config.path), config)
    if not isinstance(splits, Mapping) or not splits:
        raise DataError(f"{where}: expected a mapping split -> rows, got {type(splits).__name__}")
    loaded = DatasetDict()
    for split, rows in splits.items():
        try:
            loaded[split] = rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows))
        except Exception as error:  # `datasets` and pyarrow raise many classes
            row = f"{{{config.text_column!r}: ..., {config.label_column!r}: ...}}"
            raise DataError(
                f"{where}, split {split}: expected rows such as {row}: {reason(error)}"
            ) from error
    return loaded


def load_class_folders(path: Path, config: DataConfig) -> DatasetDict | None:
    """Load path/split/class/*.txt as splits, or path/class/*.txt as one; None if the folder has another layout."""
    nested = visible(path, "*/*/*.txt")
    tables = FORMATS.keys() - {".txt"}
    has_tables = any(ending_of(file) in tables for file in visible(path, "**/*"))
    if has_tables and not visible(path, "train/*/*.txt"):
        return None
    if not nested and not visible(path, "*/*.txt"):
        return None
    folders = {file.parent.parent.name: file.parent.parent for file in nested}

    def rows(folder: Path) -> Iterator[tuple[str, Row]]:
        for file in visible(folder, "*/*.txt"):
            with open_text(str(file), config.encoding) as opened:
                try:
                    text = re.sub("\r\n?", "\n", opened.read())
                except UnicodeError as error:
                    raise DataError(f"{file}: {encoding_message(error)}") from error
            yield str(file), {config.text_column: text, config.label_column: file.parent.name}

    return DatasetDict(
        {
            split: load_rows(rows(folder), config, str(folder))
            for split, folder in (folders or {config.train_split: path}).items()
        }
    )


def visible(path: Path, pattern: str) -> list[Path]:
    """Return what matches, sorted, without what is hidden or in a hidden folder, such as .ipynb_checkpoints."""
    return sorted(
        file
        for file in path.glob(pattern)
        if not any(part[0] in "._" for part in file.relative_to(path).parts)
    )


def load_hub_folder(path: Path, config: DataConfig) -> DatasetDict:
    """Load a folder in Hub layout: `datasets` finds the files of each split, by their names or by the card."""
    with quiet():
        builder = datasets.load_dataset_builder(str(path), config.name)
    separator = config.separator or getattr(builder.config, "sep", None)
    splits = DatasetDict(
        {
            str(split): load_files([Path(file) for file in files], config, separator)
            for split, files in (builder.config.data_files or {}).items()
        }
    )
    features = builder.info.features or {}
    if config.label_column in features:  # such as a ClassLabel with its names
        with quiet():
            splits = splits.cast_column(config.label_column, features[config.label_column])
    return splits


def load_files(paths: Sequence[Path], config: DataConfig, separator: str | None = None) -> Dataset:
    """Load files of one format, one after the other; `separator` is that of a folder's card."""
    form = format_of(paths[0])
    for path in paths:
        if ending_of(path) not in FORMATS:
            raise DataError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
        check_is_file(path)
        if path.stat().st_size == 0:
            raise DataError(f"{path}: is empty")
    if form == "parquet":
        return datasets.concatenate_datasets([load_parquet(path) for path in paths])

    def rows() -> Iterator[tuple[str, Row]]:
        for path in paths:
            if form == "lines":
                yield from labelled_lines(path, config)
                continue
            read = read_rows(
                str(path), encoding=config.encoding, separator=config.separator or separator
            )
            for number, row in enumerate(read):
                yield f"{path}, row {number}", row

    has_cells = form in ("csv", "tsv") and not config.multi_label
    return load_rows(rows(), config, str(paths[0]), has_cells)


def load_parquet(path: Path) -> Dataset:
    """Load one parquet file; `datasets` keeps it on disk."""
    try:
        with quiet():
            return datasets.load_dataset("parquet", data_files=str(path), split="train")
    except Exception as error:  # of `datasets` and pyarrow
        if "corresponds to no data" in str(error):
            raise DataError(f"{path}: has no rows") from error
        raise DataError(f"{path}: cannot be read as parquet: {reason(error)}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep `datasets` from logging errors that it also raises, and from showing bars for local files."""
    verbosity = datasets.logging.get_verbosity()
    was_disabled = datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)
        if not was_disabled:
            datasets.enable_progress_bars()


def load_rows(
    rows: Iterable[tuple[str, Row]], config: DataConfig, path: str, has_cells: bool = False
) -> Dataset:
    """Return texts and labels of rows, the texts from an Arrow file in the cache that is named by what it holds.

    If a column is missing, the columns are those that there are, without values, for a message to name.

    Args:
        rows: each with its place, for messages.
        config: columns and cache.
        path: of the source, for messages.
        has_cells: whether labels are cells, which are numbers if all of them are.
    """
    columns = text_columns(config)
    names: dict[str, None] = {}
    labels: list[Any] = []

    def texts() -> Iterator[Row]:
        for place, row in rows:
            names.update(dict.fromkeys(row))
            label = row.get(config.label_column)
            labels.append(sys.intern(label) if isinstance(label, str) else label)
            for column in columns:
                if not isinstance(row.get(column), str | None):
                    raise DataError(
                        f"{place}: column '{shown(column)}' holds {shown(row[column])}, not text"
                    )
            yield row

    dataset = write_texts(texts(), columns, config)
    if not labels:
        raise DataError(f"{path}: has no rows")
    if not names.keys() >= {*columns, config.label_column}:
        return Dataset(pa.table({name: pa.nulls(len(labels)) for name in names}))
    cells = {label for label in labels if label} if has_cells else set()
    if cells and all(map(WHOLE.fullmatch, cells)):
        labels = [int(label) if label else None for label in labels]
    try:
        return dataset.add_column(config.label_column, pa.array(labels))
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"{path}: column '{shown(config.label_column)}' holds labels of several kinds: {reason(error)}; "
            "write all of them as strings, or as lists of strings"
        ) from error


def write_texts(rows: Iterator[Row], columns: list[str], config: DataConfig) -> Dataset:
    """Write the texts to the cache, in a file named by what it holds, and read them from there."""
    folder = cache_folder(config.cache_dir) / "rows"
    folder.mkdir(exist_ok=True)
    schema = pa.schema([(column, pa.string()) for column in columns])
    digest = hashlib.blake2b(schema.serialize(), digest_size=16)
    with temporary_path(folder / "rows.arrow") as file:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            while some := list(islice(rows, ROWS_PER_BATCH)):
                batch = pa.RecordBatch.from_pylist(some, schema)
                digest.update(batch.serialize())
                writer.write_batch(batch)
        kept = file.replace(folder / f"{digest.hexdigest()}.arrow")
    return Dataset.from_file(str(kept))


def truncate_texts(dataset: Dataset, config: DataConfig) -> tuple[Dataset, int]:
    """Return the rows with very long texts cut to what is read of them, and how many those are."""
    columns = texts_among(dataset.column_names)
    limit = max_characters(config.max_length)
    num_long = sum(max(map(len, row)) > limit for row in tuples(dataset, columns))
    if not num_long:
        return dataset, 0

    def truncated(batch: dict[str, list[str]]) -> dict[str, list[str]]:
        return {
            column: [beginning(text, config.max_length) for text in batch[column]]
            for column in columns
        }

    with quiet():
        return dataset.map(truncated, batched=True, batch_size=ROWS_PER_BATCH), num_long


def reason(error: BaseException) -> str:
    """Return the messages of an error and of what caused it, the innermost last, each once."""
    reasons: dict[str, None] = {}
    current: BaseException | None = error
    while current is not None:
        message = str(current).strip().split("\n")[0]
        reasons[shown(message, 300) or type(current).__name__] = None
        current = current.__cause__
    return "; ".join(reasons)


# One file of rows, read from its beginning to its end.


def read_rows(
    path: str,
    form: str = "auto",
    text_column: str = "text",
    encoding: str = "utf-8",
    separator: str | None = None,
    keys: str = "data.",
    before_waiting: Callable[[], object] = lambda: None,
) -> Iterator[Row]:
    """Yield each row of a file, which may end in .gz, or of standard input.

    Args:
        path: a file, or "-" for standard input.
        form: lines (each is a text), csv, tsv, jsonl, json (a list of objects, or as jsonl), or auto: by the ending of
            the file's name, else lines.
        text_column: the name under which a line is handed on.
        encoding: text encoding; utf-8 is also UTF-16 with a BOM.
        separator: column delimiter; None: a comma, or a tab in tsv.
        keys: what stands before `encoding` and `separator` on the command line.
        before_waiting: called when all that has come on standard input was handed on, and more may take a while.

    Raises:
        DataError: for what cannot be read; it names the file and the row, counted from 0.
    """
    form = format_of(Path(path)) if form == "auto" else form
    name = "standard input" if path == "-" else path
    number = 0
    try:
        with open_text(path, encoding, before_waiting) as file:
            if form == "lines":
                rows: Iterator[Row] = ({text_column: line.rstrip("\r\n")} for line in file)
            elif form in ("csv", "tsv"):
                rows = csv_rows(file, separator or {"csv": ",", "tsv": "\t"}[form], keys)
            else:
                rows = json_rows(file)
            for row in rows:
                yield row
                number += 1
    except UnicodeDecodeError as error:
        raise DataError(f"{name}, after {number} rows: {encoding_message(error, keys)}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be unpacked: {error}") from error
    except (csv.Error, ValueError, RecursionError) as error:
        raise DataError(f"{name}, row {number}: {error}") from error


def ending_of(path: Path) -> str:
    """Return the ending of a file's name, before .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def format_of(path: Path) -> str:
    """Return the format of a file by its ending: csv, tsv, jsonl, json, parquet, else lines."""
    return FORMATS.get(ending_of(path), "lines")


def check_is_file(path: Path) -> None:
    """Raise a DataError unless this is a regular file: a reader of a pipe could wait for ever."""
    if not path.is_file():
        raise DataError(f"{path}: is not a file" if path.exists() else f"{path}: does not exist")


def encoding_message(error: UnicodeError, keys: str = "data.") -> str:
    """Return what to do about bytes that the encoding does not have."""
    return f"{error}; name the text encoding, such as {keys}encoding=cp1252 or {keys}encoding=shift_jis"


@contextmanager
def open_text(
    path: str, encoding: str, before_waiting: Callable[[], object] = lambda: None
) -> Iterator[io.TextIOWrapper]:
    """Open a file, or standard input for "-", as text whose line ends stay as they are, without its BOM."""
    raw: Any
    if path == "-":
        raw = io.BufferedReader(StandardInput(before_waiting))
    else:
        check_is_file(Path(path))
        raw = gzip.open(path) if path.endswith(".gz") else Path(path).open("rb")
    with raw:
        if codecs.lookup(encoding).name == "utf-8":
            is_wide = raw.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            encoding = "utf-16" if is_wide else "utf-8-sig"
        yield io.TextIOWrapper(raw, encoding, newline="")


class StandardInput(io.RawIOBase):
    """Standard input, which tells when it is about to wait. Whole lines are handed on before more is read."""

    def __init__(self, before_waiting: Callable[[], object]) -> None:
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file: input=...")
        self.before_waiting = before_waiting

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        source: Any = sys.stdin.buffer
        try:
            is_ready = bool(select.select([source], [], [], PATIENCE)[0])
        except OSError:  # Windows can ask sockets alone
            is_ready = False
        if not is_ready:
            self.before_waiting()
        content = source.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def csv_rows(file: Iterable[str], separator: str, keys: str) -> Iterator[Row]:
    """Yield the rows of a csv or tsv file; empty cells beyond its columns, which spreadsheets leave, are dropped.

    Raises:
        ValueError: for a row with more cells than columns: a text with a comma and no quotes would be cut at it.
    """
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the default of 131,072 characters
    delimiter = separator.replace("\\t", "\t")
    reader = csv.DictReader(file, delimiter=delimiter, strict=True, restval="")
    names = [name for name in reader.fieldnames or [] if name]
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name, of {shown(names)}; rename one")
    for row in reader:
        if any(row.pop(None, ())):  # type: ignore[call-overload]
            raise ValueError(
                f"has more cells than the first line, which has {len(names)}; put quotes around a text with a "
                f"{delimiter!r} in it{separator_hint(names, keys)}"
            )
        yield row


def json_rows(file: Iterable[str]) -> Iterator[Row]:
    """Yield the objects of a file, one a line or all in one list."""
    for line in file:
        if not line.strip():
            continue
        text = "".join([line, *file]) if line.lstrip().startswith("[") else line
        content = json.loads(text)
        if "\\u" in text:  # half a surrogate pair is JSON, and cannot be encoded
            json.dumps(content, ensure_ascii=False).encode()
        for row in content if isinstance(content, list) else [content]:
            if not isinstance(row, dict):
                raise ValueError(
                    f'expected an object such as {{"text": "..."}}, got {shown(json.dumps(row))}'
                )
            yield row


def labelled_lines(path: Path, config: DataConfig) -> Iterator[tuple[str, Row]]:
    """Yield place, text and label of each line `__label__name text`; several labels are joined. Blank lines are none."""
    for number, row in enumerate(read_rows(str(path), "lines", encoding=config.encoding), start=1):
        line = row["text"]
        if not line.strip():
            continue
        marks, text = LABELLED.fullmatch(line).groups()  # type: ignore[union-attr]
        labels = [mark.removeprefix("__label__") for mark in marks.split()]
        if len(labels) != 1 and not config.multi_label:
            hint = " (for lines with several set data.multi_label=true)" if labels else ""
            raise DataError(
                f"{path}, line {number}: expected one '__label__name' and a text, got '{shown(line)}'{hint}"
            )
        label = config.label_separator.join(labels)
        yield (
            f"{path}, line {number}",
            {config.text_column: text.strip(), config.label_column: label},
        )


def is_blank(text: str) -> bool:
    """Tell whether a text shows nothing: whitespace, zero-width and control characters alone."""
    return all(unicodedata.category(sign) in ("Cc", "Cf", "Zs", "Zl", "Zp") for sign in text)
