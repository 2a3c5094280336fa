"""A search: what is searched, how many trials there are, and what becomes of those that are stopped."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from optuna import TrialPruned

from headscope.cli import tune as module
from headscope.cli.tune import read_space, tune
from headscope.ground.errors import ConfigError, TrainingError
from headscope.ground.signals import Stopped
from headscope.runs.folder import save_config, save_json
from headscope.settings.commands import TuneConfig
from headscope.settings.config import SweepConfig, TrainConfig
from training_runs import configured, reviews, write

RATE = {"optimizer.learning_rate": {"low": 0.001, "high": 0.1, "log": True}}
Score = Callable[[TrainConfig, Any], float]


def settings(folder: Path, space: Any = RATE, **more: Any) -> TuneConfig:
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump(space))
    plain = configured(folder)
    kept = {entry.name: getattr(plain, entry.name) for entry in fields(TrainConfig)}
    return TuneConfig(**{**kept, "space": str(path), "name": "search", **more})


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[[Score], list[TrainConfig]]:
    """Return what puts a function of the settings and the trial in place of training; it returns the settings."""

    def put(score: Score) -> list[TrainConfig]:
        found: list[TrainConfig] = []

        def train(config: TrainConfig, console: Any, callbacks: Sequence[Any]) -> None:
            found.append(config)
            folder = Path(config.outputs_dir) / str(config.name)
            save_config(folder, config)
            value = score(config, callbacks[0]._trial)
            metrics = {"validation": {"macro_f1": value, "loss": -value}}
            metrics["calibration"] = {"validation": {"loss": {"before": -value, "after": value}}}
            save_json(folder / "metrics.json", metrics)

        monkeypatch.setattr(module, "train", train)
        return found

    return put


def table(folder: Path) -> pandas.DataFrame:
    return pandas.read_csv(folder / "outputs/search/trials.csv")


def test_the_default_space_is_one_that_every_trial_can_be_trained_with() -> None:
    space = read_space(TuneConfig())
    last = {
        key: found[-1] if isinstance(found, list) else found["high"] for key, found in space.items()
    }
    assert module.trial_config(TuneConfig(name="a"), "b", last).outputs_dir == "outputs/a"


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"model.num_heads": 4}, r"space=.*: expected lines such as 'model\.num_heads: \[2, 4\]'"),
        ({"model.num_heads": {"low": 4, "high": 1}}, "expected lines such as .*low"),
        ({"model.dropout": {"low": 0.1, "most": 1}}, "expected lines such as .*high"),
        ({"model.num_heads": []}, "expected lines such as"),
        (["model.num_heads"], "expected lines such as"),
        ({"model.heads": [1, 2]}, r"space: model\.heads: unknown key"),
        ({"model.num_heads": ["a", "b"]}, r"space: model\.num_heads: .*'a'"),
    ],
)
def test_what_cannot_be_searched_is_one_line(tmp_path: Path, space: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        tune(settings(tmp_path, space))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(("metric", "best_of"), [("macro_f1", max), ("loss", min)])
def test_a_study_has_as_many_trials_as_are_wanted_and_the_best_is_written(
    tmp_path: Path, trained: Callable[[Score], list[TrainConfig]], metric: str, best_of: Any
) -> None:
    runs = trained(lambda config, trial: config.optimizer.learning_rate)
    by_metric = SweepConfig(metric)
    for trials in (3, 5, 5):
        tune(settings(tmp_path, trials=trials, sweep=by_metric))
    assert [config.name for config in runs] == [f"trial-{number}" for number in range(5)]
    rates = [config.optimizer.learning_rate for config in runs]
    best = yaml.safe_load((tmp_path / "outputs/search/best.yaml").read_text())
    assert best["optimizer"]["learning_rate"] == best_of(rates)
    assert [*table(tmp_path)["value"]] == rates
    with pytest.raises(ConfigError, match="was started with seed=0; give the same, or another"):
        tune(settings(tmp_path, seed=1, sweep=by_metric))
    with pytest.raises(ConfigError, match="was started with space="):
        tune(settings(tmp_path, {"model.num_heads": [1, 3]}, sweep=by_metric))


def test_what_is_behind_or_cannot_be_trained_is_pruned_with_its_reason(
    tmp_path: Path, trained: Callable[[Score], list[TrainConfig]]
) -> None:
    def score(config: TrainConfig, trial: Any) -> float:
        trial.report(0.5 if trial.number < 5 else 0.1, 1)
        if trial.number == 6:
            raise TrainingError("the loss is NaN")
        if trial.should_prune():
            raise TrialPruned
        return 0.5

    trained(score)
    tune(settings(tmp_path, trials=7))
    found = table(tmp_path)
    assert [*found["state"]] == ["COMPLETE"] * 5 + ["PRUNED"] * 2
    assert found["user_attrs_failure"][6] == "the loss is NaN"


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Stopped(signal.SIGTERM)])
def test_a_trial_that_is_stopped_is_resumed_by_the_next_worker(
    tmp_path: Path, trained: Callable[[Score], list[TrainConfig]], stop: BaseException
) -> None:
    stops = iter([stop])

    def score(config: TrainConfig, trial: Any) -> float:
        for one in stops:
            raise one
        return 0.5

    runs = trained(score)
    with pytest.raises(type(stop)):
        tune(settings(tmp_path, trials=2))
    tune(settings(tmp_path, trials=2))
    assert [run.name for run in runs] == ["trial-0", "trial-0", "trial-2"]
    assert runs[1].resume == str(tmp_path / "outputs/search/trial-0")
    assert runs[0].optimizer.learning_rate == runs[1].optimizer.learning_rate
    assert [*table(tmp_path)["state"]] == ["FAIL", "COMPLETE", "COMPLETE"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")
def test_a_trial_whose_worker_was_killed_is_resumed_from_its_last_epoch(
    command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write(tmp_path / "reviews.csv", reviews())
    space = tmp_path / "space.yaml"
    space.write_text("model.num_heads: [1, 3]")
    words = [
        f"space={space}", "trials=1", "name=search", f"outputs_dir={tmp_path}", f"data.path={texts}",
        f"data.cache_dir={tmp_path}/cache", "model.d_model=12", "model.num_heads=3", "trainer.max_epochs=8", "trainer.epoch_steps=1",
        "model.feedforward_size=24", "trainer.accelerator=cpu", "baseline=false", "inspection.enabled=false",
    ]  # fmt: skip
    start = "import headscope.cli.tune as t; t.HEARTBEAT_SECONDS = 1; from headscope.__main__ import main; main()"
    run = tmp_path / "search/trial-0"
    started = [sys.executable, "-c", start, "tune", *words]
    killed = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (run / "checkpoints/last.ckpt").exists():
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.1)
    killed.kill()
    killed.communicate()
    time.sleep(3)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 1)
    said = command("tune", *words)
    assert re.search(r"trial 1, macro_f1 0\.\d+: model\.num_heads=[13]", said)
    assert "best again: headscope train --config-dir" in said
    assert (run / "metrics.json").exists()
    assert not (tmp_path / "search/trial-1").exists()
    assert "epoch  8" in (run / "log.txt").read_text()
