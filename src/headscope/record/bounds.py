"""How much a record may hold, and of which types and shapes: checked once, where it is read.

A record may come from anybody. What a page draws grows with counts, not with bytes, so counts are bounded: far above
what training writes, and low enough that a record is refused within about a second.
"""

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

# Entries of the index; tokens of a text and of all; heads of all layers; letters of a name that is shown often.
MOST = {"texts": 1000, "layers": 256, "classes": 100_000, "steps": 10_000, "notes": 100}
TOKENS, ALL_TOKENS, HEADS, NAME = 2**13, 2**20, 2048, 1000
LARGEST_NUMBER = 2**53 - 1  # JavaScript tells no larger one from the next
MEASURES, OTHERS = 64, 1000  # of a step: measures of every head, and members that are of no text
# Sizes that a record chooses: k keys and a side of G of a long text, N tokens of nats, n examples, R rows of them.
CHOSEN = {"k": 64, "G": 256, "N": 64, "n": 64, "R": 2**16, "C": MOST["classes"]}

# Kind of number and shape. L layers, W heads of the widest, A heads of all; H heads of a layer, T tokens, C classes.
LAYER = {
    "levels": "u HTT", "scales": "f HT", "weights": "f HTT", "top_keys": "i HTk", "top_levels": "u HTk", "rest": "f HT",
    "overview": "u HGG", "overview_scales": "f HG", "quadrants": "f H22", "value_norms": "f HT",
}  # fmt: skip
TEXT = {
    "pooling": "f T", "probabilities": "f C", "given": "u C", "check": "f ",
    "rounding": "f ", "nats/class": "i ", "nats/heads": "f LW",
    "nats/keys": "i LWN", "nats/by_key": "f LWN", "nats/feedforward": "f L", "nats/constant": "f ",
    "without/heads": "f LWC", "without/layers": "f LC",
}  # fmt: skip
OTHER = {
    "likeness": "f AA", "studied": "i ", "examples/rows": "i R", "examples/texts": "U R",
    "examples/focused/rows": "i LWn", "examples/focused/scores": "f LWn",
    "examples/changed/rows": "i LWn", "examples/changed/scores": "f LWn",
    "verdicts": "i LW", "verdicts/smallest": "f ", "verdicts/headline": "U ",
    "roles": "U LW", "roles/score": "f LW",
    "faithfulness/rollout_less_chance": "f 2",
}  # fmt: skip
NATS = {name for name in TEXT if name.startswith("nats/")}
WAYS = (  # to keep a map
    {"levels", "scales"},
    {"weights"},
    {"top_keys", "top_levels", "scales", "rest", "overview", "overview_scales"},
)
MEASURE = re.compile("numbers/(.+)/(mean|error)", re.DOTALL)


@functools.cache
def _keys(kind: type) -> tuple[dict[str, Any], set[str]]:
    """Return the type of each field of a dataclass, and which of them have to be given."""
    needed = {
        field.name for field in fields(kind) if field.default is field.default_factory is MISSING
    }
    return get_type_hints(kind), needed


def check_content(content: Any, kind: type) -> None:
    """Check what JSON gave for a dataclass: keys, types, and how many entries there are; ValueError if not."""
    if not isinstance(content, dict):
        raise ValueError(f"is of type {type(content).__name__}, where an object has to be")
    kinds, needed = _keys(kind)
    if missing := needed - content.keys():
        raise ValueError(f"has no {min(missing)!r}")
    for name, value in content.items():
        if name not in kinds:
            raise ValueError(f"has a key that no record has, {name[:40]!r}")
        _check_value(name, value, kinds[name])


def _check_value(name: str, value: Any, kind: Any) -> None:
    options, values = _options(kind), [value]
    container = next((option for option in options if get_origin(option)), None)
    if container is not None and not (value is None and NoneType in options):
        if not isinstance(value, get_origin(container)):
            raise ValueError(f"{name!r} is of type {type(value).__name__}")
        if len(value) > MOST.get(name, TOKENS):
            raise ValueError(
                f"{name!r} has {len(value)} entries, and at most {MOST.get(name, TOKENS)} are read"
            )
        options = _options(get_args(container)[-1])
        values = list(value.values()) if isinstance(value, dict) else value
    entries = next(
        (option for option in options if isinstance(option, type) and is_dataclass(option)), None
    )
    if entries is not None:
        for entry in values:
            check_content(entry, entries)
        return
    if strange := set(map(type, values)) - {*options, *([int] if float in options else [])}:
        raise ValueError(f"{name!r} holds a value of type {min(kind.__name__ for kind in strange)}")
    if int in options and any(
        abs(number) > LARGEST_NUMBER for number in values if number is not None
    ):
        raise ValueError(f"{name!r} holds a number beyond 2**53")


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def check_counts(
    tokens: Sequence[int], names: Sequence[str], heads: Sequence[int], steps: Sequence[int]
) -> None:
    """Check an index as a whole; ValueError if it cannot be.

    Args:
        tokens: how many each text has.
        names: of its texts and layers.
        heads: how many each layer has.
        steps: their numbers.
    """
    if not heads or min(tokens, default=0) < 1:
        raise ValueError("has no layer, no text, or a text without tokens")
    if sum(tokens) > ALL_TOKENS:
        raise ValueError(
            f"has texts of {sum(tokens)} tokens, and at most {ALL_TOKENS} in all are read"
        )
    if min(heads) < 1 or len(heads) + len(tokens) != len(names):
        raise ValueError("'heads' is not how many heads each of its layers has")
    if sum(heads) > HEADS:
        raise ValueError(f"has layers of {sum(heads)} heads, and at most {HEADS} in all are read")
    if max(map(len, names)) > NAME:
        raise ValueError(f"has a text or layer whose name is of more than {NAME} letters")
    if list(steps) != sorted(set(steps)):
        raise ValueError("its 'steps' are not in order, or one is there twice")


class Shapes:
    """What the members of a step have to be, by the index of their run: those of a text, or those that are of none.

    Args:
        heads: of each layer.
        classes: how many have a name; 0 if none has.
        tokens: of the text, or None for what is of no text.
    """

    def __init__(self, heads: Sequence[int], classes: int, tokens: int | None = None) -> None:
        self.heads, self.tokens, self.classes = heads, tokens, classes
        self._sizes: dict[str, int] = {"2": 2, "L": len(heads), "W": max(heads), "A": sum(heads)}
        self._sizes |= {} if tokens is None else {"T": tokens}
        self._sizes |= {"C": classes} if classes else {}

    def known(self, name: str) -> bool:
        """Say whether a page shows the member of a text, named without text_t/."""
        return name in TEXT or self._layer(name) is not None

    def check(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Check a member by its header, before its values are read; ValueError if it is of another type or shape."""
        layer = None if self.tokens is None else self._layer(name)
        if layer is not None:
            wanted = LAYER[name.rpartition("/")[2]]
        elif MEASURE.fullmatch(name):
            wanted = "f LW"
        else:
            wanted = (OTHER if self.tokens is None else TEXT).get(name, "")
        if not wanted:
            return
        kind, letters = wanted.split(" ")
        if dtype.kind != kind:
            raise ValueError(f"{name} is of type {dtype}")
        place = name.rpartition("/")[
            0
        ]  # members that lie together agree on the sizes that they choose
        sides = dict(zip(letters, shape, strict=False)) if len(shape) == len(letters) else {}
        known = {
            letter: self._sizes.get(letter, self._sizes.get(place + letter)) for letter in letters
        }
        known |= {} if layer is None else {"H": self.heads[layer]}
        asked = [known[letter] for letter in letters]
        if len(shape) != len(letters) or any(
            side > CHOSEN[letter] or (side < 1 and letter in "kG") if size is None else side != size
            for side, letter, size in zip(shape, letters, asked, strict=True)
        ):
            words = ", ".join(
                letter if size is None else str(size)
                for letter, size in zip(letters, asked, strict=True)
            )
            raise ValueError(f"{name} has the shape {shape}, where ({words}) has to be")
        self._sizes |= {
            place + letter: side for letter, side in sides.items() if known[letter] is None
        }

    def check_text(self, arrays: dict[str, np.ndarray]) -> None:
        """Check that no member of a text is missing, and that what they point at is there; ValueError if not."""
        ways = []
        for layer in range(len(self.heads)):
            own = {name.partition("/")[2] for name in arrays if self._layer(name) == layer} - {
                "quadrants",
                "value_norms",
            }
            if own not in WAYS:
                raise ValueError(
                    f"layer_{layer} is of {', '.join(sorted(own)) or 'nothing'}, which makes no map"
                )
            ways.append(own)
        if any(own != ways[0] for own in ways):
            raise ValueError("its layers are not all kept in the same way")
        nats = NATS & arrays.keys()
        if nats and nats != NATS:
            raise ValueError(f"{min(NATS - nats)} is missing")
        for name, array in arrays.items():
            size = {"top_keys": self.tokens, "keys": self.tokens, "class": self.classes or 1}.get(
                name.rpartition("/")[2]
            )
            if size is not None and array.size and not (array.min() >= 0 and array.max() < size):
                raise ValueError(
                    f"{name} points at what is not there: it has to be from 0 to {size - 1}"
                )

    def _layer(self, name: str) -> int | None:
        match = re.fullmatch(r"layer_(0|[1-9][0-9]{0,3})/(\w+)", name)
        return (
            int(match[1])
            if match and match[2] in LAYER and int(match[1]) < len(self.heads)
            else None
        )


def check_measures(names: Collection[str]) -> None:
    """Check how many members a step has beside those of texts, and how many measures; ValueError if too many."""
    if len(names) > OTHERS:
        raise ValueError(
            f"has {len(names)} arrays beside those of texts, and at most {OTHERS} are read"
        )
    measures = {match[1] for match in map(MEASURE.fullmatch, names) if match}
    if len(measures) > MEASURES:
        raise ValueError(f"has {len(measures)} measures, and at most {MEASURES} are read")
