"""Each script of examples/ is short, says why, and stands in the table of docs/recipes.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_recipe_is_short_says_why_and_has_a_test(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    documentation = ast.get_docstring(ast.parse(text)) or ""
    assert f"python examples/{path.name}" in documentation
    assert "\nWhy: " in documentation
    assert (Path(__file__).parent / f"test_{path.name}").exists()


def test_the_table_has_each_script_once() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| .+ \| \[(\w+\.py)\]\(\.\./examples/\1\) \|$", page, re.MULTILINE)
    assert sorted(told) == [path.name for path in SCRIPTS]
