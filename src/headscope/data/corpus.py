"""From a source to three checked splits with the columns text (text_pair) and label.

`load_corpus` loads, checks, names and cuts; `load_split` does so for one split of other data.
"""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset, DatasetDict

from headscope.data.columns import (
    TEXT_COLUMNS,
    cells,
    class_counts,
    class_names,
    class_numbers,
    column_digests,
    is_gap,
    label_name,
    labels_of,
    numbers,
    text_columns,
    texts_among,
    times_of,
    tuples,
    values,
    whole,
)
from headscope.data.rows import check_names, read_own
from headscope.data.source import files_of, load_source, quiet, reason
from headscope.data.splits import Rows, cached_keys, in_order, limited, limited_rows, rows_off
from headscope.ground.errors import DataError, listed, warn
from headscope.ground.files import cache_folder, digest
from headscope.ground.plain_rows import Row
from headscope.settings.config import ROLES, DataConfig

FEW = 3  # training texts of a class
FEWEST_ROWS = 30  # of fewer, classes are small anyway
TEXTS = re.compile("(large_)?string(_view)?|null")
LABELS = re.compile("(large_)?string(_view)?|bool|null|u?int.*|float.*|half|double")


@dataclass
class Corpus:
    """Texts with labels, ready to be encoded.

    A label is an index into `labels` or, with data.multi_label, a list with 1 at the classes that a
    text has and 0 at the others.
    """

    splits: DatasetDict  # train, validation, test: columns text, text_pair (for pairs), label
    labels: list[str]  # the names of the classes
    rows: dict[str, Rows] = field(default_factory=dict)  # of each split, in its order
    facts: dict[str, Any] = field(default_factory=dict)  # sizes, cuts, near-duplicates
    groups: np.ndarray | None = None  # of near-duplicates in train; None where no cut asked

    def keep(self, role: str, rows: np.ndarray) -> None:
        """Leave some rows of a split, by their numbers, and their groups of near-duplicates."""
        self.splits[role] = self.splits[role].select(rows)
        self.rows[role] = self.rows[role].select(rows)
        if role == "train" and self.groups is not None:
            self.groups = in_order(self.groups[rows])

    def learned(self) -> np.ndarray:
        """Return the keys of the texts of train and validation, sorted; see `text_keys`."""
        return np.unique(np.concatenate([self.rows["train"].key, self.rows["validation"].key]))

    def digests(self) -> dict[str, dict[str, Any]]:
        """Return rows and digests of each split; see `digests_of_split`."""
        return {role: digests_of_split(split) for role, split in self.splits.items()}


def load_corpus(config: DataConfig) -> Corpus:
    """Load, check, name and split the texts that the configuration describes.

    Raises:
        DataError: for whatever cannot be trained on; see the checks of this module.
    """
    source = load_source(config)
    names = {role: getattr(config, f"{role}_split") for role in ROLES}
    given = {
        role: read_split(source, name, config)
        for role, name in names.items()
        if name and (role == "train" or name in source)
    }
    names_of_rows = chain.from_iterable(split.labels for split in given.values())
    labels = class_names(source[config.train_split], names_of_rows, config)
    warn_of_similar_labels(labels, config)
    splits = {role: split.with_labels(labels, config) for role, split in given.items()}
    corpus = Corpus(DatasetDict(splits), labels)
    if files := files_of(config):
        used = [name for name in names.values() if name in files]
        corpus.facts["files"] = {name: files[name] for name in used}
    for role, split in given.items():
        if dropped := len(source[split.name]) - len(split.labels):
            corpus.facts.setdefault("rows dropped as empty", {})[role] = dropped
    check_classes(corpus, config)
    check_separator(given["train"], config)
    corpus.rows = {role: rows_of(given[role], texts, config) for role, texts in splits.items()}
    cut_missing(corpus, config)
    warn_of_given_sides(corpus, [*given], config)
    if config.limit is not None:
        limit_splits(corpus, config)
    if config.drop_rows is not None:
        drop_rows(corpus, config)
    warn_of_rare_labels(corpus, config)
    corpus.facts |= warn_of_repeated_texts(corpus, config)
    corpus.facts["sizes"] = {role: len(split) for role, split in corpus.splits.items()}
    return corpus


def load_split(config: DataConfig, name: str | None, labels: list[str]) -> tuple[Dataset, str]:
    """Load one split of any source, to score a finished model on it.

    Args:
        config: the source; its other splits are not looked at.
        name: of the split; the source's only one, or data.test_split, if None.
        labels: the classes that the model knows.

    Returns:
        The texts with label as an index into `labels`, and the name of the split.
    """
    source = load_source(config)
    name = name or (next(iter(source)) if len(source) == 1 else config.test_split)
    split = read_split(source, str(name), config)
    return limited(split.with_labels(labels, config), config.limit, config.split_seed), split.name


def digests_of_split(split: Dataset) -> dict[str, Any]:
    """Return the number of rows of a split, and digests of their texts and labels."""
    labels = numbers(split, "label").astype(np.int64)
    return {
        "rows": len(split),
        "texts": digest(column_digests(split, texts_among(split.column_names))).hex(),
        "labels": hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest(),
    }


def cut_missing(corpus: Corpus, config: DataConfig) -> None:
    """Cut the test and the validation split from train where the source has none."""
    given = len(corpus.splits["train"])
    for role, share in (("test", config.test_share), ("validation", config.validation_share)):
        if role in corpus.splits:
            continue
        train = corpus.splits["train"]
        rows = corpus.rows["train"]
        if corpus.groups is None:
            corpus.groups = groups_of(rows)
            num_groups = len(np.unique(corpus.groups))
        of_rest = share * given / len(train)  # of what was given, also for the second cut
        try:
            labels = numbers(train, "label")
            is_off = rows_off(labels, rows, corpus.groups, of_rest, config)
        except ValueError as error:
            different = f"{num_groups} different texts"
            if config.group_column:
                different = f"{num_groups} groups"
            elif rows.time is not None:
                times = len({*rows.time})
                different = f"{times} different times in column {config.time_column!r}"
            raise DataError(
                f"{config.path}, split {config.train_split} ({given} rows): only {different} "
                f"of {len(corpus.labels)} classes, too few to cut a {role} split "
                "(a class keeps its last text; rows that differ only in case, digits or "
                f"punctuation count as one); add texts, or give one with data.{role}_path=..."
            ) from error
        corpus.splits[role] = train.select(np.flatnonzero(is_off))
        corpus.rows[role] = rows.select(is_off)
        corpus.splits["train"] = train.select(np.flatnonzero(~is_off))
        corpus.rows["train"] = rows.select(~is_off)
        corpus.groups = corpus.groups[~is_off]
        corpus.facts[f"{role} cut from train"] = len(corpus.splits[role])
        if config.group_column:
            corpus.facts["groups"] = num_groups
        elif config.time_column is None:
            corpus.facts["near-duplicates kept on one side"] = given - num_groups


def limit_splits(corpus: Corpus, config: DataConfig) -> None:
    """Take at most data.limit texts of each split."""
    for role, split in [*corpus.splits.items()]:
        rows = limited_rows(numbers(split, "label"), config.limit, config.split_seed)
        corpus.keep(role, rows)
    if not config.multi_label:  # there a sample may well lack a label that few texts have
        check_classes(corpus, config, hint=f"; data.limit={config.limit} left no more: raise it")


def drop_rows(corpus: Corpus, config: DataConfig) -> None:
    """Leave out the texts in data.drop_rows, a file of `labels`, or correct their labels."""
    file = f"data.drop_rows={config.drop_rows}"
    review = read_review(str(config.drop_rows), corpus.labels)
    number_of = {name: number for number, name in enumerate(corpus.labels)}
    unmatched = {*review}
    for role, split in [*corpus.splits.items()]:
        keys = row_keys(split, corpus.labels)
        unmatched -= {*keys}
        names = [review.get(key) for key in keys]  # "": left out, None: stays as it is
        pairs = zip(names, values(split, "label"), strict=True)
        labels = [number_of[name] if name else given for name, given in pairs]
        with quiet():
            corpus.splits[role] = split.remove_columns("label").add_column("label", labels)
        corpus.keep(role, np.flatnonzero([name != "" for name in names]))
        corpus.facts.setdefault("texts dropped", {})[role] = names.count("")
        corpus.facts.setdefault("labels corrected", {})[role] = sum(map(bool, names))
    if unmatched:
        raise DataError(
            f"{file}: {len(unmatched)} of {len(review)} rows have a key of no text; give the file "
            "of `headscope labels` for these data"
        )
    if dropped := corpus.facts["texts dropped"]["test"]:
        warn(f"{file}: leaves out {dropped} test texts, so scores are of easier ones; correct them")
    check_classes(corpus, config, hint=f"; {file} left no more")


def row_keys(split: Dataset, classes: list[str]) -> list[str]:
    """Return the digest of each row's texts and label, whatever its place."""
    columns = [*texts_among(split.column_names), "label"]
    keys = []
    for *texts, number in tuples(split, columns):
        keys.append(digest([*texts, classes[number]]).hex())
    return keys


def read_review(path: str, classes: list[str]) -> dict[str, str]:
    """Return key -> what the column `corrected` has: a class, or "" for a text to leave out."""
    known = {label_name(name): name for name in classes} | {"": ""}

    def corrected(row: Row) -> str:
        return label_name(str(row.get("corrected") or ""))

    rows = read_own(path, "key", lambda rows: known.keys() >= {*map(corrected, rows)})
    if unknown := {*map(corrected, rows)} - known.keys():
        raise DataError(
            f"data.drop_rows={path}, column 'corrected': expected one of {listed(classes)} or "
            f"nothing, got {listed(sorted(unknown))}"
        )
    return {str(row.get("key")): known[corrected(row)] for row in rows}


def groups_of(rows: Rows) -> np.ndarray:
    """Return the group of each row of a split, [N]: by data.group_column, or near-duplicates.

    A row whose cell is empty is a group of its own.
    """
    if rows.group is None:
        return in_order(rows.letters)
    names = [name or f"\0{row}" for row, name in enumerate(group_names(rows.group))]
    return in_order(np.array(names, dtype=object))


def group_names(groups: np.ndarray) -> list[str]:
    """Return the group of each row, "" for none: `acme` and `ACME ` are one, so are 7 and 7.0."""
    full = (whole((cell or "").strip()) for cell in groups)
    return [" ".join(unicodedata.normalize("NFKC", cell).casefold().split()) for cell in full]


def warn_of_given_sides(corpus: Corpus, given: Sequence[str], config: DataConfig) -> None:
    """Warn of rows of given splits that are of a group of train, or as early as rows of train."""
    train = corpus.rows["train"]
    for role in (role for role in given if role != "train"):
        rows = corpus.rows[role]
        size = len(rows.source_row)
        if rows.group is not None and train.group is not None:
            of_train = [*filter(None, {*group_names(train.group)})]
            count = int(np.isin(group_names(rows.group), of_train).sum())
            what = f"{count} of {size} {role} texts are of groups in train"
            corpus.facts[f"{role} texts of groups in train"] = count
        elif rows.time is not None and train.time is not None:
            where = f"{config.path}, column {config.time_column!r}"
            times = times_of(np.concatenate([train.time, rows.time]), where)
            latest = times[: len(train.time)].max()
            count = int((times[len(train.time) :] <= latest).sum())
            what = f"{count} of {size} {role} texts are no later than the last of train"
        else:
            return
        if count:
            column = config.group_column or config.time_column
            warn(f"{config.path}, column {column!r}: {what}, so scores say less of new ones")


# One split: its columns, its labels and its rows with both.


@dataclass
class Split:
    """The rows of a split that have a text and a label."""

    name: str
    dataset: Dataset
    labels: list[list[str]]  # the names of each row's
    rows: np.ndarray  # their numbers in the source, [N]

    def with_labels(self, classes: list[str], config: DataConfig) -> Dataset:
        """Return the columns text, text_pair (for pairs) and label, as `Corpus` has them."""
        known = set(chain.from_iterable(self.labels))
        index = class_numbers(classes, known)
        if unknown := known - index.keys():
            rows = sum(not unknown.isdisjoint(names) for names in self.labels)
            hint = " (-1 often marks a split without labels: name another split)"
            raise DataError(
                f"{place(self.name, config)}: {rows} of {len(self.labels)} "
                f"rows have unknown labels {listed(sorted(unknown))}; expected {listed(classes)}"
                f"{hint if '-1' in unknown else ''}"
            )
        column: Any = [index[names[0]] for names in self.labels if names]
        if config.multi_label:
            table = np.zeros((len(self.labels), len(classes)), np.int8)
            for row, names in enumerate(self.labels):
                table[row, [index[name] for name in names]] = 1
            column = pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), len(classes))
        columns = dict(zip(text_columns(config), TEXT_COLUMNS, strict=False))
        texts = self.dataset.select_columns([*columns]).rename_columns(columns)
        with quiet():  # where rows were dropped, the others are copied
            return texts.add_column("label", column)


def rows_of(split: Split, texts: Dataset, config: DataConfig) -> Rows:
    """Return what is known of the rows of a split beside their texts and labels."""
    key, letters = cached_keys(texts, cache_folder(config.cache_dir, config.cache_gb)).T
    group = cells(split.dataset, config.group_column)
    return Rows(split.rows, key, letters, group, cells(split.dataset, config.time_column))


def read_split(source: DatasetDict, name: str, config: DataConfig) -> Split:
    """Check columns and labels of a split, and return its rows with a text and a label.

    Others are an error unless data.drop_empty is set.
    """
    if name not in source:
        raise DataError(
            f"{config.path}: no split {name!r}; it has {', '.join(source)}; name another one with "
            "data.train_split=... (of evaluate and inspect: split=...)"
        )
    dataset = source[name]
    check_columns(dataset, name, config)
    labels = labels_of(dataset, place(name, config), config)
    gaps = {
        column: np.fromiter(map(is_gap, values(dataset, column)), bool)
        for column in text_columns(config)
    }
    gaps[config.label_column] = np.array([names is None for names in labels], bool)
    is_empty = np.any([*gaps.values()], axis=0)
    if is_empty.any():
        columns = ", ".join(
            f"{has_gap.sum()} in column {column!r} (first in row {has_gap.argmax()})"
            for column, has_gap in gaps.items()
            if has_gap.any()
        )
        where = f"{config.file_of(name)}, split {name}"
        message = f"{where}: {is_empty.sum()} of {len(dataset)} rows have empty cells: {columns}"
        if not config.drop_empty:
            raise DataError(f"{message}, counted from 0; fix them or set data.drop_empty=true")
        if is_empty.all():
            raise DataError(f"{message}; none is left")
        warn(f"{message}; they are dropped")
    full = zip(labels, is_empty, strict=True)
    complete = [names for names, has_gap in full if names is not None and not has_gap]
    rows = np.flatnonzero(~is_empty)
    return Split(name, dataset.select(rows), complete, rows)


def check_columns(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if a column is missing or holds no texts or no labels."""
    where = f"{config.file_of(split)}, split {split} ({len(dataset)} rows)"
    check_names(dataset.column_names, config, where)
    columns = [*text_columns(config), config.label_column]
    for column in columns:
        feature = dataset.features[column]
        pattern = TEXTS
        expected = "text"
        if column == config.label_column:
            feature = getattr(feature, "feature", feature) if config.multi_label else feature
            pattern = LABELS
            expected = "integers, strings or, with data.multi_label=true, lists of them"
        got = kind_of(feature)
        if not pattern.fullmatch(got):
            raise DataError(f"{where}: column {column!r}: expected {expected}, got {got}")
    try:  # a parquet file may hold bytes that are not UTF-8
        dataset.select_columns(columns).data.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f"{where}: {reason(error)}; fix or drop the row") from error


def kind_of(feature: Any) -> str:
    """Return the type of a column; that of a ClassLabel is of integers."""
    return str(getattr(feature, "dtype", type(feature).__name__))


def place(split: str, config: DataConfig) -> str:
    """Return where the labels of a split stand, for a message."""
    return f"{config.file_of(split)}, split {split}, column {config.label_column!r}"


# What is checked before anything is trained.


def check_separator(train: Split, config: DataConfig) -> None:
    """Raise a DataError if, with data.multi_label, cells are split and none holds two labels."""
    kind = kind_of(train.dataset.features[config.label_column])
    if config.multi_label and kind != "List" and max(map(len, train.labels)) < 2:
        raise DataError(
            f"{config.path}, column {config.label_column!r}: no text of train has two labels; "
            "leave data.multi_label out, or set data.label_separator=... (it is "
            f"{config.label_separator!r})"
        )


def check_classes(corpus: Corpus, config: DataConfig, hint: str = "") -> None:
    """Raise a DataError if train has one class alone, an id for each row, or lacks a class."""
    labels = corpus.labels
    counts = {
        role: class_counts(numbers(split, "label"), len(labels))
        for role, split in corpus.splits.items()
    }
    in_train = counts["train"]
    num_rows = len(corpus.splits["train"])
    where = f"{config.path}, column {config.label_column!r}: train ({num_rows} rows) has"
    present = [labels[c] for c in np.flatnonzero(in_train)]
    if len(present) < 2:
        raise DataError(
            f"{where} too few classes: expected two or more, got {listed(present) or 'none'}{hint}"
        )
    once = int((in_train == 1).sum())
    if not config.multi_label and once > num_rows / 2:
        raise DataError(
            f"{where} {len(present)} labels, {once} of them once, such as {listed(present[:3])}; "
            "that looks like an id of each row: name the column with the label, "
            f"data.label_column=...{hint}"
        )
    for role, in_role in counts.items():
        if unknown := [labels[c] for c in np.flatnonzero(in_role * (in_train == 0))]:
            file = config.file_of(getattr(config, f"{role}_split") or role)
            raise DataError(
                f"{file}, column {config.label_column!r}: {role} has labels that train lacks: "
                f"{listed(unknown)}{hint}"
            )


def warn_of_similar_labels(labels: Iterable[str], config: DataConfig) -> None:
    """Warn of labels that differ in case, width, spaces or hidden characters alone."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        folded = unicodedata.normalize("NFKC", label).casefold()
        letters = (sign for sign in folded if sign.isprintable() and not sign.isspace())
        groups["".join(letters)].append(repr(label))
    if similar := [" / ".join(group) for group in groups.values() if len(group) > 1]:
        warn(
            f"{config.path}, column {config.label_column!r}: labels differ in spelling alone, and "
            f"are classes of their own: {listed(similar)}"
        )


def warn_of_rare_labels(corpus: Corpus, config: DataConfig) -> None:
    """Warn of classes with one or two training texts: a slip, or values of another column."""
    counts = class_counts(numbers(corpus.splits["train"], "label"), len(corpus.labels))
    rare = [corpus.labels[number] for number in np.flatnonzero((counts > 0) & (counts < FEW))]
    if rare and counts.sum() > FEWEST_ROWS:
        warn(
            f"{config.path}, column {config.label_column!r}: {len(rare)} of {len(counts)} classes "
            f"have fewer than {FEW} training texts: {listed(rare)}; misspelt, or another column?"
        )


def warn_of_repeated_texts(corpus: Corpus, config: DataConfig) -> dict[str, object]:
    """Warn of texts that are in train and in another split, or under different labels.

    Returns:
        How many rows hold such texts, and how many of other splits have the letters of one in
        train.
    """
    roles = [*corpus.splits]
    texts = pd.Series(np.concatenate([corpus.rows[role].key for role in roles]))
    letters = pd.Series(np.concatenate([corpus.rows[role].letters for role in roles]))
    num_train = len(corpus.splits["train"])
    shared, near = (int(keys[num_train:].isin(keys[:num_train]).sum()) for keys in (texts, letters))
    if near:
        also = f", {near - shared} more but for digits and punctuation" if near > shared else ""
        warn(f"{config.path}: {shared} texts of validation and test also stand in train{also}")
    labels = np.concatenate([numbers(corpus.splits[role], "label") for role in roles])
    names = pd.Series([label.tobytes() for label in labels])
    conflicts = names.groupby(texts).transform("nunique") > 1
    if conflicts.any():
        warn(
            f"{config.path}: {conflicts.sum()} of {len(conflicts)} rows hold a text that stands "
            "under different labels; `headscope labels` lists labels that are probably wrong"
        )
    return {
        "texts also in train": shared,
        "near-duplicates in train": near,
        "texts under different labels": int(conflicts.sum()),
    }
