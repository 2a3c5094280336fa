"""Cached files are named by what they were made from, and are whole or absent."""

from pathlib import Path

import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.cache import cache_folder, content_key, write_whole


def test_the_key_is_the_same_for_the_same_parts() -> None:
    key = content_key(["one", "日本語", ""])
    assert key == content_key(iter(["one", "日本語", ""]))
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")


@settings(deadline=None)
@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_the_key_differs_where_any_part_does(first: list[str], second: list[str]) -> None:
    assert (content_key(first) == content_key(second)) == (first == second)


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


def test_without_one_it_is_the_users_own() -> None:
    assert cache_folder(None) == Path(platformdirs.user_cache_dir("headscope"))


def test_a_file_is_put_in_place_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    assert write_whole(path, lambda temporary: temporary.write_text("content")) == path
    assert path.read_text() == "content"
    assert list(path.parent.iterdir()) == [path]


def test_while_it_is_written_the_old_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        assert path.read_text() == "old"

    write_whole(path, write)
    assert path.read_text() == "new"


@pytest.mark.parametrize("old", ["old", None])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path, old: str | None) -> None:
    path = tmp_path / "file.txt"
    if old is not None:
        path.write_text(old)

    def write(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_whole(path, write)
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == ({"file.txt": old} if old else {})


def test_a_folder_in_its_place_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_whole(tmp_path / "taken", lambda temporary: temporary.write_text("content"))
    assert [found.name for found in tmp_path.iterdir()] == ["taken"]
