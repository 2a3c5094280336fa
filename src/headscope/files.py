"""Writing files whole or not at all, so that nothing is ever half there after a failure, a kill or a full disk."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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
            path.open("x").close()
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
