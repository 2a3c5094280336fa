"""A step's arrays on their way from a file to the browser: read without trust, then packed.

A bundle is the length of a header (4 bytes, little-endian), the header in JSON, zeros up to a multiple of 8, and the
payload. The header lists ``{name, type, shape, offset}``; offsets count bytes from the beginning of the payload and
are multiples of 8, so that JavaScript lays typed arrays over them without a copy. Numbers are little-endian.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from headscope.record.schema import MEASURE, Arrays, RecordError, record_errors

MAX_BYTES = 2**29  # of the arrays that are read together
MAX_LIST_BYTES = 2**21  # of the list of a file's members: some 30,000 of them
ALIGNMENT = 8
TYPES = {"uint8": "|u1", "int32": "<i4", "float32": "<f4"}


class _LimitedFile(FileIO):
    """A file that reads no more than `limit` bytes at once: zipfile reads the list of members so."""

    limit = MAX_LIST_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.limit:
            raise ValueError(f"expected a list of at most {self.limit} bytes, got {size}")
        return super().read(size)


def read_members(
    path: Path,
    choose: Callable[[Mapping[str, int]], Iterable[str]],
    check: Callable[[str, np.ndarray], None] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Arrays:
    """Read some arrays of a step's file, and nothing else of it.

    Args:
        path: the step's file.
        choose: gets the size in bytes of each array by its name, returns the names of those to read.
        check: gets the name and the array; raises ValueError to reject it.
        max_bytes: that they may take together, checked before any is read.

    Raises:
        RecordError: if the file is missing, cut short, tampered with, or beyond the bounds.
    """
    with record_errors(path), _LimitedFile(path) as file, NpzFile(file, allow_pickle=False) as npz:
        file.limit = max_bytes + 2**20
        infos = npz.zip.infolist()  # type: ignore[union-attr]
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in infos}
        names = list(choose(sizes))
        claimed = sum(sizes[name] for name in names)
        if claimed > max_bytes + 2**16:  # headers count too
            raise RecordError(f"{path.name}: expected at most {max_bytes} bytes, got {claimed}")
        arrays = {}
        for name in names:
            arrays[name] = np.asarray(npz[name])
            if check is not None:
                check(name, arrays[name])
    return arrays


def pack(arrays: Arrays) -> bytes:
    """Return the arrays as one bundle; float16 becomes float32; ValueError for another type."""
    entries = []
    parts = []
    offset = 0
    for name, array in arrays.items():
        kind = "float32" if array.dtype == np.float16 else array.dtype.name
        if kind not in TYPES:
            raise ValueError(f"{name}: expected {', '.join(TYPES)} or float16, got {array.dtype}")
        entries.append({"name": name, "type": kind, "shape": list(array.shape), "offset": offset})
        data = _padded(array.astype(TYPES[kind], copy=False).tobytes())
        parts.append(data)
        offset += len(data)
    header = json.dumps(entries).encode()
    return b"".join([_padded(struct.pack("<I", len(header)) + header), *parts])


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def nested(array: np.ndarray) -> Any:
    """Return the array as nested lists for JSON, with None for NaN and infinity."""
    if array.dtype.kind not in "biufU":
        raise ValueError(f"expected numbers or text, got {array.dtype}")
    return finite(array.tolist()) if array.dtype.kind == "f" else array.tolist()


def split_measures(arrays: Arrays) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return {measure: {"mean": [layer][head], "error": ...}}, and a step's other arrays as lists."""
    measures: dict[str, dict[str, Any]] = {}
    others = {}
    for name, array in arrays.items():
        match = MEASURE.fullmatch(name)
        if match:
            measures.setdefault(match[1], {})[match[2]] = nested(array)
        else:
            others[name] = nested(array)
    return measures, others


def finite(value: Any) -> Any:
    """Return a value of JSON in which NaN and infinite numbers are None."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
