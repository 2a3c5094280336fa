"""After training: a step that fails leaves a run that can be used, and a note with what to do."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headscope
from headscope.cli.sweep import finished_metrics, score_of
from headscope.settings.checks import override
from headscope.settings.config import TrainConfig
from headscope.training import finish
from headscope.training.finish import STEPS, affordable_texts
from headscope.training.train import train

Maker = Callable[..., TrainConfig]
SCORES = {"test", "validation", "labels", "data", "versions"}


def all_steps(small_config: Maker, **trainer: Any) -> TrainConfig:
    changes = {"control": "uniform", "baseline": True, "inspection.ablation_texts": 8}
    return override(small_config(max_steps=1, **trainer), changes)


@pytest.mark.parametrize("failing", [step.name for step in STEPS])
def test_a_step_that_fails_does_not_lose_the_run(
    failing: str, small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def instead(step: finish.Step) -> finish.Step:
        def do(trained: finish.Trained, bar: Any) -> None:
            kept = json.loads((trained.results.folder / "metrics.json").read_text())
            assert kept["pending"][0] == step.name, "the scores are written before each step"
            assert kept.keys() >= SCORES
            if step.name == failing:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            done.append(step.name)

        return replace(step, do=do)

    monkeypatch.setattr(finish, "STEPS", [*map(instead, STEPS)])
    config = all_steps(small_config)
    with pytest.warns(UserWarning, match="not enough memory: CUDA out of memory.*do it later: hea"):
        report = train(config)
    assert report is not None
    assert done == [step.name for step in STEPS if step.name != failing]
    metrics = json.loads((report.folder / "metrics.json").read_text())
    assert (metrics["pending"], [*metrics["failed"]]) == ([], [failing])
    assert failing in metrics["seconds"], "a sweep tells by it what was tried"
    command = "headscope report run=" if failing == "words" else "headscope train resume="
    assert f"do it later: {command}{report.folder}" in metrics["failed"][failing]
    assert score_of(report.folder, "accuracy") == metrics["validation"]["accuracy"]
    assert headscope.load(report.folder).predict(["a lovely film"])[0].label in ("bad", "good")


@pytest.mark.parametrize(
    ("num_heads", "seen", "texts"),
    [
        (8, 100, 1250),  # few heads are measured in seconds
        (72, 2 * 9_180, 138),  # MiniLM after rotten_tomatoes, by MOST_RUNS
        (72, 2 * 4_000, 118),  # 0.2 * 3 * 8,000 passes; 81 sets of heads take half a pass a text
        (72, 2 * 540, 60),
    ],
)
def test_ablating_many_heads_takes_at_most_a_fifth_of_the_passes_of_training(
    num_heads: int, seen: int, texts: int
) -> None:
    assert affordable_texts(num_heads, seen) == texts


def test_what_failed_is_done_by_the_command_that_the_note_names(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(trained: finish.Trained, bar: Any) -> None:
        raise MemoryError

    config = all_steps(small_config)
    monkeypatch.setattr(finish, "STEPS", [replace(step, do=fail) for step in STEPS])
    with pytest.warns(UserWarning, match="do it later"):
        report = train(config)
    assert report is not None
    monkeypatch.setattr(finish, "STEPS", STEPS)
    folder = Path(report.folder)
    train(replace(report.config, resume=str(folder)))
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["pending"], metrics["failed"]) == ([], {})
    assert {"ablation", "contributions", "words"} <= metrics["training"].keys()
    assert (
        "accuracy" in metrics["baseline"]["differences"].keys() & metrics["control"]["differences"]
    )
    assert (folder / "report.html").exists()


def test_a_run_that_was_killed_between_two_steps_has_not_finished(tmp_path: Path) -> None:
    metrics = {"validation": {"accuracy": 0.9}, "pending": ["baseline"]}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    assert finished_metrics(tmp_path) is None
    assert score_of(tmp_path, "accuracy") is None
