"""Writing files whole or not at all, so that nothing is ever half there after a failure, a kill or a full disk.

And where results that can be made again are kept, keyed by what they were made from.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Give an empty temporary file beside `path`, for as long as the block lasts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give an empty temporary file beside `path`; leaving the block puts it in place, an error removes it."""
    with _beside(path) as temporary:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file beside `path`, then put it in place, so that `path` is whole or absent."""
    with replacing(path) as temporary:
        write(temporary)
    return path


def create_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Do what `write_whole` does, unless `path` is there: of several that create it at once, the first does.

    Raises:
        FileExistsError: if `path` is there already.
    """
    with _beside(path) as temporary:
        write(temporary)
        temporary.chmod(0o644)
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: empty for an instant, but of the first all the same
            path.touch(exist_ok=False)
            temporary.replace(path)
    return path


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give an empty temporary folder beside `path`; leaving the block puts it in place, an error removes it.

    Raises:
        OSError: if `path` is there already and is no empty folder, or cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def cache_folder(configured: str | None) -> Path:
    """Return the folder for cached files: the configured one, or the user's cache folder."""
    folder = Path(configured).expanduser() if configured else Path(platformdirs.user_cache_dir("headscope"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(parts: Iterable[str]) -> bytes:
    """Return the BLAKE2b digest of some texts, 16 bytes that change with any of them and with where one ends."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        found.update(len(encoded).to_bytes(8, "little") + encoded)  # so that ("ab", "c") differs from ("a", "bc")
    return found.digest()


def content_key(parts: Iterable[str]) -> str:
    """Return a name that changes with any of the parts: 32 hexadecimal digits of their digest."""
    return digest(parts).hex()
