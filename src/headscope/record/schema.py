"""What a record of heads holds: an index, and one file of arrays for each step.

    <run>/heads/index.json             texts, layers, heads, and the steps that were recorded
    <run>/heads/step_000000001200.npz  one step: every map, and the numbers of every head

docs/record-format.md lists the arrays. A step's file is written before the index names it, and both
are written atomically, so every listed step can be read whenever the process was killed. Nothing is
pickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

FOLDER = "heads"
INDEX = "index.json"
RUN_NOTE = "run"  # among the notes: whose record it is
VERSION: Final = 4
Arrays = dict[str, np.ndarray]
# "measures": {measure: {"mean": [layer][head], "error": ...}}; "extra": a step's other arrays
Numbers = dict[str, dict[str, Any]]
JOIN = " ⏐ "  # between the two texts of a pair, where they are shown as one
STRICT = ConfigDict(strict=True, extra="forbid")
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
        words: the words and signs of the text, in order, each its name and its tokens
            [start, end); tokens that are special are in none. None if unknown: then each token is
            one.
        places: where in `text` each token's letters are, [from, to) in units of UTF-16, as
            JavaScript counts; [n, n) of a token without letters. None if unknown.
        unknown: positions of tokens that the tokenizer does not know.

    Raises:
        ValueError: if segments, special, readout, words, places or unknown do not fit the tokens.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    tokens: Annotated[list[str], Field(min_length=1)]
    text: str
    label: str | None = None
    segments: Annotated[list[int | None] | None, LEFT_OUT] = None
    special: Annotated[list[int] | None, LEFT_OUT] = None
    readout: Annotated[int | None, LEFT_OUT] = None
    words: Annotated[list[tuple[str, int, int]] | None, LEFT_OUT] = None
    places: Annotated[list[tuple[int, int]] | None, LEFT_OUT] = None
    unknown: Annotated[list[int] | None, LEFT_OUT] = None

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
        positions = [*(self.special or []), self.readout or 0, *(self.unknown or [])]
        if min(positions) < 0 or max(positions) >= num_tokens:
            raise ValueError(
                f"{self.name}: expected positions of {num_tokens} tokens, got {positions}"
            )
        words = [(encodable(name), start, end) for name, start, end in self.words or []]
        edges = [0, *(edge for _, *span in words for edge in span), num_tokens]
        if edges != sorted(edges) or any(start == end for _, start, end in words):
            raise ValueError(f"{self.name}: expected words of {num_tokens} tokens, got {words}")
        if self.places is not None and len(self.places) != num_tokens:
            count = len(self.places)
            raise ValueError(f"{self.name}: expected places of {num_tokens} tokens, got {count}")
        object.__setattr__(self, "words", None if self.words is None else words)


def encodable(text: str) -> str:
    """Return the text with a question mark in place of each lone surrogate, which has no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def label_text(label: str | list[str]) -> str:
    """Return the class of a text, or any number of them, as one string."""
    return label if isinstance(label, str) else ", ".join(label) or "none"


def stack_layers(layers: Sequence[np.ndarray], fill: float | str = np.nan) -> np.ndarray:
    """Stack the layers' [H, ...] into [L, H, ...], with `fill` where a layer has fewer heads."""
    H = max(map(len, layers))
    rest = [(0, 0)] * (layers[0].ndim - 1)
    padded = [np.pad(it, [(0, H - len(it)), *rest], constant_values=fill) for it in layers]
    return np.stack(padded)


@dataclass(frozen=True, eq=False)
class PageText:
    """A text at one step, and everything that is shown of it."""

    text: Text
    arrays: Arrays  # as in docs/record-format.md, without text_t/; or weights in float32
    numbers: Numbers = field(default_factory=lambda: {"measures": {}, "extra": {}})
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A listed step: its number, when it was recorded, and what its logits are divided by."""

    __pydantic_config__: ClassVar = STRICT
    step: int
    time: Annotated[float, Field(allow_inf_nan=False)]  # seconds since 1970
    temperature: Annotated[float | None, LEFT_OUT, Field(gt=0, allow_inf_nan=False)] = None

    @property
    def file(self) -> str:
        """The name of its file, beside the index."""
        return f"step_{self.step:012d}.npz"


@dataclass
class Index:
    """What the record of a run holds."""

    __pydantic_config__: ClassVar = STRICT
    texts: Annotated[list[Text], Field(min_length=1)]
    layers: list[str]
    heads: list[int]  # number of heads of each layer
    classes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    best: Annotated[int | None, LEFT_OUT] = None  # the step that has the effects of ablation
    total: Annotated[int | None, LEFT_OUT] = None  # steps of the whole training, if known
    version: Literal[4] = VERSION


INDEX_ADAPTER = TypeAdapter(Index)
