"""A record on its way from its files to the browser: read without trust, then packed.

A bundle is the length of a header (4 bytes, little-endian), the header in JSON, zeros up to a
multiple of 8, and the payload. The header lists ``{name, type, shape, offset}``; offsets count
bytes from the beginning of the payload and are multiples of 8, so that JavaScript lays typed arrays
over them without a copy. Numbers are little-endian.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import ValidationError

from headscope.ground.errors import first_line
from headscope.record.schema import (
    INDEX,
    INDEX_ADAPTER,
    VERSION,
    Arrays,
    Index,
    Numbers,
    RecordError,
)

ALIGNMENT = 8
TYPES = {
    "uint8": "|u1", "int8": "|i1", "int32": "<i4", "uint64": "<u8",
    "float16": "<f2", "float32": "<f4",
}  # fmt: skip
MOST_MIB_INDEX = 8  # read whenever it has changed
MOST_MIB_ARRAYS = 256  # of a text: weights and maps of 12 x 12 heads over 512 tokens are 144
MOST_MIB_NUMBERS = 4  # of the heads, which become lists
MOST_LISTS = 2**20  # that they become; those of an array of no size take memory too
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
MEASURE = re.compile("numbers/(.+)/(mean|error)", re.DOTALL)


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
        known = error.strerror if isinstance(error, OSError) else first_line(error)
        reason = known or type(error).__name__
        raise RecordError(f"{path.name}: cannot be read: {reason}") from error


def read_index(folder: Path) -> Index:
    """Read index.json; RecordError if it is missing, broken, or of another version."""
    path = folder / INDEX
    with record_errors(path):
        check_size(path, path.stat().st_size, MOST_MIB_INDEX)
        try:
            return INDEX_ADAPTER.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            key = ".".join(map(str, first["loc"]))[:100] or "cannot be read"
            remedy = f"; only records of version {VERSION} are read" if key == "version" else ""
            raise RecordError(f"{INDEX}: {key}: {first['msg']}{remedy}") from error


def check_size(path: Path, size: int, most: int) -> None:
    """Raise a RecordError for more bytes than `most` MiB."""
    if size > most * 2**20:
        raise RecordError(f"{path.name}: expected at most {most} MiB, got {size >> 20}")


def read_step(
    path: Path, is_wanted: Callable[[str], object] = bool, most: int = MOST_MIB_ARRAYS
) -> Arrays:
    """Read a step's arrays, those with a wanted name, of at most `most` MiB together.

    Nothing is unpickled, and sizes are asked before anything is read.

    Raises:
        RecordError: if the file is damaged, or its arrays are larger.
    """
    with record_errors(path), path.open("rb") as file, np.load(file, allow_pickle=False) as step:
        members = {name: step.zip.getinfo(f"{name}.npy") for name in filter(is_wanted, step.files)}
        check_size(path, sum(member.file_size for member in members.values()), most)
        for member in members.values():
            with step.zip.open(member) as content:
                _check_header(content, member.file_size)
        return {name: step[name] for name in members}


def _check_header(content: IO[bytes], size: int) -> None:
    """Raise a ValueError if the header of an array says another size than the file."""
    shape, _, kind = HEADERS[np.lib.format.read_magic(content)](content)
    claimed = max(kind.itemsize, 1) * math.prod(shape)  # no text is of size 0
    if not kind.hasobject and content.tell() + claimed != size:  # numpy refuses objects
        raise ValueError(f"an array has another size than its header says, {claimed} bytes")


def is_of_heads(name: str) -> bool:
    """Return whether an array of a step belongs to the heads, and to no text."""
    return not name.startswith("text_")


def read_text(path: Path, number: int) -> Arrays:
    """Read the arrays of a text, without text_t/ in their names; RecordError if it has no maps."""
    prefix = f"text_{number}/"
    arrays = read_step(path, lambda name: name.startswith(prefix))
    if f"{prefix}layer_0/weights" not in arrays:
        raise RecordError(f"{path.name}: has no maps of text {number}; choose another step")
    return {name.removeprefix(prefix): array for name, array in arrays.items()}


def pack(arrays: Arrays) -> bytes:
    """Return the arrays as one bundle; ValueError for a type that is not among TYPES."""
    entries = []
    parts = []
    offset = 0
    for name, array in arrays.items():
        kind = array.dtype.name
        if kind not in TYPES:
            raise ValueError(f"{name}: expected {', '.join(TYPES)}, got {kind}")
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
    if array.ndim * math.prod(max(size, 1) for size in array.shape[:-1]) > MOST_LISTS:
        raise ValueError(f"expected at most {MOST_LISTS:,} lists of numbers, got {array.shape}")
    values = array.astype(object)
    if array.dtype.kind == "f":
        values[~np.isfinite(array)] = None
    return values.tolist()


def numbers_of(arrays: Arrays) -> Numbers:
    """Return a step's arrays as lists, those of measures by their name."""
    numbers: Numbers = {"measures": {}, "extra": {}}
    for name, array in arrays.items():
        if match := MEASURE.fullmatch(name):
            numbers["measures"].setdefault(match[1], {})[match[2]] = nested(array)
        else:
            numbers["extra"][name] = nested(array)
    return numbers
