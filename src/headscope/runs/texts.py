"""The texts of a finished run: its own, if they are what they were, or others with its classes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from jaxtyping import Bool

from headscope.data.columns import numbers, text_rows
from headscope.data.corpus import Corpus, digests_of_split, load_corpus, load_split
from headscope.data.splits import text_keys
from headscope.ground.errors import ConfigError, DataError, RunError, listed
from headscope.model.objective import Answer, Objective
from headscope.runs.run import Run
from headscope.runs.setup import Digests, Setup
from headscope.settings.checks import check, resume_command
from headscope.settings.commands import LabelledTextsConfig
from headscope.settings.config import ROLES


def texts_of(config: LabelledTextsConfig, run: Run) -> tuple[Dataset, str]:
    """Return the texts, and the name of their split. Other data have the columns of the run's."""
    of_training = run.config.data
    data = config.data
    if data is None:
        split = config.split or "test"
        texts = own_corpus(run, [split]).splits[split]
    else:
        trained = f"{run.folder} was trained on"
        if data.multi_label and not of_training.multi_label:
            raise ConfigError(f"data.multi_label: {trained} texts of one label each; leave it out")
        if data.text_pair_column and not of_training.text_pair_column:
            raise ConfigError(f"data.text_pair_column: {trained} single texts; leave it out")
        data = data.like(of_training)
        check(replace(config, data=data))
        texts, split = load_split(data, config.split, run.labels)
    if len(texts) == 0:
        raise DataError(f"split {split} has no texts")
    return texts, split


def texts_and_labels(
    split: Dataset, objective: Objective, classes: list[str]
) -> tuple[list[tuple[str, ...]], list[Answer]]:
    """Return the texts of a split, each one text or a pair, and their labels by name."""
    truth = objective.has(torch.from_numpy(numbers(split, "label")), len(classes))
    return [*text_rows(split)], objective.names(truth, classes)


def own_corpus(run: Run, roles: Sequence[str] = ROLES) -> Corpus:
    """Return the texts that a run was trained and tested on, of which these splits are checked.

    Raises:
        DataError: if the data are gone.
        RunError: if they are others now.
    """
    data = run.config.data
    for path in (data.path, data.validation_path, data.test_path, data.drop_rows):
        if path and Path(path).is_absolute() and not Path(path).exists():
            raise DataError(
                f"{path}: is gone, which run={run.folder} was trained on; if it has moved, tell "
                f"the run: {resume_command(run.folder)} data.path=..."
            )
    corpus = load_corpus(data)
    digests = {role: digests_of_split(corpus.splits[role]) for role in roles}
    check_data(run.folder, run.setup, corpus.labels, digests)
    return corpus


def check_data(
    folder: Path,
    before: Setup,
    labels: list[str],
    digests: Digests,
    remedy: str = "or other texts: data.path=...",
) -> None:
    """Raise a RunError for other labels or texts: what was learned may be in the test split now."""
    changes = [
        f"{role} ({', '.join(name for name in now if now[name] != before.digests[role][name])})"
        for role, now in digests.items()
        if now != before.digests[role]
    ]
    if before.labels != labels:
        was = f"was trained on the labels {listed(before.labels)}"
        problem = f"{was}, and its data now have {listed(labels)}"
    elif changes:
        problem = f"its data have changed: {'; '.join(changes)}; it may have learned these texts"
    else:
        return
    raise RunError(f"run={folder}: {problem}; give it the data that it had, {remedy}")


def learned_by(run: Run, texts: list[tuple[str, ...]]) -> Bool[np.ndarray, " N"]:
    """Tell which texts a run was trained or chosen on; none of an older run."""
    if run.setup.learned is None:
        return np.zeros(len(texts), bool)
    found: np.ndarray = np.isin(text_keys(texts)[:, 0], run.setup.learned.numpy())
    return found
