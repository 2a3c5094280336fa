"""The month of docs/next-month.md: trained again, compared, promoted and exported by its script."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from training_runs import reviews, write

PAGE = (Path(__file__).parents[2] / "docs" / "next-month.md").read_text(encoding="utf-8")
ONCE = re.findall(r"^    (headscope .*|ln .*|mkdir .*)$", PAGE, re.MULTILINE)
(SCRIPT,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
(PROMOTE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# The command, with a network that takes seconds.
COMMAND = f"""#!/bin/bash
small=""
[ "$1" = train ] && small="model.d_model=32 model.feedforward_size=64 inspection=off baseline=false"
exec {sys.executable} -m headscope "$@" $small
"""


def run_of(folder: Path, command: str) -> str:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    options: dict[str, object] = {"cwd": folder, "text": True, "stderr": subprocess.STDOUT}
    done = subprocess.run(
        ["bash", "-euc", command],
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": path},
        **options,
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


@pytest.mark.slow
def test_a_month_is_trained_compared_promoted_and_exported(tmp_path: Path) -> None:
    rows = reviews(420)
    for name, some in (("texts", rows[:240]), ("new", rows[240:300]), ("test", rows[300:])):
        write(tmp_path / f"{name}.csv", some)
    for name, content in (
        ("bin/headscope", COMMAND),
        ("month.sh", SCRIPT),
        ("promote.py", PROMOTE),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
    run_of(tmp_path, "\n".join(ONCE))
    run_of(tmp_path, "headscope labels run=runs/current output=labels.csv folds=2")
    shown = run_of(tmp_path, "./month.sh")
    assert re.search(r"^accuracy [+-]\d+\.\d points \([+-]\d+\.\d to [+-]\d+\.\d\)$", shown, re.M)
    month = f"{datetime.now(UTC).astimezone():%Y-%m}"
    for folder in ("runs", "models"):
        assert (tmp_path / folder / "current").readlink() == Path(month)
    assert (tmp_path / "models/current/model.onnx").exists()
    assert (tmp_path / "texts.csv").read_text().count("\n") == 301
    learned = json.loads((tmp_path / f"runs/{month}/metrics.json").read_text())["data"]["sizes"]
    assert sum(learned.values()) <= 420


@pytest.mark.parametrize(
    ("interval", "stays"), [([-0.03, -0.05, -0.01], 1), ([-0.01, -0.03, 0.01], 0)]
)
def test_a_run_that_is_shown_to_be_worse_is_not_promoted(
    interval: list[float], stays: int, tmp_path: Path
) -> None:
    better = {"differences": {"accuracy": [0.1, 0.05, 0.15]}}
    found = better | {"without learned texts": {"differences": {"accuracy": interval}}}
    (tmp_path / "promote.py").write_text(PROMOTE)
    (tmp_path / "test.json").write_text(json.dumps({"against": found}))
    command = [sys.executable, "promote.py", "test.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == stays
    assert done.stdout.startswith(f"accuracy {100 * interval[0]:+.1f} points")
