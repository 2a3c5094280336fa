"""tune: search for good settings. Optuna proposes them, each trial is a training in a process of its own.

The search itself is Optuna's study (Akiba et al. 2019, Optuna: A Next-generation Hyperparameter Optimization
Framework), kept in a file or a database: whoever runs the same command is another worker on it. A trial is a job as a
sweep's: its folder is named by its settings, and what it came to is read from there.
"""

import html
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, QuotedString, RangeSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from headscope.cli.sweep import (
    FAILURE,
    PRUNED,
    RESULTS,
    averaged,
    by_configuration,
    folder_name,
    score_of,
    write_table,
)
from headscope.config import LESS_IS_BETTER, TrainConfig
from headscope.errors import ConfigError, RunError, UserError, first_line, message_of, shown
from headscope.files import read_json, write_atomic
from headscope.options import TuneConfig
from headscope.run import CONFIG, VALIDATIONS, save_config, save_json
from headscope.signals import Stopped
from headscope.terminal import terminal
from headscope.training.console import show_sweep
from headscope.training.resume import JOB, RunLock
from headscope.validation import check, flatten, override

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
        distribution_to_json,
    )
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError:
    raise ConfigError(
        "tune: Optuna is not installed; pip install 'headscope[tune]' brings it"
    ) from None

READY = (
    Path(__file__).parents[1] / "configs" / "sweep"
)  # of an installed package; else of a checkout
STUDY, PAGE, LOG, CLAIMED, TURN = (
    "study.journal",
    "study.html",
    "log.txt",
    ".trial.lock",
    ".tune.lock",
)
RETRY_OF = "retry of"  # the number of a trial whose worker was killed
UNFIXED = ("name", "outputs_dir", "trials", "storage", "space", "trainer.progress")
SECONDS_BETWEEN_LOOKS = 0.2
BEST_ROWS = 10
Space = dict[str, BaseDistribution]
Values = dict[str, Any]


def tune(config: TuneConfig, console: Console | None = None) -> None:
    """Train until the study has `trials` trials; show the best ones, and write sweep.csv, best.yaml and study.html.

    Raises:
        ConfigError: for a space that cannot be searched, or a study that was started with other settings.
        Stopped, KeyboardInterrupt: after a signal; the trial that was at work is tried again by the next worker.
    """
    console, config.name = (
        terminal(console),
        config.name or f"tune_{time.strftime('%Y-%m-%d_%H-%M-%S')}",
    )
    folder = Path(config.outputs_dir) / config.name
    space = read_space(config.space)
    check(
        trial_config(config, "a trial", _middle(space))
    )  # a key that is none, before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    search = Search(config, folder, space)
    console.print(
        f"search in {folder}; the same command is another worker, or goes on", soft_wrap=True
    )
    with console.status(search.progress()) as line:
        while (job := search.claim()) is not None:
            said = search.finish(job, search.run(job))
            write_table(folder)
            line.update(search.progress())
            console.print(said, soft_wrap=True, highlight=False)
    rows = write_table(folder)
    done = [row for row in rows if row["status"] == "done"]
    best = [averaged(group) for group in by_configuration(done)]
    others = [row for row in rows if not row["status"].startswith(("done", "pruned"))]
    show_sweep(console, folder, best[:BEST_ROWS], others, RESULTS)
    counts = ", ".join(f"{count} {name}" for name, count in search.counts().items() if count)
    console.print(f"trials: {counts}", soft_wrap=True)
    if (page := search.write_page()) is not None:
        console.print(f"what matters: {page}", soft_wrap=True)


# What is searched.


def read_space(name: str) -> Space:
    """Return what each key may be, from a file like configs/sweep/learning.yaml; a ready one by its name.

    Hydra's grammar says what: `1,2,4` and `choice(1, 2)`; `range(1, 4)`, without its end; `interval(0, 0.4)`, and
    `tag(log, interval(1e-4, 1e-2))` for one that is even in its logarithm.

    Raises:
        ConfigError: if there is no such file, or a line of it is none of these.
    """
    checkout = Path(__file__).parents[3] / "configs" / "sweep"
    places = (Path(name), READY / f"{name}.yaml", checkout / f"{name}.yaml")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ConfigError(
            f"space: expected a file like configs/sweep/learning.yaml, or its name, got {shown(repr(name))}"
        )
    try:
        content = OmegaConf.load(path)
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"space={path}: {shown(' '.join(str(error).split()), 200)}") from None
    params = (
        OmegaConf.select(content, "hydra.sweeper.params")
        if isinstance(content, DictConfig)
        else None
    )
    if not isinstance(params, DictConfig) or not params:
        raise ConfigError(
            f"space={path}: takes hydra: {{sweeper: {{params: ...}}}}, with a line for each key"
        )
    return {
        str(key): _distribution(f"space={path}", str(key), str(value))
        for key, value in params.items()
    }


def _distribution(place: str, key: str, text: str) -> BaseDistribution:
    """Return what a line of the space means to Optuna."""
    try:
        value = OverridesParser.create().parse_override(f"{key}={text}").value()
        if isinstance(value, ChoiceSweep):
            return CategoricalDistribution([_plain(entry) for entry in value.list])
        if isinstance(value, RangeSweep):
            found = [*value.range()]
            kind = (
                IntDistribution
                if all(isinstance(number, int) for number in found)
                else FloatDistribution
            )
            return kind(found[0], found[-1], step=value.step)  # type: ignore[arg-type]
        if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
            is_whole = isinstance(value.start, int) and isinstance(value.end, int)
            kind = IntDistribution if is_whole else FloatDistribution
            return kind(value.start, value.end, log="log" in value.tags)  # type: ignore[arg-type]
    except (HydraException, ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"{place}: {key}: {shown(text)}: {first_line(error)}") from None
    raise ConfigError(
        f"{place}: {key}: expected several values, such as 1,2,4 or interval(0, 0.4), got {shown(text)}"
    )


def _plain(value: Any) -> bool | int | float | str | None:
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    raise ValueError("takes numbers, words, true, false or null")


def _middle(space: Space) -> Values:
    """Return one point of the space."""
    return {
        key: found.choices[0] if isinstance(found, CategoricalDistribution) else found.low  # type: ignore[attr-defined]
        for key, found in space.items()
    }


def trial_config(config: TuneConfig, name: str, values: Values) -> TrainConfig:
    """Return the settings of one trial.

    Raises:
        ConfigError: for a key that is none, or a value of another type.
    """
    names = [entry.name for entry in fields(TrainConfig)]
    base = TrainConfig(**{key: getattr(config, key) for key in names})
    try:
        found = override(base, values)
    except ConfigError as error:
        raise ConfigError(f"space: {error}") from None
    found.name, found.outputs_dir = name, str(Path(config.outputs_dir) / str(config.name))
    return found


# The study, and the trials of this worker.


@dataclass
class Job:
    """A trial that this worker is at, and the folder of its training, which it has to itself while it holds `lock`."""

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
        self.config, self.folder, self.space = config, folder, space
        self.begun, self.taken = time.monotonic(), 0
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(
            storage=config.storage
            or optuna.storages.JournalStorage(JournalFileBackend(str(folder / STUDY))),
            study_name=str(config.name),
            direction="minimize" if config.sweep.metric in LESS_IS_BETTER else "maximize",
            load_if_exists=True,
        )
        self._check_same()
        self.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_min_trials=3)

    def _check_same(self) -> None:
        """Raise an error for other settings, or another space, than the search was started with."""
        settings = flatten(asdict(self.config))
        now = {key: repr(value) for key, value in settings.items() if key not in UNFIXED}
        now |= {f"space of {key}": distribution_to_json(found) for key, found in self.space.items()}
        before = self.study.user_attrs.get("settings", now)
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                was = f"{key}={before[key]}" if key in before else f"no {key}"
                raise ConfigError(
                    f"{self.folder} holds a search that was started with {was}; give the same, or another name"
                )
        self.study.set_user_attr("settings", now)

    def claim(self) -> Job | None:
        """Return the next trial; None when there are enough of them, with those that other workers are at."""
        while True:
            with FileLock(self.folder / TURN):  # one worker of this folder at a time
                is_one_dying = self._free_the_dead()
                trials = self.study.get_trials(deepcopy=False)
                is_one_waiting = any(trial.state == TrialState.WAITING for trial in trials)
                if is_one_waiting or _count(trials) < self.config.trials:
                    return self._asked()
            if not is_one_dying:
                return None
            time.sleep(1)

    def _asked(self) -> Job:
        # A seed for each trial: workers that start together would propose the same.
        seed = (self.config.seed * 1_000_003 + len(self.study.get_trials(deepcopy=False))) % 2**32
        self.study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        trial = self.study.ask(self.space)
        values = {key: rounded(value) for key, value in trial.params.items()}
        folder = self.folder / folder_name([f"{key}={value}" for key, value in values.items()], ())
        folder.mkdir(exist_ok=True)
        trial.set_user_attr("folder", folder.name)
        lock = FileLock(folder / CLAIMED)
        with suppress(Timeout):  # another worker is at the same values: `run` waits for it
            lock.acquire(blocking=False)
        return Job(trial, values, folder, lock)

    def _free_the_dead(self) -> bool:
        """Let trials whose worker was killed be tried again; tell whether a training of one has not ended yet."""
        is_one_dying = False
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            folder = self.folder / str(trial.user_attrs.get("folder", "?"))
            if not folder.is_dir():
                # With a database, of a worker on another machine. Else its worker was killed as it asked.
                if self.config.storage is None:
                    self._try_again(trial)
                continue
            try:
                with FileLock(folder / CLAIMED, blocking=False):
                    lock = RunLock(folder)
                    lock.take()
                    lock.release()
                    self._try_again(trial)
            except Timeout:
                continue
            except RunError:
                is_one_dying = True
        return is_one_dying

    def _try_again(self, trial: Trial | FrozenTrial) -> None:
        if trial.number not in _retried(self.study.get_trials(deepcopy=False)):
            self.study.enqueue_trial(trial.params, user_attrs={RETRY_OF: trial.number})
        self.study.tell(trial.number, state=TrialState.FAIL)

    def run(self, job: Job) -> Outcome:
        """Train with the values of a trial, unless that was done before, and return what came of it."""
        if not job.lock.is_locked:
            job.lock.acquire()
        if (score := score_of(job.folder)) is not None:
            return Outcome(score)
        if (job.folder / PRUNED).exists():
            return Outcome(pruned_at=read_json(job.folder / PRUNED, dict)["epoch"])
        try:
            with tempfile.TemporaryDirectory(prefix="headscope-") as frozen:
                save_config(Path(frozen), self._settings(job))
                return self._trained(job, Path(frozen) / CONFIG)
        except UserError as error:
            return _failed(job, message_of(error).split("\n")[0])
        except (Stopped, KeyboardInterrupt):
            with FileLock(self.folder / TURN):
                self._try_again(job.trial)
            raise

    def _settings(self, job: Job) -> TrainConfig:
        """Return the settings of a trial's training, and write down what is special about it."""
        config = trial_config(self.config, job.folder.name, job.values)
        check(config)
        if (job.folder / CONFIG).exists():  # its worker was killed: it goes on
            config.resume = str(job.folder)
        overrides = {key: str(value) for key, value in job.values.items()}
        content = {"number": job.trial.number, "overrides": overrides, "fixed": {}}
        save_json(job.folder / JOB, content | {"metric": config.sweep.metric})
        (job.folder / FAILURE).unlink(missing_ok=True)
        write_table(self.folder)
        return config

    def _trained(self, job: Job, frozen: Path) -> Outcome:
        """Train in a process of its own, whose validations the pruner sees."""
        command = [sys.executable, "-m", "headscope.training.worker", str(frozen)]
        with (job.folder / LOG).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                pruned_at = self._watched(job, process)
            finally:  # after a signal to this process too
                process.terminate()
                process.wait()
        if (score := score_of(job.folder)) is not None:
            return Outcome(score)
        if pruned_at is not None:
            save_json(job.folder / PRUNED, {"epoch": pruned_at})
            return Outcome(pruned_at=pruned_at)
        return _failed(job, _last_error(job.folder / LOG, process.returncode))

    def _watched(self, job: Job, process: "subprocess.Popen[bytes]") -> int | None:
        """Report every validation until the process ends; return the epoch if the trial is hopeless."""
        seen = 0
        while process.poll() is None:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            path = job.folder / VALIDATIONS
            found = read_json(path, list) if path.exists() else []
            for validation in found[seen:]:
                job.trial.report(validation[self.config.sweep.metric], validation["epoch"])
                if job.trial.should_prune():
                    return int(validation["epoch"])
            seen = len(found)
        return None

    def finish(self, job: Job, outcome: Outcome) -> str:
        """Tell the study what came of a trial, and return it in words."""
        number, self.taken = job.trial.number, self.taken + 1
        if outcome.score is not None:
            self.study.tell(number, outcome.score)
            said = f"{self.config.sweep.metric} {outcome.score:.4f}"
        elif outcome.pruned_at is not None:
            self.study.tell(number, state=TrialState.PRUNED)
            said = f"pruned at epoch {outcome.pruned_at}"
        else:
            self.study.tell(number, state=TrialState.FAIL)
            said = f"failed: {outcome.failure}"
        job.lock.release()
        values = "  ".join(f"{key.split('.')[-1]}={value}" for key, value in job.values.items())
        return f"trial {number}  {values}  {said}; {self.progress()}"

    def progress(self) -> str:
        """Say how many trials are done and, once this worker has done one, about how long the rest takes."""
        trials = self.study.get_trials(deepcopy=False)
        done = _count(trial for trial in trials if trial.state.is_finished())
        said = f"{done} of {self.config.trials} trials"
        if self.taken:
            left = (self.config.trials - done) * (time.monotonic() - self.begun) / self.taken
            said += f", about {math.ceil(left / 60)} min left"
        return said

    def counts(self) -> dict[str, int]:
        """Return how many trials came to what."""
        retried = _retried(trials := self.study.get_trials(deepcopy=False))
        states = Counter(
            "tried again" if trial.number in retried else trial.state.name.lower()
            for trial in trials
        )
        return dict(states)

    def write_page(self) -> Path | None:
        """Write study.html: importance of each key, and all trials as lines; None while too few have a score."""
        done = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(done) < 2 or len({trial.value for trial in done}) < 2:
            return None
        views = optuna.visualization
        name = f"validation {self.config.sweep.metric}"
        figures = [
            views.plot_param_importances(self.study, target_name=name),
            views.plot_parallel_coordinate(self.study, target_name=name),
            views.plot_optimization_history(self.study, target_name=name),
        ]
        parts = [
            figure.to_html(full_html=False, include_plotlyjs=not number)
            for number, figure in enumerate(figures)
        ]
        title = html.escape(f"{self.folder.name}: {len(done)} trials with a score")
        head = f'<!doctype html><meta charset="utf-8"><title>{title}</title><body style="font-family:sans-serif">'
        text = "\n".join([head, f"<h1>{title}</h1>", *parts])
        write_atomic(self.folder / PAGE, lambda path: path.write_text(text, encoding="utf-8"))
        return self.folder / PAGE


def _retried(trials: Iterable[FrozenTrial]) -> set[int]:
    """Return the numbers of trials that have been put up again, since their worker was killed or stopped."""
    return {trial.user_attrs[RETRY_OF] for trial in trials if RETRY_OF in trial.user_attrs}


def _count(trials: Iterable[FrozenTrial]) -> int:
    """Return how many trials there are, without those that have been put up again."""
    found = list(trials)
    return len({trial.number for trial in found} - _retried(found))


def rounded(value: Any) -> Any:
    """Return a number with four digits that count, by which a job is named and trained."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _failed(job: Job, message: str) -> Outcome:
    save_json(job.folder / FAILURE, {"message": message, "exit_code": 1})
    return Outcome(failure=message)


def _last_error(log: Path, code: int) -> str:
    """Return the message of a training that failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return said[-1] if said else f"ended with exit code {code}; {log} says why"
