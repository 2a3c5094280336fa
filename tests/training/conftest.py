"""Configurations of small trainings, and a signal in the middle of one."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.settings.config import TrainConfig
from headscope.training.module import ClassifierModule
from training_runs import Rows, configured


@pytest.fixture(autouse=True)
def _as_a_user(unchecked_shapes: None) -> None:
    """`mistaken` is trained with all shapes checked."""


@pytest.fixture
def small_config(tmp_path: Path) -> Callable[..., TrainConfig]:
    """Return a maker of configurations on the reviews; `rows`, `name` and settings of the trainer may be given."""

    def make(name: str = "run", rows: Rows | None = None, **trainer: object) -> TrainConfig:
        return configured(tmp_path, rows, name, **trainer)

    return make


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
