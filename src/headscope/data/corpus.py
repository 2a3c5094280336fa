"""From a source to three checked splits with the columns text (text_pair) and label."""

from dataclasses import dataclass, field

from datasets import Dataset, DatasetDict

from headscope.data.checks import (
    check_classes,
    check_columns,
    check_labels,
    check_several,
    text_columns,
    warn_of_shared_texts,
    without_empty,
)
from headscope.data.columns import numbers
from headscope.data.config import DataConfig
from headscope.data.labels import class_names, name_lists, with_numbers
from headscope.data.source import load_source
from headscope.data.splits import cut, groups_of, limited
from headscope.errors import DataError


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
        DataError: for whatever cannot be trained on; see `headscope.data.checks`.
    """
    source = load_source(config)
    chosen = {
        "train": config.train_split, "validation": config.validation_split, "test": config.test_split,
    }  # fmt: skip
    if config.train_split not in source:
        raise DataError(
            f"{config.path}: no split {config.train_split!r} for data.train_split; it has {', '.join(source)}"
        )
    given = {role: name for role, name in chosen.items() if name is not None and name in source}
    raw = DatasetDict({role: _checked(source[name], name, config) for role, name in given.items()})
    labels = class_names(raw, config)
    check_several(raw["train"], config)
    splits = DatasetDict({role: as_columns(raw[role], name, labels, config) for role, name in given.items()})
    corpus = Corpus(splits, labels)
    check_classes(corpus.splits, labels, config)
    _cut_missing(corpus, config)
    for role, split in corpus.splits.items():
        corpus.splits[role] = limited(split, config.limit, config.split_seed)
    _check_what_is_left(corpus, config)
    corpus.facts["texts also in train"] = warn_of_shared_texts(corpus.splits, config)
    corpus.facts["sizes"] = {role: len(split) for role, split in corpus.splits.items()}
    corpus.facts |= _label_facts(corpus.splits["train"], config)
    return corpus


def _check_what_is_left(corpus: Corpus, config: DataConfig) -> None:
    if config.limit is None:
        check_classes(corpus.splits, corpus.labels, config)
    elif not config.multi_label:  # there a sample may well lack a label that few texts have
        try:
            check_classes(corpus.splits, corpus.labels, config)
        except DataError as error:
            raise DataError(f"{error}; data.limit={config.limit} left no more of them: raise it") from None


def _checked(dataset: Dataset, split: str, config: DataConfig) -> Dataset:
    check_columns(dataset, split, config)
    dataset = without_empty(dataset, split, config)
    check_labels(dataset, split, config)
    return dataset


def _label_facts(train: Dataset, config: DataConfig) -> dict[str, object]:
    if not config.multi_label:
        return {}
    found = numbers(train, "label").sum(axis=1)
    without = float((found == 0).mean())
    return {"mean labels of a text": round(float(found.mean()), 2), "share of texts without a label": without}


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
            num_different = len(set(groups_of(train).tolist()))
            raise DataError(
                f"{config.path}, split {config.train_split} ({given} rows): too few different texts to cut a {role} "
                f"split from it: {num_different}, for rows that differ only in case, digits or signs count once and "
                f"stay together; add texts, or give a split of its own (data.{role}_path=... beside a file)"
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
    dataset = as_columns(_checked(source[name], name, config), name, labels, config)
    return limited(dataset, config.limit, config.split_seed), name
