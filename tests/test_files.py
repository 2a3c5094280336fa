"""Files are whole or absent."""

import errno
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headscope.config import DataConfig
from headscope.data.source import load_source
from headscope.errors import RunError
from headscope.files import (
    PARTIAL,
    clear_partial,
    create_whole,
    read_json,
    read_yaml_text,
    replacing_folder,
    write_atomic,
)


def test_while_it_is_written_the_old_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        assert path.read_text() == "old"

    assert write_atomic(path, write) == path
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("old", ["old", None])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, old: str | None
) -> None:
    path = tmp_path / "file.txt"
    if old is not None:
        path.write_text(old)

    def write(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_atomic(path, write)
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == (
        {"file.txt": old} if old else {}
    )


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
        write_atomic(tmp_path / "taken", lambda temporary: temporary.write_text("content"))
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
    with (
        pytest.raises(RuntimeError, match="disk full"),
        replacing_folder(tmp_path / "folder") as temporary,
    ):
        (temporary / "half").write_text("half")
        raise RuntimeError("disk full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o002, 0o664), (0o022, 0o644)])
def test_a_new_file_has_the_mode_of_the_umask_and_one_that_is_replaced_keeps_its_own(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        path = write_atomic(tmp_path / "new", lambda temporary: temporary.write_text("new"))
        created = create_whole(tmp_path / "created", lambda temporary: temporary.write_text("new"))
        assert [found.stat().st_mode & 0o777 for found in (path, created)] == [mode, mode]
        path.chmod(0o640)
        write_atomic(
            path, lambda temporary: (temporary.unlink(), temporary.write_text("newer"))
        )  # as safetensors does
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to("elsewhere/file")
    for content in ("first", "second"):
        write_atomic(link, lambda temporary, content=content: temporary.write_text(content))
        assert link.is_symlink()
        assert (tmp_path / "elsewhere/file").read_text() == content
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write_atomic(tmp_path / "loop", lambda temporary: temporary.write_text("new"))


def test_what_is_no_file_is_neither_replaced_nor_written_to(tmp_path: Path) -> None:
    """Such as a device that a link leads to: a rename would put a file in its place."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.csv").symlink_to("pipe")
    with pytest.raises(OSError, match=r"no file.*link\.csv"):
        write_atomic(tmp_path / "link.csv", lambda temporary: temporary.write_text("new"))
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
    ],
)
def test_an_error_in_writing_names_the_file(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "file"

    def write(temporary: Path) -> None:
        raise error

    with pytest.raises(OSError, match=re.escape(f"'{path}'")):
        write_atomic(path, write)
    with pytest.raises(OSError, match=re.escape(f"'{path}'")):
        write_atomic(path, lambda temporary: (temporary / "x").write_text("not a folder"))


def test_what_killed_processes_left_is_cleared_and_what_is_being_written_stays(
    tmp_path: Path,
) -> None:
    code = """
import os, sys
from pathlib import Path
from headscope.files import write_atomic
write_atomic(Path(sys.argv[1]), lambda temporary: (temporary.write_text("half"), os.kill(os.getpid(), 9)))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "below/file")], check=False)
    assert len(list(tmp_path.glob(f"below/{PARTIAL}*/file"))) == 1
    (tmp_path / f"{PARTIAL}empty").mkdir()
    (tmp_path / f"{PARTIAL}half_removed").mkdir()
    (tmp_path / f"{PARTIAL}half_removed/file").touch()
    write_atomic(
        tmp_path / "file",
        lambda temporary: (temporary.write_text("whole"), clear_partial(tmp_path)),
    )
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["below", "file"]


def test_a_folder_that_cannot_be_written_is_named_by_what_was_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str, *_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    path, making = tmp_path / "answers.csv", os.mkdir
    monkeypatch.setattr(
        os, "mkdir", lambda path, *mode: (refused if PARTIAL in str(path) else making)(path, *mode)
    )
    with pytest.raises(OSError, match="Read-only") as caught:
        write_atomic(path, lambda temporary: temporary.write_text("whole"))
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("kind", ["read-only", "a file"])
def test_a_cache_that_cannot_be_written_names_the_key_that_chooses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "cache"
    if kind == "a file":
        path.touch()
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OSError, match=r"data\.cache_dir=\.\.\. names another folder") as caught:
        load_source(DataConfig(path=str(tmp_path / "rows.csv"), cache_dir=str(path)))
    assert caught.value.filename == str(path)


DEEP = b"[" * 200_000
DAMAGE = {
    "missing": None,
    "empty": b"",
    "cut": b'{"a": [1, 2',
    "random": bytes(range(256)),
    "NaN": b'{"a": NaN}',
    "infinite": b'{"a": 1e999}',
    "a number of 5000 digits": b'{"a": %s}' % (b"1" * 5000),
    "deep": DEEP,
    "not UTF-8": b'{"a": "\xff"}',
    "a mark": b'\xef\xbb\xbf{"a": 1}',
    "half a pair": b'{"a": "\\ud800"}',
    "another type": b"[]",
}


@pytest.mark.parametrize("kind", [*DAMAGE, "huge", "folder", "pipe", "loop"])
def test_a_damaged_file_of_a_run_is_named_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run" / "labels.json"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(2**40)  # sparse
    elif (content := DAMAGE[kind]) is not None:
        path.write_bytes(content)
    with pytest.raises(
        RunError, match=rf"^run={re.escape(str(path.parent))}: .*labels\.json"
    ) as caught:
        read_json(path, dict)
    assert len(str(caught.value).splitlines()) == 1


def test_json_that_is_whole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"a": [1, 2.5, "\\u00e9", "\\ud83d\\ude00"]}')
    assert read_json(path, dict) == {"a": [1, 2.5, "é", "😀"]}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1, 2]\nb: *a",
        "a: &a {x: 1}\n<<: *a",
        "a: [" + "1, " * 40_000 + "]",
        "a: [",
        "a: '" + "x" * 2**20 + "'",
    ],
)
def test_yaml_that_could_grow_without_bounds_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(RunError, match=r"config\.yaml is damaged"):
        read_yaml_text(path)
