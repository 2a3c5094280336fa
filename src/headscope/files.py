"""Writing files whole or not at all, so that nothing is ever half there after a failure, a kill or a full disk.

How the files of a run are read, whatever has become of them. And where results that can be made again are kept, keyed
by what they were made from.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
import yaml

from headscope.errors import RunError, UserError, first_line, os_message

try:
    import fcntl
except ImportError:  # Windows: what a killed process left behind stays
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".headscope-partial-"  # how the folder begins in which a file is written before it is put in place
MIB = 2**20


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Give a place of the same name for what is to become `path`: in a folder beside it, which is gone after the block.

    The folder is locked meanwhile, so that `clear_partial` can tell it from that of a process that was killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _named(path):
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=PARTIAL))
    try:
        with _named(path), (folder / ".lock").open("wb") as lock:
            _try_lock(lock.fileno())
            yield folder / path.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have each OSError name `path`, and not where it is written first; make one of what native writers raise."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or PARTIAL in str(error.filename)):
            error.filename = str(path)
            error.filename2 = None
        raise
    except Exception as error:
        if found := re.search(
            r"os error (\d+)", str(error)
        ):  # safetensors, with the system's own number
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(path)) from error
        if any(
            words in str(error)
            for words in ("inline_container", "PytorchStreamWriter", "iostream error")
        ):  # torch, which hides the number
            raise OSError(errno.EIO, "cannot be written; is the disk full?", str(path)) from error
        raise


def _try_lock(file: int) -> bool:
    """Lock an open file for as long as it is open; False if that cannot be, such as while another process has it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fcntl is not None
    except OSError:
        return False


def clear_partial(folder: Path) -> None:
    """Remove, in `folder` and below it, what processes have left that were killed while they wrote a file.

    What a process is writing at this moment stays.
    """
    for path in folder.rglob(f"{PARTIAL}*"):
        with suppress(OSError):
            path.rmdir()  # as it is before it is locked
        try:
            with (path / ".lock").open("rb+") as lock:
                is_left = _try_lock(lock.fileno())
        except OSError as error:
            is_left = (
                error.errno == errno.ENOENT
            )  # killed while it removed the folder, this file first
        if is_left:
            shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    """Have a file or folder on the disk itself, where the system can say so: a power cut must not take it along."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give an empty temporary file beside `path`; leaving the block puts it in place, an error removes it.

    A link stays: what it leads to is replaced. A file that is replaced keeps its mode; a new one has the umask's.

    Raises:
        OSError: if something else than a file is there, such as a folder, or it cannot be written; it names `path`.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, "is there and is no file that could be replaced", str(path))
    with temporary_path(target) as temporary:
        temporary.touch()  # with the umask's mode, which the system tells in no other way
        wanted = temporary.stat().st_mode if mode is None else mode
        yield temporary
        temporary.chmod(stat.S_IMODE(wanted))
        _sync(temporary)
        temporary.replace(target)
    _sync(target.parent)


def write_atomic(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file beside `path`, then put it in place, so that `path` is whole or absent."""
    with replacing(path) as temporary:
        write(temporary)
    return path


def create_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Do what `write_atomic` does, unless `path` is there: of several that create it at once, the first does.

    Raises:
        FileExistsError: if `path` is there already.
    """
    with temporary_path(path) as temporary:
        write(temporary)
        _sync(temporary)
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except (
            OSError
        ):  # a file system without links: empty for an instant, but of the first all the same
            path.touch(exist_ok=False)
            temporary.replace(path)
    _sync(path.parent)
    return path


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give an empty temporary folder beside `path`; leaving the block puts it in place, an error removes it.

    Raises:
        OSError: if `path` is there already and is no empty folder, or cannot be written.
    """
    with temporary_path(path) as temporary:
        temporary.mkdir()
        yield temporary
        temporary.replace(path)


# How a file of a run is read. Whatever stands in its place, the answer is its content or one RunError.


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong while one file of a run is read and checked into a RunError that names both.

    Raises:
        RunError: for any error but a UserError, and for the panics of libraries written in Rust.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise RunError(f"run={path.parent}: has no {path.name}; {TRY_ANOTHER}") from error
    except OSError as error:
        raise RunError(
            f"run={path.parent}: {path.name} cannot be read: {os_message(error)}"
        ) from error
    except Exception as error:
        raise RunError(
            f"run={path.parent}: {path.name} is damaged: {_reason(error)}; {TRY_ANOTHER}"
        ) from error
    except BaseException as error:  # pyo3's PanicException is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise RunError(
            f"run={path.parent}: {path.name} is damaged: {first_line(error)}; {TRY_ANOTHER}"
        ) from error


TRY_ANOTHER = "take another run, or train again"


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if type(error) is KeyError:
        return f"has no {error.args[0] if error.args else 'such key'}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return first_line(error) or type(error).__name__


def check_is_file(path: Path, most: int | None = None) -> None:
    """Refuse, within `reading`, what is no regular file, such as a pipe, whose reader would wait, or a larger one."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("is no regular file")
    if most is not None and found.st_size > most:
        raise ValueError(f"has {found.st_size / MIB:.0f} MiB, takes {most / MIB:.0f} at most")


def read_text(path: Path, most: int = 64 * MIB) -> str:
    """Return the text of a run's file; a RunError if it is missing, no file, too large or not UTF-8."""
    with reading(path):
        check_is_file(path, most)
        return path.read_text(encoding="utf-8")


def read_json(path: Path, kind: type | None = None) -> Any:
    """Return what a run's JSON file holds, of type `kind`; a RunError if it is no JSON or holds a number such as NaN.

    What is inside is for the caller to check, within `reading`.
    """
    text = read_text(path)
    with reading(path):
        content = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if (
            "\\u" in text
        ):  # half of a surrogate pair is allowed by JSON, and cannot be written or printed
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        if kind is not None and type(content) is not kind:
            raise ValueError(f"holds a {type(content).__name__}, takes a {kind.__name__}")
        return content


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"holds {number}, which is no finite number")
    return value


def read_yaml_text(path: Path) -> str:
    """Return the text of a run's YAML file once it is known to be harmless; else a RunError.

    An alias of few bytes can stand for gigabytes, so there are none; and it is short.
    """
    text = read_text(path, MIB)
    with reading(path):
        # The parser written in C, where it is installed: it takes 10 ms where the other takes a second.
        for number, event in enumerate(
            yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        ):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"has the alias *{event.anchor}, which headscope never writes")
            if number > MOST_EVENTS:
                raise ValueError(f"has more than {MOST_EVENTS} entries")
    return text


MOST_EVENTS = 20_000


def cache_folder(configured: str | None) -> Path:
    """Return the folder for cached files, the configured one or the user's, cleared of what killed processes left.

    Raises:
        OSError: if it cannot be made or written; it names the key that chooses another.
    """
    folder = (
        Path(configured).expanduser()
        if configured
        else Path(platformdirs.user_cache_dir("headscope"))
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot be written", str(folder))
    except OSError as error:
        error.strerror = (
            f"{error.strerror} (the cache; data.cache_dir=... names another folder for it)"
        )
        raise
    clear_partial(folder)
    return folder


def digest(parts: Iterable[str]) -> bytes:
    """Return the BLAKE2b digest of some texts, 16 bytes that change with any of them and with where one ends."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        found.update(
            len(encoded).to_bytes(8, "little") + encoded
        )  # so that ("ab", "c") differs from ("a", "bc")
    return found.digest()


def content_key(parts: Iterable[str]) -> str:
    """Return a name that changes with any of the parts: 32 hexadecimal digits of their digest."""
    return digest(parts).hex()
