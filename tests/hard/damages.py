"""What is done to the files of a run folder: of each file its form, and of some what they mean."""

import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

LABELLED = [
    "config.yaml",
    "tokenizer.json",
    "labels.json",
    "evidence.safetensors",
    "model.safetensors",
    "thresholds.json",
    "data.json",
    "validations.json",
    "metrics.json",
    "manifest.json",
    "heads/index.json",
    "checkpoints/best.ckpt",
    "checkpoints/last.ckpt",
]
PRETRAINED = ["encoder.json", "calibration.json"]
Damage = Callable[[Path], object]


def _content(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _instead(make: Damage) -> Damage:
    def made(path: Path) -> None:
        path.unlink()
        make(path)

    return made


ANY: dict[str, Damage] = {
    "is gone": Path.unlink,
    "is empty": _content(lambda _: b""),
    "is cut in half": _content(lambda whole: whole[: len(whole) // 2]),
    "lacks its last byte": _content(lambda whole: whole[:-1]),
    "is zeros": _content(lambda whole: bytes(len(whole))),
    "is noise": _content(lambda whole: bytes((7 + 31 * n * n) % 251 for n in range(len(whole)))),
    "is a folder": _instead(os.mkdir),
    "is a pipe": _instead(os.mkfifo),
    "links to itself": _instead(lambda path: path.symlink_to(path)),
    "links to /dev/zero": _instead(lambda path: path.symlink_to("/dev/zero")),
}
TEXTS = "null", "[]", "1", "[null]", '{"a": NaN}', '{"a": {"b": [1]}}', "[" * 100_000
JSON: dict[str, Damage] = {
    f"is {text[:30]}": _content(lambda _, text=text: text.encode())  # type: ignore[misc]
    for text in TEXTS
}


def _json(change: Callable[[dict[str, object]], object]) -> Damage:
    return _content(lambda whole: json.dumps(change(json.loads(whole))).encode())


def _each(value: object) -> Damage:
    """Put a value in the place of each value of an object, or of each member of a list."""
    return _json(
        lambda whole: (
            dict.fromkeys(whole, value) if isinstance(whole, dict) else [value for _ in whole]
        )
    )


VALUES = {"null": None, "a huge number": 10**400, "lists": [], "texts": "a" * 100}
JSON |= {f"has {name} for each value": _each(value) for name, value in VALUES.items()}


def _yaml(key: str, value: str) -> Damage:
    """Put a value in the place of the one that a key has."""

    def changed(whole: bytes) -> bytes:
        lines = whole.decode().splitlines()
        place = next(n for n, line in enumerate(lines) if line.strip().startswith(f"{key}:"))
        lines[place] = f"{lines[place].partition(':')[0]}: {value}"
        return "\n".join(lines).encode()

    return _content(changed)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
YAML: dict[str, Damage] = {
    "is a list": _content(lambda _: b"- 1\n"),
    "is a text": _content(lambda _: b"text"),
    "has two documents": _content(lambda whole: whole + b"\n---\n" + whole),
    "has an unknown key": _content(lambda whole: whole + b"\nunknown: 1\n"),
    "has a key twice": _content(lambda whole: whole + b"\nseed: 7\n"),
    "has a zero": _content(lambda whole: whole + b"\0"),
    "calls a function": _content(lambda whole: whole + b"\nname: !!python/object/apply:os.abort []\n"),
    "has aliases of aliases": _content(lambda whole: whole + b"\n" + BOMB.encode()),
    "has an alias of itself": _content(lambda whole: whole + b"\nname: &a [*a]\n"),
    "is nested 50,000 deep": _content(lambda whole: b"[" * 50_000),
    **{
        f"has {key}: {value}": _yaml(key, value)
        for key, value in (
            ("positions", "rotarry"), ("positions", "null"), ("num_heads", "5"), ("num_heads", "0"), ("num_heads", "x"),
            ("d_model", "99999999999"), ("num_layers", "100000000"), ("dropout", "2"), ("dropout", ".nan"),
            ("max_length", "-1"), ("vocab_size", "null"), ("seed", "4294967296"), ("attention", "os:abort"),
            ("pooling", "builtins:exit"), ("kind", "nothing"), ("path", "nothing.csv"), ("path", "${oc.env:USER}"),
            ("path", "/dev/zero"), ("cache_dir", "/dev/null"), ("evidence", "false"), ("name", "../../x"), ("outputs_dir", "/proc"), ("model", "null"), ("data", "[]"), ("trainer", "1"),
        )
    },
}  # fmt: skip


def _header(change: Callable[[dict[str, object]], object]) -> Damage:
    """Change the header of a file of safetensors."""

    def changed(whole: bytes) -> bytes:
        size = struct.unpack("<Q", whole[:8])[0]
        header = json.dumps(change(json.loads(whole[8 : 8 + size]))).encode()
        return struct.pack("<Q", len(header)) + header + whole[8 + size :]

    return _content(changed)


def _first(header: dict[str, object]) -> str:
    return next(name for name in header if name != "__metadata__")


SAFETENSORS: dict[str, Damage] = {
    "has a header of 2^63 bytes": _content(lambda whole: struct.pack("<Q", 2**63) + whole[8:]),
    "has a header of no bytes": _content(lambda whole: bytes(8) + whole[8:]),
    "has an empty header": _header(lambda _: {}),
    "lacks a tensor": _header(
        lambda header: {key: value for key, value in header.items() if key != _first(header)}
    ),
    "has a tensor of another name": _header(
        lambda header: {f"{key}x": value for key, value in header.items()}
    ),
    "has a tensor of another shape": _header(
        lambda header: header | {_first(header): header[_first(header)] | {"shape": [1]}}  # type: ignore[operator]
    ),
    "has a tensor of another type": _header(
        lambda header: header | {_first(header): header[_first(header)] | {"dtype": "I8"}}  # type: ignore[operator]
    ),
}
PICKLE = b"\x80\x04\x8c\x02os\x8c\x05abort\x93)R."  # calls os.abort when it is loaded
CHECKPOINT: dict[str, Damage] = {
    "is a pickle that aborts": _content(lambda _: PICKLE),
    "is a text": _content(lambda _: b"text"),
    "is an empty archive": _content(lambda _: b"PK\x05\x06" + bytes(18)),
}
SPECIAL = {".json": JSON, ".yaml": YAML, ".safetensors": SAFETENSORS, ".ckpt": CHECKPOINT}
DAMAGES = {
    f"{name} {what}": (kind, name, damage)
    for kind, names in (("labelled", LABELLED), ("pretrained", PRETRAINED))
    for name in names
    for what, damage in (ANY | SPECIAL[Path(name).suffix]).items()
}


# Of right form and another meaning: a network of the same shapes, which would answer otherwise.


def _of(run: str) -> Damage:
    """Put the file of another run in the place: of another seed ("other") or texts ("stranger")."""
    return lambda path: shutil.copy(str(path).replace("/run/", f"/{run}/", 1), path)


def _keys(**changes: object) -> Damage:
    """Change keys of an object; {} removes one."""

    def changed(whole: dict[str, object]) -> object:
        return {key: value for key, value in (whole | changes).items() if value != {}}

    return _json(changed)


def _flipped(whole: bytes) -> bytes:
    """Change a bit of the largest number in the middle."""
    place = len(whole) // 2 | 3  # the sign and exponent of a float32
    return whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :]


def _tensors(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Damage:
    return _content(lambda whole: save(change(load(whole))))


def _swapped(whole: bytes) -> bytes:
    """Let two words of the vocabulary change places."""
    text = whole.decode()
    first, second = sorted(set(re.findall(r'"(?:lovely|awful|bright|dark)": \d+', text)))[:2]
    (a, one), (b, two) = first.split(": "), second.split(": ")
    text = text.replace(first, f"{a}: {two}", 1).replace(second, f"{b}: {one}", 1)
    return text.encode()


def _reversed(whole: Any) -> Any:
    if isinstance(whole, list):
        return whole[::-1]
    return dict(zip(whole, reversed([*whole.values()]), strict=True))


def _tripled(whole: Any) -> Any:
    return {"temperature": whole["temperature"] * 3}


def _unfamiliar(whole: Any) -> Any:
    """Let every text be unlike those of training."""
    return whole | {"most unknown tokens of a familiar text": -1.0}


SECRET = "${oc.env:HOME}"
MEANT: dict[tuple[str, str], dict[str, Damage]] = {
    ("plain", "config.yaml"): {
        "num_heads 3 to 2": _yaml("num_heads", "2"),
        "rotary to sinusoidal": _yaml("positions", "sinusoidal"),
        "window 2": _yaml("window", "2"),
        "max_length 32 to 8": _yaml("max_length", "8"),
        "pooling first to pooler": _yaml("pooling", "pooler"),
        "no attention_readout": _yaml("attention_readout", "false"),
        "no evidence": _yaml("evidence", "false"),
        "tokenizer.lowercase false": _yaml("lowercase", "false"),
        "seed 0 to 1": _yaml("seed", "1"),
        "layer_decay 0.5": _yaml("layer_decay", "0.5"),
        "data.path of other texts": _content(
            lambda whole: whole.replace(b"rows.jsonl", b"stranger.csv")
        ),
        "data.split_seed 7": _yaml("split_seed", "7"),
        f"data.path {SECRET}": _yaml("path", SECRET),
        f"font \\\\{SECRET}": _yaml("font", f"\\\\{SECRET}"),
        "of another run": _of("stranger"),
        "not UTF-8": _content(lambda whole: whole + b"# \xff\xfe\n"),
        "cut in half": ANY["is cut in half"],
    },
    ("labelled", "config.yaml"): {
        "pooling mean to max": _yaml("pooling", "max"),
        "causal": _yaml("causal", "true"),
        "multi_label false": _yaml("multi_label", "false"),
        "label_separator |": _yaml("label_separator", "'|'"),
    },
    ("plain", "labels.json"): {
        "swapped": _json(_reversed),
        "another name": _content(lambda whole: whole.replace(b"good", b"fine")),
        "a name twice": _content(lambda whole: whole.replace(b"good", b"bad")),
        "gone": ANY["is gone"],
    },
    ("plain", "tokenizer.json"): {
        "without normalizer": _keys(normalizer=None),
        "without post_processor": _keys(post_processor=None),
        "two words swapped": _content(_swapped),
        "of another run": _of("stranger"),
        "not UTF-8": _content(lambda whole: whole[:-2] + b"\xff\n}"),
    },
    ("plain", "evidence.safetensors"): {
        "of other texts": _of("stranger"),
        "a bit flipped": _content(_flipped),
        "zeros": ANY["is zeros"],
        "gone": ANY["is gone"],
    },
    ("plain", "model.safetensors"): {
        "of another seed": _of("other"),
        "a bit flipped": _content(_flipped),
        "all negated": _tensors(lambda whole: {name: -value for name, value in whole.items()}),
        "in float16": _tensors(lambda whole: {name: value.half() for name, value in whole.items()}),
        "a directory": ANY["is a folder"],
        "cut in half": ANY["is cut in half"],
    },
    ("pretrained", "encoder.json"): {
        "more heads": _keys(num_heads=11),
        "another activation": _keys(activation="relu"),
        "norm_eps 0.1": _keys(norm_eps=0.1),
    },
    ("plain", "calibration.json"): {
        "temperature x 3": _json(_tripled),
        "gone": ANY["is gone"],
        "temperature -1": _keys(temperature=-1),
    },
    ("labelled", "thresholds.json"): {
        "0.9 each": _each(0.9),
        "gone": ANY["is gone"],
        "not numbers": _each("x"),
    },
    ("plain", "manifest.json"): {
        "gone": ANY["is gone"],
        "of another run": _of("other"),
        "no files": _keys(files={"": ""}),
        "{}": _content(lambda _: b"{}"),
    },
    ("plain", "metrics.json"): {
        "of another run": _of("stranger"),
        "other familiar texts": _json(_unfamiliar),
        "gone": ANY["is gone"],
        "cut in half": ANY["is cut in half"],
    },
    ("plain", "data.json"): {
        "of another run": _of("stranger"),
        "of another seed": _of("other"),
        "gone": ANY["is gone"],
        "empty": ANY["is empty"],
    },
    ("plain", "checkpoints/best.ckpt"): {
        "of another seed": _of("other"),
        "a bit flipped": _content(_flipped),
        "gone": ANY["is gone"],
    },
    ("plain", "checkpoints/last.ckpt"): {
        "of another seed": _of("other"),
        "a bit flipped": _content(_flipped),
        "a link to itself": ANY["links to itself"],
        "zeros": ANY["is zeros"],
    },
    ("plain", "heads/index.json"): {"gone": ANY["is gone"], "of another run": _of("stranger")},
    ("plain", "validations.json"): {"cut in half": ANY["is cut in half"]},
}
MEANINGS = {
    f"{name}: {what}": (kind, name, damage)
    for (kind, name), damages in MEANT.items()
    for what, damage in damages.items()
}
