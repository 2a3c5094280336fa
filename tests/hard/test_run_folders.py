"""Run folders with a damaged file: every command reads the others or says which file is damaged, and changes nothing."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_family import write_checkpoint
from hard.forked import TRAIN, Case, Judge, Server
from training_runs import comments, reviews, write

COMMANDS = {
    "predict": ["predict", "run=run", "input=texts.txt"],
    "evaluate": ["evaluate", "run=run"],
    "inspect": ["inspect", "run=run", "text=the soup was lovely", "output=page.html"],
    "export": ["export", "run=run", "output=exported"],
    "train resume=": ["train", "resume=run"],
}
LABELLED = [
    "config.yaml",
    "tokenizer.json",
    "labels.json",
    "evidence.safetensors",
    "model.safetensors",
    "thresholds.json",
    "data.json",
    "metrics.json",
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


@pytest.fixture(scope="session")
def folders(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, str]]:
    """Return folders with a run each, and what it predicts: one with any number of labels, one from a checkpoint."""
    found = {}
    for kind in ("labelled", "pretrained"):
        folder = tmp_path_factory.mktemp(kind)
        rows = comments(80) if kind == "labelled" else reviews(80)
        path = write(folder / "rows.jsonl", rows)
        words = [f"outputs_dir={folder}", f"data.cache_dir={folder / 'cache'}", f"data.path={path}"]
        words += ["trainer.max_epochs=1"]
        if kind == "labelled":
            words += ["data.multi_label=true"]
        else:
            texts = [row["text"] for row in reviews()]
            words += [f"model.path={write_checkpoint(folder / 'checkpoint', 'bert', texts)}"]
            words += ["model.pooling=pooler", "model.evidence=false"]
        given = tuple(word.partition("=")[0] for word in words)
        if kind == "pretrained":  # whose sizes are the checkpoint's
            given += "model.d_model", "model.num_heads", "model.feed"
        kept = [word for word in TRAIN if not word.startswith(given)]
        (folder / "texts.txt").write_text("the soup was lovely\na dark garden\n")
        assert server.run(Case([*kept, *words], str(folder))).mistakes([0]) == []
        found[kind] = folder, server.run(Case(COMMANDS["predict"], str(folder))).stdout
    return found


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return what tells whether a file was touched."""
    stats = {str(path): path.lstat() for path in folder.rglob("*") if not path.is_dir()}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_file(
    server: Server, folders: dict[str, tuple[Path, str]], judge: Judge, tmp_path: Path, what: str
) -> None:
    kind, name, damage = DAMAGES[what]
    whole, predicted = folders[kind]
    for command, arguments in COMMANDS.items():
        folder = tmp_path / command.split()[0]
        shutil.copytree(whole / "run", folder / "run")
        shutil.copy(whole / "texts.txt", folder)
        damage(folder / "run" / name)
        before = state(folder / "run")
        outcome = server.run(Case(arguments, str(folder)))
        found = outcome.mistakes([0, 1, 2])
        after = state(folder / "run")
        if outcome.code != 0 or command != "train resume=":
            lost = [Path(path).name for path in before if before[path] != after.get(path)]
            found += [f"has changed {', '.join(lost)}"] if lost else []
        if outcome.code == 0 and command == "predict" and outcome.stdout != predicted:
            found.append("gives other answers than the whole run, without a word")
        judge(f"damaged run folders: {command}", f"{command}, {what}", found)
        shutil.rmtree(folder)
