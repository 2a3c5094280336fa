"""Any source of texts as a DatasetDict: default data, Hub id, folder, files, your own function."""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import distribution
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from datasets.config import REPOYAML_FILENAME
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from headscope.data.columns import as_cell, text_columns, values
from headscope.data.rows import (
    check_names,
    format_of,
    parquet_batches,
    read_rows,
)
from headscope.ground.errors import ConfigError, DataError, first_line, listed, shown
from headscope.ground.files import cache_folder, cached, from_yaml, temporary_path
from headscope.ground.plain_rows import Row, as_text
from headscope.settings.checks import message
from headscope.settings.config import EMBEDDED, DataConfig, is_local
from headscope.settings.extension import is_import_path, own_code

OUTSIDE = "outside of the folder; move it"
ROWS_PER_BATCH = 100  # of an Arrow file; a batch holds at most 2 GiB of text


def load_source(config: DataConfig) -> DatasetDict:
    """Return the source's own splits and columns, unchecked.

    `data.path` is `licenses` (the default data), a Hub id, a folder in Hub layout (data files,
    perhaps a card), a csv, tsv, json, jsonl, parquet or xlsx file, or `my_package:load`, a
    function that is called with `config` and returns rows by split.

    Raises:
        ConfigError: if that function cannot be imported or called.
        DataError: if the source cannot be found or read; the message names the file, the row and
            the reason.
        OSError: if the cache cannot be written.
    """
    cache = cache_folder(config.cache_dir, config.cache_gb)
    if config.path == EMBEDDED:
        return DatasetDict({config.train_split: load_licenses(cache)})
    if is_import_path(config.path):
        return load_own(config)
    path = Path(config.path)
    try:
        if not is_local(config.path):
            return datasets.load_dataset(config.path, config.name, revision=config.revision)
        with quiet():
            if path.is_dir():
                return load_folder(path, config)
            return DatasetDict(
                {split: load_files([Path(file)], config) for split, file in own_files(config)}
            )
    except DataError:
        raise
    except Exception as error:  # `datasets` and pyarrow raise some twenty classes
        raise DataError(f"data.path={config.path}: {reason(error)}") from error


def load_own(config: DataConfig) -> DatasetDict:
    """Return what your function does: split -> a `datasets.Dataset` or dictionaries by column."""
    with own_code("data.path", config.path) as load:
        splits = load(config)
    texts = DatasetDict()
    try:
        for split, rows in splits.items():
            texts[split] = rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows))
    except Exception as error:  # `datasets` and pyarrow raise many classes
        row = f"{{{config.text_column!r}: ..., {config.label_column!r}: ...}}"
        raise DataError(
            f"data.path={config.path}: expected a mapping split -> rows such as {row}, got "
            f"{type(splits).__name__}: {reason(error)}"
        ) from error
    return texts


def builder_of(path: Path, name: str | None) -> Any:
    """Return what `datasets` makes of a folder whose card names files in it alone.

    It would look for others, also by the network, and expand any aliases: a DataError comes before.
    """
    for file in (path / "README.md", path / REPOYAML_FILENAME):
        try:
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if file.suffix == ".md":
                head = REGEX_YAML_BLOCK.search(text)
                text = head[2] if head else ""
            names = [*_names_of_files(from_yaml(text))]
        except ValueError as error:
            raise DataError(f"{path}: {file.name}: {first_line(error)}") from error
        for named in names:
            if "::" in named or "://" in named or not _is_within(path, path.absolute() / named):
                raise DataError(f"{path}: its card names {shown(named, 300)}, {OUTSIDE}")
    return datasets.load_dataset_builder(str(path), name)


def _names_of_files(part: Any, is_named: bool = False) -> Iterator[str]:
    """Yield the texts below `data_files` and `data_dir` of a card."""
    if isinstance(part, str) and is_named:
        yield part
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from _names_of_files(value, is_named or key in ("data_files", "data_dir"))
    elif isinstance(part, list):
        for value in part:
            yield from _names_of_files(value, is_named)


def _is_within(folder: Path, file: Path | str) -> bool:
    place = Path(os.path.normpath(file))
    return any(map(place.is_relative_to, (folder.absolute(), folder.resolve())))


def load_folder(path: Path, config: DataConfig) -> DatasetDict:
    """Load a folder in Hub layout: `datasets` finds the files of each split by names or card."""
    if (path / "state.json").is_file():
        raise DataError(f"{path}: was written by save_to_disk; write it by dataset.to_parquet")
    builder = builder_of(path, config.name)
    separator = config.separator or getattr(builder.config, "sep", None)
    named = builder.config.data_files or {}
    for file in chain.from_iterable(named.values()):
        if not _is_within(path, file):
            raise DataError(f"{path}: its card names {shown(Path(file).name)}, {OUTSIDE}")
    splits = DatasetDict(
        {
            str(split): load_files([Path(file) for file in files], config, separator)
            for split, files in named.items()
        }
    )
    features = builder.info.features or {}
    if config.label_column in features:  # such as a ClassLabel with its names
        splits = splits.cast_column(config.label_column, features[config.label_column])
    return splits


def files_of(config: DataConfig) -> dict[str, list[str]]:
    """Return the files of each split, those of a folder by their names in it. The Hub has none."""
    path = Path(config.path)
    if config.path == EMBEDDED or not is_local(config.path):
        return {}
    if not path.is_dir():
        return {split: [Path(file).name] for split, file in own_files(config)}
    with quiet():
        files = builder_of(path, config.name).config.data_files or {}
    return {
        str(split): [os.path.relpath(file, path.resolve()) for file in found]
        for split, found in files.items()
    }


def own_files(config: DataConfig) -> list[tuple[str, str]]:
    """Return each split that has a file of its own, and the file."""
    files = [
        (config.train_split, config.path),
        (config.validation_split or "validation", config.validation_path),
        (config.test_split or "test", config.test_path),
    ]
    return [(split, file) for split, file in files if file]


def load_files(paths: Sequence[Path], config: DataConfig, separator: str | None = None) -> Dataset:
    """Load files of one format, one after the other; `separator` is that of a folder's card."""
    for path in paths:
        if not path.is_file():  # a reader of a pipe could wait for ever
            raise DataError(f"{path}: is not a file")
    if format_of(paths[0]) == "parquet":
        try:
            return load_parquet(paths, config)
        except Exception as error:  # of `datasets` and pyarrow
            raise DataError(f"{paths[0]}: cannot be read as parquet: {reason(error)}") from error
    separator = config.separator or separator
    rows = chain.from_iterable(
        read_rows(str(path), format_of(path), encoding=config.encoding, separator=separator)
        for path in paths
    )
    return load_rows(rows, config, str(paths[0]))


def load_parquet(paths: Sequence[Path], config: DataConfig) -> Dataset:
    """Load parquet files as they are now: `datasets` knows a changed one by its time alone."""
    found = pq.read_schema(paths[0])
    schema = pa.schema([field.with_type(_without_views(field.type)) for field in found])

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for batch in parquet_batches(str(path)):
                table = pa.Table.from_batches([batch]).select(schema.names)
                yield from table.cast(schema).to_batches()

    folder = cache_folder(config.cache_dir, config.cache_gb) / "rows"
    return write_batches(batches(), schema, folder)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts in place of views of them, into which no dictionary is cast."""
    if kind == pa.string_view():
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return kind


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


def load_rows(rows: Iterable[Row], config: DataConfig, path: str) -> Dataset:
    """Return texts, labels and what cuts go by of rows; the texts stay on disk."""
    columns = text_columns(config)
    names: dict[str, None] = {}
    labels: list[Any] = []
    cut_by = filter(None, (config.group_column, config.time_column))
    others: dict[str, list[str | None]] = {column: [] for column in cut_by}

    def texts() -> Iterator[Row]:
        for number, row in enumerate(rows):
            texts = {column: as_text(row.get(column)) for column in columns}
            for column, text in texts.items():
                if text is None:
                    value = shown(row[column])
                    raise DataError(f"{path}, row {number}: {column!r} holds {value}, not text")
            names.update(dict.fromkeys(row))
            labels.append(row.get(config.label_column))
            for column, cells in others.items():
                cells.append(as_cell(row.get(column)))
            yield texts

    dataset = write_texts(
        texts(), columns, cache_folder(config.cache_dir, config.cache_gb) / "rows"
    )
    if not labels:
        raise DataError(f"{path}: has no rows")
    check_names(names, config, path)
    for column, cells in others.items():
        dataset = dataset.add_column(column, pa.array(cells, pa.string()))
    try:
        return dataset.add_column(config.label_column, pa.array(labels))
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"{path}: column {config.label_column!r} holds labels of several kinds: "
            f"{reason(error)}; write all of them as strings, or as lists of strings"
        ) from error


def write_texts(rows: Iterator[Row], columns: list[str], folder: Path) -> Dataset:
    """Write the texts to the cache, and read them from there."""
    schema = pa.schema([(column, pa.string()) for column in columns])
    some = iter(lambda: list(islice(rows, ROWS_PER_BATCH)), [])
    batches = (pa.RecordBatch.from_pylist(each, schema) for each in some)
    return write_batches(batches, schema, folder)


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path) -> Dataset:
    """Write rows to the cache, in a file named by what it holds, and read them from there."""
    with temporary_path(folder / "rows.arrow") as file:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "blake2b").hexdigest()
        return Dataset.from_file(str(file.replace(folder / f"{digest[:32]}.arrow")))


def reason(error: BaseException) -> str:
    """Return the messages of an error and of what caused it, the innermost last."""
    message = shown(first_line(error) or type(error).__name__, 300)
    return message if error.__cause__ is None else f"{message}; {reason(error.__cause__)}"


def read_source(data: DataConfig, path: str) -> Iterator[Row]:
    """Yield the rows of a file of the source, with every column."""
    return read_rows(path, encoding=data.encoding, separator=data.separator)


def column_of(data: DataConfig, rows: Mapping[str, np.ndarray], column: str, key: str) -> list[Any]:
    """Return a column of the source for some of its rows; a file is read once more for it.

    `rows` has their numbers in the source, [N], for each split of a run.

    ConfigError, in the name of `key`, for a column that the source lacks.
    """
    source = load_source(data)
    cells_of_texts = []
    for role, numbers in rows.items():
        name = getattr(data, f"{role}_split")
        if name not in source:  # it is cut from train
            name = data.train_split
        path = data.file_of(name)
        known = [*source[name].column_names]
        cells: list[Any] = []
        if column in known:
            cells = list(values(source[name], column))
        elif Path(path).is_file():
            for row in read_source(data, path):
                known = [*row]
                cells.append(row.get(column))
        if column not in known:
            expected = f"one of the columns {listed(known)} of {path}"
            raise ConfigError(message(key, expected, column))
        cells_of_texts += [cells[row] for row in numbers]
    return cells_of_texts


# The embedded default data: kinds of licence. Texts and categories are those of the ScanCode
# licence database (nexB and AboutCode, CC-BY-4.0), which the PyPI package `licensedcode-data`
# carries: about 35,000 rule files, each YAML front matter and a text.

LICENSES_RECIPE = 1  # raise it when these rules change, so that cached files are made anew
SHORTEST = 8  # words
LONGEST = 400
FEWEST_OF_A_CLASS = 100
FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is about ten times faster


def load_licenses(cache: Path) -> Dataset:
    """Return the licence texts, columns text and label, reading the package at first use (10 s).

    Repeated texts, texts under two categories, and categories with fewer than 100 texts are left
    out.
    """
    folder = _package_folder()
    name = f"{distribution('licensedcode-data').version}-{LICENSES_RECIPE}.parquet"
    path = cache / "licenses" / name
    table = pq.read_table(cached(path, lambda file: pq.write_table(_texts(folder), file)))
    names = table["label"].unique().sort()
    features = Features({"text": Value("string"), "label": ClassLabel(names=names.to_pylist())})
    labels = pc.index_in(table["label"], names).cast(pa.int64())
    return Dataset(pa.table([table["text"], labels], schema=features.arrow_schema))


def _texts(folder: Path) -> pa.Table:
    """Return the texts of one category each, and their categories."""
    categories: dict[str, set[str]] = defaultdict(set)
    for text, category in _read_rules(folder):
        categories[text].add(category)
    of_one = {}
    for text, found in categories.items():
        if len(found) == 1:
            (of_one[text],) = found
    counts = Counter(of_one.values())
    rows = [
        {"text": text, "label": label}
        for text, label in of_one.items()
        if counts[label] >= FEWEST_OF_A_CLASS
    ]
    return pa.Table.from_pylist(rows)


def _package_folder() -> Path:
    spec = find_spec("licensedcode")
    places = spec.submodule_search_locations if spec else None
    folder = Path(next(iter(places))) / "data" if places else None
    if folder is None or not (folder / "rules").is_dir():
        raise DataError(
            "data.path=licenses: needs the package licensedcode-data, from the clone: pip install "
            "-e '.[demo]'; or train on texts of your own: data=files data.path=reviews.csv"
        )
    return folder


def _front_matter(path: Path) -> tuple[dict[str, object], str]:
    """Split a file into its YAML head, which stands between two lines of dashes, and its text."""
    _, head, text = FENCE.split(path.read_text(encoding="utf-8"), 2)
    return yaml.load(head, Loader=Loader), text.strip()


def _read_rules(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (text, category) of every English licence text or notice under a single licence."""
    heads = (_front_matter(path)[0] for path in sorted((folder / "licenses").glob("*.LICENSE")))
    categories = {str(head["key"]): head.get("category") for head in heads}
    for path in sorted((folder / "rules").glob("*.RULE")):
        content = path.read_text(encoding="utf-8")
        # A cheap look spares parsing the YAML of the two thirds that are references and tags.
        if "is_license_text: yes" not in content and "is_license_notice: yes" not in content:
            continue
        head, text = _front_matter(path)
        category = categories.get(str(head.get("license_expression")))
        is_text = head.get("is_license_text") or head.get("is_license_notice")
        is_english = head.get("language", "en") == "en"
        has_length = SHORTEST <= len(text.split()) <= LONGEST
        if category and is_text and is_english and has_length and not head.get("is_false_positive"):
            yield text, str(category)
