"""Files written whole or not at all, whatever happens; a run's files, checked when read."""

import errno
import hashlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
import pydantic_core
import yaml
from pydantic import TypeAdapter, ValidationError

from headscope.errors import RunError, UserError, first_line, os_message

PARTIAL = ".headscope-partial-"  # how a file is called until it is whole; a killed writer leaves it
MIB = 2**20
TRY_ANOTHER = "choose another run, or train again"


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield a free path beside `path`; what is still there after the block is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{PARTIAL}{uuid.uuid4().hex}{path.suffix}")
    try:
        with _errors_that_name(path):
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # leaves a file as it is
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def _errors_that_name(path: Path) -> Iterator[None]:
    """Have errors name `path`, not the temporary file; make OSErrors of native writers' errors."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or PARTIAL in str(error.filename)):
            error.filename = str(path)
            error.filename2 = None
        raise
    except Exception as error:
        if number := re.search(r"os error (\d+)", str(error)):  # safetensors
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(path)) from error
        if re.search("inline_container|PytorchStreamWriter|iostream error", str(error)):  # torch
            raise OSError(errno.EIO, "cannot be written; is the disk full?", str(path)) from error
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file, moved to `path` after the block; an error removes it.

    A link stays: the file that it points to is replaced. A new file has the umask's mode; an
    existing one keeps its own.

    Raises:
        OSError: if `path` is not a regular file, such as a folder, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, "exists and is not a regular file", str(path))
    with temporary_path(target) as temporary:
        temporary.touch()
        mode = mode or temporary.stat().st_mode
        yield temporary
        temporary.chmod(stat.S_IMODE(mode))  # some writers make the file anew
        _sync(temporary)
        temporary.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that it survives a power cut; not all systems can."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def write_atomic(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file, then move it to `path`, which is whole or absent."""
    with replacing(path) as temporary:
        write(temporary)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file in UTF-8, whole or not at all."""
    return write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder that is moved to `path` after the block; an error removes it.

    Raises:
        OSError: if `path` exists and is not an empty folder, or cannot be written.
    """
    with temporary_path(path) as temporary:
        temporary.mkdir()
        yield temporary
        temporary.replace(path)


# Reading a run's files: the content, or one RunError.


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error in reading and checking a run's file into a RunError that names both.

    UserError and MemoryError pass.
    """
    run = f"run={path.parent}"
    try:
        yield
    except (UserError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except FileNotFoundError as error:
        raise RunError(f"{run}: has no {path.name}; {TRY_ANOTHER}") from error
    except OSError as error:
        raise RunError(f"{run}: {path.name} cannot be read: {os_message(error)}") from error
    except BaseException as error:  # panics of libraries in Rust are no Exception
        raise RunError(f"{run}: {path.name} is damaged: {_reason(error)}; {TRY_ANOTHER}") from error


def _reason(error: BaseException) -> str:
    if type(error) is KeyError:
        return f"it has no {error}"
    if isinstance(error, ValidationError):
        problem = error.errors()[0]
        return ": ".join([*map(str, problem["loc"]), problem["msg"]])
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return first_line(error) or type(error).__name__


def check_is_file(path: Path, max_size: int | None = None) -> None:
    """Raise a ValueError unless `path` is a regular file (a pipe would wait), and not too large."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a regular file")
    if max_size is not None and status.st_size > max_size:
        raise ValueError(f"expected at most {max_size // MIB} MiB, got {status.st_size // MIB}")


def read_text(path: Path, max_size: int = 64 * MIB) -> str:
    """Read a run's text file; RunError if it is missing, too large or not UTF-8."""
    with reading(path):
        check_is_file(path, max_size)
        return path.read_text(encoding="utf-8")


def read_json(path: Path, kind: Any = Any) -> Any:
    """Read a run's JSON file; RunError unless its content is of type `kind`, such as list[str]."""
    text = read_text(path)
    with reading(path):
        content = pydantic_core.from_json(text, allow_inf_nan=False)
        return TypeAdapter(kind).validate_python(content, strict=True)


# The cache: results that can be made again, under a key of what they were made from.


def cache_folder(configured: str | None) -> Path:
    """Return the folder of cached files, created if need be: the configured one or the user's.

    Raises:
        OSError: if it cannot be written; the message names the key that chooses another.
    """
    folder = Path(configured or platformdirs.user_cache_dir("headscope")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot be written", str(folder))
    except OSError as error:
        error.strerror = f"{error.strerror} (the cache; choose another folder: data.cache_dir=...)"
        raise
    return folder


def digest(parts: Iterable[str]) -> bytes:
    """Return the BLAKE2b digest of texts: 16 bytes that depend on each and on where it ends."""
    result = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        result.update(
            len(encoded).to_bytes(8, "little") + encoded
        )  # ("ab", "c") is not ("a", "bc")
    return result.digest()


def content_key(parts: Iterable[str]) -> str:
    """Return the digest of some texts as 32 hexadecimal digits."""
    return digest(parts).hex()
