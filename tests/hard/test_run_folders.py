"""Run folders with a damaged file: every command reads the others or names the file, and changes nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hard.damages import DAMAGES, MEANINGS, Damage
from hard.forked import Case, Judge, Server
from hard.run_folders import COMMANDS, Kind, arguments, classified, copy, train_kind

Kinds = Callable[[str], Kind]


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
