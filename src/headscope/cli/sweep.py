"""A sweep's table: one row for each job, kept as csv; the mean over seeds of each configuration, printed at the end.

`run_sweep` hands the command line to Hydra, whose launcher runs a `Job` for each combination. Hydra calls `SweepTable`
beside the jobs (`hydra.callbacks` in configs/train.yaml). Rows are read from the jobs' folders, so it makes no
difference which process ran a job.
"""

import csv
import hashlib
import json
import math
import os
import re
import statistics
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from headscope.cli.compose import (
    CONFIGS,
    CommandLine,
    checked,
    explain,
    groups,
    quote,
    resolved,
    store_defaults,
    unknown_choice,
)
from headscope.config import METRICS as SCORES
from headscope.config import TrainConfig, read_config
from headscope.errors import (
    ConfigError,
    RunError,
    TrainingError,
    UserError,
    message_of,
    print_error,
    shown,
    warnings_as_notes,
)
from headscope.files import read_json, write_atomic
from headscope.signals import end, signals_taken
from headscope.training.resume import JOB
from headscope.validation import check, validate

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
        """Write the rows of all started jobs."""
        if config.hydra.mode is not None and config.hydra.mode.name == "MULTIRUN":
            write_table(Path(config.hydra.sweep.dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table."""
        from headscope.terminal import terminal  # heavy: this module is imported before `--help`
        from headscope.training.console import show_sweep

        folder = Path(config.hydra.sweep.dir)
        rows = write_table(folder)
        show_sweep(
            terminal(), folder, [averaged(group) for group in by_configuration(rows)], rows, RESULTS
        )


def run_sweep(line: CommandLine) -> int:
    """Run `train -m`: a job for every combination of values; return the highest exit code of the jobs."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ConfigError(
            "-m: expected no torchrun, which starts one run; give trainer.devices=..."
        )
    if "--help" in line.options or "--cfg" in line.options:
        raise ConfigError("-m: expected no --help or --cfg; leave one of them out")
    _check_choices(line)
    folder = _sweep_folder(line.overrides)
    fixed = fixed_of(line.overrides)
    _check_same(folder, fixed)
    store_defaults(line.schema)
    options = [word for name, value in line.options.items() for word in (name, value) if word]
    sys.argv[1:] = [*options, *line.words, f"++hydra.sweep.dir={quote(str(folder))}"]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not in Hydra's words and exit code
    try:
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name="train")(Job(fixed))()
    except Exception as error:  # of Hydra: those of the jobs are in their folders
        if isinstance(error, UserError | BrokenPipeError):
            raise
        is_hydras = isinstance(error, HydraException | OmegaConfBaseException)
        if not is_hydras and any(folder.glob(f"*/{JOB}")):
            reason = shown(" ".join(str(error).split()) or type(error).__name__, 300)
            remedy = "the same command again continues what is not done"
            raise TrainingError(f"{folder}: the launcher has ended: {reason}; {remedy}") from error
        raise ConfigError(explain(error)) from error
    # A job may have failed here because another process was at it, which has finished it since.
    failures = [path for path in folder.glob(f"*/{FAILURE}") if score_of(path.parent) is None]
    return max((read_json(path, dict)["exit_code"] for path in failures), default=0)


def _check_choices(line: CommandLine) -> None:
    """Raise a ConfigError for a file of a group that does not exist, before anything is written."""
    choices = {} if "--config-dir" in line.options else groups(line.schema)
    for entry in line.overrides:
        value: Any = entry.value()
        values = value.list if entry.is_choice_sweep() else [value]
        known = choices.get(entry.key_or_group, [])
        for name in [str(getattr(value, "text", value)) for value in values if known]:
            if name not in known:
                raise ConfigError(unknown_choice(entry.key_or_group, name, known))


class Job:
    """One job of a sweep, in whatever process Hydra's launcher starts it."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        self.fixed = fixed  # what has one value for all jobs

    def __call__(self, composed: DictConfig) -> float | None:
        """Train, unless that was done before; a failure is written down, and the sweep continues.

        Return the validation score, for sweepers that search by it.
        """
        warnings_as_notes()  # the process may be a launcher's
        words = list(HydraConfig.get().overrides.task)
        folder = self._folder(composed, words)
        if (score := score_of(folder)) is not None:
            print(f"{folder.name}: done before")
            return score
        try:
            if (folder / "config.yaml").exists():
                config = read_config(folder / "config.yaml")
                config.resume = str(folder)
                check(config)
            else:
                overrides = OverridesParser.create().parse_overrides(words)
                config = checked(TrainConfig, resolved(composed), overrides)
            with signals_taken(end):
                from headscope.training.train import train  # heavy
            train(config)
            return score_of(folder)
        except BrokenPipeError:
            raise
        except Exception as error:
            line = message_of(error).split("\n")[0]
            _write_json(folder / FAILURE, {"message": line, "exit_code": print_error(error)})
            return None

    def _folder(self, composed: DictConfig, words: Sequence[str]) -> Path:
        """Return the job's folder, named by what differs from job to job, with its overrides in it."""
        settings = HydraConfig.get()
        folder = Path(str(settings.sweep.dir)) / folder_name(words, self.fixed)
        composed.outputs_dir = settings.sweep.dir
        composed.name = folder.name
        overrides = dict(word.split("=", 1) for word in words)
        content = {"number": settings.job.num, "overrides": overrides, "fixed": dict(self.fixed)}
        _write_json(folder / JOB, {**content, "metric": composed.sweep.metric})
        (folder / FAILURE).unlink(missing_ok=True)  # it is tried again
        write_table(folder.parent)
        return folder


def _sweep_folder(overrides: Iterable[Override]) -> Path:
    """Return the folder of a sweep, by outputs_dir and name, which all its jobs have in common."""
    given = {
        entry.key_or_group: entry.value() for entry in overrides if not entry.is_sweep_override()
    }
    if "hydra.sweep.dir" in given:
        return Path(str(given["hydra.sweep.dir"]))
    name = str(given.get("name") or f"sweep_{datetime.now():%Y-%m-%d_%H-%M-%S}")
    validate(TrainConfig, {"name": name})
    folder = Path(str(given.get("outputs_dir", "outputs")), name)
    if (folder / "config.yaml").exists():
        raise ConfigError(f"name: expected a name without a run, got {name!r}; {folder} is one")
    return folder


def _check_same(folder: Path, fixed: Mapping[str, str]) -> None:
    """Raise a ConfigError if the sweep was started with other settings for all jobs."""
    for path in sorted(folder.glob(f"*/{JOB}")):
        before = read_json(path, dict).get("fixed", fixed)
        for key in sorted({*before, *fixed} - {"name", "outputs_dir"}):
            is_launchers = key.startswith("hydra")  # how jobs are started may change
            if before.get(key) != fixed.get(key) and not is_launchers:
                was = f"{key}={before[key]}" if key in before else f"no {key}"
                raise ConfigError(
                    f"{folder}: this sweep was started with {was}; give the same, or another name"
                )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content)
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


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
    _write_json(folder / PLAN, content)
    write_table(folder)


def job_row(folder: Path) -> dict[str, str]:
    """Return the row of a started job: what was overridden, and its scores or why it failed."""
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
        else {"job": name, **planned[name]["overrides"], "status": "pending"}
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
