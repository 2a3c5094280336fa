"""headscope.train: the keys and the groups of `headscope train`, from Python."""

import os
from collections.abc import Mapping
from typing import Any

from headscope.cli.compose import compose, groups, parse
from headscope.ground.errors import ConfigError
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.settings.checks import check, flatten, override
from headscope.settings.config import TrainConfig
from headscope.settings.extension import check_allowed
from headscope.training.train import train


def train_with(settings: Mapping[str, Any] | None = None, /, **keys: Any) -> ShownRun:
    """Train by keys of `headscope train`, and return the run.

        headscope.train({"data.path": "reviews.csv", "trainer.max_epochs": 4})
        headscope.train(data={"path": "reviews.csv"}, seed=1)
        headscope.train({"experiment": "smoke", "data": "ag_news"})    # files of configs/

    Args:
        settings: keys with their values, written with dots or as dictionaries in one another. A
            group is chosen by the name of its file; keys in it count more. Paths and numbers of
            numpy are values too.
        keys: the same; a key given twice has the value that stands here.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what you can fix.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings: expected a dictionary of keys, got a {type(settings).__name__}; a run "
            "reads its data again, so a table goes to a file: table.to_parquet('texts.parquet'), "
            "then headscope.train({'data.path': 'texts.parquet'})"
        )
    given = flatten(_plain(settings or {})) | flatten(_plain(keys))
    known = groups(TrainConfig)
    chosen = [key for key, value in given.items() if key in known and isinstance(value, str)]
    chosen += ["resume"] * (given.get("resume") is not None)
    composed: dict[str, Any] = {}
    if chosen:
        words = [f"{key}={given.pop(key)}" for key in chosen]
        composed = flatten(compose(parse(words, TrainConfig)))
    own = {value for value in given.values() if isinstance(value, str)}  # what a folder says is not
    check_allowed(composed | given, f"resume={composed.get('resume')}", own)
    config = override(TrainConfig(), composed | given)
    check(config)
    results = train(config)
    assert results is not None, "rank 0 alone has results"
    return load_shown(results.folder, allow_code=True)


def _plain(value: Any) -> Any:
    """Return a value as YAML would have it."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value  # of numpy and torch
