"""Run folders with a damaged file: every command reads the others or names the file, and changes nothing."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hard.damages import DAMAGES, MEANINGS, Damage
from hard.forked import Case, Judge, Server
from hard.run_folders import COMMANDS, Kind, answer, arguments, classified, copy, train_kind

Kinds = Callable[[str], Kind]
NOTES = {"without manifest.json": 1, "without a run id": 1}  # that the folder's age deserves


@pytest.fixture(scope="session")
def kinds(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    """Return what trains the runs of a kind, once."""
    found: dict[str, Kind] = {}

    def kind(name: str) -> Kind:
        if name not in found:
            found[name] = train_kind(server, name, tmp_path_factory.mktemp(name))
        return found[name]

    return kind


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return what tells whether a file was touched."""
    stats = {str(path): path.lstat() for path in folder.rglob("*") if not path.is_dir()}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


@pytest.fixture
def tried(
    server: Server,
    kinds: Kinds,
    judge: Judge,
    record_property: Callable[[str, Any], None],
    tmp_path: Path,
) -> Callable[[str, str, str, Damage], None]:
    """Return what damages a run and gives it to each command."""

    def try_damage(what: str, name: str, file: str, damage: Damage) -> None:
        kind = kinds(name)
        ends = {}
        for command in COMMANDS:
            folder = tmp_path / command.split()[0]
            copy(kind.folder, folder)
            damage(folder / "run" / file)
            before = state(folder / "run")
            outcome = server.run(Case(arguments(name, command), str(folder)))
            ends[command] = classified(kind, command, file, folder, outcome)
            found = outcome.mistakes([0, 2])
            if ends[command] in ("unclear", "silently different"):
                found.append(f"{ends[command]}: {outcome.stderr[-500:]}")
            after = state(folder / "run")
            if outcome.code != 0 or command != "train resume=":
                lost = [Path(path).name for path in before if before[path] != after.get(path)]
                found += [f"has changed {', '.join(lost)}"] if lost else []
            judge(f"damaged run folders: {command}", f"{command}, {what}", found)
            shutil.rmtree(folder)
        record_property("damage", (what, what in MEANINGS, ends))

    return try_damage


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_file(tried: Callable[..., None], what: str) -> None:
    tried(what, *DAMAGES[what])


@pytest.mark.parametrize("what", MEANINGS)
def test_a_file_of_another_meaning(tried: Callable[..., None], what: str) -> None:
    tried(what, *MEANINGS[what])


def _zipped(folder: Path) -> None:
    shutil.make_archive(str(folder.parent / "sent"), "zip", folder)
    shutil.rmtree(folder)
    shutil.unpack_archive(folder.parent / "sent.zip", folder)


def _with_windows_line_ends(folder: Path) -> None:
    for path in [*folder.glob("*.json"), folder / "config.yaml", folder / "heads/index.json"]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def _written_anew(folder: Path) -> None:
    for path in (folder / "calibration.json", folder / "thresholds.json"):
        if path.exists():
            path.write_text(json.dumps(json.loads(path.read_text())))


def _linked(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to("elsewhere")


def _without_id(folder: Path) -> None:
    """Let a run be of a version before ids and manifests."""
    (folder / "manifest.json").unlink()
    content = json.loads((folder / "data.json").read_text())
    del content["run_id"]
    (folder / "data.json").write_text(json.dumps(content))
    for path in folder.glob("checkpoints/*.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        del checkpoint["run_id"]
        torch.save(checkpoint, path)


def _as_it_is(folder: Path) -> None:
    pass


# Kind of run, what is done to its folder, and the name that it gets.
VARIANTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "copied": ("plain", _as_it_is, "run"),
    "moved": ("plain", _as_it_is, "deep/er/away"),
    "zipped and unzipped": ("plain", _zipped, "run"),
    "with CRLF": ("plain", _with_windows_line_ends, "run"),
    "read-only": ("plain", _as_it_is, "run"),
    "with a Japanese name": ("plain", _as_it_is, "実行 一"),
    "with spaces in its name": ("plain", _as_it_is, "my first run"),
    "behind a link": ("plain", _linked, "run"),
    "without manifest.json": ("plain", lambda folder: (folder / "manifest.json").unlink(), "run"),
    "without a run id": ("plain", _without_id, "run"),
    "with calibration.json written anew": ("plain", _written_anew, "run"),
    "several labels, moved": ("labelled", _as_it_is, "moved_away"),
    "several labels, with CRLF": ("labelled", _with_windows_line_ends, "run"),
    "several labels, thresholds written anew": ("labelled", _written_anew, "run"),
    "pairs, zipped": ("pairs", _zipped, "run"),
    "bpe, with CRLF": ("bpe", _with_windows_line_ends, "run"),
    "wordpiece, read-only": ("wordpiece", _as_it_is, "run"),
    "two layers without readout, moved": ("no readout", _as_it_is, "moved_away"),
    "pretrained, moved": ("pretrained", _as_it_is, "moved_away"),
    "pretrained, with CRLF": ("pretrained", _with_windows_line_ends, "run"),
    "trained in bfloat16, zipped": ("bfloat16", _zipped, "run"),
    "averaged, with CRLF": ("averaged", _with_windows_line_ends, "run"),
    "resumed, moved": ("resumed", _as_it_is, "moved_away"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_whole_run_answers_as_before(
    server: Server, kinds: Kinds, judge: Judge, tmp_path: Path, variant: str
) -> None:
    name, change, moved = VARIANTS[variant]
    kind = kinds(name)
    for command in COMMANDS:
        folder = tmp_path / command.split()[0]
        copy(kind.folder, folder)
        change(folder / "run")
        if moved != "run":
            (folder / moved).parent.mkdir(parents=True, exist_ok=True)
            (folder / "run").rename(folder / moved)
        is_read_only = "read-only" in variant
        if is_read_only and command == "train resume=":
            continue
        words = [re.sub("=run$", f"={moved}", word) for word in arguments(name, command)]
        words = [re.sub("=(my .*)$", r"='\1'", word) for word in words]
        read_only = {"do": "read-only", "at": "run"} if is_read_only else {}
        outcome = server.run(Case(words, str(folder), **read_only))
        found = outcome.mistakes([0])
        if not found and answer(command, folder, outcome, moved) != kind.answers[command]:
            found.append(f"another answer: {outcome.stderr[-500:]}")
        if outcome.stderr.count("note: run=") > NOTES.get(variant, 0):
            found.append(f"a false alarm: {outcome.stderr[-500:]}")
        judge(f"whole run folders: {command}", f"{command}, {variant}", found)
        shutil.rmtree(folder)
