"""A sweep's table: one row for each job, kept as csv; the mean over seeds of each configuration, printed at the end.

Hydra calls this beside the jobs (`hydra.callbacks` in configs/train.yaml). Rows are read from the jobs' folders, so it
makes no difference which process ran a job.
"""

import csv
import hashlib
import json
import math
import re
import statistics
import sys
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from headscope.config import METRICS as SCORES
from headscope.errors import RunError
from headscope.files import read_json, write_atomic
from headscope.terminal import terminal
from headscope.training.resume import JOB

PLAN, FAILURE, METRICS, TABLE, BEST = (
    "jobs.json",
    "failure.json",
    "metrics.json",
    "sweep.csv",
    "best.yaml",
)
PRUNED = "pruned.json"  # of a search's trial that was stopped: the epoch
# A row has the one that sweep.metric names: configurations are chosen by it, never by test scores.
VALIDATION = tuple(f"validation_{name}" for name in SCORES)
LOSS = "validation_loss"  # the one of which less is better
# What a row has beside the settings. What stands last is left out first where there is no room.
RESULTS = (*VALIDATION, "accuracy", "micro_f1", "macro_f1", "loss", "calibration_error", "seconds")
Row = dict[str, str]


class SweepTable(Callback):
    """Write sweep.csv before the first job and after each (each job does when it begins, too); print it at the end."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the rows of all jobs, if it is Hydra's own sweeper that makes them: others search as they go."""
        sweeper, words = config.hydra.sweeper, list(config.hydra.overrides.task)
        if not str(sweeper.get("_target_")).endswith(f".{BasicSweeper.__name__}"):
            return
        with suppress(HydraException):  # a mistake is told by Hydra, which comes to it next
            parsed = OverridesParser.create().parse_overrides
            (jobs,) = BasicSweeper.split_arguments(
                parsed([f"{key}={value}" for key, value in (sweeper.params or {}).items()] + words),
                None,
            )
            _write_plan(Path(config.hydra.sweep.dir), jobs, fixed_of(parsed(words)))

    def on_job_end(self, config: DictConfig, job_return: Any, **kwargs: Any) -> None:
        """Write the rows of all jobs that have begun."""
        if config.hydra.mode is not None and config.hydra.mode.name == "MULTIRUN":
            write_table(Path(config.hydra.sweep.dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table."""
        from headscope.training.console import (
            show_sweep,  # heavy, and this module is read before `--help`
        )

        folder = Path(config.hydra.sweep.dir)
        rows = write_table(folder)
        show_sweep(
            terminal(), folder, [averaged(group) for group in by_configuration(rows)], rows, RESULTS
        )


def fixed_of(overrides: Iterable[Override]) -> dict[str, str]:
    """Return what has one value for all jobs."""
    return {
        entry.key_or_group: entry.get_value_string()
        for entry in overrides
        if not entry.is_sweep_override()
    }


def folder_name(overrides: Sequence[str], fixed: Container[str]) -> str:
    """Return the name of a job's folder: what differs from job to job, readable, and a hash of it."""
    swept = [entry for entry in overrides if entry.partition("=")[0].lstrip("+") not in fixed]
    digest = hashlib.sha256(json.dumps(sorted(swept)).encode()).hexdigest()[:8]
    # Without = and commas, which stand in a value only in quotes: run=outputs/sweep/model.causal_true-1a2b3c4d
    readable = re.sub(r"[^\w.-]+", "_", ",".join(swept))[:100].strip("-_.")
    return f"{readable}-{digest}"


def _write_plan(folder: Path, jobs: Sequence[Sequence[str]], fixed: Container[str]) -> None:
    """Write down which jobs there will be, and the table of them."""
    content = {
        folder_name(overrides, fixed): {
            "number": number,
            "overrides": dict(entry.split("=", 1) for entry in overrides),
        }
        for number, overrides in enumerate(jobs)
    }
    write_atomic(folder / PLAN, lambda path: path.write_text(json.dumps(content), encoding="utf-8"))
    write_table(folder)


def job_row(folder: Path) -> dict[str, str]:
    """Return the row of a job that has begun: what was overridden, and its scores or why it failed."""
    row = {"job": folder.name}
    try:
        job = read_json(folder / JOB, dict)
        row |= job["overrides"]
        if (folder / METRICS).exists():
            metrics = read_json(folder / METRICS, dict)
            scores = {
                name: f"{value:.4f}"
                for name, value in metrics["test"].items()
                if isinstance(value, float)
            }
            validation = {
                f"validation_{job['metric']}": f"{metrics['validation'][job['metric']]:.4f}"
            }
            seconds = f"{metrics['seconds']['everything']:.0f}"
            return row | {"status": "done", **validation, **scores, "seconds": seconds}
        if (folder / PRUNED).exists():
            return row | {"status": f"pruned at epoch {read_json(folder / PRUNED, dict)['epoch']}"}
        if (folder / FAILURE).exists():
            return row | {"status": "failed: " + read_json(folder / FAILURE, dict)["message"]}
    except (
        RunError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # one job's files, not the whole table
        return row | {"status": f"damaged: {error}"}
    return row | {"status": "not finished"}


def score_of(folder: Path) -> float | None:
    """Return the validation score of a job, by sweep.metric; None if it is not done."""
    if not (folder / METRICS).exists():
        return None
    metric = read_json(folder / JOB, dict)["metric"]
    return float(read_json(folder / METRICS, dict)["validation"][metric])


def write_table(folder: Path) -> list[Row]:
    """Write sweep.csv, one row for each job in order, and best.yaml; return the rows."""
    begun = {path.parent.name: _number(path) for path in folder.glob(f"*-{8 * '[0-9a-f]'}/{JOB}")}
    planned: dict[str, Any] = read_json(folder / PLAN, dict) if (folder / PLAN).exists() else {}
    numbers = {name: job["number"] for name, job in planned.items()} | begun
    rows = [
        job_row(folder / name)
        if name in begun
        else {"job": name, **planned[name]["overrides"], "status": "not begun"}
        for name in sorted(numbers, key=lambda name: (numbers[name], name))
    ]
    columns = list(dict.fromkeys(["job", *(column for row in rows for column in row)]))

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    write_atomic(folder / TABLE, write)
    whole = [
        group for group in by_configuration(rows) if all(job["status"] == "done" for job in group)
    ]
    if whole:
        _write_best(folder, whole[0][0]["job"])
    return rows


def _number(path: Path) -> int:
    """Return a job's place in the sweep; those whose file does not say it come last."""
    try:
        return int(read_json(path, dict)["number"])
    except (RunError, KeyError, TypeError, ValueError):
        return sys.maxsize


def by_configuration(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each configuration, which differ in the seed alone; the best in validation first."""
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    keys = [key for key in settings_of(rows) if key != "seed"]
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return sorted(groups.values(), key=badness)


def settings_of(rows: Sequence[Row]) -> list[str]:
    """Return the keys that were given on the command line, in its order."""
    return [
        key
        for key in dict.fromkeys(key for row in rows for key in row)
        if key not in ("job", "status", *RESULTS)
    ]


def badness(group: Sequence[Row]) -> float:
    """Return the mean of the validation score over the jobs that have it, less for better ones; inf where none has."""
    values = [
        float(row[name]) * (1 if name == LOSS else -1)
        for row in group
        for name in VALIDATION
        if name in row
    ]
    return statistics.fmean(values) if values else math.inf


def averaged(group: Sequence[Row]) -> Row:
    """Return one row for a configuration: of several seeds each result's mean ± standard deviation."""
    first = {key: value for key, value in group[0].items() if key in settings_of(group)}
    if len(group) == 1:
        return first | {key: value for key, value in group[0].items() if key in RESULTS}
    del first["seed"]
    row = first | {"seeds": str(sum(job["status"] == "done" for job in group))}
    for name in RESULTS:
        values = [float(job[name]) for job in group if name in job]
        if values:
            digits = 0 if name == "seconds" else 4
            error = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            row[name] = f"{statistics.fmean(values):.{digits}f}{error}"
    return row


def _write_best(folder: Path, job: str) -> None:
    """Write the settings of the best configuration: `headscope train --config-dir FOLDER --config-name best`."""
    kept = yaml.safe_load((folder / job / "config.yaml").read_text(encoding="utf-8"))
    content = {"defaults": ["train", "_self_"]} | {
        key: value for key, value in kept.items() if key not in ("name", "resume", "outputs_dir")
    }
    text = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
    write_atomic(folder / BEST, lambda path: path.write_text(text, encoding="utf-8"))
