"""A search: what is searched, who is at which trial, and what becomes of trials whose worker is gone."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from headscope.cli import tune as module
from headscope.cli.tune import Job, Outcome, Search, read_space, trial_config, tune
from headscope.command_settings import TuneConfig
from headscope.config import TrainConfig
from headscope.errors import ConfigError
from headscope.training.resume import RunLock
from headscope.validation import to_yaml
from training_runs import configured, reviews, write

RATE = {"optimizer.learning_rate": FloatDistribution(1e-4, 1e-2, log=True)}


def space_file(folder: Path, **lines: str) -> Path:
    path = folder / "space.yaml"
    params = "".join(f"      {key}: {text}\n" for key, text in lines.items())
    path.write_text(f"hydra:\n  sweeper:\n    params:\n{params}")
    return path


# What is searched.


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1,2,4", CategoricalDistribution([1, 2, 4])),
        ("choice(a, 'b c', true)", CategoricalDistribution(["a", "b c", True])),
        ("range(0, 1, 0.25)", FloatDistribution(0, 0.75, step=0.25)),
        ("tag(log, interval(1e-4, 0.01))", FloatDistribution(1e-4, 1e-2, log=True)),
        ("int(interval(2, 8))", IntDistribution(2, 8)),
    ],
)
def test_the_grammar_of_hydra_says_what_is_searched(
    tmp_path: Path, text: str, wanted: BaseDistribution
) -> None:
    assert read_space(str(space_file(tmp_path, **{"model.num_heads": text}))) == {
        "model.num_heads": wanted
    }


def test_the_ready_space_is_one_that_every_trial_can_be_trained_with() -> None:
    space = read_space("learning")
    assert space["model.num_layers"] == IntDistribution(1, 3)
    for end in ("low", "high"):
        values = {
            key: getattr(found, end, None)
            or (found.choices[-1] if isinstance(found, CategoricalDistribution) else 0)
            for key, found in space.items()
        }
        assert (
            trial_config(TuneConfig(space="learning", name="a"), "b", values).outputs_dir
            == "outputs/a"
        )


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (
            "model.num_heads",
            "4",
            "model.num_heads: expected several values, such as 1,2,4 .*, got 4",
        ),
        ("model.num_heads", "'[1,2],[3]'", "expected numbers, words, true, false or null"),
        ("model.num_heads", "[1,2],[3]", "space=.*: while parsing a block mapping"),
        ("model.num_heads", "interval(4, 1)", "model.num_heads: interval"),
        ("model.heads", "1,2", "space: model.heads: unknown key"),
        ("model.num_heads", "a,b", "space: model.num_heads: .*'a'"),
        ("model", "tiny,small", "space: model: expected a group of keys, got 'tiny'"),
    ],
)
def test_what_cannot_be_searched_is_one_line(
    tmp_path: Path, key: str, text: str, said: str
) -> None:
    path = space_file(tmp_path, **{key: text})
    with pytest.raises(ConfigError) as caught:
        tune(TuneConfig(space=str(path), outputs_dir=str(tmp_path / "outputs"), name="a"))
    assert re.search(said, str(caught.value))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "outputs").exists()


def test_a_space_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"space: expected a file like configs/sweep/learning\.yaml, or its name, got 'nowhere'",
    ):
        read_space("nowhere")


# Who is at which trial.


def settings(folder: Path, **more: Any) -> TuneConfig:
    plain = configured(folder)
    kept = {entry.name: getattr(plain, entry.name) for entry in fields(TrainConfig)}
    return TuneConfig(**{**kept, "space": "x", "name": "search", **more})


def worker(folder: Path, space: dict[str, BaseDistribution] | None = None, **more: Any) -> Search:
    config = settings(folder, **more)
    place = Path(config.outputs_dir) / str(config.name)
    place.mkdir(parents=True, exist_ok=True)
    return Search(config, place, space or RATE)


def claimed(search: Search) -> Job:
    job = search.claim()
    assert job is not None
    return job


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replace each training by a file of its score, the learning rate or the number of heads; return their folders."""
    found: list[Path] = []

    def trained(search: Search, job: Job, frozen: Path) -> Outcome:
        found.append(job.folder)
        score = float(next(iter(job.values.values())))
        metrics = {"validation": {"macro_f1": score}, "test": {}, "seconds": {"everything": 1}}
        (job.folder / "config.yaml").write_text(to_yaml(asdict(TrainConfig(name="a"))))
        (job.folder / "metrics.json").write_text(json.dumps(metrics))
        return Outcome(score)

    monkeypatch.setattr(Search, "_trained", trained)
    return found


def test_workers_take_as_many_trials_as_are_wanted_and_no_more(
    tmp_path: Path, trainings: list[Path]
) -> None:
    one, two = worker(tmp_path, trials=5), worker(tmp_path, trials=5)
    while jobs := [job for search in (one, two) if (job := search.claim())]:
        for search, job in zip((one, two), jobs, strict=False):
            search.finish(job, search.run(job))
    assert one.counts() == two.counts() == {"complete": 5}
    assert len({*trainings}) == 5
    assert max(trial.value or 0 for trial in one.study.trials) == one.study.best_value


def test_a_trial_whose_worker_was_killed_is_tried_again_once(
    tmp_path: Path, trainings: list[Path]
) -> None:
    one, two = worker(tmp_path, trials=2), worker(tmp_path, trials=2)
    lost, alive = claimed(one), claimed(two)
    lost.lock.release()  # as the system does when a process is killed
    three = worker(tmp_path, trials=2)
    again = claimed(three)
    assert (again.values, again.folder) == (lost.values, lost.folder)
    assert three.claim() is None  # the other one's worker is at it
    two.finish(alive, two.run(alive))
    three.finish(again, three.run(again))
    assert three.counts() == {"complete": 2, "tried again": 1}
    assert two.claim() is None


def test_a_worker_that_was_killed_as_it_asked_loses_no_trial(
    tmp_path: Path, trainings: list[Path]
) -> None:
    one, two = worker(tmp_path, trials=1), worker(tmp_path, trials=1)
    asked = one.study.ask(RATE)  # and no more
    job = claimed(two)
    assert job.trial.params == asked.params
    two.finish(job, two.run(job))
    assert two.counts() == {"complete": 1, "tried again": 1}


def test_a_training_that_is_still_ending_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = worker(tmp_path, trials=1)
    lost = claimed(one)
    training = RunLock(lost.folder)
    training.take()
    lost.lock.release()
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        training.release()

    monkeypatch.setattr(module.time, "sleep", sleep)
    assert claimed(worker(tmp_path, trials=1)).values == lost.values
    assert waited == [1]


def test_values_that_were_tried_before_are_not_trained_again(
    tmp_path: Path, trainings: list[Path]
) -> None:
    search = worker(tmp_path, {"model.num_heads": CategoricalDistribution([1, 3])}, trials=6)
    while job := search.claim():
        search.finish(job, search.run(job))
    assert search.counts() == {"complete": 6}
    assert len(trainings) == 2
    assert {trial.value for trial in search.study.trials} == {1, 3}


def test_settings_that_do_not_go_together_fail_with_their_reason(
    tmp_path: Path, trainings: list[Path]
) -> None:
    search = worker(tmp_path, {"model.num_heads": CategoricalDistribution([5])}, trials=1)
    job = claimed(search)
    said = search.finish(job, search.run(job))
    assert (
        "failed: space: model.num_heads: expected a divisor of model.d_model=12, got 5; 1 of"
        in said
    )
    assert search.study.trials[0].state == TrialState.FAIL
    assert search.claim() is None
    assert trainings == []


def test_another_search_of_that_name_is_refused(tmp_path: Path) -> None:
    worker(tmp_path)
    assert worker(tmp_path, trials=99).study.user_attrs["settings"]["seed"] == "0"
    with pytest.raises(
        ConfigError, match=r"was started with seed=0; give the same, or another name"
    ):
        worker(tmp_path, seed=1)
    with pytest.raises(ConfigError, match=r"started with no space of model\.num_heads; give"):
        worker(tmp_path, {"model.num_heads": CategoricalDistribution([1, 3])})


def test_what_is_hopeless_is_stopped_and_has_a_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = worker(tmp_path, trials=9)
    for score in range(5):
        job = claimed(search)
        job.trial.report(0.5 + score / 100, 1)
        search.finish(job, Outcome(0.5))
    job = claimed(search)
    # A training that validates once, badly, and would go on for a minute.
    write_one = f"import time; open({str(job.folder / 'validations.json')!r}, 'w').write({{}}); time.sleep(60)"
    content = json.dumps([{"epoch": 1, "step": 9, "macro_f1": 0.1, "accuracy": 0.1, "loss": 2.0}])
    command = [sys.executable, "-c", write_one.format(repr(content))]
    start = subprocess.Popen
    monkeypatch.setattr(module.subprocess, "Popen", lambda _, **options: start(command, **options))
    begun = time.monotonic()
    said = search.finish(job, search.run(job))
    assert time.monotonic() - begun < 20
    assert "pruned at epoch 1; 6 of 9 trials, about" in said
    assert search.counts() == {"complete": 5, "pruned": 1}
    assert {row["status"] for row in module.sweep.write_table(search.folder)} >= {
        "pruned at epoch 1"
    }


def test_less_of_a_loss_is_better(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config.sweep.metric = "loss"
    (tmp_path / "outputs/search").mkdir(parents=True)
    assert Search(config, tmp_path / "outputs/search", RATE).study.direction.name == "MINIMIZE"


# As a user drives it.


def started(words: list[str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "headscope", "tune", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def after(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@pytest.mark.slow
def test_a_search_goes_on_after_its_worker_was_killed_and_ends_with_a_table_and_a_page(
    tmp_path: Path,
) -> None:
    texts = write(tmp_path / "reviews.csv", reviews())
    space = space_file(
        tmp_path,
        **{"optimizer.learning_rate": "tag(log, interval(1e-4, 1e-2))", "model.num_heads": "1,3"},
    )
    words = [
        f"space={space}", "trials=2", "name=search", f"outputs_dir={tmp_path}", f"data.path={texts}",
        f"data.cache_dir={tmp_path}/cache", "model.d_model=12", "model.num_heads=3", "trainer.max_epochs=2",
        "model.feedforward_size=24", "trainer.accelerator=cpu", "baseline=false", "inspection.enabled=false",
    ]  # fmt: skip
    folder = tmp_path / "search"
    killed, stopped = started(words), started(words)
    after(killed, lambda: len([*folder.glob("*/validations.json")]) == 2)
    killed.kill()
    killed.communicate()
    stopped.send_signal(signal.SIGINT)
    stopped.communicate(timeout=60)
    assert stopped.returncode == 130
    worker = started(words)
    output, errors = worker.communicate(timeout=240)
    assert worker.returncode == 0, errors
    with (folder / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert {re.sub(r" at epoch \d", "", row["status"]) for row in rows} <= {"done", "pruned"}
    assert re.search("[12] tried again", output)
    assert "best again: headscope train --config-dir" in output
    assert (folder / "best.yaml").exists()
    page = (folder / "study.html").read_text(encoding="utf-8")
    assert "optimizer.learning_rate" in page
    assert 'src="http' not in page
