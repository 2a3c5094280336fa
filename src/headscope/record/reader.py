"""One step's arrays on their way from a file to the browser: read without trust, then packed into what is answered.

A bundle is the length of a header (4 bytes, little-endian), the header in JSON, zeros up to a multiple of 8, and the
payload. The header lists ``{name, type, shape, offset}``; offsets count bytes from the beginning of the payload and
are multiples of 8, so that JavaScript lays typed arrays over them without a copy. Numbers are little-endian.
"""

import functools
import json
import math
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from headscope.record.schema import Arrays, PlainFile, RecordError, plain_file

# Bytes that the members which are read may claim together, and that the list of a file's members may take: some 30,000.
LARGEST, LONGEST_LIST = 2**29, 2**21
ALIGNMENT = 8
Check = Callable[[str, np.dtype, tuple[int, ...]], None]
TYPES = {"uint8": "|u1", "int32": "<i4", "float32": "<f4"}
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_members(
    path: Path,
    choose: Callable[[Mapping[str, int]], Iterable[str]],
    check: Check | None = None,
    most: int | None = None,
) -> Arrays:
    """Read some members of a step's file, and nothing else of it.

    Args:
        path: the step's file.
        choose: told the name and the size in bytes of all members, returns the names of those to read.
        check: told the name, type and shape of each of them before it is read; raises ValueError to refuse it.
        most: bytes that they may claim together; `LARGEST` if not given.

    Raises:
        RecordError: if the file is missing, cut short, not what was written, or claims too many bytes.
    """
    arrays: Arrays = {}
    left = LARGEST if most is None else most
    with record_errors(path), plain_file(path) as file:
        file.most = LONGEST_LIST  # zipfile reads the list of members at once, however long the file says that it is
        with zipfile.ZipFile(file) as archive:
            file.most = PlainFile.most
            listed = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(listed) < len(archive.infolist()):
                raise ValueError("two of its members have the same name")
            for name in choose({name: info.file_size for name, info in listed.items()}):
                arrays[name] = _read(
                    archive, listed[name], left, check and functools.partial(check, name)
                )
                left -= arrays[name].nbytes
    return arrays


@contextmanager
def record_errors(path: Path) -> Iterator[None]:
    """Turn whatever a broken or tampered file provokes inside the block into a RecordError that names the file."""
    try:
        yield
    except RecordError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise RecordError(
            f"{path.name}: cannot be read: {reason}; the other files can still be shown"
        ) from error


def _read(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    most: int,
    check: Callable[[np.dtype, tuple[int, ...]], None] | None,
) -> np.ndarray:
    """Read one member of at most `most` bytes; nothing is allocated before its size, type and shape are known."""
    name = info.filename
    if info.compress_type != zipfile.ZIP_STORED:  # a short file could be unpacked into a huge one
        raise ValueError(f"{name} is compressed; a record is written without, as numpy.savez does")
    if info.file_size > most + 2**16:  # its header counts too
        raise ValueError(
            f"{name} claims {info.file_size} bytes, and {most} are left of what may be read at once"
        )
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise ValueError(f"{name} is of the unknown version {version}")
        shape, column_major, dtype = HEADERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds pickled objects, which are never opened")
        if any(side < 0 for side in shape):
            raise ValueError(f"{name} claims the shape {shape}")
        if check:
            check(dtype, shape)
        size = math.prod(shape) * dtype.itemsize
        if size > min(most, info.file_size):
            raise ValueError(
                f"{name} claims {size} bytes, of {info.file_size} that it has and {most} that may be read"
            )
        data = file.read(size)
    if len(data) < size:
        raise ValueError(f"{name} is cut short")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if column_major else "C")


def pack(arrays: Arrays) -> bytes:
    """Return the arrays as one bundle; float16 becomes float32; ValueError for a type that bundles do not have."""
    entries, parts, offset = [], [], 0
    for name, array in arrays.items():
        kind = "float32" if array.dtype == np.float16 else array.dtype.name
        if kind not in TYPES:
            raise ValueError(
                f"{name} is of type {array.dtype}; a bundle takes {', '.join(TYPES)} and float16"
            )
        data = array.astype(TYPES[kind], copy=False).tobytes()
        entries.append({"name": name, "type": kind, "shape": list(array.shape), "offset": offset})
        parts += [data, _padding(len(data))]
        offset += len(data) + len(parts[-1])
    header = json.dumps(entries).encode()
    return b"".join([struct.pack("<I", len(header)), header, _padding(4 + len(header)), *parts])


def _padding(size: int) -> bytes:
    return bytes(-size % ALIGNMENT)


def unpack(bundle: bytes) -> Arrays:
    """Return the arrays of a bundle; ValueError if it is not one, or is cut short."""
    if len(bundle) < 4:
        raise ValueError("a bundle begins with the length of its header")
    (length,) = struct.unpack_from("<I", bundle)
    start = 4 + length + len(_padding(4 + length))
    arrays = {}
    for entry in json.loads(bundle[4 : 4 + length]):
        shape = entry["shape"]
        values = np.frombuffer(
            bundle, TYPES[entry["type"]], math.prod(shape), start + entry["offset"]
        )
        arrays[entry["name"]] = values.reshape(shape)
    return arrays


def nested(array: np.ndarray) -> Any:
    """Return the array as nested lists for JSON, with None for NaN and infinite; ValueError for another kind."""
    if array.dtype.kind not in "biufU":
        raise ValueError(f"an array of type {array.dtype} has no place in JSON")
    if array.dtype.kind != "f":
        return array.tolist()
    values = array.astype(object)
    values[~np.isfinite(array)] = None
    return values.tolist()


def finite(value: Any) -> Any:
    """Return a value of JSON in which NaN and infinite numbers are None."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def series_of(tables: Sequence[Arrays]) -> dict[str, Any]:
    """Return {measure: {"mean": [layer][head][step]}}, None where a step has no mean.

    `tables` are the numbers/<measure>/mean [L, H] of each step.
    """
    measures: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        shape = next(table[name].shape for table in reversed(tables) if name in table)
        values = np.full((*shape, len(tables)), np.nan, dtype=np.float32)
        for place, table in enumerate(tables):
            if name in table and table[name].shape == shape and table[name].dtype.kind in "fiu":
                values[..., place] = table[name]
        measures[name.removeprefix("numbers/").removesuffix("/mean")] = {"mean": nested(values)}
    return measures
