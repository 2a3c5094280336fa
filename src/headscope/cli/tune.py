"""tune: search for good settings. Optuna proposes them, each trial is a run in its own process.

The search is Optuna's study (Akiba et al. 2019, arXiv:1907.10902), in a file or a database: whoever
runs the same command is another worker on it. A trial is a job as a sweep's: its folder is named by
its settings, and its result is read from there.
"""

import html
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, QuotedString, RangeSweep
from hydra.errors import HydraException
from rich.console import Console

from headscope.cli import sweep
from headscope.cli.compose import CONFIGS
from headscope.command_settings import TuneConfig
from headscope.config import LESS_IS_BETTER, TrainConfig
from headscope.errors import ConfigError, RunError, UserError, first_line, message_of, shown
from headscope.files import read_json, write_text
from headscope.run_folder import CONFIG, save_config
from headscope.signals import Stopped
from headscope.terminal import show_line, terminal
from headscope.training.console import show_sweep
from headscope.training.resume import VALIDATIONS, RunLock
from headscope.validation import check, flatten, message, override

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
        distribution_to_json,
    )
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError:
    raise ConfigError(
        "tune: Optuna is not installed; pip install 'headscope[tune]' brings it"
    ) from None

STUDY = "study.journal"
PAGE = "study.html"
LOG = "log.txt"
TRIAL_LOCK = ".trial.lock"  # held while a worker is at the trial
TURN = ".tune.lock"  # held while a worker asks for a trial
RETRY_OF = "retry of"  # the number of a trial whose worker was killed
UNFIXED = ("name", "outputs_dir", "trials", "storage", "space", "trainer.progress")
POLL_SECONDS = 0.2
BEST_ROWS = 10
Space = dict[str, BaseDistribution]
Values = dict[str, Any]


def tune(config: TuneConfig, console: Console | None = None) -> None:
    """Train until the study has `trials` trials; write sweep.csv, best.yaml and study.html.

    Raises:
        ConfigError: for a space that cannot be searched, or a study that has other settings.
        Stopped, KeyboardInterrupt: after a signal; the next worker tries the trial again.
    """
    console = terminal(console)
    config.name = config.name or f"tune_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    folder = Path(config.outputs_dir) / config.name
    space = read_space(config.space)
    one = {
        key: values.choices[0] if isinstance(values, CategoricalDistribution) else values.low  # type: ignore[attr-defined]
        for key, values in space.items()
    }
    check(trial_config(config, "a trial", one))  # keys exist, before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    search = Search(config, folder, space)
    show_line(console, f"search in {folder}; the same command is another worker, or resumes it")
    with console.status(search.progress()) as line:
        while (job := search.claim()) is not None:
            report = search.finish(job, search.run(job))
            sweep.write_table(folder)
            line.update(search.progress())
            show_line(console, report)
    rows = sweep.write_table(folder)
    done = [row for row in rows if row["status"] == "done"]
    best = [sweep.averaged(group) for group in sweep.by_configuration(done)]
    others = [row for row in rows if not row["status"].startswith(("done", "pruned"))]
    show_sweep(console, folder, best[:BEST_ROWS], others, sweep.RESULTS)
    counts = ", ".join(f"{count} {name}" for name, count in search.counts().items())
    show_line(console, f"trials: {counts}")
    if (page := search.write_page()) is not None:
        show_line(console, f"importance of each key: {page}")


# What is searched.


def read_space(name: str) -> Space:
    """Return the values of each key, from a file like configs/sweep/learning.yaml, or its name.

    Hydra's grammar: `1,2,4` and `choice(1, 2)`; `range(1, 4)`, without its end; `interval(0, 0.4)`,
    and `tag(log, interval(1e-4, 1e-2))` for one that is uniform in its logarithm.
    """
    places = (Path(name), CONFIGS / "sweep" / f"{name}.yaml")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ConfigError(
            message("space", "a file like configs/sweep/learning.yaml, or its name", name)
        )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        entries = [(key, str(text)) for key, text in content["hydra"]["sweeper"]["params"].items()]
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, AttributeError) as error:
        reason = shown(" ".join(str(error).split()), 200)
        expected = "expected hydra: {sweeper: {params: ...}}, with a line for each key"
        raise ConfigError(f"space={path}: {expected}: {reason}") from None
    return {key: _distribution(f"space={path}: {key}", key, text) for key, text in entries}


def _distribution(place: str, key: str, text: str) -> BaseDistribution:
    try:
        value = OverridesParser.create().parse_override(f"{key}={text}").value()
        if isinstance(value, ChoiceSweep):
            return CategoricalDistribution([_plain(entry) for entry in value.list])
        if isinstance(value, RangeSweep):
            numbers = [*value.range()]
            is_whole = all(isinstance(number, int) for number in numbers)
            kind = IntDistribution if is_whole else FloatDistribution
            return kind(numbers[0], numbers[-1], step=value.step)  # type: ignore[arg-type]
        if isinstance(value, IntervalSweep):
            is_whole = isinstance(value.start, int) and isinstance(value.end, int)
            kind = IntDistribution if is_whole else FloatDistribution
            return kind(value.start, value.end, log="log" in value.tags)  # type: ignore[arg-type]
    except (HydraException, ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"{place}: {shown(text)}: {first_line(error)}") from None
    expected = "several values, such as 1,2,4 or interval(0, 0.4)"
    raise ConfigError(f"{place}: expected {expected}, got {shown(text)}")


def _plain(value: Any) -> bool | int | float | str | None:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    raise ValueError("expected numbers, words, true, false or null")


def trial_config(config: TuneConfig, name: str, values: Values) -> TrainConfig:
    """Return the settings of one trial; a ConfigError for a wrong key or value."""
    base = TrainConfig(**{entry.name: getattr(config, entry.name) for entry in fields(TrainConfig)})
    try:
        settings = override(base, values)
    except ConfigError as error:
        raise ConfigError(f"space: {error}") from None
    settings.name = name
    settings.outputs_dir = str(Path(config.outputs_dir) / str(config.name))
    return settings


# The study, and the trials of this worker.


@dataclass
class Job:
    """A trial of this worker; the folder of its run is its own while it holds `lock`."""

    trial: Trial
    values: Values
    folder: Path
    lock: FileLock


@dataclass
class Outcome:
    """What became of a trial: a score, the epoch at which it was pruned, or why it failed."""

    score: float | None = None
    pruned_at: int | None = None
    failure: str | None = None


class Search:
    """One worker on a study: `claim`, `run` and `finish` one trial after the other."""

    def __init__(self, config: TuneConfig, folder: Path, space: Space) -> None:
        self.config = config
        self.folder = folder
        self.space = space
        self.started = time.monotonic()
        self.finished = 0
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(
            storage=config.storage or JournalStorage(JournalFileBackend(str(folder / STUDY))),
            study_name=str(config.name),
            direction="minimize" if config.sweep.metric in LESS_IS_BETTER else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_min_trials=3),
            load_if_exists=True,
        )
        settings = flatten(asdict(config))
        now = {key: repr(value) for key, value in settings.items() if key not in UNFIXED}
        now |= {f"space of {key}": distribution_to_json(values) for key, values in space.items()}
        sweep.check_same(folder, self.study.user_attrs.get("settings", now), now)
        self.study.set_user_attr("settings", now)

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials in some states, or all."""
        return self.study.get_trials(deepcopy=False, states=states or None)

    def claim(self) -> Job | None:
        """Return the next trial; None when there are enough, with those of other workers."""
        while True:
            with FileLock(self.folder / TURN):  # one worker of this folder at a time
                is_one_ending = self._retry_abandoned()
                waiting = self.trials(TrialState.WAITING)
                if waiting or _count(self.trials()) < self.config.trials:
                    return self._ask()
            if not is_one_ending:
                return None
            time.sleep(1)

    def _ask(self) -> Job:
        # A seed for each trial: workers that start together would propose the same.
        seed = (self.config.seed * 1_000_003 + len(self.trials())) % 2**32
        self.study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        trial = self.study.ask(self.space)
        values = {
            key: float(f"{value:.4g}") if isinstance(value, float) else value
            for key, value in trial.params.items()
        }
        words = [f"{key}={value}" for key, value in values.items()]
        folder = self.folder / sweep.folder_name(words, ())
        folder.mkdir(exist_ok=True)
        trial.set_user_attr("folder", folder.name)
        lock = FileLock(folder / TRIAL_LOCK)
        with suppress(Timeout):  # another worker is at the same values: `run` waits for it
            lock.acquire(blocking=False)
        return Job(trial, values, folder, lock)

    def _retry_abandoned(self) -> bool:
        """Enqueue trials whose worker was killed; return whether the run of one has not ended."""
        is_one_ending = False
        for trial in self.trials(TrialState.RUNNING):
            folder = self.folder / str(trial.user_attrs.get("folder", "?"))
            if not folder.is_dir():
                # With a database, of a worker elsewhere; else its worker was killed as it asked.
                if self.config.storage is None:
                    self._retry(trial)
                continue
            try:
                with FileLock(folder / TRIAL_LOCK, blocking=False):
                    lock = RunLock(folder)
                    lock.take()
                    lock.release()
                    self._retry(trial)
            except Timeout:
                continue
            except RunError:
                is_one_ending = True
        return is_one_ending

    def _retry(self, trial: Trial | FrozenTrial) -> None:
        if trial.number not in _retried(self.trials()):
            self.study.enqueue_trial(trial.params, user_attrs={RETRY_OF: trial.number})
        self.study.tell(trial.number, state=TrialState.FAIL)

    def run(self, job: Job) -> Outcome:
        """Train with the values of a trial, unless that is done, and return its outcome."""
        if not job.lock.is_locked:
            job.lock.acquire()
        if (score := sweep.score_of(job.folder)) is not None:
            return Outcome(score)
        if (job.folder / sweep.PRUNED).exists():
            return Outcome(pruned_at=read_json(job.folder / sweep.PRUNED, dict)["epoch"])
        try:
            config = trial_config(self.config, job.folder.name, job.values)
            check(config)
            if (job.folder / CONFIG).exists():  # its worker was killed
                config.resume = str(job.folder)
            overrides = {key: str(value) for key, value in job.values.items()}
            sweep.start_job(job.folder, job.trial.number, overrides, {}, config.sweep.metric)
            with tempfile.TemporaryDirectory(prefix="headscope-") as frozen:
                save_config(Path(frozen), config)
                return self._trained(job, Path(frozen) / CONFIG)
        except UserError as error:
            return _failed(job, message_of(error).split("\n")[0])
        except (Stopped, KeyboardInterrupt):
            with FileLock(self.folder / TURN):
                self._retry(job.trial)
            raise

    def _trained(self, job: Job, frozen: Path) -> Outcome:
        """Train in another process, whose validations the pruner sees."""
        command = [sys.executable, "-m", "headscope.training.worker", str(frozen)]
        with (job.folder / LOG).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                pruned_at = self._report_validations(job, process)
            finally:  # after a signal to this process too
                process.terminate()
                process.wait()
        if (score := sweep.score_of(job.folder)) is not None:
            return Outcome(score)
        if pruned_at is not None:
            sweep.write_json(job.folder / sweep.PRUNED, {"epoch": pruned_at})
            return Outcome(pruned_at=pruned_at)
        lines = (job.folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        unknown = f"ended with exit code {process.returncode}; see {job.folder / LOG}"
        return _failed(job, errors[-1] if errors else unknown)

    def _report_validations(self, job: Job, process: "subprocess.Popen[bytes]") -> int | None:
        """Report validations until the process ends; return the epoch if the trial is pruned."""
        num_reported = 0
        path = job.folder / VALIDATIONS
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            validations = read_json(path, list) if path.exists() else []
            for validation in validations[num_reported:]:
                job.trial.report(validation[self.config.sweep.metric], validation["epoch"])
                if job.trial.should_prune():
                    return int(validation["epoch"])
            num_reported = len(validations)
        return None

    def finish(self, job: Job, outcome: Outcome) -> str:
        """Tell the study the outcome of a trial, and return a line about it."""
        self.finished += 1
        if outcome.score is not None:
            self.study.tell(job.trial, outcome.score)
            result = f"{self.config.sweep.metric} {outcome.score:.4f}"
        elif outcome.pruned_at is not None:
            self.study.tell(job.trial, state=TrialState.PRUNED)
            result = f"pruned at epoch {outcome.pruned_at}"
        else:
            self.study.tell(job.trial, state=TrialState.FAIL)
            result = f"failed: {outcome.failure}"
        job.lock.release()
        values = "  ".join(f"{key.split('.')[-1]}={value}" for key, value in job.values.items())
        return f"trial {job.trial.number}  {values}  {result}; {self.progress()}"

    def progress(self) -> str:
        """Return the number of finished trials and, after the first, the minutes left."""
        done = _count([trial for trial in self.trials() if trial.state.is_finished()])
        text = f"{done} of {self.config.trials} trials"
        if self.finished:
            seconds = (time.monotonic() - self.started) / self.finished
            text += f", about {math.ceil((self.config.trials - done) * seconds / 60)} min left"
        return text

    def counts(self) -> dict[str, int]:
        """Return the number of trials in each state."""
        trials = self.trials()
        retried = _retried(trials)
        return Counter(
            "tried again" if trial.number in retried else trial.state.name.lower()
            for trial in trials
        )

    def write_page(self) -> Path | None:
        """Write study.html: the importance of each key, and all trials, if scores differ."""
        done = self.trials(TrialState.COMPLETE)
        if len({trial.value for trial in done}) < 2:
            return None
        views = optuna.visualization
        name = f"validation {self.config.sweep.metric}"
        title = html.escape(f"{self.folder.name}: {len(done)} trials with a score")
        style = "font-family:sans-serif"
        parts = [f'<!doctype html><meta charset="utf-8"><title>{title}</title>']
        parts.append(f'<body style="{style}"><h1>{title}</h1>')
        for plot in (
            views.plot_param_importances,
            views.plot_parallel_coordinate,
            views.plot_optimization_history,
        ):
            figure = plot(self.study, target_name=name)
            parts.append(figure.to_html(full_html=False, include_plotlyjs=len(parts) == 2))
        return write_text(self.folder / PAGE, "\n".join(parts))


def _retried(trials: Sequence[FrozenTrial]) -> set[int]:
    """Return the numbers of trials that were enqueued again."""
    return {trial.user_attrs[RETRY_OF] for trial in trials if RETRY_OF in trial.user_attrs}


def _count(trials: Sequence[FrozenTrial]) -> int:
    """Return the number of trials without those that were enqueued again."""
    return len({trial.number for trial in trials} - _retried(trials))


def _failed(job: Job, reason: str) -> Outcome:
    sweep.write_json(job.folder / sweep.FAILURE, {"message": reason, "exit_code": 1})
    return Outcome(failure=reason)
