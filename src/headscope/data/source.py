"""One loader for every source: the embedded data, a Hub id, a folder or a file."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict

from headscope.config import EMBEDDED, FILE_ENDINGS, DataConfig, is_local
from headscope.data.columns import ROWS_AT_ONCE
from headscope.data.licenses import load_licenses
from headscope.errors import DataError, separator_hint
from headscope.extension import called, is_import_path, resolve
from headscope.files import cache_folder

# The csv reader of `datasets` is pandas', which takes "None", "NA" or "null" for nothing at all unless told otherwise;
# in a text or a label they are words like others.
ONLY_EMPTY_IS_NULL = {"keep_default_na": False, "na_values": [""]}
WITHOUT_MARK = "utf-8-sig"  # some editors put a byte order mark first
LABEL = "__label__"  # as fastText marks a label
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", ONLY_EMPTY_IS_NULL),
    ".tsv": ("csv", {"sep": "\t", **ONLY_EMPTY_IS_NULL}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}


def load_source(config: DataConfig) -> DatasetDict:
    """Return the source's own splits and columns, unchecked.

    `data.path` may be `licenses` (embedded), a Hub id, a folder in Hub layout (data files, perhaps a card), a folder
    with one folder of .txt files per class (below train/ and test/ or not), or a file: csv, tsv, json, jsonl, parquet,
    or txt with lines of `__label__name text`, as fastText reads them, with any number of labels if data.multi_label;
    or the import path of a function, `my_package:load`, that is called with `config` (see `_load_own`).

    Raises:
        ConfigError: if that function cannot be imported or called.
        DataError: if the source cannot be found or read; the message names it and the reason.
    """
    if config.path == EMBEDDED:
        return DatasetDict({config.train_split: load_licenses(cache_folder(config.cache_dir))})
    if is_import_path(config.path, ":"):
        return _load_own(config)
    path = Path(config.path).expanduser()
    try:
        if not is_local(config.path):
            loaded = datasets.load_dataset(config.path, config.name, revision=config.revision)
        elif path.is_file():
            loaded = _load_files(config)
        else:
            loaded = _load_class_folders(path, config) or _load_folder(path, config)
    except DataError:
        raise
    except Exception as error:  # `datasets` raises some twenty classes; each means that the source cannot be read
        raise DataError(f"data.path={config.path}: {_reason(error)}") from error
    if not isinstance(loaded, DatasetDict):
        raise DataError(f"data.path={config.path}: expected a data set with splits, got {type(loaded).__name__}")
    return loaded


def _load_files(config: DataConfig) -> DatasetDict:
    """Load a file for train and, if named, one each for validation and test."""
    named = {
        config.train_split: config.path,
        config.validation_split or "validation": config.validation_path,
        config.test_split or "test": config.test_path,
    }
    return DatasetDict({split: _load_file(Path(name).expanduser(), config) for split, name in named.items() if name})


def _load_own(config: DataConfig) -> DatasetDict:
    """Return what a function of the user's returns: split -> rows, a `datasets.Dataset` or dictionaries by column."""
    found = called("data.path", config.path, resolve("data.path", config.path), config)
    if not isinstance(found, Mapping) or not found:
        raise DataError(f"data.path={config.path}: returned a {type(found).__name__}; takes a mapping split -> rows")
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
            split: _rows(((_read_text(text), text.parent.name) for text in _visible(folder, "*/*.txt")), config)
            for split, folder in (splits or {config.train_split: path}).items()
        }
    )


def _read_text(path: Path) -> str:
    _check_encoding(path)
    return path.read_text(encoding=WITHOUT_MARK)


def _load_folder(path: Path, config: DataConfig) -> Any:
    """Load a folder in Hub layout; if that fails, a DataError names the file that cannot be read, if there is one."""
    files = _data_files(path)
    for file in files:
        _check_encoding(file)
    are_tables = bool(files) and all(file.suffix in (".csv", ".tsv") for file in files)
    try:
        with _quiet():
            return datasets.load_dataset(str(path), config.name, **(ONLY_EMPTY_IS_NULL if are_tables else {}))
    except Exception:
        for file in files:
            _load_file(file, config)
        raise


def _data_files(path: Path) -> list[Path]:
    return [file for file in _visible(path, "**/*") if file.suffix in READERS and file.is_file()]


def _visible(path: Path, pattern: str) -> list[Path]:
    """Return what is found, in order, but for what is hidden or in a hidden folder, as .ipynb_checkpoints."""
    found = path.glob(pattern)
    return sorted(file for file in found if not any(part[0] in "._" for part in file.relative_to(path).parts))


def _load_file(path: Path, config: DataConfig) -> Dataset:
    if path.suffix not in FILE_ENDINGS:
        raise DataError(f"{path}: the ending {path.suffix!r} is not known; takes {', '.join(FILE_ENDINGS)}")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: is empty")
    if path.suffix == ".txt":
        return _rows(_labelled_lines(path, config), config)
    _check_encoding(path)
    reader, options = READERS[path.suffix]
    try:
        with _quiet():
            return datasets.load_dataset(reader, data_files=str(path), split="train", **options)
    except Exception as error:
        if "corresponds to no data" in str(error):
            raise DataError(f"{path}: has no rows") from error
        hint = ""
        if path.suffix == ".csv":
            with path.open(encoding="utf-8") as file:
                hint = separator_hint(file.readline())
        raise DataError(f"{path}: cannot be read as {path.suffix[1:]}: {_reason(error)}{hint}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep `datasets` from logging errors that it also raises, and from showing bars for local files."""
    verbosity, was_disabled = datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)
        if not was_disabled:
            datasets.enable_progress_bars()


def _rows(rows: Iterator[tuple[str, str]], config: DataConfig) -> Dataset:
    """Write (text, label) of each row to a file in the cache, named by what it holds, and read it from there."""
    folder = cache_folder(config.cache_dir) / "rows"
    folder.mkdir(exist_ok=True)
    schema = pa.schema([(column, pa.string()) for column in (config.text_column, config.label_column)])
    digest = hashlib.blake2b(schema.serialize(), digest_size=16)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing.") as temporary:
        file = Path(temporary) / "rows.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            while some := list(islice(rows, ROWS_AT_ONCE)):
                batch = pa.record_batch(list(zip(*some, strict=True)), schema=schema)
                digest.update(batch.serialize())
                writer.write_batch(batch)
        kept = file.replace(folder / f"{digest.hexdigest()}.arrow")
    return Dataset.from_file(str(kept))


def _labelled_lines(path: Path, config: DataConfig) -> Iterator[tuple[str, str]]:
    """Yield (text, label) of each line `__label__name text`; blank lines are passed over. Labels are joined again."""
    # Not splitlines(): a text may contain the signs that it also takes for line ends, such as U+2028.
    _check_encoding(path)
    with path.open(encoding=WITHOUT_MARK) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            labels, text = [], line.lstrip()
            while text.startswith(LABEL):
                label, text = [*text.split(maxsplit=1), ""][:2]
                labels.append(label.removeprefix(LABEL))
            if len(labels) != 1 and not config.multi_label:
                shown = line.removesuffix("\n")[:60]
                hint = " (for lines with several set data.multi_label=true)" if labels else ""
                raise DataError(
                    f"{path}, line {number}: takes lines of one '__label__name' and a text, got {shown!r}{hint}"
                )
            yield text.strip(), config.label_separator.join(labels)


def _check_encoding(path: Path) -> None:
    """Raise a DataError if a file of text is not UTF-8. Some readers would notice only when a row is used."""
    if path.suffix == ".parquet":
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: is not UTF-8 ({error.reason}); convert it, e.g. with iconv"
                ) from error


def _reason(error: BaseException) -> str:
    """Return the messages of an error and of what caused it, the innermost last, each once."""
    reasons: list[str] = []
    current: BaseException | None = error
    while current is not None:
        message = str(current).strip().split("\n")[0] or type(current).__name__
        if message not in reasons:
            reasons.append(message)
        current = current.__cause__
    return "; ".join(reasons)
