"""From a source to three checked splits with the columns text (text_pair) and label.

`load_corpus` loads, checks, names and cuts; `load_split` does so for one split of other data. What they check follows.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Value

from headscope.config import DataConfig
from headscope.data.columns import (
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
from headscope.data.source import load_source
from headscope.data.splits import cut, groups_of, limited
from headscope.errors import DataError, UserWarningMessage

FEWEST_OF_A_CLASS = 2  # a class needs a text to train on and one to choose by


@dataclass
class Corpus:
    """Texts with labels, ready to be encoded.

    Attributes:
        splits: train, validation and test; columns text, text_pair (for pairs) and label, an index into `labels` or,
            with data.multi_label, a list with 1 at the classes that a text has and 0 at the others.
        labels: the names of the classes.
        facts: what a reader of the results should know: sizes, how splits came about, near-duplicates.
    """

    splits: DatasetDict
    labels: list[str]
    facts: dict[str, object] = field(default_factory=dict)


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
    chosen = {"train": config.train_split, "validation": config.validation_split, "test": config.test_split}
    given = {role: name for role, name in chosen.items() if name in source}
    raw = DatasetDict({role: _checked(source, name, config) for role, name in given.items() if name})
    labels = class_names(raw, config)
    check_several(raw["train"], config)
    splits = {role: as_columns(dataset, str(given[role]), labels, config) for role, dataset in raw.items()}
    corpus = Corpus(DatasetDict(splits), labels)
    check_classes(corpus.splits, labels, config)
    _cut_missing(corpus, config)
    for role, split in corpus.splits.items():
        corpus.splits[role] = limited(split, config.limit, config.split_seed)
    if config.limit is None or not config.multi_label:  # a sample may well lack a label that few texts have
        try:
            check_classes(corpus.splits, labels, config)
        except DataError as error:
            if config.limit is None:
                raise
            raise DataError(f"{error}; data.limit={config.limit} left no more of them: raise it") from None
    corpus.facts["texts also in train"] = warn_of_shared_texts(corpus.splits, config)
    corpus.facts["sizes"] = {role: len(split) for role, split in corpus.splits.items()}
    if config.multi_label:
        counts = numbers(corpus.splits["train"], "label").sum(axis=1)
        corpus.facts["mean labels of a text"] = round(float(counts.mean()), 2)
        corpus.facts["share of texts without a label"] = float((counts == 0).mean())
    return corpus


def _checked(source: DatasetDict, split: str, config: DataConfig) -> Dataset:
    check_columns(source[split], split, config)
    dataset = without_empty(source[split], split, config)
    check_labels(dataset, split, config)
    return dataset


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
        listed = ", ".join(sorted(set().union(*unknown))[:10])
        raise DataError(
            f"{config.file_of(split)}, split {split}, column {config.label_column!r}: {len(unknown)} of "
            f"{len(dataset)} rows have unknown labels {listed}; "
            f"takes {', '.join(labels[:20])} (a split without labels is often marked -1: name another split)"
        )
    return with_numbers(dataset, labels, config)


def _cut_missing(corpus: Corpus, config: DataConfig) -> None:
    """Cut the test and the validation split from train where the source has none."""
    train = corpus.splits["train"]
    given = len(train)
    for role, share in (("test", config.test_share), ("validation", config.validation_share)):
        if role in corpus.splits:
            continue
        share = share * given / len(corpus.splits["train"])  # of what was given, also for the second cut
        try:
            stays, off, repeated = cut(corpus.splits["train"], share, config.split_seed)
        except ValueError as error:
            different = len(np.unique(groups_of(train)))
            raise DataError(
                f"{config.path}, split {config.train_split} ({given} rows): only {different} different texts, "
                f"too few to cut a {role} split (rows that differ only in case, digits or punctuation count as one); "
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
        raise DataError(f"{config.path}: no split {name!r}; it has {', '.join(source)} (choose one with split=...)")
    dataset = as_columns(_checked(source, name, config), name, labels, config)
    return limited(dataset, config.limit, config.split_seed), name


# What is checked before anything is trained.


def check_columns(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if a column is missing, a text column holds no strings, or a label column no labels."""
    where = f"{config.file_of(split)}, split {split} ({len(dataset)} rows)"
    for key in ("text_column", "text_pair_column", "label_column"):
        column = getattr(config, key)
        if column is not None and column not in dataset.column_names:
            raise DataError(f"{where}: no column {column!r} for data.{key}; it has {', '.join(dataset.column_names)}")
    for column in text_columns(config):
        kind = dataset.features[column]
        if getattr(kind, "dtype", None) not in ("string", "large_string"):
            raise DataError(f"{where}: column {column!r} holds {getattr(kind, 'dtype', type(kind).__name__)}, not text")
    kind = dataset.features[config.label_column]
    if not isinstance(kind.feature if config.multi_label and holds_lists(kind) else kind, ClassLabel | Value):
        takes = "a label is an integer or a string"
        if holds_lists(kind) and not config.multi_label:
            takes += "; if a text has any number of them, set data.multi_label=true"
        raise DataError(f"{where}: column {config.label_column!r} holds {type(kind).__name__}; {takes}")


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
        return value is None or value != value or (isinstance(value, str) and not value.strip())  # NaN alone

    is_bad = np.zeros(len(dataset), dtype=bool)
    for column in columns:
        found = np.fromiter(map(is_empty, values(dataset, column)), dtype=bool, count=len(dataset))
        if found.any() and not config.drop_empty:
            raise DataError(
                f"{where}, column {column!r}: {found.sum()} of {len(dataset)} rows are empty or null "
                f"(the first is row {found.argmax()}); mend them or set data.drop_empty=true"
            )
        is_bad |= found
    if is_bad.all():
        raise DataError(f"{where}: no rows to use; {len(dataset)} were dropped as empty or null")
    return dataset.select(np.flatnonzero(~is_bad)) if is_bad.any() else dataset


def check_labels(dataset: Dataset, split: str, config: DataConfig) -> None:
    """Raise a DataError if labels are fractions, or if a list names a number twice.

    Whole numbers may be floating: pandas makes them so beside a gap. Lists of 0 and 1 for each class would be read as
    two labels.
    """
    where = f"{config.file_of(split)}, split {split}, column {config.label_column!r}"
    labels = (label for labels in label_lists(dataset, config.label_column, config) for label in labels)
    fractions = [label for label in labels if isinstance(label, float) and not label.is_integer()]
    if fractions:
        raise DataError(
            f"{where}: {len(fractions)} of {len(dataset)} rows hold fractions such as {fractions[0]}: "
            "a label is an integer or a string"
        )
    if config.multi_label:
        for row, several in enumerate(label_lists(dataset, config.label_column, config)):
            if len(several) > len(set(several)) and not isinstance(several[0], str):
                raise DataError(
                    f"{where}, row {row}: {several[:10]} names a label twice; takes the labels that a text has, such "
                    "as [0, 3], not a 0 or 1 for each class"
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
        split: dict(zip(names, class_counts(numbers(dataset, "label"), len(names)).tolist(), strict=True))
        for split, dataset in splits.items()
    }
    in_train, where = counts["train"], f"{config.path}, column {config.label_column!r}"
    present = [name for name, count in in_train.items() if count]
    if len(present) < 2:
        found = f"one class only, {present[0]}" if present else "no class"
        raise DataError(f"{where}: train ({len(splits['train'])} rows) has {found}; takes two or more")
    rare = [f"{name!r} ({count})" for name, count in sorted(in_train.items()) if 0 < count < FEWEST_OF_A_CLASS]
    if rare:
        raise DataError(
            f"{where}: classes with fewer than {FEWEST_OF_A_CLASS} rows in train: {', '.join(rare)}; merge or drop them"
        )
    for role in ("validation", "test"):
        of_role = sorted(counts.get(role, {}).items())
        unknown = [f"{name!r} ({count} rows)" for name, count in of_role if count and not in_train[name]]
        if unknown:
            source = config.file_of(getattr(config, f"{role}_split") or role)
            raise DataError(
                f"{source}, column {config.label_column!r}: {role} has labels that train lacks: {', '.join(unknown)}"
            )


def warn_of_shared_texts(splits: DatasetDict, config: DataConfig) -> int:
    """Warn of texts that stand, letter by letter, in train and in another split too; return how many."""
    columns = texts_among(splits["train"].column_names)
    known = digests(tuples(splits["train"], columns))
    shared = {split: num_known(digests(tuples(splits[split], columns)), known) for split in ("validation", "test")}
    if any(shared.values()):
        listed = ", ".join(f"{count} of {len(splits[split])} in {split}" for split, count in shared.items() if count)
        warnings.warn(UserWarningMessage(f"{config.path}: texts that also stand in train: {listed}"), stacklevel=2)
    return sum(shared.values())
