"""tune: search for good settings. Optuna proposes them, and prunes runs that are behind.

The search is Optuna's study (Akiba et al. 2019, arXiv:1907.10902) in a database: whoever runs the
same command is another worker on it. Each trial is a run below the study's folder.
"""

import time
import warnings
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import optuna
import yaml
from filelock import FileLock
from optuna.trial import BaseTrial, FixedTrial, Trial, TrialState
from optuna_integration import PyTorchLightningPruningCallback
from rich.console import Console

from headscope.cli.compose import CONFIGS
from headscope.cli.sweep import score_of, write_best
from headscope.ground.errors import ConfigError, UserError, first_line, message_of
from headscope.ground.files import new_folder
from headscope.ground.signals import Stopped
from headscope.ground.terminal import logged, show_line, terminal
from headscope.results.scores import TEMPERED
from headscope.settings.checks import check, flatten, override
from headscope.settings.commands import TuneConfig
from headscope.settings.config import LESS_IS_BETTER, TrainConfig, is_run
from headscope.training.train import train

DATABASE = "study.db"
TABLE = "trials.csv"
HEARTBEAT_SECONDS = 30  # a trial without one for twice as long is tried again
COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)  # those that fail are not
UNFIXED = ("name", "outputs_dir", "trials", "space", "trainer.progress")
Space = dict[str, Any]  # of each key a list, or {low: 1, high: 3} and perhaps step or log


def tune(config: TuneConfig, console: Console | None = None) -> None:
    """Train until the study has `trials` trials; write trials.csv and best.yaml.

    Raises:
        ConfigError: for a space that cannot be searched, or a study that has other settings.
        Stopped, KeyboardInterrupt: after a signal; the next worker resumes the trial.
    """
    console = terminal(console)
    space = read_space(config)
    if config.name is None:
        name = f"tune_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
        config = replace(config, name=new_folder(Path(config.outputs_dir) / name).name)
    folder = Path(config.outputs_dir) / str(config.name)
    folder.mkdir(parents=True, exist_ok=True)
    show_line(console, f"search in {folder}; the same command is another worker, or resumes it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of heartbeats
        study = open_study(config, folder, space)
        optuna.storages.fail_stale_trials(study)
        if len(study.get_trials(deepcopy=False, states=COUNTED)) < config.trials:
            enough = optuna.study.MaxTrialsCallback(config.trials, COUNTED)
            try:
                study.optimize(lambda trial: run_trial(trial, config, space), callbacks=[enough])
            except KeyboardInterrupt as stopped:
                raise stopped.__cause__ or stopped from None
            finally:
                study.trials_dataframe().to_csv(folder / TABLE, index=False)
    if done := study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        best = study.best_trial
        write_best(folder, best.user_attrs["run"])
        found = " ".join(f"{key}={value}" for key, value in best.params.items())
        score = f"{config.sweep.metric} {best.value:.4f}"
        show_line(console, f"best of {len(done)}: trial {best.number}, {score}: {found}")
        command = f"headscope train --config-dir {folder} --config-name best"
        show_line(console, "best again: ", command)
    show_line(console, f"all trials: {folder / TABLE}")


def read_space(config: TuneConfig) -> Space:
    """Return the values to try of each key; a ConfigError for what no run could be trained with."""
    path = Path(config.space or CONFIGS / "space.yaml")
    try:
        space: Space = yaml.safe_load(path.read_text(encoding="utf-8"))
        first = {
            key: values[0] if isinstance(values, list) else values["low"]
            for key, values in space.items()
        }
        values = suggest(FixedTrial(first), space)
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, AttributeError) as error:
        examples = "'model.num_heads: [2, 4]' or 'model.dropout: {low: 0.0, high: 0.4}'"
        reason = first_line(error)
        raise ConfigError(f"space={path}: expected lines such as {examples}: {reason}") from None
    check(trial_config(config, "a-trial", values))
    return space


def suggest(trial: BaseTrial, space: Space) -> dict[str, Any]:
    """Return the value of each key that a trial proposes."""
    found: dict[str, Any] = {}
    for key, values in space.items():
        if isinstance(values, list):
            found[key] = trial.suggest_categorical(key, values)
        elif isinstance(values["low"], int) and isinstance(values["high"], int):
            found[key] = trial.suggest_int(key, **values)
        else:  # YAML reads 1e-4 as text
            bounds = {name: float(values[name]) for name in ("low", "high")}
            found[key] = float(f"{trial.suggest_float(key, **(values | bounds)):.4g}")
    return found


def trial_config(config: TuneConfig, name: str, values: dict[str, Any]) -> TrainConfig:
    """Return the settings of one trial; a ConfigError for a wrong key or value."""
    base = TrainConfig(**{entry.name: getattr(config, entry.name) for entry in fields(TrainConfig)})
    folder = str(Path(config.outputs_dir) / str(config.name))
    own = {"name": name, "outputs_dir": folder, "trainer.progress": False}
    try:
        return override(base, values | own)
    except ConfigError as error:
        raise ConfigError(f"space: {error}") from None


def open_study(config: TuneConfig, folder: Path, space: Space) -> optuna.Study:
    """Return the study, whose settings are these; only its first worker's sampler has the seed."""
    with FileLock(folder / ".tune.lock"):  # two workers may start at once
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{folder / DATABASE}",
            engine_kwargs={"connect_args": {"timeout": 60}},
            heartbeat_interval=HEARTBEAT_SECONDS,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
        )
        is_first = config.name not in optuna.get_all_study_names(storage)
        study = optuna.create_study(
            storage=storage,
            study_name=config.name,
            direction="minimize" if config.sweep.metric in LESS_IS_BETTER else "maximize",
            sampler=optuna.samplers.TPESampler(
                seed=config.seed if is_first else None, multivariate=True, constant_liar=True
            ),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_min_trials=3),
            load_if_exists=True,
        )
        settings = flatten(asdict(config))
        now = {key: repr(value) for key, value in settings.items() if key not in UNFIXED}
        now["space"] = repr(space)
        for key, before in study.user_attrs.get("settings", now).items():
            if now.get(key) != before:
                was = f"was started with {key}={before}"
                raise ConfigError(f"{folder}: {was}; give the same, or another name")
        study.set_user_attr("settings", now)
    return study


def run_trial(trial: Trial, config: TuneConfig, space: Space) -> float:
    """Train with the values of a trial, and return its validation score.

    Raises:
        TrialPruned: for a run that is behind, diverges, or has settings that exclude each other.
        KeyboardInterrupt: after a signal; the trial waits for the next worker.
    """
    name = trial.user_attrs.get("run", f"trial-{trial.number}")  # it has one if it is tried again
    trial.set_user_attr("run", name)
    metric = config.sweep.metric
    value = TEMPERED if metric == "loss" else metric
    try:
        settings = trial_config(config, name, suggest(trial, space))
        folder = Path(settings.outputs_dir) / name
        if is_run(folder):
            settings = replace(settings, resume=str(folder))
        check(settings)
        with logged(folder) as log:
            pruning = PyTorchLightningPruningCallback(trial, f"validation/{value}")
            train(settings, log, [pruning])
    except UserError as error:
        reason = message_of(error).split("\n")[0]
        trial.set_user_attr("failure", reason)
        raise optuna.TrialPruned(reason) from error
    except (Stopped, KeyboardInterrupt) as stopped:
        retry = optuna.storages.RetryHeartbeatStaleTrialCallback()
        retry(trial.study, trial.study.trials[trial.number])
        raise KeyboardInterrupt from stopped
    score = score_of(folder, metric)
    assert score is not None, "the run is done"
    return score
