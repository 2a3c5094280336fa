"""Sweeps: Hydra composes the jobs and starts them, here or by a launcher; one table compares them.

Each job is a run folder named by what differs from job to job. A sweep's state is in the files of
the jobs' folders, so it makes no difference which process ran a job.
"""

import hashlib
import json
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headscope.cli import compose
from headscope.ground.errors import (
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
from headscope.ground.files import (
    check_links,
    home,
    missing,
    new_folder,
    read_json,
    remove_empty,
    write_text,
)
from headscope.ground.signals import Stopped, continued, end, signals_taken
from headscope.ground.tables import write_frame
from headscope.settings.checks import check, override, quote, validate
from headscope.settings.config import LESS_IS_BETTER, TrainConfig, is_run, read_config
from headscope.settings.extension import check_allowed, import_paths_in

JOB = "job.json"  # the overrides of a job
FAILURE = "failure.json"
METRICS = "metrics.json"
TABLE = "sweep.csv"
BEST = "best.yaml"
RESULTS = ("test_accuracy", "test_macro_f1", "tfidf_accuracy", "seconds")
ON_SCREEN = ("test_accuracy", "tfidf_accuracy", "seconds")  # in 80 columns, beside what ranks
MOST_JOBS = 10_000  # in memory 10 KB each
MOST_COLUMNS = 2  # of settings; the values of more, or of wider ones, stand below the table
Table = Any  # a DataFrame of pandas, which is heavy: this module is imported before `--help`


def run_sweep(line: compose.CommandLine) -> int:
    """Run a job for every combination of values; return the highest exit code of the jobs."""
    if "--help" in line.options or "--cfg" in line.options:
        raise ConfigError("-m: expected no --help or --cfg; leave one of them out")
    _check_number(line.overrides)
    compose.check_hydra(line)
    folder, made = _sweep_folder(line.overrides)
    check_links(folder)
    started = time.time()
    last = {entry.key_or_group: entry for entry in line.overrides}.items()
    fixed = [key for key, entry in last if not entry.is_sweep_override()]
    compose.store_defaults(line.schema)
    options = [word for name, value in line.options.items() for word in (name, value) if word]
    options.append("hydra.searchpath=[]")  # a file of --config-dir names no package to import
    sys.argv[1:] = [*options, *line.words, f"++hydra.sweep.dir={quote(str(folder))}"]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not in Hydra's words and exit code
    launch = hydra.main(version_base="1.3", config_path=str(compose.CONFIGS), config_name="train")
    try:
        launch(Job(fixed, import_paths_in(line.words)))()
    except (UserError, BrokenPipeError):
        raise
    except Exception as error:  # of Hydra: those of the jobs are in their folders
        is_hydras = isinstance(error, HydraException | OmegaConfBaseException)
        if is_hydras or not any(folder.glob(f"*/{JOB}")):
            raise ConfigError(compose.explain(error)) from error
        reason = shown(" ".join(str(error).split()) or type(error).__name__, 300)
        remedy = "the same command again continues what is not done"
        raise TrainingError(f"{folder}: the launcher has ended: {reason}; {remedy}") from error
    finally:
        if not any(folder.glob(f"*/{JOB}")):
            (folder / "multirun.yaml").unlink(missing_ok=True)  # Hydra's
        remove_empty(made)
    show_table(folder)
    if older := sum(path.stat().st_mtime < started for path in folder.glob(f"*/{JOB}")):
        print(f"{older} of its jobs are of earlier commands")
    # A job may have failed here because another process was at it, which has finished it since.
    failed = folder.glob(f"*/{FAILURE}")
    failures = [path for path in failed if finished_metrics(path.parent) is None]
    return max((read_json(path, dict)["exit_code"] for path in failures), default=0)


def _check_number(overrides: Collection[Override]) -> None:
    """Raise a ConfigError for more jobs than a sweep may have, before Hydra lists them.

    To another sweeper a range is a space to search.
    """
    if any(entry.key_or_group == "hydra/sweeper" for entry in overrides):
        return
    jobs = 1
    for entry in overrides:
        sweep = entry.value()
        if isinstance(sweep, RangeSweep) and not sweep.step:
            raise ConfigError(f"{entry.key_or_group}: expected a step, got 0; leave it out")
        values = sweep.range() if isinstance(sweep, RangeSweep) else getattr(sweep, "list", [])
        jobs *= max(1, sum(1 for _ in islice(values, MOST_JOBS + 1)))
        if jobs > MOST_JOBS:
            raise ConfigError(
                f"{entry.key_or_group}: expected at most {MOST_JOBS:,} jobs in a sweep, got "
                f"{jobs:,} or more; give fewer values, or more sweeps"
            )


def _sweep_folder(overrides: Iterable[Override]) -> tuple[Path, list[Path]]:
    """Return the folder of a sweep, by outputs_dir and name, which all its jobs share.

    Beside it are the folders that did not exist: it, and those above it.
    """
    given = {
        entry.key_or_group: entry.value() for entry in overrides if not entry.is_sweep_override()
    }
    if "hydra.sweep.dir" in given:
        folder = home(str(given["hydra.sweep.dir"]))
        return folder, missing(folder)
    place = Path(TrainConfig(outputs_dir=str(given.get("outputs_dir", "outputs"))).outputs_dir)
    name = given.get("name")
    if name is None:
        made = missing(place)
        folder = new_folder(place / f"sweep_{datetime.now():%Y-%m-%d_%H-%M-%S}")
        return folder, [folder, *made]
    validate(TrainConfig, {"name": str(name)})
    folder = place / str(name)
    if is_run(folder):
        raise ConfigError(f"name: expected a name without a run, got {name!r}; {folder} is one")
    return folder, missing(folder)


class Job:
    """One job of a sweep, in whatever process Hydra's launcher starts it."""

    def __init__(self, fixed: Sequence[str], own: Collection[str]) -> None:
        self.fixed = fixed  # keys that have one value for all jobs
        self.own = own  # import paths that are words of the command line

    def __call__(self, composed: DictConfig) -> float | None:
        """Train unless that is done, and return the validation score, for Hydra's sweepers.

        A failure is written into the job's folder, and the sweep continues. What the run prints
        goes to log.txt there.
        """
        from headscope.ground.terminal import logged

        warnings_as_notes()  # the process may be a launcher's
        folder = self._folder(composed)
        if (score := score_of(folder, composed.sweep.metric)) is not None:
            print(f"{folder.name}: done before", flush=True)
            return score
        try:
            if is_run(folder):
                from headscope.training.resume import resumed_config  # heavy

                mine = {"resume": str(folder), "data.cache_dir": composed.data.cache_dir}
                config = override(resumed_config(folder), mine)
            else:
                config = validate(TrainConfig, compose.resolved(composed))
            check_allowed(config.import_paths, f"run={folder}", self.own)
            check(config)
            with signals_taken(end), compose.starting(config):
                from headscope.training.train import train  # heavy
            with logged(folder) as console:
                train(config, console)
        except BrokenPipeError:
            raise
        except (Stopped, KeyboardInterrupt) as stopped:
            raise continued(stopped) from None
        except Exception as error:
            message = message_of(error).split("\n")[0]
            failure = {"message": message, "exit_code": print_error(error)}
            write_text(folder / FAILURE, json.dumps(failure))
        write_table(folder.parent)
        if (score := score_of(folder, composed.sweep.metric)) is not None:
            print(f"{folder.name}: {composed.sweep.metric} {score:.4f}", flush=True)
        return score

    def _folder(self, composed: DictConfig) -> Path:
        """Return the job's folder, named by what differs from job to job, with its overrides."""
        settings = HydraConfig.get()
        words = list(settings.overrides.task)
        overrides = dict(word.split("=", 1) for word in words)
        parent = Path(str(settings.sweep.dir))
        name = folder_name(words, self.fixed)
        folder = parent / name
        for path in parent.glob(f"*{name[-9:]}/{JOB}"):  # another sweep may name it otherwise
            if read_json(path, dict)["overrides"] == overrides:
                folder = path.parent
        composed.outputs_dir = settings.sweep.dir
        composed.name = folder.name
        content = {"number": settings.job.num, "overrides": overrides}
        write_text(folder / JOB, json.dumps(content | {"metric": composed.sweep.metric}))
        (folder / FAILURE).unlink(missing_ok=True)  # it is tried again
        write_table(folder.parent)
        return folder


def folder_name(overrides: Sequence[str], fixed: Container[str]) -> str:
    """Return the name of a job's folder: what differs from job to job, and a hash of everything."""
    places = ("name=", "outputs_dir=")
    content = json.dumps(sorted(word for word in overrides if not word.startswith(places)))
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    swept = [entry for entry in overrides if entry.partition("=")[0].lstrip("+") not in fixed]
    # "=" and "," would need quotes: run=outputs/sweep/model.causal_true-1a2b3c4d
    readable = re.sub(r"[^\w.-]+", "_", ",".join(swept))[:100].strip("-_.")
    return f"{readable}-{digest}"


def score_of(folder: Path, metric: str) -> float | None:
    """Return a run's score on validation, None if it is not done; a loss is at its temperature."""
    metrics = finished_metrics(folder)
    if metrics is None:
        return None
    if metric == "loss" and metrics.get("calibration"):
        return float(metrics["calibration"]["validation"]["loss"]["after"])
    return float(metrics["validation"][metric])


def finished_metrics(folder: Path) -> dict[str, Any] | None:
    """Return metrics.json of a run of which nothing is pending; None of any other."""
    if not (folder / METRICS).exists():
        return None
    metrics: dict[str, Any] = read_json(folder / METRICS, dict)
    return None if metrics.get("pending") else metrics


# The table.


def write_table(folder: Path) -> Table:
    """Write sweep.csv, one row for each job in order, and best.yaml; return the table."""
    from pandas import DataFrame

    jobs = DataFrame(_row(path.parent) for path in folder.glob(f"*-{8 * '[0-9a-f]'}/{JOB}"))
    table = jobs.sort_values(["number", "job"]).drop(columns="number")
    write_frame(folder / TABLE, table.round(4))
    if jobs := best_jobs(configurations(table)):
        write_best(folder, jobs[0])
    return table


def best_jobs(groups: Iterable[Table]) -> list[str]:
    """Return the jobs of the first of some configurations whose seeds are all done."""
    done = (group for group in groups if (group["status"] == "done").all())
    return next((group["job"].tolist() for group in done), [])


def _row(folder: Path) -> dict[str, Any]:
    """Return a job's number, name, settings, status and results."""
    job = read_json(folder / JOB, dict)
    settings = {key: text.strip("'\"") for key, text in job["overrides"].items()}
    row = {"number": job["number"], "job": folder.name, **settings, "status": "not finished"}
    score = f"validation_{job['metric']}"
    row |= dict.fromkeys((score, *RESULTS), math.nan)
    if (folder / FAILURE).exists():
        row["status"] = f"failed: {read_json(folder / FAILURE, dict)['message']}"
    metrics = finished_metrics(folder)
    if metrics is None:
        return row
    baseline = metrics.get("baseline") or {}
    return row | {
        "status": "done",
        score: score_of(folder, job["metric"]),
        "test_accuracy": metrics["test"]["accuracy"],
        "test_macro_f1": metrics["test"]["macro_f1"],
        "tfidf_accuracy": baseline.get("accuracy", math.nan),
        "seconds": metrics["seconds"]["everything"],
    }


def results_of(table: Table) -> list[str]:
    """Return the columns of results; the first one ranks."""
    return [key for key in table if key.startswith("validation_") or key in RESULTS]


def settings_of(table: Table) -> list[str]:
    """Return the columns of settings, without the seed."""
    others = ("job", "status", "seed", *results_of(table))
    return [key for key in table if key not in others]


def configurations(table: Table) -> list[Table]:
    """Return the jobs of each configuration, which differ in the seed alone; the best first."""
    groups = table.groupby(settings_of(table) or (lambda row: 0), dropna=False, sort=False)
    metric = results_of(table)[0]
    sign = 1 if metric.removeprefix("validation_") in LESS_IS_BETTER else -1
    return sorted(
        (group for _, group in groups),
        key=lambda group: (group[metric].isna().all(), sign * group[metric].mean()),
    )


def show_table(folder: Path, console: Any = None) -> None:
    """Print a row for each configuration, the best first, and what to do next.

    With several seeds a result is their mean ± standard deviation, and a configuration is within
    the seeds' noise of the best if their means differ by less than two standard errors of the
    difference.
    """
    from headscope.ground.terminal import show_line, terminal  # heavy

    console = terminal(console)
    table = write_table(folder)
    groups = configurations(table)
    metric = results_of(table)[0]
    has_seeds = len(groups) < len(table)
    on_screen = [name for name in ON_SCREEN if table[name].notna().any()]
    results = [metric, *on_screen]
    swept = [key for key in settings_of(table) if table[key].nunique(dropna=False) > 1]
    best = groups[0][metric]
    found = []
    for group in groups:
        row = group[swept].iloc[0].fillna("").to_dict()
        if has_seeds:
            row["seeds"] = (group["status"] == "done").sum()
            row[""] = "best" if group is groups[0] else _compared(group[metric], best)
        found.append(row | {name: _mean(group[name]) for name in results})
    _print_table(console, found, swept, results)
    failed = table[table["status"] != "done"]
    for job, status in zip(failed["job"], failed["status"], strict=True):
        show_line(console, f"{job}: {status}")
    if len(failed):
        show_line(console, "a job that you no longer want leaves the table with its folder")
    show_line(console, f"all scores: {folder}/{TABLE}")
    if (folder / BEST).exists():
        command = f"headscope train --config-dir {shlex.quote(str(folder))} --config-name best"
        show_line(console, "best again: ", command)
    show_line(console, "now look:   ", f"tensorboard --logdir {shlex.quote(str(folder))}")
    jobs = best_jobs(groups)
    show_line(console, verdict(folder, jobs) if jobs else "no configuration is done")


def _print_table(
    console: Any, rows: list[dict[str, Any]], swept: Sequence[str], results: Sequence[str]
) -> None:
    """Print the table of configurations, the settings below it where they do not fit."""
    from headscope.ground.terminal import UNBOUNDED, show_line  # heavy

    screen = _screen_table(rows, results)
    unbounded = console.options.update(width=UNBOUNDED)
    narrowest = console.measure(screen, options=unbounded).minimum + 2 * len(screen.columns)
    is_below = bool(swept) and (len(swept) > MOST_COLUMNS or narrowest > console.width)
    if is_below:
        kept = [{key: row[key] for key in row if key not in swept} for row in rows]
        numbered = [{" ": number} | row for number, row in enumerate(kept, start=1)]
        screen = _screen_table(numbered, results)
    console.print(screen)
    for number, row in enumerate(rows if is_below else [], start=1):
        named = ", ".join(f"{key}={row[key]}" for key in swept if row[key] != "")
        show_line(console, f"{number}: {named}")


def _screen_table(rows: list[dict[str, Any]], results: Sequence[str]) -> Any:
    """Return the table of configurations, whose headings have a line for each word."""
    from headscope.ground.terminal import plain_table  # heavy

    texts = [re.sub("([._])(?=.)", "\\1\n", name) for name in rows[0] if name not in results]
    numbers = [name.replace("_", "\n", 1) for name in results]
    table = plain_table(texts, numbers, [row.values() for row in rows])
    for column, name in zip(table.columns, texts, strict=False):
        column.min_width = max(map(len, name.split("\n")))
    return table


def _compared(scores: Any, best: Any) -> str:
    """Return whether a configuration is within noise of the best over seeds."""
    noise = 2 * math.hypot(best.sem(), scores.sem())
    return "within noise" if abs(best.mean() - scores.mean()) < noise else ""


def _mean(values: Any) -> str:
    """Return the mean over seeds and, except for seconds and TF-IDF, the deviation."""
    values = values.dropna()
    if not len(values) or values.name == "seconds":
        return f"{values.mean():.0f}" if len(values) else ""
    has_deviation = len(values) > 1 and values.name != "tfidf_accuracy"
    return f"{values.mean():.4f}" + (f" ± {values.std():.4f}" if has_deviation else "")


def verdict(folder: Path, jobs: Sequence[str]) -> str:
    """Return whether the best configuration, by its jobs, is worth taking over TF-IDF.

    It is where the 95 % interval of the difference of accuracy on test lies above 0; see
    `over_seeds`.
    """
    runs = [read_json(folder / job / METRICS, dict) for job in jobs]
    name = jobs[0] if len(jobs) == 1 else f"{jobs[0]} and {len(jobs) - 1} other seeds"
    if not all(run.get("baseline") for run in runs):
        was_tried = all("baseline" in run["seconds"] for run in runs)
        why = "with baseline=true it is compared with TF-IDF"
        return f"best: {name}; {'TF-IDF could not be fitted' if was_tried else why}"
    intervals = [run["baseline"]["differences"]["accuracy"] for run in runs]
    mean, low, high = (100 * share for share in over_seeds(intervals))
    found = f"{name}: {mean:+.1f} points of test accuracy over TF-IDF ({low:+.1f} to {high:+.1f})"
    if low > 0:
        return f"best: {found}; take it"
    seconds = f"{runs[0]['seconds']['baseline']:.0f} s"
    if high < 0:
        return f"best: {found}; take TF-IDF, which trains in {seconds}"
    return f"best: {found}; TF-IDF is as good, and trains in {seconds}"


def over_seeds(intervals: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean of differences over n seeds, and its 95 % interval over seeds and texts.

    Of each seed its mean and the ends of its interval over texts are given. The half widths of
    texts, h, and of seeds add in squares: sqrt(mean(h)^2 + (t s)^2 / n), with the standard
    deviation s of the seeds' differences, and Student's t of n - 1 degrees of freedom.
    """
    from scipy.stats import t  # heavy

    means, lows, highs = zip(*intervals, strict=True)
    mean = fmean(means)
    below = mean - fmean(lows)
    above = fmean(highs) - mean
    of_seeds = 0.0
    if len(means) > 1:
        of_seeds = float(t.ppf(0.975, len(means) - 1)) * stdev(means) / math.sqrt(len(means))
    return mean, mean - math.hypot(below, of_seeds), mean + math.hypot(above, of_seeds)


def write_best(folder: Path, job: str) -> None:
    """Write the best settings: `headscope train --config-dir FOLDER --config-name best`."""
    try:
        settings = asdict(read_config(folder / job / "config.yaml"))
    except RunError as error:
        (folder / BEST).unlink(missing_ok=True)  # of another job
        warn(f"{BEST} is not written: {error}")
        return
    for key in ("name", "resume", "outputs_dir"):
        del settings[key]
    content = {"defaults": ["train", "_self_"], **literal_texts(settings)}
    write_text(folder / BEST, OmegaConf.to_yaml(content))  # which quotes 1e3 where it is a text


def literal_texts(value: Any) -> Any:
    """Return settings in which Hydra reads a text with ${ in it as that text."""
    if isinstance(value, dict):
        return {key: literal_texts(member) for key, member in value.items()}
    if isinstance(value, list):
        return [*map(literal_texts, value)]
    if isinstance(value, str):  # backslashes count before a $ alone
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value
