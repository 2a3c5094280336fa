"""Which runs the suite asks for: every row on every data set with every seed, with settings that train.py composes."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import OmegaConf

from headscope.benchmark.accuracy.rows import Row, assigned, located
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.process import ROOT
from headscope.data.config import FILE_ENDINGS
from headscope.errors import ConfigError
from headscope.settings import check
from headscope.training.config import TrainConfig

# What recording heads and counting words cost is no part of this, and neither changes a training.
ALWAYS = ("inspection.enabled=false", "baseline=false", "trainer.progress=false")
NOT_OF_THE_SPLIT = ("max_length", "tokens_per_batch", "cache_dir")


@dataclass(frozen=True)
class Run:
    """One row on one data set with one seed.

    Attributes:
        data: the name of the data set, as tables have it.
        row: which classifier.
        seed: of weights, dropout and orders.
        config: every setting; kinds but training take its data alone.
    """

    data: str
    row: Row
    seed: int
    config: TrainConfig = field(compare=False)

    @property
    def place(self) -> tuple[str, str]:
        """Data set and row: what seeds share."""
        return self.data, self.row.name

    @property
    def words(self) -> str:
        """What is shown while it runs."""
        return f"{self.data}: {self.row.label}, seed {self.seed}"


def planned(config: BenchmarkConfig, rows: Sequence[Row], device: torch.device) -> list[Run]:
    """Return all runs, data set by data set, row by row.

    Raises:
        ConfigError: if two data sets have one name, or an override cannot be or changes the split of a row.
    """
    names = [name_of(data_set) for data_set in config.data_sets]
    if len(set(names)) < len(names):
        raise ConfigError(f"data_sets: two have one name: {', '.join(names)}")
    return [
        Run(name, row, seed, replace(settings, seed=seed))
        for name, data_set in zip(names, config.data_sets, strict=True)
        for row, settings in _settings(config, data_set, rows, device)
        for seed in row.seeds(config.seeds)
    ]


def name_of(data_set: str) -> str:
    """Return what a data set is called in tables: the end of its path or id, without the ending of a file."""
    name = Path(data_set).name
    return next((name.removesuffix(ending) for ending in FILE_ENDINGS if name.endswith(ending)), name)


def _settings(
    config: BenchmarkConfig, data_set: str, rows: Sequence[Row], device: torch.device
) -> Iterator[tuple[Row, TrainConfig]]:
    is_ready = (ROOT / "configs" / "data" / f"{data_set}.yaml").is_file()
    data = f"data={data_set}" if is_ready else assigned("data.path", located(data_set))
    accelerator = f"trainer.accelerator={'gpu' if device.type == 'cuda' else 'cpu'}"
    common = [data, accelerator, *config.train]
    shared = composed([*common, *ALWAYS], "data_sets, train")
    if shared.data.multi_label:
        raise ConfigError(f"data_sets, train: {data_set} has data.multi_label; takes sets of one label a text")
    for row in rows:
        if not row.overrides:
            yield row, shared
            continue
        own = composed([*common, *row.overrides, *ALWAYS], row.key)
        if differing := [key for key, value in split_settings(own).items() if value != split_settings(shared)[key]]:
            raise ConfigError(f"{row.key}: changes data.{differing[0]}; every row takes the same split")
        yield row, own


def split_settings(config: TrainConfig) -> dict[str, Any]:
    """Return what decides about the texts of each split."""
    return {key: value for key, value in asdict(config.data).items() if key not in NOT_OF_THE_SPLIT}


def composed(overrides: Sequence[str], where: str) -> TrainConfig:
    """Return the settings that scripts/train.py would run with: it composes them itself, and does nothing more.

    Args:
        overrides: as on its command line.
        where: the key to name in a message.

    Raises:
        ConfigError: with train.py's own message, if there is no such key, type or value.
    """
    command = [sys.executable, "scripts/train.py", *overrides, "--cfg", "job"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"{where}: {done.stderr.strip().removeprefix('error: ')}")
    merged = OmegaConf.merge(OmegaConf.structured(TrainConfig), OmegaConf.create(done.stdout))
    found = cast(TrainConfig, OmegaConf.to_object(merged))
    try:
        check(found)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return found
