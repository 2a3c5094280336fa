"""Files written whole or not at all, whatever happens; a run's files, checked when read."""

import errno
import hashlib
import math
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import platformdirs
import pydantic_core
import yaml
from pydantic import TypeAdapter, ValidationError

from headscope.ground.errors import RunError, UserError, first_line

PARTIAL = ".headscope-partial-"  # how a file is called until it is whole; a killed writer leaves it
TRY_ANOTHER = "choose another run, or train again"


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield a free path beside `path`, which an error names; what is left there is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{PARTIAL}{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
    except Exception as error:  # of a library, which may name the temporary file in its message
        own = [str(each).replace(temporary.name, path.name) for each in error.args]
        error.args = tuple(own) if temporary.name in str(error) else error.args
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)
            error.strerror = str(error.strerror).replace(temporary.name, path.name)
        raise
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path for a file, or a folder, that is moved to `path` after the block.

    An error removes it. A link stays: what it points to is replaced. An existing file keeps its
    mode.

    Raises:
        OSError: if `path` is a folder that is not empty, a device or a pipe, or cannot be written.
    """
    target = path.resolve()
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EEXIST, "exists and is not a regular file", str(path))
    with temporary_path(target) as temporary:
        yield temporary
        if temporary.is_file():
            with temporary.open("r+b") as file:  # Windows syncs none that is open for reading alone
                os.fsync(file.fileno())  # or a power cut may leave an empty file
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(target)


def write_atomic(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file, then move it to `path`, which is whole or absent."""
    with replacing(path) as temporary:
        write(temporary)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file in UTF-8, whole or not at all."""
    return write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_free(path: Path, text: str) -> Path:
    """Write a text file of this name, or with _2, _3 ... behind it where it has another text."""
    for number in count(1):
        free = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        if not free.exists() or free.read_bytes() == text.encode():
            return write_text(free, text)
    raise AssertionError


def new_folder(path: Path) -> Path:
    """Make a folder of this name, or with _2, _3 ... behind it, that nobody else has made."""
    for number in count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}_{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


def home(path: str | Path) -> Path:
    """Return a path with "~" at its start replaced by the home directory, if that user exists."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises otherwise


def without_home(value: Any) -> Any:
    """Return settings, or one of them, with "~" for the home directory, which has a user's name.

    `home` is the way back. What it gives is written into files that others get.
    """
    if isinstance(value, dict):
        return {key: without_home(each) for key, each in value.items()}
    folder = f"{home('~')}{os.sep}"
    is_below = isinstance(value, str) and value.startswith(folder) and len(folder) > 2
    return f"~{os.sep}{value.removeprefix(folder)}" if is_below else value


def check_links(folder: Path) -> None:
    """Raise a RunError if a link in a folder leads outside: what is written there would land there.

    For a folder that may come from somebody else, before anything is written below it.
    """
    root = os.path.realpath(folder)
    for path in folder.rglob("*"):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
            raise RunError(
                f"run={folder}: {path.relative_to(folder)} is a link that leads outside the "
                "folder; put there what it points to, or remove it"
            )


def missing(folder: Path) -> list[Path]:
    """Return which of a folder and those above it do not exist, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of some folders that are empty, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


# Reading a run's files: the content, or one RunError.


@contextmanager
def reading(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Turn any error in reading and checking a file of the run `folder` into a RunError.

    By default the folder is the file's. UserError and MemoryError pass.
    """
    run = f"run={folder or path.parent}"
    if path.exists() and not (path.is_file() or path.is_dir()):  # reading it may have no end
        raise RunError(f"{run}: {path.name} is damaged: it is a pipe or a device; {TRY_ANOTHER}")
    try:
        yield
    except (UserError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except OSError as error:
        raise RunError(f"{run}: {path.name} cannot be read: {error}; {TRY_ANOTHER}") from error
    except BaseException as error:  # panics of libraries in Rust are no Exception
        raise RunError(f"{run}: {path.name} is damaged: {_reason(error)}; {TRY_ANOTHER}") from error


def _reason(error: BaseException) -> str:
    if type(error) is KeyError:
        return f"it has no {error}"
    if isinstance(error, ValidationError):
        problem = error.errors()[0]
        return ": ".join([*map(str, problem["loc"]), problem["msg"]])
    return first_line(error) or type(error).__name__


def read_text(path: Path, most: int = 64) -> str:
    """Read a run's text file; RunError if it is missing, not UTF-8, or of more than `most` MiB."""
    with reading(path):
        with path.open("rb") as file:
            content = file.read(most * 2**20 + 1)  # a link may lead to a device without an end
        if len(content) > most * 2**20:
            raise ValueError(f"expected at most {most} MiB, got {path.stat().st_size >> 20}")
        return content.decode("utf-8").replace("\r\n", "\n")


def read_json(path: Path, kind: Any = Any) -> Any:
    """Read a run's JSON file; RunError unless its content is of type `kind`, such as list[str]."""
    text = read_text(path)
    with reading(path):
        content = pydantic_core.from_json(text, allow_inf_nan=False)
        return TypeAdapter(kind).validate_python(content, strict=True)


MOST_IN_YAML = 100_000  # values, where each alias counts as all that it stands for


def from_yaml(text: str) -> Any:
    """Return what YAML holds; ValueError if it is none, or stands for far more than it says."""
    loader = yaml.SafeLoader(text)  # in C, deep nesting would crash the process
    try:
        node = loader.get_single_node()
        if node is not None and _num_values(node, {}) > MOST_IN_YAML:
            raise ValueError(f"its aliases stand for more than {MOST_IN_YAML:,} values")
        return None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _num_values(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """Return the number of values below a node, or infinity for one that holds itself."""
    if node not in known:
        known[node] = math.inf
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        below = chain.from_iterable(parts) if isinstance(node, yaml.MappingNode) else parts
        known[node] = 1 + sum(_num_values(part, known) for part in below)
        if node.tag.endswith(":int") and len(node.value) > 1_000:
            raise ValueError("expected at most 1,000 digits")
    return known[node]


# The cache: results that can be made again, under a key of what they were made from.

HEX = 32 * "[0-9a-f]"  # at the end of each file's name
KINDS = ("rows", "licenses", "keys", "tokenizers", "encoded", "ngrams", "features")  # its folders


def cache_folder(configured: str | None, most_gb: float = math.inf) -> Path:
    """Return the folder of cached files, created if need be: the configured one or the user's.

    Of one that is larger than `most_gb` the files that are longest unused are removed. With 0 the
    folder is a temporary one, which ends with the process.

    Raises:
        OSError: if it cannot be written, or if the user's, which nobody else may enter, belongs to
            somebody else; the message names the key that chooses another.
    """
    if most_gb == 0:
        return Path(_temporary_cache().name)
    try:
        folder = Path(configured or platformdirs.user_cache_dir("headscope")).expanduser()
    except RuntimeError:  # a user without a home
        folder = Path(tempfile.gettempdir(), f"headscope-{os.getuid()}")
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if configured is None:
            if {folder.lstat().st_uid, folder.stat().st_uid} != {os.getuid()}:
                raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
            folder.chmod(0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "cannot be written", str(folder))
    except OSError as error:
        error.strerror = f"{error.strerror} (the cache; choose another folder: data.cache_dir=...)"
        raise
    trim_cache(folder, most_gb)
    return folder


@cache
def _temporary_cache() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="headscope-", ignore_cleanup_errors=True)


def trim_cache(folder: Path, most_gb: float) -> None:
    """Remove the files of the cache that are longest unused until it has at most `most_gb`.

    Other files in the folder are none of the cache.
    """
    files = []
    for path in folder.glob(f"*/*{HEX}.*"):
        with suppress(OSError):  # another process has removed it
            found = path.stat()
            if path.parent.name in KINDS:
                files.append((max(found.st_atime, found.st_mtime), found.st_size, path))
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left > most_gb * 1e9:
            with suppress(OSError):
                path.unlink()
            left -= size


def cached(path: Path, write: Callable[[Path], object]) -> Path:
    """Return a file of the cache, written if it is not there.

    Its name is that of `path` and a digest of this name and the content, so that no file which is
    another's, or was damaged, is read: such a file is removed, and written anew.
    """
    for found in path.parent.glob(f"{path.stem}-{HEX}{path.suffix}"):
        if found.is_file() and found == _sealed(path, found):
            with suppress(OSError):  # of a cache that may only be read
                os.utime(found, ns=(time.time_ns(), found.stat().st_mtime_ns))  # used now
            return found
        with suppress(OSError):
            found.unlink()
    with temporary_path(path) as temporary:
        write(temporary)
        return temporary.replace(_sealed(path, temporary))


def _sealed(path: Path, content: Path) -> Path:
    with content.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.blake2b(path.name.encode()))
    return path.with_stem(f"{path.stem}-{found.hexdigest()[:32]}")


def digest(parts: Iterable[Any]) -> bytes:
    """Return the BLAKE2b digest of texts and arrays: 16 bytes, of each and of where it ends."""
    result = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else bytes(part)
        # ("ab", "c") is not ("a", "bc")
        result.update(len(encoded).to_bytes(8, "little") + encoded)
    return result.digest()
