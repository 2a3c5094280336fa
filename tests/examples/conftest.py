"""Recipes run as a user runs them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a script in tmp_path, and returns what it prints."""

    def run(name: str, *words: str) -> str:
        command = [sys.executable, "-W", "error", str(EXAMPLES / name), *words]
        done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
