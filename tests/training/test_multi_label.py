"""Whole runs on texts with any number of labels: what is learned, kept and shown, and every command on such a run."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headscope.cli.evaluate import evaluate
from headscope.cli.predict import predict
from headscope.ground.errors import ConfigError, DataError
from headscope.model.objective import thresholds_of
from headscope.record.reader import read_index, read_step
from headscope.results.metrics import Results
from headscope.runs.run import load_run
from headscope.settings.commands import (
    EvaluateConfig,
    OtherDataConfig,
    PredictConfig,
)
from headscope.settings.config import TrainConfig
from headscope.training.train import train
from training_runs import Trained, comments, events_of, write

Maker = Callable[..., TrainConfig]
LABELS = ["food", "place", "staff"]


@pytest.fixture
def report(any_classes: Trained) -> Results:
    return any_classes.report


def test_what_is_easy_is_learned_and_everything_is_kept(report: Results) -> None:
    assert report.test.micro_f1 is not None
    baseline = report.compared["baseline"].scores
    assert baseline.micro_f1 is not None
    assert report.test.macro_f1 > 0.9
    assert report.test.micro_f1 > 0.9
    assert report.test.accuracy > 0.75
    assert baseline.macro_f1 > 0.9
    metrics = json.loads((report.folder / "metrics.json").read_text())
    assert metrics["test"]["micro_f1"] == report.test.micro_f1
    assert np.array(metrics["test"]["confusion"]).shape == (3, 2, 2)
    assert np.array(metrics["test"]["confusion"]).sum() == 3 * len(report.targets)
    assert report.labels == LABELS
    assert all(0 < threshold < 1 for threshold in metrics["thresholds"])
    assert thresholds_of(load_run(report.folder).objective) == metrics["thresholds"]


def test_the_screen_and_tensorboard_have_a_table_for_each_class(
    any_classes: Trained, report: Results
) -> None:
    shown = any_classes.screen
    assert "micro-F1" in shown
    assert all(label in shown for label in LABELS)
    events = events_of(report.folder)
    tags = events.Tags()
    assert {f"test/confusion/{label}" for label in LABELS} <= set(tags["images"])
    assert {f"test/{label}" for label in LABELS} <= set(tags["tensors"])
    assert {"test/micro_f1", "baseline/micro_f1", "validation/accuracy"} <= set(tags["scalars"])
    assert "_hparams_/session_start_info" in events.summary_metadata


def test_the_record_says_which_classes_a_text_is_given(report: Results) -> None:
    index = read_index(report.folder / "heads")
    assert index.classes == LABELS
    assert all(
        text.label is not None and set(text.label.split(", ")) <= {*LABELS, "none"}
        for text in index.texts
    )
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    given = arrays["text_0/probabilities"] >= 0.5  # until the thresholds are chosen
    assert arrays["text_0/given"].tolist() == given.astype(int).tolist()
    kept = read_step(
        report.folder / "heads" / f"step_{report.facts_of_training['best_step']:012d}.npz"
    )
    for name in ("loss_zeroed", "accuracy_zeroed"):
        assert np.isfinite(kept[f"numbers/{name}/mean"]).all()


def test_evaluating_gives_the_scores_of_training_and_those_of_other_data(
    any_classes: Trained, report: Results, tmp_path: Path
) -> None:
    folder = str(any_classes.copy(tmp_path))
    assert evaluate(EvaluateConfig(run=folder, accelerator="cpu")) == report.test
    # The best weights are those of the lowest loss, scored at the best thresholds.
    events = events_of(report.folder)
    scored = {scalar.step: scalar.value for scalar in events.Scalars("validation/macro_f1")}
    lowest = min(events.Scalars("validation/tempered_loss"), key=lambda scalar: scalar.value)
    assert report.facts_of_training["best_validation_loss"] == pytest.approx(lowest.value)
    assert report.validation.macro_f1 == pytest.approx(scored[lowest.step], abs=1e-6)
    rows = [row | {"label": ";".join(row["label"])} for row in comments(40, seed=1)]
    data = OtherDataConfig(path=write(tmp_path / "new.csv", rows), cache_dir=str(tmp_path))
    found = evaluate(EvaluateConfig(run=folder, accelerator="cpu", data=data))
    assert found.micro_f1 is not None
    assert found.macro_f1 > 0.8
    assert (Path(folder) / "evaluations/new.json").exists()


def test_predictions_are_lists_or_joined_and_follow_the_thresholds(
    report: Results, tmp_path: Path
) -> None:
    rows = comments(60, seed=2)
    source, folder = write(tmp_path / "in.jsonl", rows), str(report.folder)
    for ending in ("jsonl", "csv"):
        predict(PredictConfig(folder, source, str(tmp_path / f"out.{ending}"), accelerator="cpu"))
    lists = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    chosen = thresholds_of(load_run(folder).objective)
    assert chosen is not None
    thresholds = dict(zip(LABELS, chosen, strict=True))
    for row, cell in zip(lists, cells, strict=True):
        given = [label for label in LABELS if row[f"probability_{label}"] >= thresholds[label]]
        assert row["prediction"] == given
        assert cell["prediction"] == ";".join(given)
    assert sum(row["prediction"] == row["label"] for row in lists) > 45
    assert [] in [row["prediction"] for row in lists]


def test_labels_that_a_run_was_not_trained_on_are_refused(
    plain: Trained, small_config: Maker
) -> None:
    config = small_config(rows=comments())
    with pytest.raises(DataError, match=r"with data\.multi_label=true"):
        train(replace(config, data=replace(config.data, multi_label=False)))
    assert not Path(config.outputs_dir).exists()  # the name of the run is free
    with pytest.raises(
        ConfigError, match=r"data\.multi_label: .* was trained on texts of one label each"
    ):
        evaluate(
            EvaluateConfig(
                run=str(plain.folder),
                accelerator="cpu",
                data=OtherDataConfig(path=config.data.path, multi_label=True),
            )
        )
