"""Running commands by their command lines, in this process or in one of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.cli.main import main

ROOT = Path(__file__).parents[2]
# A training of a few seconds: on a few hundred texts, in one pass, by a small model.
QUICK = ["trainer.max_epochs=1", "trainer.epoch_steps=1", "trainer.accelerator=cpu"]
QUICK += ["model.d_model=32", "model.feedforward_size=32", "inspection.causes=24"]


def run_script(name: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run scripts/<name>.py in a process of its own, in the project's folder."""
    command = [sys.executable, f"scripts/{name}.py", *arguments]
    # One thread: two workers share two cores. rich would wrap at 80 columns and cut names.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONWARNINGS": "error"}
    options = {"cwd": ROOT, "env": environment, "timeout": 300}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what runs a script in a process of its own."""
    return run_script


@pytest.fixture
def script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unchecked_shapes: None
) -> Callable[..., str]:
    """Return what runs a command in this process, which has imported it, and returns all it prints."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("headscope.cli.main.warnings_as_notes", lambda: None)

    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        shown = capsys.readouterr()
        assert int(ended.value.code or 0) == code, shown
        return shown.out + shown.err

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the default data, made once by the script."""
    outputs = tmp_path_factory.mktemp("outputs")
    done = run_script("train", "data.limit=300", f"outputs_dir={outputs}", "name=first", *QUICK)
    assert f"tensorboard --logdir {outputs}" in done.stdout.splitlines()[-1]
    return outputs / "first"


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """Return the words of a sweep named sweep, on 240 texts of three classes that nothing tells apart."""
    names = [chr(97 + number % 26) + chr(97 + number // 26) for number in range(240)]
    rows = [f"the {name} soup was had,{number % 3}" for number, name in enumerate(names)]
    path = tmp_path / "soups.csv"
    path.write_text("\n".join(["text,label", *rows]))
    place = ["data=files", f"data.path={path}", f"outputs_dir={tmp_path}", "name=sweep"]
    return [*place, *QUICK, "inspection=off", "baseline=false"]
