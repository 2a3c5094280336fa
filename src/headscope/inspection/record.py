"""How recorded maps are stored: one file for each step, and an index that lists them. Needs numpy alone.

    <run>/heads/index.json            what was recorded: texts, layers, heads, and the steps that were kept
    <run>/heads/step_000000001200.npz one step: every map, and the numbers of every head

A weight is stored as one byte: a level of 0 to 255 times the largest weight of its row, so that rows of small
weights keep their detail (the error is at most that maximum / 510). docs/record-format.md lists the members.

A step's file is written whole before the index names it, and the index is replaced whole: what is listed can be read,
whenever the process was killed. Nothing is pickled.
"""

import json
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_whole
from headscope.inspection.pairs import check_segments

FOLDER, INDEX, VERSION, LEVELS = "heads", "index.json", 1, 255
Arrays = dict[str, np.ndarray]


class RecordError(Exception):
    """A record that cannot be read; the message names the file and says what is wrong with it."""


@dataclass(frozen=True)
class Text:
    """A text whose maps are recorded at every step.

    Attributes:
        name: such as probe_0.
        tokens: as a person reads them.
        text: the whole text.
        label: its class, if known.
        segments: for a pair of texts, which of them each token is of: 0, 1, or None for special tokens such as [SEP],
            which are of neither (Hugging Face's encoding.sequence_ids). None for a single text.
    """

    name: str
    tokens: list[str]
    text: str
    label: str | None = None
    segments: list[int | None] | None = None

    def __post_init__(self) -> None:
        """Half a character of a broken text has no UTF-8; it is kept as a question mark.

        Raises:
            ValueError: if segments do not fit the tokens.
        """
        for name in ("name", "text", "label"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else encodable(value))
        object.__setattr__(self, "tokens", [encodable(token) for token in self.tokens])
        if self.segments is not None:
            object.__setattr__(self, "segments", check_segments(self.segments, len(self.tokens), self.name))


def encodable(text: str) -> str:
    """Return the text with a question mark in the place of each half character, which has no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def label_text(label: str | list[str]) -> str:
    """Return the class of a text, or any number of them, in one piece for a person."""
    return label if isinstance(label, str) else ", ".join(label) or "none"


@dataclass(frozen=True)
class Step:
    """A step that was kept: its number, its file beside the index, its size, and when it was written (seconds)."""

    step: int
    file: str
    bytes: int
    time: float


@dataclass
class Index:
    """What a run's record holds.

    Attributes:
        texts: in the order in which the members of a step's file count them.
        layers: names of the layers.
        heads: heads of each layer.
        classes: names of the classes, in the order of the probabilities; empty if there are none.
        steps: the steps that were kept, in order.
        recorded: how many steps were recorded, those that were thinned out among them.
        every: every n-th of them is kept, this is n; the first and the last always are.
        budget: bytes that the steps may take.
        notes: anything a reader should know, such as the precision of the model.
    """

    texts: list[Text]
    layers: list[str]
    heads: list[int]
    classes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    recorded: int = 0
    every: int = 1
    budget: int = 2**28
    notes: dict[str, str] = field(default_factory=dict)


def levels_of(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return levels [..., Q, K] in bytes and scales [..., Q] such that weight = level / 255 * scale."""
    scales = weights.max(axis=-1).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)  # a row of zeros stays zeros
    levels = np.rint(weights / divisors[..., None] * LEVELS)
    return np.clip(levels, 0, LEVELS).astype(np.uint8), scales


def weights_from(levels: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the weights that levels and scales stand for, in float32."""
    weights: np.ndarray = levels.astype(np.float32) * (scales[..., None] / LEVELS)
    return weights


def write_step(folder: Path, step: int, arrays: Arrays) -> Path:
    """Write a step's arrays into one file, whole or not at all."""
    path = folder / f"step_{step:012d}.npz"

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # a name without .npz, which savez would append
            np.savez(file, **arrays)  # type: ignore[arg-type]

    return write_whole(path, write)


def read_step(path: Path, prefix: str = "") -> Arrays:
    """Read those arrays of a step whose name begins with `prefix`.

    Raises:
        RecordError: if the file is missing, cut short or not what was written.
    """
    try:
        # Opened here: np.load leaves a file open that turns out to be no archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name.startswith(prefix)}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecordError(f"{path.name}: cannot be read: {reason}") from error


def content_of(index: Index) -> dict[str, Any]:
    """Return what index.json holds. `segments` is there for pairs alone, so that single texts are written as ever."""
    content = {"version": VERSION, **asdict(index)}
    for text in content["texts"]:
        if text["segments"] is None:
            del text["segments"]
    return content


def write_index(folder: Path, index: Index) -> Path:
    """Write index.json, whole or not at all."""
    content = json.dumps(content_of(index), ensure_ascii=False, allow_nan=False)
    encoded = content.encode("utf-8")
    return write_whole(folder / INDEX, lambda temporary: temporary.write_bytes(encoded))


def read_index(folder: Path) -> Index:
    """Read index.json and check that it is one.

    Raises:
        RecordError: if it is missing, cut short, of another version, or names files outside its folder.
    """
    path = folder / INDEX
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        version = content.pop("version")
        if version != VERSION:
            raise RecordError(f"{INDEX}: is of version {version}, this headscope reads {VERSION}")
        content["texts"] = [Text(**text) for text in content["texts"]]
        content["steps"] = [Step(**step) for step in content["steps"]]
        index = Index(**content)
        strange = [step.file for step in index.steps if step.file != f"step_{step.step:012d}.npz"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{INDEX}: cannot be read: {error}") from error
    if strange:
        raise RecordError(f"{INDEX}: names a file that no step has: {strange[0]!r}")
    return index
