"""One loader for every source: the embedded data, a Hub id, a folder or a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, DatasetDict

from headscope.data.cache import cache_folder
from headscope.data.config import EMBEDDED, FILE_ENDINGS, DataConfig, is_local
from headscope.data.licenses import load_licenses
from headscope.errors import DataError

# How `datasets` is told to read a file. Its csv reader is pandas', so quoting and line breaks in fields work.
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}


def load_source(config: DataConfig) -> DatasetDict:
    """Return the source's own splits and columns, unchecked.

    `data.path` may be `licenses` (embedded), a Hub id, a folder in Hub layout (data files, perhaps a card), a folder
    with one folder of .txt files per class (below train/ and test/ or not), or a file: csv, tsv, json, jsonl, parquet,
    or txt with lines of `__label__name text`, as fastText reads them.

    Raises:
        DataError: if the source cannot be found or read; the message names it and the reason.

    """
    if config.path == EMBEDDED:
        return DatasetDict({config.train_split: load_licenses(cache_folder(config.cache_dir))})
    try:
        return _load(config)
    except DataError:
        raise
    except Exception as error:  # `datasets` raises some twenty classes; each means that the source cannot be read
        raise DataError(f"data.path={config.path}: {_reason(error)}") from error


def _load(config: DataConfig) -> DatasetDict:
    path = Path(config.path).expanduser()
    if not is_local(config.path):
        return _all_splits(datasets.load_dataset(config.path, config.name, revision=config.revision))
    if path.is_file():
        return _load_files(config)
    if _class_folders(path):
        return _load_class_folders(path, config.train_split)
    return _all_splits(datasets.load_dataset(str(path), config.name))


def _all_splits(loaded: Any) -> DatasetDict:
    if not isinstance(loaded, DatasetDict):
        raise DataError(f"expected a data set with splits, got {type(loaded).__name__}")
    return loaded


def _load_files(config: DataConfig) -> DatasetDict:
    """Load a file for train and, if named, one each for validation and test."""
    named = {
        config.train_split: config.path,
        config.validation_split or "validation": config.validation_path,
        config.test_split or "test": config.test_path,
    }
    return DatasetDict({split: _load_file(Path(name).expanduser(), config) for split, name in named.items() if name})


def _load_file(path: Path, config: DataConfig) -> Dataset:
    if path.suffix not in FILE_ENDINGS:
        raise DataError(f"{path}: the ending {path.suffix!r} is not known; takes {', '.join(FILE_ENDINGS)}")
    if path.suffix == ".txt":
        return _rows(_labelled_lines(path), config)
    reader, options = READERS[path.suffix]
    try:
        return datasets.load_dataset(reader, data_files=str(path), split="train", **options)
    except Exception as error:
        raise DataError(f"{path}: cannot be read as {path.suffix[1:]}: {_reason(error)}") from error


def _rows(rows: Iterator[tuple[str, str]], config: DataConfig) -> Dataset:
    texts, labels = zip(*rows, strict=True)
    return Dataset.from_dict({config.text_column: list(texts), config.label_column: list(labels)})


def _labelled_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (text, label) of each line `__label__name text`; blank lines are passed over."""
    for number, line in enumerate(_read_text(path).splitlines(), start=1):
        label, _, text = line.partition(" ")
        if not line.strip():
            continue
        if not label.startswith("__label__"):
            raise DataError(f"{path}, line {number}: takes lines of '__label__name text', got {line[:60]!r}")
        yield text, label.removeprefix("__label__")


def _class_folders(path: Path) -> bool:
    """Tell whether the folder holds texts sorted into folders by class: **/class/*.txt and no data files."""
    has_data = any(path.rglob(f"*{ending}") for ending in FILE_ENDINGS[:-1] if any(path.rglob(f"*{ending}")))
    return (not has_data and any(path.glob("*/*.txt"))) or any(path.glob("train/*/*.txt"))


def _load_class_folders(path: Path, train_split: str) -> DatasetDict:
    """Load path/class/*.txt as one split, or path/split/class/*.txt as several."""
    if any(path.glob("*/*.txt")):
        return DatasetDict({train_split: _class_folder(path)})
    return DatasetDict({folder.name: _class_folder(folder) for folder in sorted(path.iterdir()) if folder.is_dir()})


def _class_folder(path: Path) -> Dataset:
    files = sorted(path.glob("*/*.txt"))
    return Dataset.from_dict(
        {"text": [_read_text(file) for file in files], "label": [file.parent.name for file in files]}
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); convert it, e.g. with iconv"
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
