"""Files are whole or absent."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headscope.files import create_whole, replacing_folder, write_whole


def test_while_it_is_written_the_old_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        assert path.read_text() == "old"

    assert write_whole(path, write) == path
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


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


@pytest.fixture(params=["links", "no links"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files linked, or be on a file system that cannot."""

    def refuse(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    if request.param == "no links":
        monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("file_system")
def test_a_new_file_is_put_in_place_and_an_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    assert create_whole(path, lambda temporary: temporary.write_text("first")) == path
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(FileExistsError):
        create_whole(path, lambda temporary: temporary.write_text("second"))
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("file_system")
def test_of_many_that_create_a_file_at_once_one_does(tmp_path: Path) -> None:
    path, barrier = tmp_path / "file.txt", threading.Barrier(7)

    def create(name: str) -> str | None:
        try:
            create_whole(path, lambda temporary: (temporary.write_text(name), barrier.wait(30)))
        except FileExistsError:
            return None
        return name

    with ThreadPoolExecutor(7) as pool:
        winners = [name for name in pool.map(create, "abcdefg") if name is not None]
    assert [path.read_text()] == winners
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_its_place_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_whole(tmp_path / "taken", lambda temporary: temporary.write_text("content"))
    assert [found.name for found in tmp_path.iterdir()] == ["taken"]


def test_a_folder_is_put_in_place_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with replacing_folder(path) as temporary:
        (temporary / "inside").write_text("content")
        assert not path.exists()
    assert [found.name for found in path.parent.iterdir()] == ["folder"]
    assert (path / "inside").read_text() == "content"
    with pytest.raises(OSError, match="folder"), replacing_folder(path) as temporary:
        (temporary / "other").write_text("content")
    assert [found.name for found in path.iterdir()] == ["inside"]
    assert [found.name for found in path.parent.iterdir()] == ["folder"]


def test_a_folder_that_fails_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="disk full"), replacing_folder(tmp_path / "folder") as temporary:
        (temporary / "half").write_text("half")
        raise RuntimeError("disk full")
    assert list(tmp_path.iterdir()) == []
