"""Files are whole or absent, and damaged ones are named in one line."""

import errno
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headscope.data.source import load_source
from headscope.ground.errors import RunError
from headscope.ground.files import (
    cache_folder,
    cached,
    check_links,
    new_folder,
    read_json,
    replacing,
    write_atomic,
    write_text,
)
from headscope.settings.config import DataConfig


def test_while_it_is_written_the_old_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        assert path.read_text() == "old"

    assert write_atomic(path, write) == path
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_in_writing_names_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=re.escape(f"No space left on device: '{tmp_path}/file'")),
        replacing(tmp_path / "file"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("old", ["old", None])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
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
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == (
        {"file.txt": old} if old else {}
    )


def test_a_folder_is_moved_into_place_whole_and_replaces_no_other(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.mkdir()
        (temporary / "half").write_text("half")
        raise RuntimeError("disk full")
    assert list(path.parent.iterdir()) == []
    with replacing(path) as temporary:
        temporary.mkdir()
        (temporary / "inside").write_text("content")
        assert not path.exists()
    with pytest.raises(OSError, match="folder"), replacing(path) as temporary:
        temporary.mkdir()
        (temporary / "other").write_text("content")
    assert [file.name for file in path.iterdir()] == ["inside"]
    assert [file.name for file in path.parent.iterdir()] == ["folder"]


def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_text(tmp_path / "new", "new")
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        write_text(path, "newer")
        assert path.stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(before)


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to("elsewhere/file")
    for content in ("first", "second"):
        write_atomic(link, lambda temporary, content=content: temporary.write_text(content))
        assert link.is_symlink()
        assert (tmp_path / "elsewhere/file").read_text() == content


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    """A device that a link points to would become a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.csv").symlink_to("pipe")
    with pytest.raises(OSError, match=r"not a regular file.*link\.csv"):
        write_atomic(tmp_path / "link.csv", lambda temporary: temporary.write_text("new"))
    assert (tmp_path / "pipe").is_fifo()


def test_of_one_name_every_folder_is_another(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(new_folder, [tmp_path / "a" / "now"] * 9))
    assert sorted(path.name for path in found) == ["now", *(f"now_{n}" for n in range(2, 10))]


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gone(_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", gone)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cache_folder(None).parent == tmp_path


def test_the_cache_is_nobody_elses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever made it first in /tmp could put arrays there that are trained on."""
    cache = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(cache))
    assert cache_folder(None).stat().st_mode & 0o777 == 0o700
    cache.chmod(0o777)
    assert cache_folder(None).stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(OSError, match=r"belongs to another user \(the cache; .* data.cache_dir"):
        cache_folder(None)
    cache.chmod(0o770)
    assert cache_folder(str(cache)).stat().st_mode & 0o777 == 0o770  # you have named it


@pytest.mark.parametrize("kind", ["another's", "damaged", "a link", "a folder", "a pipe"])
def test_a_cached_file_is_what_was_written_under_its_name_or_written_anew(
    tmp_path: Path, kind: str
) -> None:
    written: list[str] = []

    def kept(name: str) -> Path:
        return cached(
            tmp_path / "cache" / name, lambda path: written.append(name) or path.write_text(name)
        )

    mine, others = kept("a.json"), kept("b.json")
    assert (kept("a.json"), kept("b.json"), written) == (mine, others, ["a.json", "b.json"])
    if kind == "damaged":
        mine.write_text("x.json")
    else:
        mine.unlink()
    if kind == "another's":
        others.rename(mine)
    elif kind == "a link":
        mine.symlink_to(others)
    elif kind == "a folder":
        mine.with_stem(f"a-{'0' * 32}").mkdir()
    elif kind == "a pipe":
        os.mkfifo(mine)
    assert kept("a.json") == mine
    assert (mine.read_text(), written[2:]) == ("a.json", ["a.json"])
    assert not mine.is_symlink()


@pytest.mark.parametrize("kind", ["read-only", "a file"])
def test_a_cache_that_cannot_be_written_names_the_key_that_chooses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "cache"
    if kind == "a file":
        path.touch()
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OSError, match=r"choose another folder: data\.cache_dir") as caught:
        load_source(DataConfig(path=str(tmp_path / "rows.csv"), cache_dir=str(path)))
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("name", ["labels.json", "inspect", "heads/new/index.json", ".lock"])
def test_a_link_that_leads_outside_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    (folder / name).parent.mkdir(parents=True)
    (folder / "loop").symlink_to("loop")
    (folder / "inside").symlink_to(folder / "labels.json")
    (tmp_path / "latest").symlink_to(folder)
    check_links(tmp_path / "latest")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=f"{name} is a link that leads outside the folder"):
        check_links(tmp_path / "latest")


DAMAGE = {
    "missing": None,
    "empty": b"",
    "cut": b'{"a": [1, 2',
    "random": bytes(range(256)),
    "NaN": b'{"a": NaN}',
    "a number of 5000 digits": b'{"a": %s}' % (b"1" * 5000),
    "deep": b"[" * 200_000,
    "not UTF-8": b'{"a": "\xff"}',
    "a mark": b'\xef\xbb\xbf{"a": 1}',
    "half a pair": b'{"a": "\\ud800"}',
    "another type": b"[]",
}


@pytest.mark.parametrize("kind", [*DAMAGE, "folder", "pipe"])
def test_a_damaged_file_of_a_run_is_named_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run" / "labels.json"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif (content := DAMAGE[kind]) is not None:
        path.write_bytes(content)
    with pytest.raises(
        RunError, match=rf"^run={re.escape(str(path.parent))}: .*labels\.json"
    ) as caught:
        read_json(path, dict)
    assert len(str(caught.value).splitlines()) == 1


def kept_bytes(folder: Path, name: str, size: int) -> Path:
    return cached(folder / name, lambda path: path.write_bytes(bytes(size)))


def test_of_a_cache_above_its_limit_what_is_longest_unused_is_removed(tmp_path: Path) -> None:
    names = ["keys/a.safetensors", "ngrams/b.safetensors", "rows/c.arrow", "features/d.npy"]
    files = [kept_bytes(tmp_path, name, 100) for name in names]
    mine = [
        tmp_path / f"{'0' * 32}.npy",
        tmp_path / "keys" / "a.csv",
        tmp_path / "my" / files[0].name,
    ]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000))
    for age, path in enumerate(files):
        os.utime(path, (1e9 - age, 1e9 - age))
    assert kept_bytes(tmp_path, names[3], 100) == files[3]  # the oldest, but used now
    cache_folder(str(tmp_path), 400e-9)
    assert all(path.exists() for path in files)
    cache_folder(str(tmp_path), 399e-9)
    assert [path.exists() for path in files] == [True, True, False, True]
    cache_folder(str(tmp_path), 100e-9)
    assert [path.exists() for path in files] == [False, False, False, True]
    assert all(path.exists() for path in mine)


def test_without_a_cache_nothing_is_kept(tmp_path: Path) -> None:
    code = (
        "from headscope.ground.files import cache_folder, write_text\n"
        f"folder = cache_folder({str(tmp_path)!r}, 0)\n"
        "assert folder == cache_folder(None, 0)\n"
        "print(write_text(folder / 'keys' / 'a', 'text'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    written = Path(done.stdout.strip())
    assert (written.name, written.exists(), written.parents[1].exists()) == ("a", False, False)
    assert list(tmp_path.iterdir()) == []
