"""How recorded maps are stored: one file for each step, and an index that lists them. Needs numpy alone.

    <run>/heads/index.json            what was recorded: texts, layers, heads, and the steps that were kept
    <run>/heads/step_000000001200.npz one step: every map, and the numbers of every head

A weight is stored as one byte: a level of 0 to 255 times the largest weight of its row, so that rows of small
weights keep their detail (the error is at most that maximum / 510). docs/record-format.md lists the members.

A step's file is written whole before the index names it, and the index is replaced whole: what is listed can be read,
whenever the process was killed. Nothing is pickled. Below the record is what is said of a text: of a pair, how much of
a map goes from one text to the other; and what every part of the model put for an answer, in nats. Shape letters: T
positions, Q queries, L layers, H heads, K keys, N tokens that are kept for each head.
"""

import json
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from headscope.files import write_atomic
from headscope.record.bounds import check_content, check_counts

FOLDER, INDEX, VERSION, LEVELS = "heads", "index.json", 1, 255
LARGEST_INDEX = 2**23  # bytes
Arrays = dict[str, np.ndarray]
Segments = Sequence[
    int | None
]  # of each token: 0 first text, 1 second, None special, as in `encoding.sequence_ids`
KEPT_TOKENS, NAMED_HEADS = 5, 3  # of each head; in a sentence


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
        segments: for a pair of texts, which of them each token is of: 0, 1, or None for special tokens such as [SEP]
            (Hugging Face's encoding.sequence_ids). None for a single text.
        special: places of the tokens that are no words of the text, such as [CLS] and [SEP]; None if not known.
        readout: the place that the classifier reads its answer from, where it is one; else None.

    Raises:
        ValueError: if segments, special or readout do not fit the tokens.
    """

    name: str
    tokens: list[str]
    text: str
    label: str | None = None
    segments: list[int | None] | None = None
    special: list[int] | None = None
    readout: int | None = None

    def __post_init__(self) -> None:
        """Keep half a character of a broken text, which has no UTF-8, as a question mark."""
        for name in ("name", "text", "label"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else encodable(value))
        object.__setattr__(self, "tokens", [encodable(token) for token in self.tokens])
        if self.segments is not None:
            object.__setattr__(
                self, "segments", check_segments(self.segments, len(self.tokens), self.name)
            )
        for place in [*(self.special or ()), *(() if self.readout is None else (self.readout,))]:
            if not 0 <= place < len(self.tokens):
                raise ValueError(
                    f"{self.name}: there is no token at place {place}; it has {len(self.tokens)}"
                )


def check_segments(segments: Sequence[Any], tokens: int, name: str) -> list[int | None]:
    """Return the segments as plain numbers; ValueError unless there is 0, 1 or None for each token."""
    if len(segments) != tokens or any(segment not in (0, 1, None) for segment in segments):
        raise ValueError(f"{name}: segments has to be 0, 1 or None for each of the {tokens} tokens")
    return [None if segment is None else int(segment) for segment in segments]


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
    """What a run's record holds."""

    texts: list[Text]  # in the order in which the members of a step's file count them
    layers: list[str]  # their names
    heads: list[int]  # how many each layer has
    classes: list[str] = field(
        default_factory=list
    )  # names, in the order of the probabilities; perhaps none
    steps: list[Step] = field(default_factory=list)  # the steps that were kept, in order
    recorded: int = 0  # how many steps were recorded, those that were thinned out among them
    every: int = 1  # every n-th of them is kept, this is n; the first and the last always are
    budget: int = 2**28  # bytes that the steps may take
    notes: dict[str, str] = field(
        default_factory=dict
    )  # anything a reader should know, such as the precision
    kept: int | None = (
        None  # the step whose weights were kept, once that is known: it has the verdicts
    )


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

    return write_atomic(path, write)


class PlainFile(FileIO):
    """A plain file, open for reading: a pipe or a device in its place would be waited for without end.

    Attributes:
        most: bytes that may be asked for at once.
    """

    most = 2**62

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes, or fewer at the end; ValueError for more than may be asked for."""
        if size is not None and size > self.most:
            raise ValueError(
                f"asks for {size} bytes at once, and at most {self.most} are read there"
            )
        return super().read(size)


KINDS = {
    stat.S_IFREG: "",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def plain_file(path: Path) -> Iterator[PlainFile]:
    """Open a plain file for the block; RecordError, which says what it is, for anything else."""
    if kind := KINDS.get(stat.S_IFMT(path.stat().st_mode), "a device"):
        raise RecordError(f"{path.name}: is {kind}, and only plain files are read")
    with PlainFile(
        path, opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    ) as file:
        yield file  # opening waits for nobody, even if a pipe was put there since


def read_step(path: Path, prefix: str = "") -> Arrays:
    """Read those arrays of a step whose name begins with `prefix`; RecordError if the file is broken or missing."""
    try:
        # Opened here: np.load leaves a file open that turns out to be no archive.
        with plain_file(path) as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name.startswith(prefix)}
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecordError(f"{path.name}: cannot be read: {reason}") from error


def content_of(index: Index) -> dict[str, Any]:
    """Return what index.json holds; of what may be missing only what is there."""
    content = {"version": VERSION, **asdict(index)}
    for holder, names in [
        (content, ["kept"]),
        *((text, ["segments", "special", "readout"]) for text in content["texts"]),
    ]:
        for name in names:
            if holder[name] is None:
                del holder[name]
    return content


def write_index(folder: Path, index: Index) -> Path:
    """Write index.json, whole or not at all."""
    content = json.dumps(content_of(index), ensure_ascii=False, allow_nan=False)
    encoded = content.encode("utf-8")
    return write_atomic(folder / INDEX, lambda temporary: temporary.write_bytes(encoded))


def read_index(folder: Path) -> Index:
    """Read and check index.json; RecordError if it is missing, broken, of another version, or more than is shown."""
    try:
        with plain_file(folder / INDEX) as file:
            if (size := os.fstat(file.fileno()).st_size) > LARGEST_INDEX:
                raise RecordError(
                    f"{INDEX}: takes {size} bytes, and at most {LARGEST_INDEX} are read"
                )
            content = json.loads(file.read(LARGEST_INDEX))
        version = content.pop("version", None) if isinstance(content, dict) else VERSION
        if type(version) is not int or version != VERSION:
            raise RecordError(
                f"{INDEX}: is of version {str(version)[:40]}, this headscope reads {VERSION}"
            )
        check_content(content, Index)
        names = [*(text["name"] for text in content["texts"]), *content["layers"]]
        steps = [step["step"] for step in content.get("steps", [])]
        check_counts(
            [len(text["tokens"]) for text in content["texts"]], names, content["heads"], steps
        )
        content["texts"] = [Text(**text) for text in content["texts"]]
        content["steps"] = [Step(**step) for step in content.get("steps", [])]
    except RecursionError as error:
        raise RecordError(f"{INDEX}: cannot be read: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{INDEX}: cannot be read: {error}") from error
    for step in content["steps"]:
        if step.file != f"step_{step.step:012d}.npz":
            raise RecordError(f"{INDEX}: names a file that no step has: {step.file[:100]!r}")
    return Index(**content)


def quadrants(weights: np.ndarray, segments: Segments) -> np.ndarray:
    """Return q_xy = mean over the tokens i of text x of sum_j a_ij [j is of text y]: A->A, A->B, B->A, B->B.

    For weights a_ij [..., T, T], rows summing to 1, that is [..., 2, 2]. Special tokens are no queries, and what is
    given to them is 1 - q_x0 - q_x1. A row is NaN if its text has no token. BertViz shows the same four parts of a map
    (Vig 2019, A Multiscale Visualization of Attention in the Transformer Model); the shares are our own.
    """
    of = np.array(
        [[segment == text for segment in segments] for text in (0, 1)], dtype=np.float64
    )  # [2, T]
    sums = of @ weights.astype(np.float64) @ of.T  # [..., 2, 2]
    tokens = np.broadcast_to(of.sum(axis=1)[:, None], sums.shape)
    shares: np.ndarray = np.divide(sums, tokens, out=np.full_like(sums, np.nan), where=tokens > 0)
    return shares


def between(weights: np.ndarray, segments: Segments) -> np.ndarray:
    """Return the mean over the tokens of both texts of the weight that they give to tokens of the other one.

    That is `headscope.heads.measures.crossing_mass` of one pair: weights [..., T, T] give [...]; 0 if a text has
    no token.
    """
    first, second = (sum(segment == text for segment in segments) for text in (0, 1))
    shares = np.nan_to_num(quadrants(weights, segments))
    return np.asarray(
        (first * shares[..., 0, 1] + second * shares[..., 1, 0]) / max(1, first + second)
    )


def numbers_of_pair(weights: np.ndarray, segments: Segments | None) -> dict[str, float]:
    """Return what can be said of a head's map [T, T] because its text is a pair; nothing for a single text."""
    return {} if segments is None else {"between": float(between(weights, segments))}


@dataclass(frozen=True, eq=False)
class Contributions:
    """What heads, feed-forward blocks and constant put for an answer about one text, in nats."""

    answer: str  # such as "Copyleft", or "Copyleft against Permissive"
    tokens: Sequence[str]  # of the text, as a person reads them
    heads: np.ndarray  # [L, H]
    keys: (
        np.ndarray
    )  # [L, H, N], first places of the tokens that a head has most of it from, the most first
    by_key: np.ndarray  # [L, H, N], what it has from all places where such a token stands
    feedforward: np.ndarray  # [L]
    constant: float  # what is there whatever the text says

    @property
    def total(self) -> float:
        """All of it together."""
        return float(self.heads.sum() + self.feedforward.sum() + self.constant)

    def sentence(self) -> str:
        """Say which heads put most and from which token, then what all others put, and what no head did."""
        order = np.argsort(-np.abs(self.heads), axis=None, kind="stable")[:NAMED_HEADS]
        first, *others = [divmod(int(place), self.heads.shape[1]) for place in order]
        begin = (
            f"layer {first[0]} head {first[1]} put {nats(self.heads[first])} nats for {self.answer}"
        )
        parts = [begin + self._source(first)]
        parts += [
            f"layer {at[0]} head {at[1]} {nats(self.heads[at])}{self._source(at)}" for at in others
        ]
        if left := self.heads.size - len(order):
            rest = self.heads.sum() - self.heads.flat[order].sum()
            parts.append(f"the other {f'{left} heads' if left > 1 else 'head'} {nats(rest)}")
        if self.keys.shape[-1]:
            parts.append(f"the feed-forward blocks {nats(self.feedforward.sum())}")
            parts.append(f"whatever the text says (constant) {nats(self.constant)}")
        else:
            parts.append(f"all that is not attention {nats(self.constant)}")
        return f"{'; '.join(parts)}; together {nats(self.total)}"

    def _source(self, at: tuple[int, int]) -> str:
        """Name the token that a head has most of it from, if one pulled the way that the head did."""
        value = self.heads[at]
        if not self.keys.shape[-1]:  # not known
            return ""
        place = int((self.by_key[at] * np.sign(value)).argmax())
        token, share = self.tokens[self.keys[at][place]], self.by_key[at][place]
        if share * np.sign(value) > abs(value) / 2:
            return f', most of it from "{token}"'
        return f', {nats(share)} from "{token}"' if share * np.sign(value) > 0 else ""

    def line(self, layer: int, head: int) -> str:
        """Say what one head put, and the tokens that it has it from."""
        given = zip(self.keys[layer, head], self.by_key[layer, head], strict=True)
        tokens = ", ".join(f'"{self.tokens[key]}" {nats(value)}' for key, value in given)
        return f"put {nats(self.heads[layer, head])} nats for {self.answer}: {tokens}"

    def arrays(self) -> Arrays:
        """Return the numbers as the record keeps them, below nats/."""
        keys, numbers = (
            self.keys.astype(np.int32),
            (self.heads, self.by_key, self.feedforward, self.constant),
        )
        named = zip(("heads", "by_key", "feedforward", "constant"), numbers, strict=True)
        return {"nats/keys": keys} | {
            f"nats/{name}": np.asarray(value, dtype=np.float32) for name, value in named
        }


def spoken(
    answer: str,
    tokens: Sequence[str],
    heads: np.ndarray,
    by_key: np.ndarray,
    feedforward: np.ndarray,
    constant: np.ndarray | float,
) -> Contributions:
    """Keep, of what every head [L, H] has from every key [L, H, K], the tokens that count most.

    Places where the same token stands are taken together.
    """
    _, first, place = np.unique(np.array(tokens), return_index=True, return_inverse=True)
    sums = by_key @ (place[:, None] == np.arange(len(first)))  # [L, H, tokens that differ]
    most = np.argsort(-np.abs(sums), axis=-1, kind="stable")[..., :KEPT_TOKENS]  # [L, H, N]
    return Contributions(
        answer,
        tokens,
        heads,
        first[most],
        np.take_along_axis(sums, most, axis=-1),
        feedforward,
        float(constant),
    )


def recorded(
    arrays: Mapping[str, np.ndarray], answer: str, tokens: Sequence[str]
) -> Contributions | None:
    """Return what `Spoken.arrays` were made of; None where a record has none."""
    if "nats/heads" not in arrays:
        return None
    heads, keys, by_key, feedforward, constant = (
        arrays[f"nats/{name}"] for name in ("heads", "keys", "by_key", "feedforward", "constant")
    )
    return Contributions(answer, tokens, heads, keys, by_key, feedforward, float(constant))


def notes_of(said: Contributions | None) -> dict[str, str]:
    """Return what a page says of a text; nothing where it cannot be said."""
    return {} if said is None else {"what spoke for it": said.sentence()}


def nats(value: float | np.floating[Any]) -> str:
    """Return a number with its sign, to two digits where it is small: +3.1, -0.25."""
    number = float(value)
    digits = 1 if abs(number) >= 0.995 else 2
    return f"{round(number, digits) + 0.0:+.{digits}f}"
