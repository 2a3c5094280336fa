"""Sweeps whose jobs Hydra's launchers start: the same folders, table and exit code."""

import csv
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.skipif(find_spec("submitit") is None, reason="needs hydra-submitit-launcher")
def test_jobs_of_submitit_are_those_of_hydras_own_launcher(
    process: Callable[..., Any], sweep: list[str], tmp_path: Path
) -> None:
    words = ["train", "-m", *sweep, "model.num_heads=2,3"]
    launcher = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5"]
    shown = process(*words, *launcher, code=2).stdout
    folder = tmp_path / "sweep"
    with (folder / "sweep.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["model.num_heads"] for row in table] == ["2", "3"]
    assert [row["status"].split(":")[0] for row in table] == ["done", "failed"]
    assert f"{table[1]['job']}: {table[1]['status']}" in shown.splitlines()
    logs = [path.read_text() for path in folder.glob(".submitit/*/*_log.err")]
    failed = [log for log in logs if "got 3" in log]
    assert failed == ["error: model.num_heads: expected a divisor of model.d_model=32, got 3\n"]
    # The next one finds the same folders, whose jobs are done, and tries the other one again.
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")}
    again = process(*words, code=2)
    assert again.stdout.count("done before") == len(done) == 1
    assert again.stderr == failed[0]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")} == done
    jobs = sorted(path.name for path in folder.glob("*-????????"))
    assert jobs == sorted(row["job"] for row in table)
    with (folder / "sweep.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == table
