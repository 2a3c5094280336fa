"""Running commands by their command lines, in this process or in one of their own."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from jaxtyping import config

from headscope.cli.main import main

ROOT = Path(__file__).parents[2]
Command = Callable[..., subprocess.CompletedProcess[str]]
# A training of a few seconds: on a few hundred texts, in one pass, by a small model.
QUICK = [
    "data.limit=300",
    "trainer.max_epochs=1",
    "trainer.epoch_steps=1",
    "trainer.accelerator=cpu",
]
QUICK += ["model.d_model=32", "model.feedforward_size=32"]


def checked(done: subprocess.CompletedProcess[str], code: int) -> subprocess.CompletedProcess[str]:
    """Return what a command has printed; a traceback is never right."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def run_script(name: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run scripts/<name>.py in a process of its own, in the project's folder."""
    command = [sys.executable, f"scripts/{name}.py", *arguments]
    # One thread: two workers share two cores. rich would wrap at 80 columns and cut names.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    return checked(done, code)


@pytest.fixture
def process() -> Command:
    """Return the function that runs a script in a process of its own."""
    return run_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return the function that runs a command in this process, which has imported it already."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("headscope.cli.main.warnings_as_notes", lambda: None)

    def run(*arguments: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        output = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        errors = io.StringIO()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        config.update("jaxtyping_disable", True)
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                main(arguments)
            found = 0
        except SystemExit as ended:
            found = int(ended.code or 0)
        finally:
            config.update("jaxtyping_disable", False)
        printed = output.buffer.getvalue().decode()  # type: ignore[attr-defined]
        return checked(
            subprocess.CompletedProcess(arguments, found, printed, errors.getvalue()), code
        )

    return run


@pytest.fixture(scope="session")
def quick() -> list[str]:
    """Return the arguments of a training of a few seconds."""
    return QUICK


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the default data, made once by the script."""
    outputs = tmp_path_factory.mktemp("outputs")
    done = run_script("train", f"outputs_dir={outputs}", "name=first", *QUICK)
    assert f"tensorboard --logdir {outputs}" in done.stdout.splitlines()[-1]
    return outputs / "first"


@pytest.fixture
def soups(tmp_path: Path) -> Path:
    """Return a file of 240 texts of three classes that nothing tells apart."""
    names = [chr(97 + number % 26) + chr(97 + number // 26) for number in range(240)]
    rows = [f"the {name} soup was had,{number % 3}" for number, name in enumerate(names)]
    path = tmp_path / "soups.csv"
    path.write_text("\n".join(["text,label", *rows]))
    return path
