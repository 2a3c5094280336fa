"""Configurations of small trainings."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.settings.config import TrainConfig
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
