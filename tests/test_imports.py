"""Data flows one way: what each folder may import, read from the code itself."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "headscope"
FOUNDATION = {"ground", "settings"}
# From the ground up: a room may import only what stands above it in this table.
MAY_IMPORT: dict[str, set[str]] = {
    "ground": set(),
    "settings": {"ground"},
    "attention": set(),
    "model": {"attention"},
    "data": set(),
    "record": set(),
    "tab": {"record"},
    "heads": {"attention", "model", "data", "record", "tab"},
    "proof": {"attention", "model", "heads"},
    "runs": {"attention", "model", "data", "heads", "record"},
    "pages": {"model", "data", "heads", "record", "tab", "runs"},
    # Models that are not ours: nothing below the public names may import it.
    "foreign": {"attention", "model", "data", "heads", "record", "tab", "pages"},
    "export": {"model", "data", "heads", "runs"},
    "results": {"model", "data", "heads", "record", "runs", "tab"},
    "training": {"attention", "model", "data", "heads", "record", "pages", "results", "runs"},
    "cli": {
        "attention",
        "data",
        "export",
        "heads",
        "pages",
        "model",
        "proof",
        "record",
        "results",
        "runs",
        "tab",
        "training",
    },
    "__main__": {"cli"},
    "__init__": set(),
}
BANNED = {"record": {"torch"}, "tab": {"torch"}, "attention": {"lightning"}, "model": {"lightning"}}
# Known before the configuration is: these must not bring anything heavy.
LIGHT = ["headscope", "headscope.cli.main", "headscope.settings.config", "headscope.cli.sweep"]
HEAVY = [
    "torch",
    "lightning",
    "datasets",
    "tokenizers",
    "sklearn",
    "numpy",
    "pyarrow",
    "tensorboard",
]


def imported(path: Path) -> set[str]:
    """Return what a file imports, as full names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            if node.module != "headscope":  # of a room modules may be imported, as names
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_rooms_stand_on_those_above_them_in_the_table() -> None:
    rooms = list(MAY_IMPORT)
    for place, room in enumerate(rooms):
        assert MAY_IMPORT[room] <= {*rooms[:place]}, room
    there = {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert there == {room for room in rooms if not room.startswith("__")}


def test_no_module_is_in_a_circle_of_imports() -> None:
    names = {
        ".".join(("headscope", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"
    }
    circles_raise = TopologicalSorter({name: imported(path) for name, path in names.items()})
    order = [*circles_raise.static_order()]
    assert {*names} <= {*order}


def test_imports_point_down_only_and_folders_stay_free_of_what_is_heavy() -> None:
    faults = []
    for path in SOURCE.rglob("*.py"):
        folder, names = path.relative_to(SOURCE).parts[0].removesuffix(".py"), imported(path)
        ours = (
            {name.split(".")[1] for name in names if name.startswith("headscope.")}
            - {folder}
            - (set() if folder in FOUNDATION else FOUNDATION)
        )
        faults += [
            f"{path}: imports headscope.{name}" for name in ours - MAY_IMPORT.get(folder, set())
        ]
        theirs = {name.split(".")[0] for name in names}
        faults += [f"{path}: imports {name}" for name in theirs & BANNED.get(folder, set())]
    assert faults == []


def test_attention_imports_torch_alone() -> None:
    allowed = {
        "torch",
        "jaxtyping",
        "math",
        "collections",
        "dataclasses",
        "functools",
        "typing",
        "headscope",
    }
    assert {
        name.split(".")[0]
        for path in (SOURCE / "attention").rglob("*.py")
        for name in imported(path)
    } <= allowed


# One after the other, in one process: what each may not bring that none before it has brought.
FREE_OF: list[tuple[list[str], list[str]]] = [
    (LIGHT, HEAVY),
    (["headscope.tab.loader"], [*HEAVY[:-1], "werkzeug"]),
    (["headscope.tab.plugin"], ["torch", "PIL", "matplotlib"]),
    (["headscope.pages.shown_run"], ["scipy.stats", "pandas", "transformers", "matplotlib"]),
    (["headscope.cli.predict"], ["lightning", "datasets", "sklearn", "scipy.stats", "beartype"]),
    (["headscope.export.graph"], ["transformers"]),
]


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = "import sys"
    for modules, banned in FREE_OF:
        code += f"; import {', '.join(modules)}; print(*{{*{banned}}} & {{*sys.modules}})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
