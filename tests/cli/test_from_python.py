"""headscope.train takes what the command line takes: keys, groups, and values as Python has them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headscope
from headscope.cli import from_python
from headscope.ground.errors import ConfigError
from headscope.settings.config import TrainConfig
from training_runs import reviews, write


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[TrainConfig]:
    """Have nothing be trained, and return the list of settings that would have been."""
    found: list[TrainConfig] = []

    class Report:
        folder = tmp_path

    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews.csv", reviews(20))
    monkeypatch.setattr(from_python, "train", lambda config: found.append(config) or Report())
    monkeypatch.setattr(from_python, "load_shown", lambda *_, **__: "a run")
    return found


def test_groups_paths_and_numbers_of_numpy_are_values(trained: list[TrainConfig]) -> None:
    given: dict[str, Any] = {"data": "files", "data.path": Path("reviews.csv"), "model": "tiny"}
    headscope.train(
        given | {"experiment": "smoke", "model.d_model": np.int64(64)}, seed=np.int32(3)
    )
    headscope.train(data={"path": Path("reviews.csv")}, inspection={"probes": ("a", "b")})
    first, second = trained
    assert (first.data.path, first.data.limit, first.seed) == ("reviews.csv", 400, 3)
    assert (first.model.d_model, first.model.feedforward_size) == (64, 64)
    assert type(first.seed) is int
    assert second.inspection.probes == ["a", "b"]
    assert second.data == TrainConfig(data=second.data).data


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            pd.DataFrame({"text": ["a"]}),
            r"expected a dictionary of keys, got a DataFrame; .*to_parquet",
        ),
        ({"data": "none"}, "data: expected one of ag_news, .*, got 'none'"),
        ({"data": "files"}, r"data\.path: expected a file"),
        ({"model": "tiny", "modle.d_model": 3}, r"modle: unknown key; did you mean model"),
    ],
)
def test_what_is_none_is_one_message(
    settings: Any, message: str, trained: list[TrainConfig]
) -> None:
    with pytest.raises(ConfigError, match=message):
        headscope.train(settings)
    assert trained == []


def test_a_tilde_is_home_wherever_a_path_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trained: list[TrainConfig]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    headscope.train({"data.path": "~/reviews.csv", "outputs_dir": "~/out", "data.cache_dir": "~/c"})
    (config,) = trained
    found = [config.data.path, config.outputs_dir, config.data.cache_dir]
    assert found == [str(tmp_path / name) for name in ("reviews.csv", "out", "c")]
