"""Data flows one way: what each folder may import, read from the code itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headscope"
FOUNDATION = {"settings", "errors", "files", "extension"}
MAY_IMPORT = {
    "__init__": {"attention", "inspection", "model", "training"},  # and these when a name is asked for, or typed
    "attention": set(),
    "model": {"attention"},
    "data": set(),
    "tensorboard": {"inspection"},
    "inspection": {"attention", "model"},
    "proof": {"attention", "model", "inspection", "commands"},  # commands.config alone: what verify and trace take
    "training": {"attention", "model", "data", "inspection", "tensorboard"},
    "benchmark": {"attention", "model", "data", "inspection", "tensorboard", "training"},
    "commands": {
        "benchmark",
        "proof",
        "attention",
        "model",
        "data",
        "inspection",
        "tensorboard",
        "training",
    },
}
# Known before the configuration is: these must not bring anything heavy.
LIGHT = [
    "headscope.commands.entry",
    "headscope.commands.config",
    "headscope.training.config",
    "headscope.training.sweep",
]
HEAVY = ["torch", "lightning", "datasets", "tokenizers", "sklearn", "numpy", "pyarrow", "tensorboard"]


def imported(path: Path) -> set[str]:
    """Return what a file imports, as full names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_only(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("headscope.")} - {folder} - FOUNDATION
    assert ours <= MAY_IMPORT.get(folder, set())


@pytest.mark.parametrize(
    ("folder", "banned"), [("tensorboard", "torch"), ("attention", "lightning"), ("model", "lightning")]
)
def test_some_folders_stay_free_of_what_is_heavy(folder: str, banned: str) -> None:
    assert [
        path for path in (SOURCE / folder).rglob("*.py") for name in imported(path) if name.split(".")[0] == banned
    ] == []


def test_attention_imports_torch_alone() -> None:
    allowed = {"torch", "jaxtyping", "math", "collections", "dataclasses", "functools", "typing", "headscope"}
    assert {name.split(".")[0] for path in (SOURCE / "attention").rglob("*.py") for name in imported(path)} <= allowed


def test_nothing_heavy_is_loaded_before_the_configuration_is_known() -> None:
    code = f"import sys, {', '.join(LIGHT)}; print(*[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_predicting_loads_neither_lightning_nor_datasets() -> None:
    code = "import sys, headscope.commands.predict; print(*{'lightning', 'datasets', 'sklearn'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
