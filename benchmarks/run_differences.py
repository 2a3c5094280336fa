"""What differs between the files of two run folders, bit by bit: arrays, scores, pages, tables.

`read` returns what each file of a folder holds; `compare` returns what differs between two files.
"""

import base64
import csv
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Values = Mapping[str, Any]  # key -> array, number, text or None
Results = dict[str, Values]  # file -> what it holds
STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")  # in the names of folders that inspect makes
# Of at most 300 letters: a page holds its network in base64, megabytes with many slashes.
OWN_FOLDER = re.compile(r"/\S{0,300}/(?=(cache|checkpoint|trained|used|texts\.csv|pairs\.csv)\b)")


class Difference(NamedTuple):
    """What differs under one key; `largest` is infinite where it is no number."""

    key: str
    largest: float
    text: str


def read(folder: Path) -> Results:
    """Return what each file of results in a folder holds."""
    results: Results = {}
    for path in sorted(folder.rglob("*")):
        name = STAMP.sub("STAMP", path.relative_to(folder).as_posix())
        if path.suffix in READERS:
            results[name] = READERS[path.suffix](path)
        elif path.name.startswith("events.out."):
            results[str(Path(name).with_name("events"))] = read_scalars(path.parent)
    return results


def read_record(path: Path) -> Values:
    """Return the members of a step of the record."""
    with np.load(path, allow_pickle=False) as members:
        return dict(members)


def read_table(path: Path) -> Values:
    """Return the columns of a csv file, as numbers where all cells are."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = {}
    for name, *cells in zip(header, *rows, strict=True):
        try:
            columns[name] = np.array(cells, dtype=np.float64)
        except ValueError:
            columns[name] = np.array(cells)
    return columns


def read_page(path: Path) -> Values:
    """Return the data of a page of inspect: its JSON, and the arrays of each text."""
    page = path.read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found, f"{path} has no data"
    data = json.loads(found[1])
    arrays = {
        f"texts.{number}/{name}": array
        for number, text in enumerate(data["texts"])
        for name, array in read_bundle(base64.b64decode(text.pop("maps")))
    }
    return arrays | dict(leaves(data))


def read_bundle(bundle: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a bundle: its header's length, the header in JSON, then the numbers."""
    (length,) = struct.unpack_from("<I", bundle)
    start = -(-(4 + length) // 8) * 8  # the payload is aligned
    for entry in json.loads(bundle[4 : 4 + length]):
        count = int(np.prod(entry["shape"]))
        numbers = np.frombuffer(bundle, entry["type"], count, start + entry["offset"])
        yield entry["name"], numbers.reshape(entry["shape"])


def read_scalars(folder: Path) -> Values:
    """Return tag -> [step, value] of what TensorBoard shows as curves."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: np.array([(event.step, event.value) for event in events.Scalars(tag)])
        for tag in events.Tags()["scalars"]
    }


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key -> value of nested JSON; the key names the way to it, such as test.classes.A.f1."""
    if isinstance(value, str):
        value = OWN_FOLDER.sub("", value)
    if not value or not isinstance(value, dict | list):
        yield key.removeprefix("."), value
        return
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(part, f"{key}.{name}")


READERS: dict[str, Callable[[Path], Values]] = {
    ".safetensors": load_file,
    ".npz": read_record,
    ".json": lambda path: dict(leaves(json.loads(path.read_text(encoding="utf-8")))),
    ".yaml": lambda path: dict(leaves(yaml.safe_load(path.read_text(encoding="utf-8")))),
    ".csv": read_table,
    ".html": read_page,
}


def compare(before: Values, after: Values) -> Iterator[Difference]:
    """Yield each key whose value is not the same to the bit, and each that one side alone has."""
    for key in sorted({*before, *after}):
        if key not in after:
            yield Difference(key, np.inf, "removed")
        elif key not in before:
            yield Difference(key, np.inf, "added")
        else:
            largest, text = difference(np.asarray(before[key]), np.asarray(after[key]))
            if largest:
                yield Difference(key, largest, text)


def difference(before: np.ndarray, after: np.ndarray) -> tuple[float, str]:
    """Return the largest absolute difference, 0 if equal to the bit, and the words for it."""
    texts = before.dtype.kind in "UO" and after.dtype.kind in "UO"
    if not texts and (before.dtype, before.shape) != (after.dtype, after.shape):
        return np.inf, f"{before.dtype} {before.shape} became {after.dtype} {after.shape}"
    if texts:
        same = before.tolist() == after.tolist()
        return (0.0, "") if same else (np.inf, f"{str(before)[:90]!r} became {str(after)[:90]!r}")
    if before.tobytes() == after.tobytes():
        return 0.0, ""
    old, new = before.astype(np.float64), after.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.where(np.isnan(old) == np.isnan(new), np.nan_to_num(abs(new - old)), np.inf)
        relative = np.nanmax(np.where(change > 0, change / abs(old), 0))
    largest = max(float(change.max()), np.finfo(np.float64).tiny)  # 0.0 and -0.0 differ in a bit
    count = f"{np.count_nonzero(change)} of {change.size}"
    return largest, f"largest difference {largest:.3g}, relative {relative:.3g}, in {count} values"
