"""What a record of heads holds: an index, one file of arrays for each step, and their bounds. Needs numpy alone.

    <run>/heads/index.json             texts, layers, heads, and the steps that were kept
    <run>/heads/step_000000001200.npz  one step: every map, and the numbers of every head

A weight is stored as one byte: a level of 0 to 255 times the largest weight of its row, so that rows of small
weights keep their detail (the error is at most that maximum / 510). docs/record-format.md lists the arrays.

A step's file is written before the index names it, and both are written atomically, so every listed step can be
read whenever the process was killed. Nothing is pickled. Shape letters: T tokens, Q queries, K keys, H heads of a
layer, W heads of the widest layer, A heads of all layers, L layers, C classes, N tokens kept for each head.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from headscope.files import write_atomic

FOLDER = "heads"
INDEX = "index.json"
VERSION = 1
LEVELS = 255
Arrays = dict[str, np.ndarray]
Segments = Sequence[int | None]  # of each token: 0 first text, 1 second, None special

# A record may come from anybody. What a page draws grows with counts, so counts are bounded, far above what
# training writes.
MAX_INDEX_BYTES = 2**23
MAX_TOKENS = 2**13
MAX_TOKENS_OF_ALL = 2**20
MAX_HEADS = 2048
MAX_STEPS = 10_000
MAX_MEASURES = 64
MAX_OTHER_ARRAYS = 1000  # arrays of a step that belong to no text
STRICT = ConfigDict(strict=True, extra="forbid")

Name = Annotated[str, Field(max_length=1000)]
Token = Annotated[int, Field(ge=0, lt=MAX_TOKENS)]
Integer = Annotated[int, Field(gt=-(2**53), lt=2**53)]  # JavaScript confuses larger ones
Names = Annotated[list[Name], Field(max_length=256)]


class RecordError(Exception):
    """A record that cannot be read; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Text:
    """A probe text, whose maps are recorded at every step.

    Attributes:
        name: such as probe_0.
        tokens: as a person reads them.
        text: the whole text.
        label: its class, if known.
        segments: of a pair, the text that each token belongs to: 0, 1, or None for special tokens (Hugging
            Face's encoding.sequence_ids). None for a single text.
        special: positions of tokens that are no words, such as [CLS]; None if unknown.
        readout: the position that the classifier reads, where it is one.

    Raises:
        ValueError: if segments, special or readout do not fit the tokens.
    """

    __pydantic_config__: ClassVar = STRICT
    name: Name
    tokens: Annotated[list[str], Field(min_length=1, max_length=MAX_TOKENS)]
    text: str
    label: str | None = None
    segments: list[Annotated[int, Field(ge=0, le=1)] | None] | None = None
    special: Annotated[list[Token], Field(max_length=MAX_TOKENS)] | None = None
    readout: Token | None = None

    def __post_init__(self) -> None:
        """Replace lone surrogates, which have no UTF-8, and check the positions."""
        for name in ("name", "text", "label"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else encodable(value))
        object.__setattr__(self, "tokens", [encodable(token) for token in self.tokens])
        num_tokens = len(self.tokens)
        if self.segments is not None:
            object.__setattr__(self, "segments", _segments(self.segments, num_tokens, self.name))
        readout = [] if self.readout is None else [self.readout]
        for position in [*(self.special or []), *readout]:
            if not 0 <= position < num_tokens:
                raise ValueError(f"{self.name}: no token at {position}; it has {num_tokens}")


def _segments(segments: Segments, num_tokens: int, name: str) -> list[int | None]:
    if len(segments) != num_tokens or any(segment not in (0, 1, None) for segment in segments):
        raise ValueError(f"{name}: segments: expected 0, 1 or None for each of {num_tokens} tokens")
    return [None if segment is None else int(segment) for segment in segments]


def encodable(text: str) -> str:
    """Return the text with a question mark in place of each lone surrogate, which has no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def label_text(label: str | list[str]) -> str:
    """Return the class of a text, or any number of them, as one string."""
    return label if isinstance(label, str) else ", ".join(label) or "none"


@dataclass(frozen=True)
class Step:
    """A kept step: its number, its file beside the index, its size, and when it was written."""

    __pydantic_config__: ClassVar = STRICT
    step: Integer
    file: Name
    bytes: Integer
    time: Annotated[float, Field(allow_inf_nan=False)]  # seconds since 1970


@dataclass
class Index:
    """What the record of a run holds."""

    __pydantic_config__: ClassVar = STRICT
    texts: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    layers: Names
    heads: list[Annotated[int, Field(ge=1, le=MAX_HEADS)]]  # number of heads of each layer
    classes: Annotated[list[str], Field(max_length=100_000)] = field(default_factory=list)
    steps: Annotated[list[Step], Field(max_length=MAX_STEPS)] = field(default_factory=list)
    recorded: Integer = 0  # number of steps that were recorded, dropped ones included
    every: Integer = 1  # every n-th of them is kept, and the first and the last
    budget: Integer = 2**28  # bytes that the steps may take
    notes: Annotated[dict[Name, str], Field(max_length=100)] = field(default_factory=dict)
    kept: Integer | None = None  # the best step, which has the effects of ablation
    version: Annotated[int, Field(ge=VERSION, le=VERSION)] = VERSION


INDEX_ADAPTER = TypeAdapter(Index)


def levels_of(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return levels [..., Q, K] in bytes and scales [..., Q]: weight = level / 255 * scale."""
    scales = weights.max(axis=-1).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)  # a row of zeros stays zeros
    levels = np.rint(weights / divisors[..., None] * LEVELS)
    return np.clip(levels, 0, LEVELS).astype(np.uint8), scales


def weights_from(levels: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the weights that levels and scales stand for, in float32."""
    weights: np.ndarray = levels.astype(np.float32) * (scales[..., None] / LEVELS)
    return weights


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
        reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise RecordError(f"{path.name}: cannot be read: {reason}") from error


def step_file(step: int) -> str:
    """Return the name of a step's file."""
    return f"step_{step:012d}.npz"


def write_step(folder: Path, step: int, arrays: Arrays) -> Path:
    """Write a step's arrays into one file, atomically."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # a name without .npz, which savez would append
            np.savez(file, **arrays)  # type: ignore[arg-type]

    return write_atomic(folder / step_file(step), write)


def read_step(path: Path, prefix: str = "") -> Arrays:
    """Read the arrays of a step whose names begin with `prefix`; RecordError if it is broken."""
    with record_errors(path), path.open("rb") as stream:
        with np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name.startswith(prefix)}


def index_content(index: Index) -> dict[str, Any]:
    """Return what index.json holds; optional values that are None are left out."""
    content = {"version": VERSION, **asdict(index)}
    if index.kept is None:
        del content["kept"]
    for text in content["texts"]:
        for name in ("segments", "special", "readout"):
            if text[name] is None:
                del text[name]
    return content


def write_index(folder: Path, index: Index) -> Path:
    """Write index.json, atomically."""
    content = json.dumps(index_content(index), ensure_ascii=False, allow_nan=False).encode("utf-8")
    return write_atomic(folder / INDEX, lambda temporary: temporary.write_bytes(content))


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
            key = ".".join(map(str, first["loc"]))[:100]
            remedy = "; upgrade headscope" if key == "version" else ""
            place = key or "cannot be read"
            raise RecordError(f"{INDEX}: {place}: {first['msg']}{remedy}") from error
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


# Type and dimensions of each array. The sizes of k and G (keys and side of a long text), N, n (examples) and R (rows
# of all examples) are chosen by the record, within MAX_SIZE; arrays of the same prefix agree on them.
LAYER_ARRAYS = {
    "levels": "u HTT",
    "scales": "f HT",
    "weights": "f HTT",
    "top_keys": "i HTk",
    "top_levels": "u HTk",
    "rest": "f HT",
    "overview": "u HGG",
    "overview_scales": "f HG",
    "quadrants": "f H22",
    "value_norms": "f HT",
}
TEXT_ARRAYS = {
    "pooling": "f T",
    "probabilities": "f C",
    "given": "u C",
    "check": "f ",
    "rounding": "f ",
    "nats/class": "i ",
    "nats/heads": "f LW",
    "nats/keys": "i LWN",
    "nats/by_key": "f LWN",
    "nats/feedforward": "f L",
    "nats/constant": "f ",
    "without/heads": "f LWC",
    "without/layers": "f LC",
}
OTHER_ARRAYS = {
    "likeness": "f AA",
    "studied": "i ",
    "examples/rows": "i R",
    "examples/texts": "U R",
    "examples/focused/rows": "i LWn",
    "examples/focused/scores": "f LWn",
    "examples/changed/rows": "i LWn",
    "examples/changed/scores": "f LWn",
    "verdicts": "i LW",
    "verdicts/smallest": "f ",
    "verdicts/headline": "U ",
    "roles": "U LW",
    "roles/score": "f LW",
    "faithfulness/rollout_less_chance": "f 2",
}
MAX_SIZE = {"k": 64, "G": 256, "N": 64, "n": 64, "R": 2**16, "C": 100_000}
CONTRIBUTIONS = {name for name in TEXT_ARRAYS if name.startswith("nats/")}
MAP_ARRAYS = [  # the ways to store a map
    {"levels", "scales"},
    {"weights"},
    {"top_keys", "top_levels", "scales", "rest", "overview", "overview_scales"},
]
MEASURE = re.compile("numbers/(.+)/(mean|error)", re.DOTALL)
LAYER = re.compile(r"layer_(0|[1-9][0-9]{0,3})/(\w+)")


class MemberCheck:
    """Checks the arrays of one text, or of no text, against the index of their run.

    Args:
        heads: number of heads of each layer.
        num_classes: 0 if the classes are unknown.
        num_tokens: of the text; None for the arrays of no text.
    """

    def __init__(self, heads: Sequence[int], num_classes: int, num_tokens: int | None = None):
        self.heads = heads
        self.num_tokens = num_tokens
        self.num_classes = num_classes
        self._sizes = {"2": 2, "L": len(heads), "W": max(heads), "A": sum(heads)}
        if num_tokens is not None:
            self._sizes["T"] = num_tokens
        if num_classes:
            self._sizes["C"] = num_classes

    def is_known(self, name: str) -> bool:
        """Return whether a page shows this array of a text, named without text_t/."""
        return name in TEXT_ARRAYS or self._layer(name) is not None

    def check(self, name: str, array: np.ndarray) -> None:
        """Check the type and the shape of an array; ValueError if they do not fit."""
        specification = self._specification(name)
        if specification is None:
            return
        kind, _, dims = specification.partition(" ")
        if array.dtype.kind != kind or array.ndim != len(dims):
            raise ValueError(f"{name}: unexpected type {array.dtype} or shape {array.shape}")
        prefix = name.rpartition("/")[0]
        layer = self._layer(name)
        for dim, size in zip(dims, array.shape, strict=True):
            if dim == "H" and layer is not None:
                expected = self.heads[layer]
            elif dim in self._sizes:
                expected = self._sizes[dim]
            else:  # the first array fixes a size that the record chooses
                expected = self._sizes.setdefault(f"{prefix} {dim}", size)
                if size > MAX_SIZE[dim] or (size < 1 and dim in "kG"):
                    raise ValueError(f"{name}: {dim}: expected 1 to {MAX_SIZE[dim]}, got {size}")
            if size != expected:
                raise ValueError(f"{name}: {dim}: expected {expected}, got {size}")

    def check_text(self, arrays: Arrays) -> None:
        """Check that a text's arrays are complete and that indices are in range; ValueError if not."""
        stored = []
        for layer in range(len(self.heads)):
            names = {name.partition("/")[2] for name in arrays if self._layer(name) == layer}
            stored.append(names - {"quadrants", "value_norms"})
        if stored[0] not in MAP_ARRAYS or any(names != stored[0] for names in stored):
            raise ValueError("expected the arrays of a map, the same for each layer")
        contributions = CONTRIBUTIONS & arrays.keys()
        if contributions and contributions != CONTRIBUTIONS:
            raise ValueError(f"{min(CONTRIBUTIONS - contributions)} is missing")
        bounds = {"top_keys": self.num_tokens, "keys": self.num_tokens}
        bounds["class"] = self.num_classes or 1
        for name, array in arrays.items():
            bound = bounds.get(name.rpartition("/")[2])
            if bound is not None and array.size and not 0 <= array.min() <= array.max() < bound:
                raise ValueError(f"{name}: expected 0 to {bound - 1}")

    def _specification(self, name: str) -> str | None:
        if self.num_tokens is not None:
            if self._layer(name) is not None:
                return LAYER_ARRAYS[name.rpartition("/")[2]]
            return TEXT_ARRAYS.get(name)
        return "f LW" if MEASURE.fullmatch(name) else OTHER_ARRAYS.get(name)

    def _layer(self, name: str) -> int | None:
        match = LAYER.fullmatch(name)
        if match and match[2] in LAYER_ARRAYS and int(match[1]) < len(self.heads):
            return int(match[1])
        return None


def check_other_names(names: Collection[str]) -> None:
    """Check how many arrays and measures a step has besides those of texts; ValueError if too many."""
    measures = {match[1] for match in map(MEASURE.fullmatch, names) if match}
    for count, bound, what in (
        (len(names), MAX_OTHER_ARRAYS, "arrays"),
        (len(measures), MAX_MEASURES, "measures"),
    ):
        if count > bound:
            raise ValueError(f"expected at most {bound} {what}, got {count}")
