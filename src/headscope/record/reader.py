"""A record on its way from its files to the browser: read without trust, then packed.

A bundle is the length of a header (4 bytes, little-endian), the header in JSON, zeros up to a
multiple of 8, and the payload. The header lists ``{name, type, shape, offset}``; offsets count
bytes from the beginning of the payload and are multiples of 8, so that JavaScript lays typed arrays
over them without a copy. Numbers are little-endian.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from pydantic import ValidationError

from headscope.record.schema import (
    INDEX,
    INDEX_ADAPTER,
    MAX_HEADS,
    MAX_TOKENS_OF_ALL,
    MEASURE,
    Arrays,
    Index,
    RecordError,
    step_file,
)

MAX_INDEX_BYTES = 2**23
MAX_BYTES = 2**29  # of the arrays that are read together
MAX_READ_BYTES = 2**21  # at once, so that a file lists some 30,000 members at most
ALIGNMENT = 8
TYPES = {"uint8": "|u1", "int32": "<i4", "float32": "<f4"}


@contextmanager
def record_errors(path: Path) -> Iterator[None]:
    """Raise whatever a broken or tampered file provokes as a RecordError that names the file."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait without end
            raise RecordError(f"{path.name}: expected a regular file, got a folder or a device")
        yield
    except RecordError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0][:300] or type(error).__name__
        raise RecordError(f"{path.name}: cannot be read: {reason}") from error


def read_index(folder: Path) -> Index:
    """Read and check index.json; RecordError if it is missing, broken or beyond the bounds."""
    path = folder / INDEX
    with record_errors(path):
        size = path.stat().st_size
        if size > MAX_INDEX_BYTES:
            raise RecordError(f"{INDEX}: expected at most {MAX_INDEX_BYTES} bytes, got {size}")
        try:
            index = INDEX_ADAPTER.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            key = ".".join(map(str, first["loc"]))[:100] or "cannot be read"
            remedy = "; upgrade headscope" if key == "version" else ""
            raise RecordError(f"{INDEX}: {key}: {first['msg']}{remedy}") from error
        _check_index(index)
    return index


def _check_index(index: Index) -> None:
    """Check what no single key can say; ValueError if it does not fit."""
    num_tokens = sum(len(text.tokens) for text in index.texts)
    steps = [step.step for step in index.steps]
    if not index.heads or len(index.heads) != len(index.layers):
        raise ValueError("heads: expected the number of heads of each of its layers")
    if sum(index.heads) > MAX_HEADS:
        raise ValueError(f"heads: expected at most {MAX_HEADS} in all, got {sum(index.heads)}")
    if num_tokens > MAX_TOKENS_OF_ALL:
        raise ValueError(f"texts: expected at most {MAX_TOKENS_OF_ALL} tokens, got {num_tokens}")
    if steps != sorted(set(steps)):
        raise ValueError("steps: expected rising numbers")
    if any(step.file != step_file(step.step) for step in index.steps):
        raise ValueError("steps: expected the file of each step, got another name")


class _LimitedFile(FileIO):
    """A file that reads at most `MAX_READ_BYTES` at once: zipfile reads the list of members so."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_READ_BYTES:
            raise ValueError(f"expected to read at most {MAX_READ_BYTES} bytes at once, got {size}")
        return super().read(size)


def read_members(
    path: Path,
    choose: Callable[[Mapping[str, int]], Iterable[str]],
    check: Callable[[str, np.ndarray], None] = lambda name, array: None,
    max_bytes: int = MAX_BYTES,
) -> Arrays:
    """Read the arrays of a step that `choose` picks from the bytes of each, and no others.

    `check` raises ValueError to reject one. RecordError if the file is missing, broken, tampered
    with, or if they would take more than `max_bytes` together.
    """
    with record_errors(path), _LimitedFile(path) as file, NpzFile(file, allow_pickle=False) as npz:
        infos = npz.zip.infolist()  # type: ignore[union-attr]
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in infos}
        names = list(choose(sizes))
        claimed = sum(sizes[name] for name in names)
        if claimed > max_bytes + 2**16:  # headers count too
            raise RecordError(f"{path.name}: expected at most {max_bytes} bytes, got {claimed}")
        arrays = {}
        for name in names:
            arrays[name] = np.asarray(npz[name])
            check(name, arrays[name])
    return arrays


def read_step(path: Path, prefix: str = "") -> Arrays:
    """Read the arrays of a step of one's own; RecordError if it is broken."""
    with record_errors(path), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if name.startswith(prefix)}


def pack(arrays: Arrays) -> bytes:
    """Return the arrays as one bundle; float16 becomes float32; ValueError for another type."""
    entries = []
    parts = []
    offset = 0
    for name, array in arrays.items():
        kind = "float32" if array.dtype == np.float16 else array.dtype.name
        if kind not in TYPES:
            raise ValueError(f"{name}: expected {', '.join(TYPES)} or float16, got {array.dtype}")
        entries.append({"name": name, "type": kind, "shape": array.shape, "offset": offset})
        parts.append(_padded(array.astype(TYPES[kind]).tobytes()))
        offset += len(parts[-1])
    header = json.dumps(entries).encode()
    return b"".join([_padded(struct.pack("<I", len(header)) + header), *parts])


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def nested(array: np.ndarray) -> Any:
    """Return the array as nested lists for JSON, with None for NaN and infinity."""
    if array.dtype.kind not in "biufU":
        raise ValueError(f"expected numbers or text, got {array.dtype}")
    values = array.astype(object)
    if array.dtype.kind == "f":
        values[~np.isfinite(array)] = None
    return values.tolist()


def split_measures(arrays: Arrays) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return {measure: {"mean": [layer][head], "error": ...}}, and the other arrays as lists."""
    measures: dict[str, dict[str, Any]] = {}
    others = {}
    for name, array in arrays.items():
        if match := MEASURE.fullmatch(name):
            measures.setdefault(match[1], {})[match[2]] = nested(array)
        else:
            others[name] = nested(array)
    return measures, others
