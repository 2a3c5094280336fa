"""The settings of data and tokenizer: what is a path and what a Hub id, and which values cannot work together."""

from pathlib import Path
from typing import Any

import pytest

from headscope.config import DataConfig, TokenizerConfig, is_local
from headscope.errors import ConfigError
from headscope.settings import check, problems


@pytest.mark.parametrize("path", ["imdb", "fancyzhx/ag_news", "some-org/some.name_1", "x/y"])
def test_a_name_or_an_organisation_with_a_name_is_a_hub_id(path: str) -> None:
    assert not is_local(path)


@pytest.mark.parametrize(
    "path",
    [
        "./reviews",
        "../x/y",
        "/data",
        "~/reviews",
        "reviews.csv",
        "org/lines.txt",
        "a/b/c",
        "with space",
        "a//b",
    ],
)
def test_anything_else_is_a_path(path: str) -> None:
    assert is_local(path)


def test_a_folder_that_exists_is_a_path_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_local("org/reviews")
    (tmp_path / "org" / "reviews").mkdir(parents=True)
    assert is_local("org/reviews")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"path": "none.csv"}, "path: got 'none.csv', takes a file or folder that exists"),
        ({"path": "a.csv", "test_path": "none.csv"}, "test_path: got 'none.csv'"),
        ({"path": "fancyzhx/ag_news", "validation_path": "a.csv"}, "validation_path: got 'a.csv'"),
        (
            {"max_length": 512, "tokens_per_batch": 511},
            "tokens_per_batch: got 511, takes at least data.max_length=512",
        ),
        (
            {"validation_split": "test"},
            "test_split: train, validation and test must be three splits",
        ),
        ({"test_split": "train"}, "test_split: train, validation and test must be three splits"),
        ({"text_column": "review", "label_column": "review"}, "label_column: got 'review'"),
        ({"text_pair_column": "text"}, "text_pair_column: got 'text'"),
        ({"text_pair_column": "label"}, "label_column: got 'label'"),
        (
            {"validation_share": 0.0},
            "validation_share: got 0.0, takes more than 0 and less than 0.5",
        ),
        ({"limit": 0}, "limit: got 0, takes at least 1"),
        (
            {"encoding": "none such"},
            "encoding: got 'none such', takes the name of an encoding, such as utf-8",
        ),
        ({"encoding": "rot13"}, "encoding: got 'rot13'"),
        ({"separator": ""}, "separator: got '', takes one sign, such as \"data.separator=';'\""),
        ({"separator": "::"}, "separator: got '::'"),
        ({"separator": '"'}, "separator: got '\"'"),
        (
            {"path": "~nobody-of-this-name/a.csv"},
            "path: got '~nobody-of-this-name/a.csv', takes a file or folder",
        ),
    ],
)
def test_each_mistake_is_told_by_key_and_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text,label\n")
    (found,) = problems(DataConfig(**settings))
    assert found.startswith(problem)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(
        ConfigError, match=r"kind: got 'letters', takes one of words.*\nvocab_size: got 299"
    ):
        check(TokenizerConfig(kind="letters", vocab_size=299))


def test_a_split_is_named_by_its_own_file_if_it_has_one() -> None:
    config = DataConfig(path="a.csv", validation_path="b.csv", test_path="c.csv", test_split="exam")
    files = {split: config.file_of(split) for split in ("train", "validation", "exam", "test")}
    assert files == {"train": "a.csv", "validation": "b.csv", "exam": "c.csv", "test": "a.csv"}
    assert (
        DataConfig(path="a.csv", validation_split=None, validation_path="b.csv").file_of(
            "validation"
        )
        == "b.csv"
    )
    assert DataConfig(path="org/name").file_of("test") == "org/name"
