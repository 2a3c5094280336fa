"""Sweeps whose jobs Hydra's launchers start: the same folders, table and exit code."""

import csv
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
needs_submitit = pytest.mark.skipif(
    find_spec("submitit") is None, reason="hydra-submitit-launcher is not installed"
)


@pytest.mark.slow
@needs_submitit
def test_jobs_of_submitit_are_those_of_hydras_own_launcher(
    process: Command, quick: list[str], soups: Path, tmp_path: Path
) -> None:
    place = [f"outputs_dir={tmp_path}", "name=heads", f"data.path={soups}"]
    sweep = ["train", "-m", "data=files", *place, *quick[1:], "inspection=off", "baseline=false"]
    sweep.append("model.num_heads=2,3")
    launcher = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5"]
    shown = process(*sweep, *launcher, code=2).stdout
    folder = tmp_path / "heads"
    with (folder / "sweep.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["model.num_heads"] for row in table] == ["2", "3"]
    assert [row["status"].split(":")[0] for row in table] == ["done", "failed"]
    assert f"{table[1]['job']}: {table[1]['status']}" in shown.splitlines()
    failed = [
        path.read_text()
        for path in folder.glob(".submitit/*/*_log.err")
        if "got 3" in path.read_text()
    ]
    assert failed == ["error: model.num_heads: expected a divisor of model.d_model=32, got 3\n"]
    # The next one finds the same folders, whose jobs are done, and tries the other one again.
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")}
    again = process(*sweep, code=2)
    assert again.stdout.count("done before") == len(done) == 1
    assert again.stderr == failed[0]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")} == done
    assert sorted(path.name for path in folder.glob("*-????????")) == sorted(
        row["job"] for row in table
    )
    with (folder / "sweep.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == table
