"""From a source to three checked splits with the columns text (text_pair) and label.

`load_corpus` loads, checks, names and cuts; `load_split` does so for one split of other data. What
they check follows.
"""

import hashlib
import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetDict, LargeList, List, Value

from headscope.config import DataConfig
from headscope.data.columns import (
    class_counts,
    column_digests,
    digests,
    numbers,
    text_columns,
    texts_among,
    tuples,
    values,
)
from headscope.data.rows import is_blank
from headscope.data.source import load_source, reason, truncate_texts
from headscope.data.splits import cut, in_order, limited, limited_rows, near_duplicate_groups
from headscope.errors import DataError, UserWarningMessage, listed, separator_hint, shown
from headscope.files import content_key

TEXTS = ("string", "large_string", "null")
LABELS = re.compile("(large_)?string|bool|null|u?int.*|float.*|half|double")


@dataclass
class Corpus:
    """Texts with labels, ready to be encoded.

    Attributes:
        splits: train, validation and test; columns text, text_pair (for pairs) and label, an index
            into `labels` or, with data.multi_label, a list with 1 at the classes that a text has
            and 0 at the others.
        labels: the names of the classes.
        facts: what a reader of the results should know: sizes, how splits came about,
            near-duplicates.
        groups: of the training texts, the group of near-duplicates of each; None where no cut asked
            for them.
    """

    splits: DatasetDict
    labels: list[str]
    facts: dict[str, Any] = field(default_factory=dict)
    groups: np.ndarray | None = None

    def digests(self) -> dict[str, dict[str, Any]]:
        """Return rows and digests of each split; see `digests_of_split`."""
        return {role: digests_of_split(split) for role, split in self.splits.items()}

    def count(self, name: str, role: str, count: int) -> None:
        """Note how many texts of a split something has happened to, if to any."""
        if count:
            self.facts.setdefault(name, {})[role] = count


def load_corpus(config: DataConfig) -> Corpus:
    """Load, check, name and split the texts that the configuration describes.

    Raises:
        DataError: for whatever cannot be trained on; see the checks of this module.
    """
    source = load_source(config)
    if config.train_split not in source:
        raise DataError(
            f"{config.path}: no split {config.train_split!r} for data.train_split; it has "
            f"{', '.join(source)}"
        )
    names = {
        "train": config.train_split,
        "validation": config.validation_split,
        "test": config.test_split,
    }
    given = {role: name for role, name in names.items() if name is not None and name in source}
    checked = {role: check_split(source[name], name, config) for role, name in given.items()}
    labels = class_names(checked, config)
    check_several(checked["train"], config)
    corpus = Corpus(DatasetDict(), labels, warn_of_similar_labels(labels, config))
    for role, name in given.items():
        split = as_columns(checked[role], name, labels, config)
        corpus.splits[role], num_long = truncate_texts(split, config)
        corpus.count("rows dropped as empty", role, len(source[name]) - len(split))
        corpus.count("texts of which the beginning alone is read", role, num_long)
    check_classes(corpus, config)
    cut_missing(corpus, config)
    if config.limit is None:
        check_classes(corpus, config)
    else:
        limit_splits(corpus, config)
    train = numbers(corpus.splits["train"], "label")
    counts = class_counts(train, len(labels))
    if rare := [name for name, count in zip(labels, counts, strict=True) if count == 1]:
        corpus.facts["classes with one training text"] = rare
    corpus.facts |= warn_of_repeated_texts(corpus.splits, config)
    corpus.facts["sizes"] = {role: len(split) for role, split in corpus.splits.items()}
    if config.multi_label:
        corpus.facts["mean labels of a text"] = round(float(train.sum(axis=1).mean()), 2)
        corpus.facts["share of texts without a label"] = float((train.sum(axis=1) == 0).mean())
    return corpus


def load_split(config: DataConfig, split: str | None, labels: list[str]) -> tuple[Dataset, str]:
    """Load one split of any source, to score a finished model on it.

    Args:
        config: the source; its other splits are not looked at.
        split: its name; the source's only one, or data.test_split, if None.
        labels: the classes that the model knows.

    Returns:
        The texts with label as an index into `labels`, and the name of the split.
    """
    source = load_source(config)
    name = split or (next(iter(source)) if len(source) == 1 else config.test_split)
    if name is None or name not in source:
        raise DataError(
            f"{config.path}: no split {name!r}; it has {', '.join(source)} (choose one with "
            "split=...)"
        )
    checked = check_split(source[name], name, config)
    dataset, _ = truncate_texts(as_columns(checked, name, labels, config), config)
    return limited(dataset, config.limit, config.split_seed), name


def digests_of_split(split: Dataset) -> dict[str, Any]:
    """Return the number of rows of a split, and digests of their texts and labels."""
    labels = numbers(split, "label").astype(np.int64)
    return {
        "rows": len(split),
        "texts": content_key(column_digests(split, texts_among(split.column_names))),
        "labels": hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest(),
    }


def cut_missing(corpus: Corpus, config: DataConfig) -> None:
    """Cut the test and the validation split from train where the source has none."""
    train = corpus.splits["train"]
    given = len(train)
    for role, share in (("test", config.test_share), ("validation", config.validation_share)):
        if role in corpus.splits:
            continue
        if corpus.groups is None:
            corpus.groups = groups_of(train)
            num_groups = len(np.unique(corpus.groups))
        of_rest = share * given / len(train)  # of what was given, also for the second cut
        try:
            is_off = cut(numbers(train, "label"), corpus.groups, of_rest, config.split_seed)
        except ValueError as error:
            raise DataError(
                f"{config.path}, split {config.train_split} ({given} rows): only {num_groups} "
                f"different texts of {len(corpus.labels)} classes, too few to cut a {role} split (a "
                "class keeps its last text; rows that differ only in case, digits or punctuation "
                f"count as one); add texts, or give one with data.{role}_path=..."
            ) from error
        corpus.splits[role] = train.select(np.flatnonzero(is_off))
        corpus.splits["train"] = train = train.select(np.flatnonzero(~is_off))
        corpus.groups = corpus.groups[~is_off]
        corpus.facts[f"{role} cut from train"] = len(corpus.splits[role])
        corpus.facts["near-duplicates kept on one side"] = given - num_groups


def limit_splits(corpus: Corpus, config: DataConfig) -> None:
    """Take at most data.limit texts of each split."""
    for role, split in corpus.splits.items():
        rows = limited_rows(numbers(split, "label"), config.limit, config.split_seed)
        corpus.splits[role] = split.select(rows)
        if role == "train" and corpus.groups is not None:
            corpus.groups = in_order(corpus.groups[rows])
    if config.multi_label:  # a sample may well lack a label that few texts have
        return
    try:
        check_classes(corpus, config)
    except DataError as error:
        raise DataError(
            f"{error}; data.limit={config.limit} left no more of them: raise it"
        ) from None


def groups_of(split: Dataset) -> np.ndarray:
    """Return the group of near-duplicates of each row of a split, [N]."""
    return near_duplicate_groups(tuples(split, texts_among(split.column_names)))


# Labels: what a row holds, and what its classes are called.


def holds_lists(feature: Any) -> bool:
    """Tell whether a column holds a list in each row."""
    return isinstance(feature, List | LargeList)


def label_lists(dataset: Dataset, config: DataConfig) -> Iterator[list[Any]]:
    """Yield the labels of each row: its value or, if data.multi_label, its list or parts."""
    cells = values(dataset, config.label_column)
    if not config.multi_label:
        return ([label] for label in cells)
    if holds_lists(dataset.features[config.label_column]):
        return cells
    return (split_labels(cell, config.label_separator) for cell in cells)


def split_labels(cell: Any, separator: str) -> list[Any]:
    """Return what stands between the separators; an empty cell holds no label."""
    if isinstance(cell, str):
        return [part.strip() for part in cell.split(separator) if part.strip()]
    return [] if cell is None or cell != cell else [cell]  # cells of one number each, or NaN


def names_of_class_label(dataset: Dataset, config: DataConfig) -> list[str] | None:
    """Return the names of a ClassLabel, or of a list of them; None for another column."""
    feature = dataset.features[config.label_column]
    if holds_lists(feature):
        feature = feature.feature
    return feature.names if isinstance(feature, ClassLabel) else None


def class_names(splits: Mapping[str, Dataset], config: DataConfig) -> list[str]:
    """Return the names of the classes: a ClassLabel's own, else the labels in order, as strings."""
    names = names_of_class_label(splits["train"], config)
    if names is not None:
        return list(names)
    rows = chain.from_iterable(label_lists(split, config) for split in splits.values())
    labels = set(chain.from_iterable(rows))
    if not labels:
        raise DataError(f"{config.path}, column {config.label_column!r}: no text has a label")
    ordered = sorted(labels, key=lambda label: (isinstance(label, str), label))
    # Each name once: where one file has 3 and another "3;5", both are read as class 3.
    return list(dict.fromkeys(map(label_name, ordered)))


def label_name(label: object) -> str:
    """Return the name of a class: 3.0, as pandas writes 3 beside a gap, is called 3."""
    return str(int(label)) if isinstance(label, bool | float) else str(label).strip()


def as_columns(dataset: Dataset, split: str, labels: list[str], config: DataConfig) -> Dataset:
    """Return the columns text, text_pair (for pairs) and label alone.

    Labels become an index into `labels` or, with data.multi_label, C numbers: 1 at the classes that
    a text has.
    """
    N, C = len(dataset), len(labels)
    names = dict(enumerate(names_of_class_label(dataset, config) or []))
    index = {name: number for number, name in enumerate(labels)}
    indices = np.zeros((N, C), np.int8) if config.multi_label else np.zeros(N, np.int64)
    unknown: list[set[str]] = []
    for row, row_labels in enumerate(label_lists(dataset, config)):
        row_names = [names[label] if label in names else label_name(label) for label in row_labels]
        if any(name not in index for name in row_names):
            unknown.append(set(row_names) - index.keys())
        elif config.multi_label:
            indices[row, [index[name] for name in row_names]] = 1
        else:
            indices[row] = index[row_names[0]]
    if unknown:
        raise DataError(
            f"{place(split, config, config.label_column)}: {len(unknown)} of {N} rows have "
            f"unknown labels {listed(sorted(set.union(*unknown)))}; expected {listed(labels)} "
            "(a split without labels is often marked -1: name another split)"
        )
    column: Any = indices
    if config.multi_label:
        column = pa.FixedSizeListArray.from_arrays(pa.array(indices.ravel()), C)
    texts = dict(zip(text_columns(config), ("text", "text_pair"), strict=False))
    dataset = dataset.select_columns(list(texts))
    dataset = dataset.rename_columns({old: new for old, new in texts.items() if old != new})
    return dataset.add_column("label", column)


# What is checked before anything is trained.


def place(split: str, config: DataConfig, column: str) -> str:
    """Return where something stands, for a message."""
    return f"{config.file_of(split)}, split {split}, column {column!r}"


def check_split(dataset: Dataset, split: str, config: DataConfig) -> Dataset:
    """Check columns and labels of a split, and return its rows with a text and a label."""
    check_columns(dataset, split, config)
    check_labels(dataset, split, config)
    return without_empty(dataset, split, config)


def check_columns(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if a column is missing or holds no texts or no labels."""
    where = f"{config.file_of(split)}, split {split} ({len(dataset)} rows)"
    names = dataset.column_names
    for key in ("text_column", "text_pair_column", "label_column"):
        column = getattr(config, key)
        if column is not None and column not in names:
            has = f"it has {listed(names)}{separator_hint(names)}"
            raise DataError(f"{where}: no column {column!r} for data.{key}; {has}")
    for column in text_columns(config):
        kind = kind_of(dataset.features[column])
        if kind not in TEXTS:
            raise DataError(f"{where}: column {column!r} holds {kind}, not text")
    feature = dataset.features[config.label_column]
    is_list = holds_lists(feature)
    label = feature.feature if is_list and config.multi_label else feature
    if not isinstance(label, ClassLabel) and not LABELS.fullmatch(kind_of(label)):
        expected = "a label is an integer or a string"
        if is_list and not config.multi_label:
            expected += "; if a text has any number of them, set data.multi_label=true"
        raise DataError(
            f"{where}: column {config.label_column!r} holds {kind_of(feature)}; {expected}"
        )
    used = dataset.select_columns([*text_columns(config), config.label_column])
    try:
        used.data.validate(full=True)  # a parquet file may hold bytes that are not UTF-8
    except pa.ArrowInvalid as error:
        raise DataError(f"{where}: {reason(error)}; fix or drop the row") from error


def kind_of(feature: Any) -> str:
    """Return the type of a column, for a message."""
    return feature.dtype if isinstance(feature, Value) else type(feature).__name__


def check_labels(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if labels are fractions, or if a list names a number twice.

    Whole numbers may be floating: pandas makes them so beside a gap. Lists of 0 and 1 for each
    class would be read as two labels.
    """
    where = place(split, config, config.label_column)
    for row, cell in enumerate(label_lists(dataset, config)):
        labels = [label for label in cell or [] if not isinstance(label, str | None)]
        for label in labels:
            if isinstance(label, float) and label == label and not label.is_integer():
                raise DataError(
                    f"{where}, row {row}: got the fraction {label}, expected an integer or a string"
                )
        if len(labels) > len(set(labels)):
            raise DataError(
                f"{where}, row {row}: {labels[:10]} names a label twice; expected the labels that a "
                "text has, such as [0, 3], not a 0 or 1 for each class"
            )


def without_empty(dataset: Dataset, split: str, config: DataConfig) -> Dataset:
    """Return the rows with a text and a label; refuse others unless data.drop_empty is set.

    Where a text has any number of labels, an empty list or cell is no gap, but a list that is null
    or has one is.
    """
    columns = text_columns(config)
    if not config.multi_label or holds_lists(dataset.features[config.label_column]):
        columns.append(config.label_column)
    is_empty = np.zeros(len(dataset), bool)
    for column in columns:
        found = np.fromiter(map(is_gap, values(dataset, column)), bool, len(dataset))
        is_empty |= found
        if found.any() and not config.drop_empty:
            raise DataError(
                f"{place(split, config, column)}: {found.sum()} of {len(dataset)} rows are empty "
                f"or null (the first is row {found.argmax()}); fix them or set data.drop_empty=true"
            )
    if len(dataset) and not is_empty.any():
        return dataset
    message = (
        f"{config.file_of(split)}, split {split}: dropped {is_empty.sum()} of {len(dataset)} rows "
        f"with an empty {' or '.join(map(repr, columns))}"
    )
    if is_empty.all():
        raise DataError(f"{message}; none is left")
    warnings.warn(UserWarningMessage(message), stacklevel=2)
    return dataset.select(np.flatnonzero(~is_empty))


def is_gap(value: Any) -> bool:
    """Tell whether a value is null, NaN or a blank text, or a list with one of these."""
    if isinstance(value, list):
        return any(map(is_gap, value))
    if isinstance(value, str):
        return is_blank(value)
    return value is None or value != value


def check_several(train: Dataset, config: DataConfig) -> None:
    """Raise a DataError if, with data.multi_label, cells are split and none holds two labels."""
    if not config.multi_label or holds_lists(train.features[config.label_column]):
        return
    if all(len(labels) < 2 for labels in label_lists(train, config)):
        raise DataError(
            f"{config.path}, column {config.label_column!r}: no text of train has two labels: leave "
            "data.multi_label out, or name what stands between labels: data.label_separator=... "
            f"(it is {config.label_separator!r})"
        )


def check_classes(corpus: Corpus, config: DataConfig) -> None:
    """Raise a DataError if train has one class alone, an id for each row, or lacks a class."""
    labels = corpus.labels
    counts = {
        role: class_counts(numbers(split, "label"), len(labels))
        for role, split in corpus.splits.items()
    }
    num_rows = len(corpus.splits["train"])
    in_train = counts.pop("train")
    present = [name for name, count in zip(labels, in_train, strict=True) if count]
    where = f"{config.path}, column {config.label_column!r}: train ({num_rows} rows) has"
    if len(present) < 2:
        found = f"one class only, {shown(present[0])}" if present else "no class"
        raise DataError(f"{where} {found}; expected two or more")
    once = int((in_train == 1).sum())
    if not config.multi_label and once > num_rows / 2:
        raise DataError(
            f"{where} {len(present)} labels, {once} of them once, such as {listed(present[:3])}; "
            "that looks like an id of each row: name the column with the label, "
            "data.label_column=..."
        )
    for role, in_role in counts.items():
        unknown = np.flatnonzero((in_role > 0) & (in_train == 0))
        if len(unknown):
            names = listed([f"'{shown(labels[c])}' ({in_role[c]} rows)" for c in unknown])
            source = config.file_of(getattr(config, f"{role}_split") or role)
            raise DataError(
                f"{source}, column {config.label_column!r}: {role} has labels that train lacks: "
                f"{names}"
            )


def warn_of_similar_labels(labels: Sequence[str], config: DataConfig) -> dict[str, object]:
    """Warn of labels that differ in case, in Unicode form (NFKC), or as 1, 01 and 1.0 alone.

    Returns:
        These labels, as a fact, if there are any. They stay classes of their own.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
        plain = "".join(sign for sign in plain if unicodedata.category(sign) != "Cf").strip()
        groups[re.sub(r"^(-?)0*(\d+)(\.0*)?$", r"\1\2", plain)].append(repr(label))
    similar = [" / ".join(group) for group in groups.values() if len(group) > 1]
    if not similar:
        return {}
    message = f"labels differ in spelling alone, and are classes of their own: {listed(similar)}"
    where = f"{config.path}, column {config.label_column!r}"
    warnings.warn(UserWarningMessage(f"{where}: {message}"), stacklevel=2)
    return {"labels that differ in spelling alone": similar}


def warn_of_repeated_texts(splits: DatasetDict, config: DataConfig) -> dict[str, object]:
    """Warn of texts that are in train and in another split, or under different labels.

    Returns:
        How many rows hold such texts.
    """
    columns = texts_among(splits["train"].column_names)
    rows = chain.from_iterable(tuples(split, columns) for split in splits.values())
    texts = np.unique(digests(rows), return_inverse=True)[1]
    ends = np.cumsum([len(split) for split in splits.values()])
    of_role = dict(zip(splits, np.split(texts, ends[:-1]), strict=True))
    shared = {
        role: int(np.isin(of_role[role], of_role["train"]).sum()) for role in ("validation", "test")
    }
    if any(shared.values()):
        counts = [f"{n} of {len(splits[role])} in {role}" for role, n in shared.items() if n]
        message = f"{config.path}: texts that also stand in train: {', '.join(counts)}"
        warnings.warn(UserWarningMessage(message), stacklevel=2)
    labels = np.concatenate([numbers(split, "label") for split in splits.values()])
    conflicts = conflicting_labels(texts, labels)
    if conflicts.any():
        all_texts = chain.from_iterable(values(split, "text") for split in splits.values())
        example = shown(next(islice(all_texts, int(conflicts.argmax()), None)))
        message = (
            f"{config.path}: {conflicts.sum()} of {len(conflicts)} rows hold a text that stands "
            f"under different labels, such as '{example}'"
        )
        warnings.warn(UserWarningMessage(message), stacklevel=2)
    return {
        "texts also in train": sum(shared.values()),
        "texts under different labels": int(conflicts.sum()),
    }


def conflicting_labels(texts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Tell for each row whether its text, given by a number, has other labels in another row."""
    if labels.ndim > 1:
        labels = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    different = np.unique(np.stack([texts, labels], axis=1), axis=0)
    num_labels = np.bincount(different[:, 0])  # of each text
    return np.asarray(num_labels[texts] > 1)
