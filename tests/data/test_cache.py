"""Cached files are named by what they were made from."""

from pathlib import Path

import pytest

from headscope.data.cache import cache_folder, content_key


def test_the_key_is_the_same_for_the_same_parts() -> None:
    key = content_key(["one", "日本語", ""])
    assert key == content_key(iter(["one", "日本語", ""]))
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")


def test_where_one_part_ends_and_the_next_begins_counts() -> None:
    assert len({content_key(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["c", "ab"])}) == 5


def test_half_a_character_can_be_part_of_a_key() -> None:
    assert content_key(["\ud800"]) != content_key(["\ud801"])


def test_a_configured_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder(str(tmp_path / "deep" / "cache")) == tmp_path / "deep" / "cache"
    assert (tmp_path / "deep" / "cache").is_dir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache_folder("~/mine") == tmp_path / "mine"
