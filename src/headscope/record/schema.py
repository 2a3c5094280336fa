"""What a record of heads holds: an index, one file of arrays for each step, and their bounds.

    <run>/heads/index.json             texts, layers, heads, and the steps that were kept
    <run>/heads/step_000000001200.npz  one step: every map, and the numbers of every head

A weight is stored as one byte: a level of 0 to 255 times the largest weight of its row, so that
rows of small weights keep their detail (the error is at most that maximum / 510).
docs/record-format.md lists the arrays.

A step's file is written before the index names it, and both are written atomically, so every listed
step can be read whenever the process was killed. Nothing is pickled. Shape letters: T tokens,
Q queries, K keys, H heads of a layer, W heads of the widest layer, A heads of all layers, L layers,
C classes, K classes whose contributions are kept.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

FOLDER = "heads"
INDEX = "index.json"
RUN_NOTE = "run"  # among the notes: whose record it is
VERSION = 1
LEVELS = 255
Arrays = dict[str, np.ndarray]
Segments = Sequence[int | None]  # of each token: 0 first text, 1 second, None special

# A record may come from anybody. What a page draws grows with counts, so counts are bounded, far
# above what training writes.
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
# Where an optional value is None, the file leaves its key out.
LEFT_OUT = Field(exclude_if=lambda value: value is None)


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
        segments: of a pair, the text that each token belongs to: 0, 1, or None for special tokens
            (Hugging Face's encoding.sequence_ids). None for a single text.
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
    segments: Annotated[list[Annotated[int, Field(ge=0, le=1)] | None] | None, LEFT_OUT] = None
    special: Annotated[list[Token] | None, Field(max_length=MAX_TOKENS), LEFT_OUT] = None
    readout: Annotated[Token | None, LEFT_OUT] = None

    def __post_init__(self) -> None:
        """Replace lone surrogates, which have no UTF-8, and check the positions."""
        for name in ("name", "text", "label"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, encodable(value))
        object.__setattr__(self, "tokens", [encodable(token) for token in self.tokens])
        num_tokens = len(self.tokens)
        segments = self.segments
        if segments is not None and (len(segments) != num_tokens or {*segments} - {0, 1, None}):
            expected = f"0, 1 or None for each of {num_tokens} tokens"
            raise ValueError(f"{self.name}: segments: expected {expected}, got {segments}")
        positions = [*(self.special or []), self.readout or 0]
        if min(positions) < 0 or max(positions) >= num_tokens:
            raise ValueError(
                f"{self.name}: expected positions of {num_tokens} tokens, got {positions}"
            )


def encodable(text: str) -> str:
    """Return the text with a question mark in place of each lone surrogate, which has no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def label_text(label: str | list[str]) -> str:
    """Return the class of a text, or any number of them, as one string."""
    return label if isinstance(label, str) else ", ".join(label) or "none"


@dataclass(frozen=True)
class Step:
    """A listed step: its number, its file beside the index, its size, and when it was written."""

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
    kept: Annotated[Integer | None, LEFT_OUT] = (
        None  # the best step, which has the effects of ablation
    )
    version: Annotated[int, Field(ge=VERSION, le=VERSION)] = VERSION


INDEX_ADAPTER = TypeAdapter(Index)


def levels_of(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return levels [..., Q, K] in bytes and scales [..., Q]: weight = level / 255 * scale."""
    scales = weights.max(axis=-1).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)  # a row of zeros stays zeros
    return np.rint(weights / divisors[..., None] * LEVELS).astype(np.uint8), scales


def weights_from(levels: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the weights that levels and scales stand for, in float32."""
    weights: np.ndarray = levels.astype(np.float32) * (scales[..., None] / LEVELS)
    return weights


def step_file(step: int) -> str:
    """Return the name of a step's file."""
    return f"step_{step:012d}.npz"


# Type and dimensions of each array. A number is a fixed size; H are the heads of the layer l.
TEXT_ARRAYS = {
    "layer_l/levels": "u H T T",
    "layer_l/scales": "f H T",
    "layer_l/weights": "f H T T",
    "layer_l/top_keys": "i H T k",
    "layer_l/top_levels": "u H T k",
    "layer_l/rest": "f H T",
    "layer_l/overview": "u H G G",
    "layer_l/overview_scales": "f H G",
    "layer_l/quadrants": "f H 2 2",
    "layer_l/value_norms": "f H T",
    "pooling": "f T",
    "probabilities": "f C",
    "given": "u C",
    "check": "f",
    "rounding": "f",
    "contributions/classes": "i K",
    "contributions/shown": "i 2",
    "contributions/words": "f T K",
    "contributions/heads": "f L W T K",
    "contributions/past": "f L K",
    "contributions/biases": "f M K",
    "contributions/log_odds": "f K",
    "without/heads": "f L W C",
    "without/layers": "f L C",
}
OTHER_ARRAYS = {
    "studied": "i",
    "verdicts": "i L W",
    "verdicts/smallest": "f",
    "answer": "U",
    "answer/details": "U",
    "sets/heads": "i A 2",
    "sets/accuracy": "f B",
    "sets/enough": "i",
    "roles": "U L W",
    "roles/score": "f L W",
}
MEASURE = re.compile("numbers/(.+)/(mean|error)", re.DOTALL)  # each is "f L W"
# Sizes that the record chooses; arrays of the same prefix agree on them. k, G: of a long text.
CHOSEN = {
    "k": range(1, 65),
    "G": range(1, 257),
    "K": range(1, 65),
    "B": range(2, 2**11 + 2),
    "C": range(100_001),
}
CONTRIBUTIONS = {
    f"contributions/{name}"
    for name in ("classes", "shown", "words", "heads", "past", "biases", "log_odds")
}
MAP_ARRAYS = (  # the ways to store a map
    ("levels", "scales"),
    ("weights",),
    ("top_keys", "top_levels", "scales", "rest", "overview", "overview_scales"),
)


class MemberCheck:
    """Checks the arrays of one text, or of no text, against the index of their run.

    `heads` of each layer; `num_classes` is 0 if unknown, `num_tokens` None for arrays of no text.
    """

    def __init__(self, heads: Sequence[int], num_classes: int, num_tokens: int | None = None):
        self.num_layers = len(heads)
        self.sizes = {"L": len(heads), "M": len(heads) + 1, "W": max(heads), "A": sum(heads)}
        if num_classes:
            self.sizes["C"] = num_classes
        self.arrays = OTHER_ARRAYS
        if num_tokens is not None:
            self.sizes["T"] = num_tokens
            self.arrays = {
                name.replace("layer_l/", f"layer_{layer}/"): dims.replace("H", str(count))
                for layer, count in enumerate(heads)
                for name, dims in TEXT_ARRAYS.items()
            }

    def check(self, name: str, array: np.ndarray) -> None:
        """Check type and shape of an array; ValueError if they do not fit. Unknown ones pass."""
        expected = "f L W" if MEASURE.fullmatch(name) else self.arrays.get(name)
        if expected is None:
            return
        kind, *dims = expected.split()
        if array.dtype.kind != kind or array.ndim != len(dims):
            raise ValueError(f"{name}: unexpected type {array.dtype} or shape {array.shape}")
        for dim, size in zip(dims, array.shape, strict=True):
            key = dim
            if dim in CHOSEN and dim not in self.sizes:
                if size not in CHOSEN[dim]:
                    raise ValueError(f"{name}: {dim}: expected a size in {CHOSEN[dim]}, got {size}")
                key = f"{name.rpartition('/')[0]} {dim}"  # the first array fixes it
            fixed = int(dim) if dim.isdigit() else self.sizes.setdefault(key, size)
            if size != fixed:
                raise ValueError(f"{name}: {dim}: expected {fixed}, got {size}")

    def check_text(self, arrays: Arrays) -> None:
        """Check that a text's arrays are complete and indices in range; ValueError if not."""
        is_map = re.compile(r"layer_\d+/(?!quadrants|value_norms)")
        maps = {name for name in arrays if is_map.match(name)}
        layers = range(self.num_layers)
        complete = [
            {f"layer_{layer}/{part}" for layer in layers for part in parts} for parts in MAP_ARRAYS
        ]
        if maps not in complete:
            raise ValueError("expected the arrays of a map, the same for each layer")
        missing = CONTRIBUTIONS - arrays.keys()
        if missing and missing != CONTRIBUTIONS:
            raise ValueError(f"{min(missing)} is missing")
        num_classes = self.sizes.get("C", 1)
        bounds = {"top_keys": (0, self.sizes["T"]), "classes": (0, num_classes)}
        bounds["shown"] = (-1, num_classes)  # -1: against the absence of the class
        for name, array in arrays.items():
            least, bound = bounds.get(name.rpartition("/")[2], (0, 0))
            if bound and array.size and not least <= array.min() <= array.max() < bound:
                raise ValueError(f"{name}: expected {least} to {bound - 1}")
        if not missing:
            classes = arrays["contributions/classes"].tolist()
            shown, against = arrays["contributions/shown"].tolist()
            if shown not in classes or against not in [-1, *classes] or shown == against:
                raise ValueError(f"contributions/shown: expected two of {classes}")
            if len({*classes}) < len(classes):
                raise ValueError("contributions/classes: expected each class once")


def other_names(names: Iterable[str]) -> list[str]:
    """Return the names of the arrays that belong to no text; ValueError if they are too many."""
    others = [name for name in names if not name.startswith("text_")]
    measures = {match[1] for match in map(MEASURE.fullmatch, others) if match}
    if len(others) > MAX_OTHER_ARRAYS or len(measures) > MAX_MEASURES:
        most = f"{MAX_OTHER_ARRAYS} arrays and {MAX_MEASURES} measures"
        raise ValueError(f"expected at most {most}, got {len(others)} and {len(measures)}")
    return others
