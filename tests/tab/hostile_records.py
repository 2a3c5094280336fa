"""Records of somebody else: each is a good one with one thing wrong, which its name says."""

import json
import os
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headscope.record.reader import read_step
from headscope.record.schema import FOLDER, INDEX, Text
from headscope.record.writer import HeadRecorder

STEPS = (0, 10)
LAST = "step_000000000010.npz"
TEXTS = [
    Text("short", ["[CLS]", "one", "two", "[SEP]"], "one two", "good"),
    Text("long", [f"t{number}" for number in range(24)], "a long text"),
    Text("pair", ["[CLS]", "a", "[SEP]", "b", "[SEP]"], "a ⏐ b", None, [None, 0, None, 1, None]),
]
Change = Callable[[Path], object]


def good_record(folder: Path) -> Path:
    """Record two steps of three texts with all that a record can hold; return the folder of heads."""
    recorder = HeadRecorder(
        folder, TEXTS, ("bad", "good"), max_tokens=20, notes={"precision": "float32"}
    )
    random = np.random.default_rng(0)
    parts = {
        "words": np.ones((len(TEXTS[0].tokens), 2)),
        "heads": np.ones((2, 3, len(TEXTS[0].tokens), 2)),
        "past": np.ones((2, 2)),
        "biases": np.ones((3, 2)),
        "log_odds": np.ones(2),
    }
    for step in STEPS:
        weights = [random.random((2, 3, len(text.tokens), len(text.tokens))) ** 4 for text in TEXTS]
        maps = [
            {f"layer {at}": layer / layer.sum(-1, keepdims=True) for at, layer in enumerate(it)}
            for it in weights
        ]
        extra: dict[str, np.ndarray] = {
            **{
                f"text_0/contributions/{name}": values.astype(np.float32)
                for name, values in parts.items()
            },
            "text_0/contributions/classes": np.array([1, 0], np.int32),
            "text_0/contributions/shown": np.array([1, 0], np.int32),
            "sets/accuracy": np.ones(7, np.float32),
            "studied": np.array(9, np.int32),
        }
        numbers = {name: (np.ones((2, 3)), np.ones((2, 3))) for name in ("entropy", "loss_zeroed")}
        shares = [np.array([0.25, 0.75])] * 3
        recorder.record(
            step, maps, numbers, [np.full(4, 0.25), None, None], shares, [1e-7] * 3, extra
        )
    return folder / FOLDER


def _index(**changes: Any) -> Change:
    """Change keys of the index."""

    def change(heads: Path) -> None:
        content = json.loads((heads / INDEX).read_bytes())
        content |= {
            name: value(content) if callable(value) else value for name, value in changes.items()
        }
        (heads / INDEX).write_text(json.dumps(content), encoding="utf-8")

    return change


def _text(**changes: Any) -> Change:
    """Change keys of the first text."""
    return _index(texts=lambda content: [content["texts"][0] | changes, *content["texts"][1:]])


def _raw(content: bytes | Callable[[bytes], bytes], name: str = INDEX) -> Change:
    def change(heads: Path) -> None:
        path = heads / name
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return change


def _arrays(**changes: Any) -> Change:
    """Change members of the last step; text_0__check is text_0/check, None takes one away."""

    def change(heads: Path) -> None:
        arrays = read_step(heads / LAST)
        for name, value in changes.items():
            name = name.replace("__", "/")
            arrays[name] = value(arrays[name]) if callable(value) else value
        kept = {name: np.asarray(value) for name, value in arrays.items() if value is not None}
        np.savez(heads / LAST, allow_pickle=True, **kept)

    return change


def npy(shape: str, descr: str = "'<f4'", data: bytes = b"") -> bytes:
    """Return a member whose header says what it likes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def _members(
    members: dict[str, bytes], replace: str = "", method: int = zipfile.ZIP_STORED
) -> Change:
    """Put members into the last step as bytes; those whose name begins with `replace` go."""

    def change(heads: Path) -> None:
        with zipfile.ZipFile(heads / LAST) as archive:
            kept = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(heads / LAST, "w", method) as archive:
            for name, content in kept.items():
                if not replace or not name.startswith(replace):
                    archive.writestr(name, content)
            for name, content in members.items():
                archive.writestr(name, content)

    return change


def _twice(heads: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(heads / LAST, "a") as archive:
        warnings.simplefilter("ignore", UserWarning)
        archive.writestr("text_0/layer_0/levels.npy", npy("(3, 4, 4)", "'|u1'", bytes(48)))


def _flags(heads: Path) -> None:
    """Say of every member that it is encrypted."""
    content = bytearray((heads / LAST).read_bytes())
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(sign)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(sign, at + 4)
    (heads / LAST).write_bytes(content)


def _special(name: str, make: Callable[[Path], object]) -> Change:
    def change(heads: Path) -> None:
        (heads / name).unlink()
        make(heads / name)

    return change


def nested(depth: int, kind: str = "object") -> str:
    """Return JSON that is nested so deep."""
    return '{"a":' * depth + "1" + "}" * depth if kind == "object" else "[" * depth + "]" * depth


def _inside(key: str, content: str) -> Change:
    """Put JSON as it stands in the place of a key of the index, or behind its last one."""
    return _raw(lambda before: before[:-1] + f', "{key}": {content}}}'.encode())


def many(count: int) -> Callable[[Any], list[Any]]:
    """Return a step for each number; all but the last have no file."""
    return lambda _: [
        {"step": step, "file": f"step_{step:012d}.npz", "bytes": 1, "time": 0.0}
        for step in range(count)
    ]


LEVELS, SCALES = "text_0__layer_0__levels", "text_0__layer_0__scales"
FIRST = "text_0/layer_0/levels"
# The index is refused, and with it the run.
BAD_INDEX: dict[str, Change] = {
    "a layer of a long name": _index(layers=["x" * 100_000, "y"]),
    "100000 heads": _index(heads=[100_000, 2]),
    "no head": _index(heads=[0, 0]),
    "100000 layers": _index(heads=[1] * 100_000, layers=["x"] * 100_000),
    "12000 notes": _index(notes={f"note {number}": "x" for number in range(12_000)}),
    "20000 steps": _index(steps=many(20_000)),
    "2000 texts": _index(texts=lambda content: [content["texts"][0]] * 2_000),
    "500000 tokens": _text(tokens=["x"] * 500_000),
    "500000 classes": _index(classes=["x"] * 500_000),
    "deep object": _inside("notes", f'{{"deep": {nested(400)}}}'),
    "deep in a text": _text(label=json.loads(nested(400))),
    "notes are a list": _index(notes=["a"]),
    "numbers are texts": _index(recorded="2", every="1", budget="3"),
    "infinity": _inside("budget", "Infinity"),
    "a step that is huge": _index(
        steps=[{"step": 10**30, "file": f"step_{10**30}.npz", "bytes": 1, "time": 0}]
    ),
    "a step twice": _index(steps=lambda content: content["steps"][-1:] * 2),
    "steps in no order": _index(steps=lambda content: content["steps"][::-1]),
    "a step of another folder": _index(
        steps=[{"step": 10, "file": f"../heads/{LAST}", "bytes": 1, "time": 0}]
    ),
    "a key of no record": _inside("__proto__", '{"a": 1}'),
    "no texts": _index(texts=[]),
    "fewer names than heads": _index(layers=["a"]),
    "a class that is a number": _index(classes=[1, 2]),
    "no token": _text(tokens=[]),
    "a label that is a list": _text(label=["a"]),
    "segments that are fractions": _text(segments=[0.0, 1.0, True, None]),
    "lone surrogates": _text(tokens=["a", "\ud800", "x", "y"], text="\udfff"),
    "not UTF-8": _raw(lambda before: before.replace(b"short", b"sh\xff\xfet")),
    "cut short": _raw(lambda before: before[:-40]),
    "empty": _raw(b""),
    "of another version": _index(version=2),
    "an index that is missing": _special(INDEX, lambda path: None),
    "an index that is a pipe": _special(INDEX, os.mkfifo),
}
# A step is refused.
BAD_STEP: dict[str, Change] = {
    "names of two million letters": _members(
        {f"{number:0900}.npy": b"" for number in range(2_500)}
    ),
    "keys twice": _inside("heads", "[9, 9]"),
    "a step cut short": _raw(lambda before: before[: len(before) // 2], LAST),
    "a step that is empty": _raw(b"", LAST),
    "a step that is noise": _raw(b"PK\x03\x04" + bytes(range(256)) * 9, LAST),
    "a step that is missing": _special(LAST, lambda path: None),
    "a step that is a pipe": _special(LAST, os.mkfifo),
    "a step that is a device": _special(LAST, lambda path: path.symlink_to("/dev/zero")),
    "a step that links to itself": _special(LAST, lambda path: path.symlink_to(path.name)),
    "a step that links outside": _special(LAST, lambda path: path.symlink_to("/etc/passwd")),
    "encrypted": _flags,
    "safetensors": _raw(struct.pack("<Q", 2**62) + b"{}", LAST),
}
# The maps of a text are refused; the numbers are shown.
BAD_MAPS: dict[str, Change] = {
    "fewer tokens than queries": _text(tokens=["a", "b"]),
    "more tokens than queries": _text(tokens=list("abcdefgh")),
    "no scales": _arrays(**{SCALES: None}),
    "no map of a layer": _arrays(**{LEVELS: None, SCALES: None}),
    "no maps": _members({}, replace="text_0/layer_"),
    "nothing of the text": _members({}, replace="text_0/"),
    "levels of fewer heads": _arrays(**{LEVELS: lambda array: array[:1]}),
    "levels that are not square": _arrays(**{LEVELS: np.zeros((3, 4, 9), np.uint8)}),
    "levels that are complex": _arrays(**{LEVELS: lambda array: array.astype(np.complex64)}),
    "levels that are objects": _arrays(**{LEVELS: lambda array: array.astype(object)}),
    "scales of fewer queries": _arrays(**{SCALES: lambda array: array[:, :2]}),
    "weights and levels": _arrays(text_0__layer_0__weights=np.zeros((3, 4, 4), np.float16)),
    "top keys alone": _arrays(
        **{LEVELS: None, "text_0__layer_0__top_keys": np.zeros((3, 4, 16), np.int32)}
    ),
    "top keys outside": _arrays(text_1__layer_0__top_keys=lambda array: array + 1000),
    "no overview": _arrays(text_1__layer_0__overview=None),
    "an overview of another side": _arrays(text_1__layer_0__overview=np.zeros((3, 5, 9), np.uint8)),
    "no rest": _arrays(text_1__layer_0__rest=None),
    "quadrants that are flat": _arrays(text_2__layer_0__quadrants=np.zeros(3, np.float32)),
    "pooling of another length": _arrays(text_0__pooling=np.zeros(9, np.float32)),
    "pooling that is complex": _arrays(text_0__pooling=np.zeros(4, np.complex64)),
    "probabilities of more classes": _arrays(text_0__probabilities=np.ones(50, np.float32)),
    "a check that is a table": _arrays(text_0__check=np.ones((3, 3), np.float32)),
    "contributions without biases": _arrays(text_0__contributions__biases=None),
    "contributions of other heads": _arrays(
        text_0__contributions__heads=lambda array: array[:, :1]
    ),
    "contributions to a class outside": _arrays(
        text_0__contributions__classes=lambda array: array + 1000
    ),
    "contributions to a class twice": _arrays(
        text_0__contributions__classes=lambda array: array * 0
    ),
    "contributions shown of no class": _arrays(
        text_0__contributions__shown=lambda array: array - 2
    ),
    "a shape beyond memory": _members({FIRST + ".npy": npy(f"({2**40}, {2**40}, 3)")}, FIRST),
    "a header that is deep": _members({FIRST + ".npy": npy("(" * 3000 + ")" * 3000)}, FIRST),
    "a header that is code": _members({FIRST + ".npy": npy("__import__('os')")}, FIRST),
    "a member that is no array": _members({"text_0/pooling.npy": b"hello"}, "text_0/pooling"),
}
# The numbers of a step are refused; the maps are shown.
BAD_NUMBERS: dict[str, Change] = {
    "2000 small members": _members(
        {f"extra/{number}.npy": npy("()", data=bytes(4)) for number in range(2_000)}
    ),
    "100 measures": _members(
        {f"numbers/x{number}/mean.npy": npy("(2, 3)", data=bytes(24)) for number in range(100)}
    ),
    "a mean of three axes": _arrays(numbers__entropy__mean=np.ones((2, 3, 3), np.float32)),
    "a mean that is complex": _arrays(numbers__entropy__mean=np.ones((2, 3), np.complex64)),
    "accuracies of two axes": _arrays(sets__accuracy=np.ones((2, 2), np.float32)),
    "an extra that is complex": _arrays(strange=np.ones(2, np.complex64)),
}
# What is strange, but does no harm.
HARMLESS: dict[str, Change] = {
    "a member twice": _twice,
    "compressed": _members({}, method=zipfile.ZIP_DEFLATED),
    "a bomb": _members(
        {FIRST + ".npy": npy("(3, 4, 4)", "'|u1'", bytes(2**22))}, FIRST, zipfile.ZIP_DEFLATED
    ),
    "A GOOD ONE": _index(),
    "<img src=x onerror=alert(1)>": _index(),
    "a\nb\u202ec\x1b[31m": _index(),
    "é" * 120: _index(),
    "a token of 100000 letters": _text(tokens=["[CLS]", "x" * 100_000, "two", "[SEP]"]),
    "a note of a million letters": _index(notes={"long": "x" * 1_000_000}),
    "2000 layers of a text": _members(
        {
            f"text_0/layer_{number}/levels.npy": npy("(1, 1, 1)", "'|u1'", b"a")
            for number in range(2, 2_000)
        }
    ),
    "markup": _text(
        name="<img src=x onerror=alert(1)>", tokens=["<b>", "</script>", "&amp;", "\u001b[31m"]
    ),
    "directions": _text(tokens=["\u202eabc", "y", "\u2066x", "\u0000"], text="\u202e"),
    "scales that are NaN": _arrays(**{SCALES: lambda array: array * np.nan}),
    "quadrants of a single text": _arrays(
        text_0__layer_0__quadrants=np.zeros((3, 2, 2), np.float32)
    ),
    "probabilities that are NaN": _arrays(text_0__probabilities=np.full(2, np.nan, np.float32)),
    "a mean that is infinite": _arrays(numbers__entropy__mean=np.full((2, 3), np.inf, np.float32)),
    "an error without a mean": _arrays(numbers__entropy__mean=None),
    "a measure named like an object's": _arrays(
        numbers____proto____mean=np.ones((2, 3), np.float32)
    ),
    "an array of no name that is text": _arrays(other=np.full((2, 2), "x")),
    "a member outside": _members(
        {"../../outside.npy": npy("()", data=bytes(4)), "/absolute.npy": npy("()", data=b"1234")}
    ),
}
HOSTILE = BAD_INDEX | BAD_STEP | BAD_MAPS | BAD_NUMBERS | HARMLESS


def write_hostile(logdir: Path) -> list[str]:
    """Write a run for each, between two good ones, and return the names of all runs in order."""
    runs = ["a good one", *HOSTILE, "the last good one"]
    good = good_record(logdir / runs[0])
    for run in runs[1:]:
        shutil.copytree(good, logdir / run / FOLDER)
        HOSTILE.get(run, lambda _: None)(logdir / run / FOLDER)
    return runs
