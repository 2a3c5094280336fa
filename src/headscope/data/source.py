"""One loader for every source: the embedded data, a Hub id, a folder or a file."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict
from datasets.packaged_modules.csv.csv import Csv
from datasets.packaged_modules.json.json import Json

from headscope.config import EMBEDDED, FILE_ENDINGS, DataConfig, expanded, is_local
from headscope.data.columns import PLACE, ROWS_AT_ONCE, texts_among, tuples
from headscope.data.licenses import load_licenses
from headscope.data.rows import (
    COMPRESSED,
    FORMS,
    LINE_END,
    check_is_file,
    format_of,
    numbered,
    opened,
    read_rows,
)
from headscope.data.tokenizer import beginning, max_characters
from headscope.errors import DataError, shown
from headscope.extension import called, is_import_path, resolve
from headscope.files import cache_folder, temporary_path

LABEL = "__label__"  # as fastText marks a label
DATA_FILES = (*FORMS, ".parquet")
MOST_FILES = 50_000  # of a folder in Hub layout: `datasets` looks at each several times
MOST_NAMES = 1_000  # of columns that are kept to be named in a message
CHARACTERS_AT_ONCE = 16_000_000  # Arrow takes at most 2 GiB of texts at once
WHOLE, FRACTION = re.compile(r"\s*-?\d{1,18}\s*"), re.compile(r"\s*-?\d+\.\d*\s*")


def load_source(config: DataConfig) -> DatasetDict:
    """Return the source's own splits and columns, unchecked.

    `data.path` may be `licenses` (embedded), a Hub id, a folder in Hub layout (data files, perhaps a card), a folder
    with one folder of .txt files per class (below train/ and test/ or not), or a file: csv, tsv, json, jsonl, parquet,
    or txt with lines of `__label__name text`, as fastText reads them, with any number of labels if data.multi_label;
    or the import path of a function, `my_package:load`, that is called with `config` (see `_load_own`).

    Raises:
        ConfigError: if that function cannot be imported or called.
        DataError: if the source cannot be found or read; the message names it and the reason.
        OSError: if the cache cannot be written.
    """
    if config.path == EMBEDDED:
        return DatasetDict({config.train_split: load_licenses(cache_folder(config.cache_dir))})
    if is_import_path(config.path, ":"):
        return _load_own(config)
    path = expanded(config.path)
    cache_folder(config.cache_dir)  # here: that it cannot be written is no fault of the source
    try:
        if not is_local(config.path):
            loaded = datasets.load_dataset(config.path, config.name, revision=config.revision)
        elif path.is_dir():
            loaded = _load_class_folders(path, config) or _load_folder(path, config)
        else:
            loaded = _load_files(config)
    except DataError:
        raise
    except (
        Exception
    ) as error:  # `datasets` raises some twenty classes; each means that the source cannot be read
        raise DataError(f"data.path={config.path}: {_reason(error)}") from error
    if not isinstance(loaded, DatasetDict):
        raise DataError(
            f"data.path={config.path}: expected a data set with splits, got {type(loaded).__name__}"
        )
    return loaded


def _load_files(config: DataConfig) -> DatasetDict:
    """Load a file for train and, if named, one each for validation and test."""
    named = {
        config.train_split: config.path,
        config.validation_split or "validation": config.validation_path,
        config.test_split or "test": config.test_path,
    }
    return DatasetDict(
        {split: _load_file(expanded(name), config) for split, name in named.items() if name}
    )


def _load_own(config: DataConfig) -> DatasetDict:
    """Return what a function of the user's returns: split -> rows, a `datasets.Dataset` or dictionaries by column."""
    found = called("data.path", config.path, resolve("data.path", config.path), config)
    if not isinstance(found, Mapping) or not found:
        raise DataError(
            f"data.path={config.path}: returned a {type(found).__name__}; takes a mapping split -> rows"
        )
    splits = DatasetDict()
    for split, rows in found.items():
        try:
            splits[split] = rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows))
        except Exception as error:  # `datasets` and pyarrow raise many classes
            raise DataError(
                f"data.path={config.path}, split {split}: takes rows such as "
                f"{{{config.text_column!r}: ..., {config.label_column!r}: ...}}: {_reason(error)}"
            ) from error
    return splits


def _load_class_folders(path: Path, config: DataConfig) -> DatasetDict | None:
    """Load path/split/class/*.txt as several splits, or path/class/*.txt as one; None if the folder is another."""
    one, several = _visible(path, "*/*.txt"), _visible(path, "*/*/*.txt")
    if not (one or several) or (_data_files(path) and not _visible(path, "train/*/*.txt")):
        return None
    splits = {folder.name: folder for folder in sorted({text.parent.parent for text in several})}
    return DatasetDict(
        {
            split: _rows(
                _class_texts(folder, config),
                [config.text_column, config.label_column, PLACE],
                config,
            )
            for split, folder in (splits or {config.train_split: path}).items()
        }
    )


def _class_texts(folder: Path, config: DataConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the text of each file, the folder that it is in, and its place."""
    for path in _visible(folder, "*/*.txt"):
        with opened(path, config.encoding) as file:
            text = "".join(line for _, line in numbered(file, path))
        yield LINE_END.sub("\n", text), path.parent.name, f"file {path.parent.name}/{path.name}"


def _load_folder(path: Path, config: DataConfig) -> Any:
    """Load a folder in Hub layout: `datasets` finds the files of each split, by their names or by the folder's card."""
    if (path / "state.json").is_file():
        raise DataError(
            f"{path}: was written by save_to_disk; write train.parquet by dataset.to_parquet instead"
        )
    if sum(len(folders) + len(files) for _, folders, files in os.walk(path)) > MOST_FILES:
        raise DataError(
            f"{path}: holds more than {MOST_FILES:,} files; name the folder of the data"
        )
    for file in _data_files(path):
        check_is_file(file)
    with _quiet():
        builder = datasets.load_dataset_builder(str(path), config.name)
        if not isinstance(builder, Csv | Json):
            for file in _data_files(path):
                if file.suffix == ".parquet":
                    _load_parquet(file)  # whose message names the file
            return datasets.load_dataset(str(path), config.name)
    found = {
        str(split): list(map(Path, files))
        for split, files in (builder.config.data_files or {}).items()
    }
    for file in chain.from_iterable(found.values()):
        if format_of(file) == "lines":
            raise DataError(
                f"{file}: cannot be read; takes {', '.join(DATA_FILES)}, or these as .gz"
            )
    of_card, features = getattr(builder.config, "sep", None), builder.info.features or {}
    splits = DatasetDict(
        {split: _load_rows(files, config, of_card) for split, files in found.items()}
    )
    if config.label_column not in features:
        return splits
    with _quiet():  # such as a ClassLabel with its names
        return splits.cast_column(config.label_column, features[config.label_column])


def _data_files(path: Path) -> list[Path]:
    return [file for file in _visible(path, "**/*") if file.suffix in (*DATA_FILES, COMPRESSED)]


def _visible(path: Path, pattern: str) -> list[Path]:
    """Return what is found, in order, but for what is hidden or in a hidden folder, as .ipynb_checkpoints."""
    found = path.glob(pattern)
    return sorted(
        file for file in found if not any(part[0] in "._" for part in file.relative_to(path).parts)
    )


def _load_file(path: Path, config: DataConfig) -> Dataset:
    check_is_file(path)
    if path.suffix not in FILE_ENDINGS:
        raise DataError(
            f"{path}: the ending {path.suffix!r} is not known; takes {', '.join(FILE_ENDINGS)}"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path}: is empty")
    if path.suffix == ".txt":
        return _rows(
            _labelled_lines(path, config), [config.text_column, config.label_column, PLACE], config
        )
    return _load_parquet(path) if path.suffix == ".parquet" else _load_rows([path], config)


def _load_parquet(path: Path) -> Dataset:
    try:
        with _quiet():
            return datasets.load_dataset("parquet", data_files=str(path), split="train")
    except Exception as error:
        if "corresponds to no data" in str(error):
            raise DataError(f"{path}: has no rows") from error
        raise DataError(f"{path}: cannot be read as parquet: {_reason(error)}") from error


def _load_rows(paths: Sequence[Path], config: DataConfig, separator: str | None = None) -> Dataset:
    """Load files of rows, one after the other: the columns that are asked for.

    If one of them is missing, the columns are those that there are, without values, for a message to name.

    Args:
        paths: csv, tsv, json or jsonl.
        config: columns, encoding and separator.
        separator: what a folder's card says of it.
    """
    columns = [column for column in (config.text_column, config.text_pair_column) if column]
    names: dict[str, None] = {}
    labels: list[Any] = []
    same: dict[Any, Any] = {}  # each label is kept once, however many rows have it

    def texts() -> Iterator[tuple[str | None, ...]]:
        for path in paths:
            before = f"{path.name}, " if len(paths) > 1 else ""
            known: Iterable[str] = ()
            for place, row in read_rows(
                str(path), encoding=config.encoding, separator=config.separator or separator
            ):
                if row.keys() != known and len(names) < MOST_NAMES:
                    names.update(dict.fromkeys(known := row.keys()))
                where = f"{path}, {place}"
                label = _label(row.get(config.label_column), where, config.label_column)
                labels.append(same.setdefault(label, label))
                yield *(_text(row.get(column), where, column) for column in columns), before + place

    rows = _rows(texts(), [*columns, PLACE], config)
    if not labels:
        raise DataError(f"{paths[0]}: has no rows")
    if not names.keys() >= {*columns, config.label_column}:
        return Dataset(pa.table({name: pa.nulls(len(labels)) for name in names}))
    is_table = format_of(paths[0]) in ("csv", "tsv") and not config.multi_label
    return rows.add_column(config.label_column, _label_array(labels, list(same), is_table))


def _text(value: Any, where: str, column: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise DataError(f"{where}: column '{shown(column)}' holds {shown(value)}, not text")


def _label(value: Any, where: str, column: str, in_list: bool = False) -> Any:
    """Return a label as what it counts for: None, a string, a number, or a tuple of those. 3.0 is class 3."""
    if isinstance(value, list) and not in_list:
        return tuple(_label(each, where, column, in_list=True) for each in value)
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "a list in a list"
        raise DataError(
            f"{where}: column '{shown(column)}' holds {kind}; a label is an integer or a string"
        )
    if isinstance(value, float) and (value != value or value.is_integer()):
        return int(value) if value == value else None
    return int(value) if isinstance(value, bool) else value if value != "" else None


def _label_array(labels: list[Any], different: list[Any], is_table: bool) -> pa.Array:
    """Return the labels as a column of one type: numbers if all of them are, else strings; or lists of either.

    Args:
        labels: of each row.
        different: each of them once.
        is_table: whether they are cells, in which a number is written as a string.
    """
    has_lists = any(isinstance(label, tuple) for label in different)
    single = {
        each for label in different for each in (label if isinstance(label, tuple) else (label,))
    } - {None}
    kind: Any = str
    if single and not any(isinstance(each, str) for each in single):
        kind = float if any(isinstance(each, float) for each in single) else int
    elif single and is_table and all(map(WHOLE.fullmatch, single)):
        kind = (
            int if all(str(int(each)) == each.strip() for each in single) else str
        )  # 007 is a name
    elif (
        single
        and is_table
        and all(WHOLE.fullmatch(each) or FRACTION.fullmatch(each) for each in single)
    ):
        # 1.0 beside 2.0 is what pandas writes for 1 beside 2; 1.0 beside 1 or 1.00 may be names of versions.
        is_one_kind = all(str(float(each)) == each.strip() for each in single)
        kind = float if is_one_kind or not all(float(each).is_integer() for each in single) else str
    if kind is int and max(map(abs, map(int, single))) >= 2**63:
        kind = str

    def converted(label: Any) -> Any:
        if isinstance(label, tuple):
            return [None if each is None else kind(each) for each in label]
        return None if label is None else [kind(label)] if has_lists else kind(label)

    table = {label: converted(label) for label in different}
    arrow = {str: pa.string(), int: pa.int64(), float: pa.float64()}[kind]
    return pa.array(
        map(table.__getitem__, labels), pa.list_(arrow) if has_lists else arrow, size=len(labels)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep `datasets` from logging errors that it also raises, and from showing bars for local files."""
    verbosity, was_disabled = (
        datasets.logging.get_verbosity(),
        datasets.are_progress_bars_disabled(),
    )
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)
        if not was_disabled:
            datasets.enable_progress_bars()


def _rows(
    rows: Iterator[tuple[str | None, ...]], columns: list[str], config: DataConfig
) -> Dataset:
    """Write each row's strings to a file in the cache, named by what it holds, and read it from there."""
    folder = cache_folder(config.cache_dir) / "rows"
    folder.mkdir(exist_ok=True)
    schema = pa.schema([(column, pa.string()) for column in columns])
    digest = hashlib.blake2b(schema.serialize(), digest_size=16)
    with temporary_path(folder / "rows.arrow") as file:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            while some := list(_some(rows)):
                batch = pa.record_batch(list(zip(*some, strict=True)), schema=schema)
                digest.update(batch.serialize())
                writer.write_batch(batch)
        kept = file.replace(folder / f"{digest.hexdigest()}.arrow")
    return Dataset.from_file(str(kept))


def truncate_texts(dataset: Dataset, config: DataConfig) -> tuple[Dataset, int]:
    """Return the rows, whose columns are text (text_pair) and label, with very long texts cut; and how many they are.

    What is left of them is what is read; see `headscope.data.tokenizer.beginning`.
    """
    columns, most, num_long = (
        texts_among(dataset.column_names),
        max_characters(config.max_length),
        0,
    )
    for rows in dataset.select_columns(columns).with_format("arrow").iter(ROWS_AT_ONCE):
        lengths = [pc.utf8_length(rows.column(column)).to_numpy() for column in columns]
        num_long += int((np.maximum.reduce(lengths) > most).sum())
    if not num_long:
        return dataset, 0
    texts = (
        tuple(beginning(text, config.max_length) for text in row)
        for row in tuples(dataset, columns)
    )
    labels = dataset.with_format("arrow")["label"]
    return _rows(texts, columns, config).add_column("label", labels), num_long


def _some(rows: Iterator[tuple[str | None, ...]]) -> Iterator[tuple[str | None, ...]]:
    """Yield the next rows: many short ones or few long ones."""
    characters = 0
    for row in islice(rows, ROWS_AT_ONCE):
        yield row
        characters += sum(len(value or "") for value in row)
        if characters > CHARACTERS_AT_ONCE:
            return


def _labelled_lines(path: Path, config: DataConfig) -> Iterator[tuple[str, str, str]]:
    """Yield text, labels and place of each line `__label__name text`; blank lines are passed over.

    Several labels are joined again.
    """
    for place, row in read_rows(str(path), "lines", encoding=config.encoding):
        line = row["text"]
        if not line.strip():
            continue
        labels, text = [], line.lstrip()
        while text.startswith(LABEL):
            label, text = [*text.split(maxsplit=1), ""][:2]
            labels.append(label.removeprefix(LABEL))
        if len(labels) != 1 and not config.multi_label:
            hint = " (for lines with several set data.multi_label=true)" if labels else ""
            raise DataError(
                f"{path}, {place}: takes lines of one '__label__name' and a text, got '{shown(line)}'{hint}"
            )
        yield text.strip(), config.label_separator.join(labels), place


def _reason(error: BaseException) -> str:
    """Return the messages of an error and of what caused it, the innermost last, each once."""
    reasons: list[str] = []
    current: BaseException | None = error
    while current is not None:
        message = shown(str(current).strip().split("\n")[0], 300) or type(current).__name__
        if message not in reasons:
            reasons.append(message)
        current = current.__cause__
    return "; ".join(reasons)
