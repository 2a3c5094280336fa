"""Running the scripts as a user does: in a process of their own, in the project's folder, by their command line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Command = Callable[..., subprocess.CompletedProcess[str]]
# A training of a few seconds: on a few hundred texts, in one pass, by a small model.
QUICK = [
    "data.limit=300",
    "trainer.max_epochs=1",
    "trainer.accelerator=cpu",
    "model.d_model=32",
    "model.feedforward_size=32",
]


def run_script(
    name: str, *arguments: str, stdin: str | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run scripts/<name>.py and check its exit code; a traceback is never right."""
    command = [sys.executable, f"scripts/{name}.py", *arguments]
    # One thread: two workers share two cores. Without a width, rich wraps at 80 columns and cuts names.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, input=stdin, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="session")
def script() -> Command:
    """Return the function that runs a script."""
    return run_script


@pytest.fixture(scope="session")
def quick() -> list[str]:
    """Return the arguments of a training of a few seconds."""
    return QUICK


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the default data, made once."""
    outputs = tmp_path_factory.mktemp("outputs")
    done = run_script("train", f"outputs_dir={outputs}", "name=first", *QUICK)
    assert f"tensorboard --logdir {outputs}" in done.stdout.splitlines()[-1]
    return outputs / "first"
