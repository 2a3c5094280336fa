"""A sweep, `train -m`: a job for each combination of values, and a table of what came of them.

Hydra's launcher runs a `Job` for each combination, perhaps in another process. The table,
sweep.csv, is read from the jobs' folders, so it makes no difference which process ran a job.
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
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from headscope.cli import compose
from headscope.config import LESS_IS_BETTER, VALIDATION_SCORES, TrainConfig, is_run, read_config
from headscope.errors import (
    ConfigError,
    RunError,
    TrainingError,
    UserError,
    message_of,
    print_error,
    shown,
    warn,
    warnings_as_notes,
)
from headscope.files import read_json, write_atomic, write_text
from headscope.signals import end, signals_taken
from headscope.validation import check, to_yaml, validate

JOB = "job.json"  # the overrides of a job, and those that all jobs share
FAILURE = "failure.json"
METRICS = "metrics.json"
TABLE = "sweep.csv"
BEST = "best.yaml"
# A row has the one that sweep.metric names: it ranks the configurations, never a test score.
VALIDATION = tuple(f"validation_{name}" for name in VALIDATION_SCORES)
# What a row has beside the settings. The last ones are left out first where there is no room.
TEST = ("test_accuracy", "test_micro_f1", "test_macro_f1", "test_loss", "test_calibration_error")
RESULTS = (*VALIDATION, *TEST, "seconds")
Row = dict[str, str]


def run_sweep(line: compose.CommandLine) -> int:
    """Run a job for every combination of values; return the highest exit code of the jobs."""
    if "--help" in line.options or "--cfg" in line.options:
        raise ConfigError("-m: expected no --help or --cfg; leave one of them out")
    _check_choices(line)
    folder = _sweep_folder(line.overrides)
    fixed = fixed_of(line.overrides)
    for path in sorted(folder.glob(f"*/{JOB}")):
        check_same(folder, read_json(path, dict)["fixed"], fixed)
    compose.store_defaults(line.schema)
    options = [word for name, value in line.options.items() for word in (name, value) if word]
    sys.argv[1:] = [*options, *line.words, f"++hydra.sweep.dir={compose.quote(str(folder))}"]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not in Hydra's words and exit code
    launch = hydra.main(version_base="1.3", config_path=str(compose.CONFIGS), config_name="train")
    try:
        launch(Job(fixed))()
    except (UserError, BrokenPipeError):
        raise
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(compose.explain(error)) from error
    except Exception as error:  # of the launcher: those of the jobs are in their folders
        if not any(folder.glob(f"*/{JOB}")):
            raise ConfigError(compose.explain(error)) from error
        reason = shown(" ".join(str(error).split()) or type(error).__name__, 300)
        remedy = "the same command again continues what is not done"
        raise TrainingError(f"{folder}: the launcher has ended: {reason}; {remedy}") from error
    from headscope.terminal import terminal  # heavy: this module is imported before `--help`
    from headscope.training.console import show_sweep

    rows = write_table(folder)
    show_sweep(terminal(), folder, [*map(averaged, by_configuration(rows))], rows, RESULTS)
    # A job may have failed here because another process was at it, which has finished it since.
    failures = [path for path in folder.glob(f"*/{FAILURE}") if score_of(path.parent) is None]
    return max((read_json(path, dict)["exit_code"] for path in failures), default=0)


def _check_choices(line: compose.CommandLine) -> None:
    """Raise a ConfigError for an unknown file of a group, before anything is written."""
    choices = {} if "--config-dir" in line.options else compose.groups(line.schema)
    for entry in line.overrides:
        value: Any = entry.value()
        values = value.list if entry.is_choice_sweep() else [value]
        known = choices.get(entry.key_or_group, [])
        for name in [str(getattr(value, "text", value)) for value in values if known]:
            if name not in known:
                raise ConfigError(compose.unknown_choice(entry.key_or_group, name, known))


def _sweep_folder(overrides: Iterable[Override]) -> Path:
    """Return the folder of a sweep, by outputs_dir and name, which all its jobs share."""
    given = {
        entry.key_or_group: entry.value() for entry in overrides if not entry.is_sweep_override()
    }
    if "hydra.sweep.dir" in given:
        return Path(str(given["hydra.sweep.dir"]))
    name = str(given.get("name") or f"sweep_{datetime.now():%Y-%m-%d_%H-%M-%S}")
    validate(TrainConfig, {"name": name})
    folder = Path(str(given.get("outputs_dir", "outputs")), name)
    if is_run(folder):
        raise ConfigError(f"name: expected a name without a run, got {name!r}; {folder} is one")
    return folder


def fixed_of(overrides: Iterable[Override]) -> dict[str, str]:
    """Return what has one value for all jobs."""
    return {
        entry.key_or_group: entry.get_value_string()
        for entry in overrides
        if not entry.is_sweep_override()
    }


def check_same(folder: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise a ConfigError if a sweep or a search was started with other settings."""
    for key in sorted({*before, *now} - {"name", "outputs_dir"}):
        is_launchers = key.startswith("hydra")  # how jobs are started may change
        if before.get(key) != now.get(key) and not is_launchers:
            was = f"{key}={before[key]}" if key in before else f"no {key}"
            raise ConfigError(f"{folder}: was started with {was}; give the same, or another name")


class Job:
    """One job of a sweep, in whatever process Hydra's launcher starts it."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        self.fixed = fixed  # what has one value for all jobs

    def __call__(self, composed: DictConfig) -> float | None:
        """Train unless that is done, and return the validation score, for Hydra's sweepers.

        A failure is written into the job's folder, and the sweep continues.
        """
        warnings_as_notes()  # the process may be a launcher's
        words = list(HydraConfig.get().overrides.task)
        folder = self._folder(composed, words)
        if (score := score_of(folder)) is not None:
            print(f"{folder.name}: done before")
            return score
        try:
            if is_run(folder):
                from headscope.training.resume import resumed_config  # heavy

                config = resumed_config(folder)
                config.resume = str(folder)
                check(config)
            else:
                overrides = OverridesParser.create().parse_overrides(words)
                config = compose.checked(TrainConfig, compose.resolved(composed), overrides)
            with signals_taken(end), compose.starting(config):
                from headscope.training.train import train  # heavy
            train(config)
        except BrokenPipeError:
            raise
        except Exception as error:
            message = message_of(error).split("\n")[0]
            write_json(folder / FAILURE, {"message": message, "exit_code": print_error(error)})
        write_table(folder.parent)
        return score_of(folder)

    def _folder(self, composed: DictConfig, words: Sequence[str]) -> Path:
        """Return the job's folder, named by what differs from job to job."""
        settings = HydraConfig.get()
        folder = Path(str(settings.sweep.dir)) / folder_name(words, self.fixed)
        composed.outputs_dir = settings.sweep.dir
        composed.name = folder.name
        overrides = dict(word.split("=", 1) for word in words)
        start_job(folder, settings.job.num, overrides, self.fixed, composed.sweep.metric)
        return folder


def start_job(
    folder: Path,
    number: int,
    overrides: Mapping[str, str],
    fixed: Mapping[str, str],
    metric: str,
) -> None:
    """Write a job's overrides into its folder, and the table in which it is not finished."""
    content = {"number": number, "overrides": overrides, "fixed": dict(fixed), "metric": metric}
    write_json(folder / JOB, content)
    (folder / FAILURE).unlink(missing_ok=True)  # it is tried again
    write_table(folder.parent)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a dictionary as JSON, whole or not at all."""
    write_text(path, json.dumps(content))


def folder_name(overrides: Sequence[str], fixed: Container[str]) -> str:
    """Return the name of a job's folder: what differs from job to job, and a hash of it."""
    swept = [entry for entry in overrides if entry.partition("=")[0].lstrip("+") not in fixed]
    digest = hashlib.sha256(json.dumps(sorted(swept)).encode()).hexdigest()[:8]
    # "=" and "," would need quotes: run=outputs/sweep/model.causal_true-1a2b3c4d
    readable = re.sub(r"[^\w.-]+", "_", ",".join(swept))[:100].strip("-_.")
    return f"{readable}-{digest}"


def score_of(folder: Path) -> float | None:
    """Return the validation score of a job, by sweep.metric; None if it is not done."""
    if not (folder / METRICS).exists():
        return None
    metric = read_json(folder / JOB, dict)["metric"]
    return float(read_json(folder / METRICS, dict)["validation"][metric])


def write_table(folder: Path) -> list[Row]:
    """Write sweep.csv, one row for each job in order, and best.yaml; return the rows."""
    jobs = [_numbered_row(path.parent) for path in folder.glob(f"*-{8 * '[0-9a-f]'}/{JOB}")]
    rows = [row for _, row in sorted(jobs, key=lambda job: (job[0], job[1]["job"]))]
    columns = list(dict.fromkeys(["job", *(column for row in rows for column in row)]))

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    write_atomic(folder / TABLE, write)
    for group in by_configuration(rows):
        if all(row["status"] == "done" for row in group):
            write_best(folder, group[0]["job"])
            break
    return rows


def _numbered_row(folder: Path) -> tuple[int, Row]:
    """Return a job's place in the sweep, and its row; damaged files do not spoil the table."""
    number = sys.maxsize
    row = {"job": folder.name}
    try:
        job = read_json(folder / JOB, dict)
        number = int(job["number"])
        row |= {key: unquoted(text) for key, text in job["overrides"].items()}
        row |= _results(folder, job["metric"])
    except (RunError, LookupError, TypeError, ValueError, AttributeError) as error:
        row["status"] = f"damaged: {error}"
    return number, row


def unquoted(text: str) -> str:
    """Return a value without the quotes that Hydra's grammar needs around it."""
    if text[:1] not in ("'", '"'):
        return text
    with suppress(HydraException):
        value = OverridesParser.create().parse_override(f"key={text}").value()
        return value if isinstance(value, str) else text
    return text


def _results(folder: Path, metric: str) -> Row:
    """Return the status of a job, with its scores if it is done."""
    if (folder / METRICS).exists():
        metrics = read_json(folder / METRICS, dict)
        scores = {
            f"test_{name}": f"{value:.4f}"
            for name, value in metrics["test"].items()
            if isinstance(value, float)
        }
        validation = {f"validation_{metric}": f"{metrics['validation'][metric]:.4f}"}
        seconds = f"{metrics['seconds']['everything']:.0f}"
        return {"status": "done", **validation, **scores, "seconds": seconds}
    if (folder / FAILURE).exists():
        return {"status": f"failed: {read_json(folder / FAILURE, dict)['message']}"}
    return {"status": "not finished"}


def by_configuration(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each configuration, which differ in the seed alone; the best first."""
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    keys = [key for key in _settings_of(rows) if key != "seed"]
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return sorted(groups.values(), key=_badness)


def _settings_of(rows: Sequence[Row]) -> list[str]:
    """Return the keys that were given on the command line, in its order."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return [key for key in keys if key not in ("job", "status", *RESULTS)]


def _badness(group: Sequence[Row]) -> float:
    """Return the mean of the validation loss, or of a score times -1; inf if there is none."""
    values = [
        float(row[column]) * (1 if name in LESS_IS_BETTER else -1)
        for row in group
        for name, column in zip(VALIDATION_SCORES, VALIDATION, strict=True)
        if column in row
    ]
    return statistics.fmean(values) if values else math.inf


def averaged(group: Sequence[Row]) -> Row:
    """Return one row for a configuration: each result's mean ± standard deviation over seeds."""
    row = {key: value for key, value in group[0].items() if key in _settings_of(group)}
    if len(group) == 1:
        return row | {key: value for key, value in group[0].items() if key in RESULTS}
    del row["seed"]
    row["seeds"] = str(sum(job["status"] == "done" for job in group))
    for name in RESULTS:
        values = [float(job[name]) for job in group if name in job]
        if values:
            digits = 0 if name == "seconds" else 4
            error = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            row[name] = f"{statistics.fmean(values):.{digits}f}{error}"
    return row


def write_best(folder: Path, job: str) -> None:
    """Write the best settings: `headscope train --config-dir FOLDER --config-name best`."""
    try:
        settings = asdict(read_config(folder / job / "config.yaml"))
    except RunError as error:
        (folder / BEST).unlink(missing_ok=True)  # of another job
        warn(f"{BEST} is not written: {error}")
        return
    for key in ("name", "resume", "final", "outputs_dir"):
        del settings[key]
    write_text(folder / BEST, to_yaml({"defaults": ["train", "_self_"], **settings}))
