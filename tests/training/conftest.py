"""Configurations of small trainings, and runs that are trained once for all workers."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.settings.config import TrainConfig
from headscope.training.module import ClassifierModule
from training_runs import HOSTILE, Rows, Trained, comments, configured, once, pairs, reviews


@pytest.fixture
def small_config(tmp_path: Path) -> Callable[..., TrainConfig]:
    """Return a maker of configurations on the reviews; `rows`, `name` and settings of the trainer may be given."""

    def make(name: str = "run", rows: Rows | None = None, **trainer: object) -> TrainConfig:
        return configured(tmp_path, rows, name, **trainer)

    return make


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a run that has learned, with everything that can be recorded."""

    def make(folder: Path) -> TrainConfig:
        config = configured(folder, max_epochs=4)
        config.baseline, config.inspection.every, config.inspection.causes = True, 7, 24
        return config

    return once(tmp_path_factory, "plain", make)


@pytest.fixture(scope="session")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a run that was hardly trained, and makes mistakes: two steps, and no word that counting knows already."""

    def make(folder: Path) -> TrainConfig:
        config = configured(
            folder,
            [row | {"text": row["text"].replace("film", HOSTILE)} for row in reviews()],
            max_steps=2,
        )
        config.model.evidence, config.inspection.max_tokens = False, 5
        return config

    return once(tmp_path_factory, "mistaken", make)


@pytest.fixture(scope="session")
def of_pairs(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a run of one epoch on pairs of texts."""
    return once(
        tmp_path_factory, "of_pairs", lambda folder: configured(folder, pairs(), max_epochs=1)
    )


@pytest.fixture(scope="session")
def any_classes(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a run that has learned texts with any number of labels."""

    def make(folder: Path) -> TrainConfig:
        config = configured(folder, comments(), max_epochs=12)
        config.baseline, config.inspection.causes = True, 24
        return config

    return once(tmp_path_factory, "any_classes", make)


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what has a signal come, once, in the middle of a training, after so many batches; Ctrl-C by default."""
    step = ClassifierModule.training_step

    def press(batches: int, *signals: int) -> None:
        left = iter(range(batches - 1, -1, -1))

        def pressed(module: ClassifierModule, *args: Any) -> torch.Tensor:
            loss = step(module, *args)
            if next(left, None) == 0:
                for number in signals or (signal.SIGINT,):
                    os.kill(os.getpid(), number)
            return loss

        monkeypatch.setattr(ClassifierModule, "training_step", pressed)

    return press
