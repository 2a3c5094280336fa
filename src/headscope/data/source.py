"""Any source of texts as a DatasetDict: default data, Hub id, folder, files, your own function."""

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict

from headscope.config import EMBEDDED, DataConfig, expanded, is_local
from headscope.data.columns import text_columns, texts_among, tuples
from headscope.data.licenses import load_licenses
from headscope.data.rows import FORMATS, Row, ending_of, read_rows
from headscope.data.tokenizer import beginning, max_characters
from headscope.errors import DataError, first_line, shown
from headscope.extension import called, is_import_path, resolve
from headscope.files import cache_folder, temporary_path

WHOLE = re.compile(r"\s*(0|-?[1-9][0-9]{0,17})\s*")  # 007 is a name
LABELLED = re.compile(r"\s*((?:__label__\S*\s*)*)(.*)", re.DOTALL)
ROWS_PER_BATCH = 100  # of an Arrow file; a batch holds at most 2 GiB of text


def load_source(config: DataConfig) -> DatasetDict:
    """Return the source's own splits and columns, unchecked.

    `data.path` is `licenses` (the default data), a Hub id, a folder in Hub layout (data files,
    perhaps a card), a folder with one folder of .txt files for each class (below train/ and test/
    or not), a csv, tsv, json, jsonl, parquet or txt file (lines of `__label__name text`, as
    fastText reads them), or `my_package:load`, a function that is called with `config` and returns
    rows by split.

    Raises:
        ConfigError: if that function cannot be imported or called.
        DataError: if the source cannot be found or read; the message names the file, the row and
            the reason.
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
        with quiet():
            if path.is_dir():
                return load_class_folders(path, config) or load_hub_folder(path, config)
            return DatasetDict(
                {split: load_files([file], config) for split, file in named_files(config).items()}
            )
    except DataError:
        raise
    except Exception as error:  # `datasets` and pyarrow raise some twenty classes
        raise DataError(f"data.path={config.path}: {reason(error)}") from error


def named_files(config: DataConfig) -> dict[str, Path]:
    """Return the file of each split that has one."""
    files = {
        config.train_split: config.path,
        config.validation_split or "validation": config.validation_path,
        config.test_split or "test": config.test_path,
    }
    return {split: expanded(file) for split, file in files.items() if file}


def load_own(config: DataConfig) -> DatasetDict:
    """Return what your function does: split -> a `datasets.Dataset` or dictionaries by column."""
    splits = called("data.path", config.path, resolve("data.path", config.path), config)
    try:
        return DatasetDict(
            {
                split: rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows))
                for split, rows in splits.items()
            }
        )
    except Exception as error:  # `datasets` and pyarrow raise many classes
        row = f"{{{config.text_column!r}: ..., {config.label_column!r}: ...}}"
        raise DataError(
            f"data.path={config.path}: expected a mapping split -> rows such as {row}, got "
            f"{type(splits).__name__}: {reason(error)}"
        ) from error


def load_class_folders(path: Path, config: DataConfig) -> DatasetDict | None:
    """Load path/split/class/*.txt, or path/class/*.txt as one split; None for another layout."""
    nested = visible(path, "*/*/*.txt")
    has_tables = any(
        FORMATS.get(ending_of(file), "lines") != "lines" for file in visible(path, "**/*")
    )
    if has_tables and not visible(path, "train/*/*.txt"):
        return None
    if not nested and not visible(path, "*/*.txt"):
        return None
    folders = {file.parent.parent.name: file.parent.parent for file in nested}

    def rows(folder: Path) -> Iterator[Row]:
        for file in visible(folder, "*/*.txt"):
            for row in read_rows(str(file), "text", config.text_column, config.encoding):
                yield {**row, config.label_column: file.parent.name}

    return DatasetDict(
        {
            split: load_rows(rows(folder), config, str(folder))
            for split, folder in (folders or {config.train_split: path}).items()
        }
    )


def visible(path: Path, pattern: str) -> list[Path]:
    """Return the files that match, sorted, but for those hidden or in a hidden folder."""
    return sorted(
        file
        for file in path.glob(pattern)
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(path).parts)
    )


def load_hub_folder(path: Path, config: DataConfig) -> DatasetDict:
    """Load a folder in Hub layout: `datasets` finds the files of each split by names or card."""
    if (path / "state.json").is_file():
        raise DataError(f"{path}: was written by save_to_disk; write it by dataset.to_parquet")
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
        splits = splits.cast_column(config.label_column, features[config.label_column])
    return splits


def load_files(paths: Sequence[Path], config: DataConfig, separator: str | None = None) -> Dataset:
    """Load files of one format, one after the other; `separator` is that of a folder's card."""
    for path in paths:
        if ending_of(path) not in FORMATS:
            raise DataError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
        if not path.is_file():  # a reader of a pipe could wait for ever
            raise DataError(f"{path}: is not a file")
    form = FORMATS[ending_of(paths[0])]
    if form == "parquet":
        return datasets.concatenate_datasets([load_parquet(path) for path in paths])
    if form == "lines":
        rows = chain.from_iterable(labelled_lines(path, config) for path in paths)
    else:
        separator = config.separator or separator
        rows = chain.from_iterable(
            read_rows(str(path), encoding=config.encoding, separator=separator) for path in paths
        )
    has_cells = form in ("csv", "tsv") and not config.multi_label
    return load_rows(rows, config, str(paths[0]), has_cells)


def load_parquet(path: Path) -> Dataset:
    """Load one parquet file; `datasets` keeps it on disk."""
    try:
        return datasets.load_dataset("parquet", data_files=str(path), split="train")
    except Exception as error:  # of `datasets` and pyarrow
        raise DataError(f"{path}: cannot be read as parquet: {reason(error)}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep `datasets` from logging errors that it also raises, and from showing bars."""
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
    rows: Iterable[Row], config: DataConfig, path: str, has_cells: bool = False
) -> Dataset:
    """Return texts and labels of rows; the texts stay on disk.

    If a column is missing, the columns are those that there are, without values, for a message to
    name.

    Args:
        rows: dictionaries by column.
        config: columns and cache.
        path: of the source, for messages.
        has_cells: whether labels are cells, which are numbers if all of them are.
    """
    columns = text_columns(config)
    names: dict[str, None] = {}
    labels: list[Any] = []

    def texts() -> Iterator[Row]:
        for number, row in enumerate(rows):
            for column in columns:
                if not isinstance(row.get(column), str | None):
                    value = shown(row[column])
                    raise DataError(f"{path}, row {number}: {column!r} holds {value}, not text")
            names.update(dict.fromkeys(row))
            label = row.get(config.label_column)
            labels.append(sys.intern(label) if isinstance(label, str) else label)
            yield row

    dataset = write_texts(texts(), columns, config)
    if not labels:
        raise DataError(f"{path}: has no rows")
    if not names.keys() >= {*columns, config.label_column}:
        return Dataset(pa.table({name: pa.nulls(len(labels)) for name in names}))
    cells = set(labels) - {""} if has_cells else set()
    if cells and all(map(WHOLE.fullmatch, cells)):
        labels = [int(label) if label else None for label in labels]
    try:
        return dataset.add_column(config.label_column, pa.array(labels))
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"{path}: column {config.label_column!r} holds labels of several kinds: "
            f"{reason(error)}; "
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

    def truncated(batch: Mapping[str, list[str]]) -> dict[str, list[str]]:
        return {
            column: [beginning(text, config.max_length) for text in batch[column]]
            for column in columns
        }

    with quiet():
        return dataset.map(truncated, batched=True, batch_size=ROWS_PER_BATCH), num_long


def reason(error: BaseException | None) -> str:
    """Return the messages of an error and of what caused it, the innermost last, each once."""
    reasons: dict[str, None] = {}
    while error is not None:
        reasons[shown(first_line(error) or type(error).__name__, 300)] = None
        error = error.__cause__
    return "; ".join(reasons)


def labelled_lines(path: Path, config: DataConfig) -> Iterator[Row]:
    """Yield text and label of each line `__label__name text`; several labels are joined."""
    for number, row in enumerate(read_rows(str(path), "lines", encoding=config.encoding), start=1):
        marks, text = LABELLED.fullmatch(row["text"]).groups()  # type: ignore[union-attr]
        labels = [mark.removeprefix("__label__") for mark in marks.split()]
        if not labels and not text.strip():
            continue
        if len(labels) != 1 and not config.multi_label:
            hint = " (for lines with several set data.multi_label=true)" if labels else ""
            raise DataError(
                f"{path}, line {number}: expected one '__label__name' and a text, got "
                f"'{shown(row['text'])}'{hint}"
            )
        label = config.label_separator.join(labels)
        yield {config.text_column: text.strip(), config.label_column: label}
