"""The settings of data: paths and Hub ids, and values that exclude each other."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from headscope.ground.errors import ConfigError
from headscope.settings.checks import check, override, validate
from headscope.settings.config import DataConfig, TrainConfig, is_local


def test_a_name_or_an_organisation_with_a_name_is_a_hub_id_unless_there_is_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("imdb", "fancyzhx/ag_news", "some-org/some.name_1", "x/y", "org/reviews"):
        assert not is_local(path)
    for path in ("./reviews", "../x/y", "/data", "~/reviews", "a.csv", "org/a.txt", "a/b/c", "a b"):
        assert is_local(path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "reviews").mkdir(parents=True)
    assert is_local("org/reviews")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"path": "none.csv"}, "path: expected a file or directory that exists, got 'none.csv'"),
        ({"path": "~nobody-of-this-name/a.csv"}, "path: expected a file or directory"),
        ({"path": "a.csv", "test_path": "none.csv"}, "test_path: expected a file"),
        ({"path": "org/name", "test_path": "a.csv"}, "test_path: expected null, as data.path=org"),
        ({"tokens_per_batch": 255}, "tokens_per_batch: expected at least data.max_length=256"),
        ({"validation_split": "train"}, "validation_split: expected a split of its own"),
        ({"validation_split": "test"}, "test_split: expected a split of its own"),
        ({"label_column": "text"}, "label_column: expected another column than data.text_column"),
        ({"validation_share": 0.0}, "validation_share: expected greater than 0, got 0.0"),
        ({"limit": True}, "limit: expected a valid integer, got true"),
        ({"limit": 10**10}, "limit: expected less than or equal to 1000000000"),
        ({"encoding": "rot13"}, "encoding: expected a text encoding, such as utf-8"),
        ({"separator": '"'}, "separator: expected one character"),
    ],
)
def test_each_mistake_is_told_by_key_and_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text,label\n")
    with pytest.raises(ConfigError) as refused:
        check(validate(TrainConfig, {"data": settings}))
    assert str(refused.value).startswith(f"data.{problem}")
    assert "\n" not in str(refused.value)


def test_settings_are_frozen_and_those_that_are_overridden_are_checked_anew() -> None:
    config = TrainConfig()
    with pytest.raises(FrozenInstanceError):
        config.data.limit = 0  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"^data\.limit: expected greater than or equal to 1"):
        override(config, {"data.limit": 0})


def test_a_split_is_named_by_its_own_file_if_it_has_one() -> None:
    config = DataConfig(path="a.csv", validation_path="b.csv", test_path="c.csv", test_split="exam")
    files = {split: config.file_of(split) for split in ("train", "validation", "exam", "test")}
    assert files == {"train": "a.csv", "validation": "b.csv", "exam": "c.csv", "test": "a.csv"}
    unnamed = DataConfig(path="a.csv", validation_split=None, validation_path="b.csv")
    assert unnamed.file_of("validation") == "b.csv"
    assert DataConfig(path="org/name").file_of("test") == "org/name"
