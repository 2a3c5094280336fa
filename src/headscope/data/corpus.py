"""From a source to three checked splits with the columns text (text_pair) and label.

`load_corpus` loads, checks, names and cuts; `load_split` does so for one split of other data. What they check follows.
"""

import hashlib
import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetDict, Value

from headscope.config import DataConfig
from headscope.data.columns import (
    PLACE,
    ROWS_AT_ONCE,
    class_counts,
    class_names,
    digests,
    holds_lists,
    label_lists,
    name_lists,
    num_known,
    numbers,
    texts_among,
    tuples,
    values,
    with_numbers,
)
from headscope.data.encoded import digests_of
from headscope.data.rows import is_blank
from headscope.data.source import load_source, truncate_texts
from headscope.data.splits import GROUP, cut, groups_of, limited
from headscope.errors import DataError, UserWarningMessage, listed, separator_hint, shown
from headscope.files import content_key

LABEL_KINDS = (
    "string",
    "large_string",
    "bool",
    "null",
    "float16",
    "float32",
    "float64",
    "half",
    "float",
    "double",
)


@dataclass
class Corpus:
    """Texts with labels, ready to be encoded.

    Attributes:
        splits: train, validation and test; columns text, text_pair (for pairs) and label, an index into `labels` or,
            with data.multi_label, a list with 1 at the classes that a text has and 0 at the others.
        labels: the names of the classes.
        facts: what a reader of the results should know: sizes, how splits came about, near-duplicates.
        groups: of the training texts, the group of near-duplicates of each; None where no cut asked for them.
    """

    splits: DatasetDict
    labels: list[str]
    facts: dict[str, object] = field(default_factory=dict)
    groups: np.ndarray | None = None

    def digests(self) -> dict[str, dict[str, Any]]:
        """Return what changes with any row of a split, and with their order: for each its rows, texts and labels."""
        return {role: digests_of_split(split) for role, split in self.splits.items()}


def load_corpus(config: DataConfig) -> Corpus:
    """Load, check, name and split the texts that the configuration describes.

    Raises:
        DataError: for whatever cannot be trained on; see the checks of this module.
    """
    source = load_source(config)
    if config.train_split not in source:
        raise DataError(
            f"{config.path}: no split {config.train_split!r} for data.train_split; it has {', '.join(source)}"
        )
    chosen = {
        "train": config.train_split,
        "validation": config.validation_split,
        "test": config.test_split,
    }
    given = {role: name for role, name in chosen.items() if name in source}
    raw = DatasetDict(
        {role: _checked(source, name, config) for role, name in given.items() if name}
    )
    labels = class_names(raw, config)
    check_several(raw["train"], config)
    splits = {
        role: as_columns(dataset, str(given[role]), labels, config) for role, dataset in raw.items()
    }
    corpus = Corpus(DatasetDict(splits), labels, warn_of_labels_alike(labels, config))
    for role, split in splits.items():
        corpus.splits[role], num_long = truncate_texts(split, config)
        _count(corpus, "rows dropped as empty", role, len(source[str(given[role])]) - len(split))
        _count(corpus, "texts of which the beginning alone is read", role, num_long)
    check_classes(corpus.splits, labels, config)
    _cut_missing(corpus, config)
    for role, split in corpus.splits.items():
        corpus.splits[role] = limited(split, config.limit, config.split_seed)
    if (
        config.limit is None or not config.multi_label
    ):  # a sample may well lack a label that few texts have
        try:
            check_classes(corpus.splits, labels, config)
        except DataError as error:
            if config.limit is None:
                raise
            raise DataError(
                f"{error}; data.limit={config.limit} left no more of them: raise it"
            ) from None
    if GROUP in corpus.splits["train"].column_names:
        corpus.groups = groups_of(corpus.splits["train"])
        for role, split in corpus.splits.items():
            corpus.splits[role] = split.remove_columns(
                [GROUP] if GROUP in split.column_names else []
            )
    corpus.facts |= _facts_of_classes(corpus)
    corpus.facts |= warn_of_repeated_texts(corpus.splits, config)
    corpus.facts["sizes"] = {role: len(split) for role, split in corpus.splits.items()}
    if config.multi_label:
        counts = numbers(corpus.splits["train"], "label").sum(axis=1)
        corpus.facts["mean labels of a text"] = round(float(counts.mean()), 2)
        corpus.facts["share of texts without a label"] = float((counts == 0).mean())
    return corpus


def digests_of_split(split: Dataset) -> dict[str, Any]:
    """Return the number of rows of a split, and digests of their texts and of their labels' numbers."""
    labels = numbers(split, "label").astype(np.int64)
    texts = content_key(digests_of(split, texts_among(split.column_names)))
    return {
        "rows": len(split),
        "texts": texts,
        "labels": hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest(),
    }


def _count(corpus: Corpus, name: str, role: str, count: int) -> None:
    """Note how many texts of a split something has happened to, if to any."""
    if count:
        corpus.facts.setdefault(name, {})[role] = count  # type: ignore[index]


def _facts_of_classes(corpus: Corpus) -> dict[str, object]:
    """Return which classes have one training text: it is learned, and validation, if cut, has none of them."""
    counts = class_counts(numbers(corpus.splits["train"], "label"), len(corpus.labels))
    rare = [name for name, count in zip(corpus.labels, counts, strict=True) if count == 1]
    return {"classes with one training text": rare} if rare else {}


def _checked(source: DatasetDict, split: str, config: DataConfig) -> Dataset:
    check_columns(source[split], split, config)
    check_labels(source[split], split, config)
    return without_empty(source[split], split, config)


def place(dataset: Dataset, row: int) -> str:
    """Return where a row stands: the line of its file, or its number where the source has no lines, from 0 on."""
    return str(dataset[row][PLACE]) if PLACE in dataset.column_names else f"row {row}"


def as_columns(dataset: Dataset, split: str, labels: list[str], config: DataConfig) -> Dataset:
    """Return the data set with the columns text, text_pair (for pairs) and label alone, labels as indices."""
    names = [*text_columns(config), config.label_column]
    roles = ["text", "text_pair"] if config.text_pair_column else ["text"]
    dataset = dataset.select_columns(names).rename_columns(
        {old: new for old, new in zip(names, [*roles, "label"], strict=True) if old != new}
    )
    known = set(labels)
    unknown = [found for row in name_lists(dataset, "label", config) if (found := set(row) - known)]
    if unknown:
        raise DataError(
            f"{config.file_of(split)}, split {split}, column {config.label_column!r}: {len(unknown)} of "
            f"{len(dataset)} rows have unknown labels {listed(sorted(set().union(*unknown)))}; "
            f"takes {listed(labels)} (a split without labels is often marked -1: name another split)"
        )
    return with_numbers(dataset, labels, config)


def _cut_missing(corpus: Corpus, config: DataConfig) -> None:
    """Cut the test and the validation split from train where the source has none."""
    train = corpus.splits["train"]
    given = len(train)
    if len(corpus.splits) < len(("train", "validation", "test")):
        corpus.splits["train"] = train.add_column(GROUP, groups_of(train))
    for role, share in (("test", config.test_share), ("validation", config.validation_share)):
        if role in corpus.splits:
            continue
        share = (
            share * given / len(corpus.splits["train"])
        )  # of what was given, also for the second cut
        try:
            stays, off, repeated = cut(corpus.splits["train"], share, config.split_seed)
        except ValueError as error:
            different = len(np.unique(groups_of(train)))
            raise DataError(
                f"{config.path}, split {config.train_split} ({given} rows): only {different} different texts of "
                f"{len(corpus.labels)} classes, too few to cut a {role} split (a class keeps its last text; rows that "
                "differ only in case, digits or punctuation count as one); "
                f"add texts, or give one with data.{role}_path=..."
            ) from error
        corpus.splits["train"], corpus.splits[role] = stays, off
        corpus.facts[f"{role} cut from train"] = len(off)
        corpus.facts.setdefault("near-duplicates kept on one side", repeated)


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
            f"{config.path}: no split {name!r}; it has {', '.join(source)} (choose one with split=...)"
        )
    dataset, _ = truncate_texts(
        as_columns(_checked(source, name, config), name, labels, config), config
    )
    return limited(dataset, config.limit, config.split_seed), name


# What is checked before anything is trained.


def check_columns(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if a column is missing, a text column holds no strings, or a label column no labels."""
    where = f"{config.file_of(split)}, split {split} ({len(dataset)} rows)"
    for key in ("text_column", "text_pair_column", "label_column"):
        column = getattr(config, key)
        if column is not None and column not in dataset.column_names:
            names = [name for name in dataset.column_names if name != PLACE]
            has = f"it has {listed(names)}{separator_hint(names)}"
            raise DataError(f"{where}: no column {column!r} for data.{key}; {has}")
    for column in text_columns(config):
        kind = dataset.features[column]
        if getattr(kind, "dtype", None) not in ("string", "large_string", "null"):
            raise DataError(f"{where}: column {column!r} holds {_kind(kind)}, not text")
    kind = dataset.features[config.label_column]
    of_one = kind.feature if config.multi_label and holds_lists(kind) else kind
    is_label = isinstance(of_one, Value) and (of_one.dtype in LABEL_KINDS or "int" in of_one.dtype)
    if not (is_label or isinstance(of_one, ClassLabel)):
        takes = "a label is an integer or a string"
        if holds_lists(kind) and not config.multi_label:
            takes += "; if a text has any number of them, set data.multi_label=true"
        raise DataError(f"{where}: column {config.label_column!r} holds {_kind(kind)}; {takes}")
    for column in (*text_columns(config), config.label_column):
        check_utf8(dataset, column, where)


def _kind(feature: Any) -> str:
    return feature.dtype if isinstance(feature, Value) else type(feature).__name__


def check_utf8(dataset: Dataset, column: str, where: str) -> None:
    """Raise a DataError if strings hold bytes that are none of UTF-8, which parquet and Arrow files may."""
    start = 0
    for rows in dataset.select_columns([column]).with_format("arrow").iter(ROWS_AT_ONCE):
        try:
            rows.column(column).validate(full=True)
        except pa.ArrowInvalid as error:
            bad = next(row for row, value in enumerate(rows.column(column)) if not _is_valid(value))
            raise DataError(
                f"{where}, {place(dataset, start + bad)}: column {column!r} holds bytes that are not UTF-8; "
                "mend or drop the row"
            ) from error
        start += len(rows)


def _is_valid(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def text_columns(config: DataConfig) -> list[str]:
    """Return the column with the text and, for pairs, the one with the second text."""
    return [column for column in (config.text_column, config.text_pair_column) if column]


def without_empty(dataset: Dataset, split: str, config: DataConfig) -> Dataset:
    """Return the rows with a text and a label; refuse others unless data.drop_empty is set, and a split without any.

    Where a text has any number of labels, an empty list or cell is no gap, but a list that is null or has one is.
    """
    where, columns = f"{config.file_of(split)}, split {split}", text_columns(config)
    if not config.multi_label or holds_lists(dataset.features[config.label_column]):
        columns.append(config.label_column)

    def is_empty(value: Any) -> bool:
        if isinstance(value, list):
            return any(map(is_empty, value))
        return (
            value is None or value != value or (isinstance(value, str) and is_blank(value))
        )  # NaN alone

    is_bad = np.zeros(len(dataset), dtype=bool)
    dropped = []
    for column in columns:
        found = np.fromiter(map(is_empty, values(dataset, column)), dtype=bool, count=len(dataset))
        if found.any() and not config.drop_empty:
            raise DataError(
                f"{where}, column {column!r}: {found.sum()} of {len(dataset)} rows are empty or null "
                f"(the first is {place(dataset, int(found.argmax()))}); mend them or set data.drop_empty=true"
            )
        if count := int((found & ~is_bad).sum()):
            dropped.append(f"{count} with an empty {column!r}")
        is_bad |= found
    if is_bad.all():
        raise DataError(f"{where}: no rows to use; {len(dataset)} were dropped as empty or null")
    if not dropped:
        return dataset
    message = f"{where}: dropped {is_bad.sum()} of {len(dataset)} rows: {', '.join(dropped)}"
    warnings.warn(UserWarningMessage(message), stacklevel=2)
    return dataset.select(np.flatnonzero(~is_bad))


def check_labels(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if labels are fractions, or if a list names a number twice.

    Whole numbers may be floating: pandas makes them so beside a gap. Lists of 0 and 1 for each class would be read as
    two labels.
    """
    where = f"{config.file_of(split)}, split {split}, column {config.label_column!r}"
    for row, labels in enumerate(label_lists(dataset, config.label_column, config)):
        several = [label for label in labels or [] if label is not None]
        if fractions := [
            label
            for label in several
            if isinstance(label, float) and not (label != label or label.is_integer())
        ]:
            raise DataError(
                f"{where}, {place(dataset, row)}: holds the fraction {fractions[0]}; a label is an integer or a string"
            )
        if len(several) > len(set(several)) and not isinstance(several[0], str):
            raise DataError(
                f"{where}, {place(dataset, row)}: {several[:10]} names a label twice; takes the labels that a text "
                "has, such as [0, 3], not a 0 or 1 for each class"
            )


def check_several(train: Dataset, config: DataConfig) -> None:
    """Raise a DataError if data.multi_label is set, and a column that is split has no text with two labels."""
    if not config.multi_label or holds_lists(train.features[config.label_column]):
        return
    if all(len(labels) < 2 for labels in label_lists(train, config.label_column, config)):
        raise DataError(
            f"{config.path}, column {config.label_column!r}: no text of train has two labels: leave data.multi_label "
            f"out, or say what stands between labels: data.label_separator=... (it is {config.label_separator!r})"
        )


def check_classes(splits: DatasetDict, names: Sequence[str], config: DataConfig) -> None:
    """Raise a DataError if train lacks a class that another split has, has one class alone, or too few texts of one.

    Splits that are still to be cut from train may be missing.
    """
    counts = {
        split: dict(
            zip(names, class_counts(numbers(dataset, "label"), len(names)).tolist(), strict=True)
        )
        for split, dataset in splits.items()
    }
    in_train, where = counts["train"], f"{config.path}, column {config.label_column!r}"
    present = [name for name, count in in_train.items() if count]
    if len(present) < 2:
        found = f"one class only, {shown(present[0])}" if present else "no class"
        raise DataError(
            f"{where}: train ({len(splits['train'])} rows) has {found}; takes two or more"
        )
    once = sum(count == 1 for count in in_train.values())
    if not config.multi_label and once > len(splits["train"]) / 2:
        raise DataError(
            f"{where}: train ({len(splits['train'])} rows) has {len(present)} labels, {once} of them once, such as "
            f"{listed(present[:3])}; that looks like a number of each row: name the column with the label, "
            "data.label_column=..."
        )
    for role in ("validation", "test"):
        of_role = sorted(counts.get(role, {}).items())
        unknown = [
            f"'{shown(name)}' ({count} rows)"
            for name, count in of_role
            if count and not in_train[name]
        ]
        if unknown:
            source = config.file_of(getattr(config, f"{role}_split") or role)
            raise DataError(
                f"{source}, column {config.label_column!r}: {role} has labels that train lacks: {listed(unknown)}"
            )


def warn_of_labels_alike(labels: Sequence[str], config: DataConfig) -> dict[str, object]:
    """Warn of labels that a reader would take for one: they differ in case, in Unicode form (NFKC) or as 1, 01 and 1.0.

    Returns:
        These labels, as a fact, if there are any. They stay classes of their own.
    """
    groups: dict[str, list[str]] = {}
    for label in labels:
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
        plain = "".join(
            sign for sign in plain if unicodedata.category(sign) != "Cf"
        ).strip()  # of no width
        groups.setdefault(re.sub(r"^(-?)0*(\d+)(\.0*)?$", r"\1\2", plain), []).append(label)
    found = [" / ".join(map(_spelt, group)) for group in groups.values() if len(group) > 1]
    if not found:
        return {}
    message = f"labels differ in spelling alone, and are classes of their own: {listed(found)}"
    warnings.warn(
        UserWarningMessage(f"{config.path}, column {config.label_column!r}: {message}"),
        stacklevel=2,
    )
    return {"labels that differ in spelling alone": found}


def _spelt(label: str) -> str:
    """Return a label in quotes, with the codes of signs that may look like another: accents apart, of no width."""
    return repr(label) if unicodedata.is_normalized("NFC", label) else ascii(label)


def warn_of_repeated_texts(splits: DatasetDict, config: DataConfig) -> dict[str, object]:
    """Warn of texts that stand, letter by letter, under different labels or in train and in another split too.

    Returns:
        How many rows hold such texts.
    """
    columns = texts_among(splits["train"].column_names)
    found = digests(chain.from_iterable(tuples(split, columns) for split in splits.values()))
    parts = np.split(found, np.cumsum([len(split) for split in splits.values()])[:-1])
    of_role = dict(zip(splits, parts, strict=True))
    shared = {role: num_known(of_role[role], of_role["train"]) for role in ("validation", "test")}
    if any(shared.values()):
        where = ", ".join(
            f"{count} of {len(splits[role])} in {role}" for role, count in shared.items() if count
        )
        warnings.warn(
            UserWarningMessage(f"{config.path}: texts that also stand in train: {where}"),
            stacklevel=2,
        )
    differs = differing(
        found, np.concatenate([numbers(split, "label") for split in splits.values()])
    )
    if differs.any():
        texts = chain.from_iterable(values(split, "text") for split in splits.values())
        message = f"{differs.sum()} of {len(differs)} rows hold a text that stands under different labels, such as"
        example = shown(next(islice(texts, int(differs.argmax()), None)))
        warnings.warn(UserWarningMessage(f"{config.path}: {message} '{example}'"), stacklevel=2)
    return {
        "texts also in train": sum(shared.values()),
        "texts under different labels": int(differs.sum()),
    }


def differing(texts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Tell for each row whether its text, given by a digest, [N], has other labels in another row."""
    kinds = (
        labels if labels.ndim == 1 else np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    )
    order = np.argsort(texts)
    ordered = texts[order]
    starts = np.flatnonzero(
        np.append(True, ordered[1:] != ordered[:-1])
    )  # where another text begins
    lowest, highest = (pick.reduceat(kinds[order], starts) for pick in (np.minimum, np.maximum))
    found = np.empty(len(texts), dtype=bool)
    found[order] = np.repeat(lowest != highest, np.diff(np.append(starts, len(texts))))
    return found
