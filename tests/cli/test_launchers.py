"""Sweeps whose jobs Hydra's launchers start: the same folders, table and exit code."""

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("submitit") is None, reason="needs hydra-submitit-launcher")
def test_jobs_of_submitit_are_those_of_hydras_own_launcher(
    command: Callable[..., str], sweep: list[str], tmp_path: Path
) -> None:
    words = ["-m", *sweep, "model.num_heads=2,3"]
    launcher = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=60"]
    started = [sys.executable, "scripts/train.py", *words, *launcher]
    options = {"cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    done = subprocess.run(started, capture_output=True, text=True, **options)
    assert done.returncode == 2, done.stderr
    folder = tmp_path / "sweep"
    with (folder / "sweep.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["model.num_heads"] for row in table] == ["2", "3"]
    assert [row["status"].split(":")[0] for row in table] == ["done", "failed"]
    assert f"{table[1]['job']}: {table[1]['status']}" in done.stdout.splitlines()
    logs = [path.read_text() for path in folder.glob(".submitit/*/*_log.err")]
    failed = [log for log in logs if "got 3" in log]
    assert failed == ["error: model.num_heads: expected a divisor of model.d_model=32, got 3\n"]
    # The next one finds the same folders, whose jobs are done, and tries the other one again.
    times = {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")}
    again = command("train", *words, code=2)
    assert again.count("done before") == len(times) == 1
    assert again.endswith(failed[0])
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")} == times
    jobs = sorted(path.name for path in folder.glob("*-????????"))
    assert jobs == sorted(row["job"] for row in table)
    with (folder / "sweep.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == table
