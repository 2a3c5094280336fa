"""Whole runs on texts with any number of labels: what is learned, kept and shown, and every script on such a run."""

import csv
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headscope.commands.config import EvaluateConfig, InspectConfig, PredictConfig
from headscope.commands.evaluate import evaluate
from headscope.commands.inspect import inspect, measure
from headscope.commands.predict import predict
from headscope.data.config import DataConfig
from headscope.errors import ConfigError, DataError, RunError
from headscope.inspection.record import read_index, read_step
from headscope.model.objective import AnyClasses
from headscope.training import session as session_module
from headscope.training.config import TrainConfig
from headscope.training.folder import load_run
from headscope.training.report import Report
from headscope.training.run import train
from headscope.training.scoring import MultiLabelScores
from interrupting import InterruptAt

Maker = Callable[..., TrainConfig]
WORDS = {"food": ["soup", "bread"], "place": ["garden", "terrace"], "staff": ["waiter", "cook"]}
LABELS = list(WORDS)
FILLER = ["the", "a", "it", "was", "and", "very", "quite", "rather", "so", "in", "of", "with"]


def made(count: int, seed: int = 0) -> list[dict[str, object]]:
    """Texts whose labels are each told by one word among filler; an eighth of them has no label."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for number in range(count):
        labels = [label for place, label in enumerate(LABELS) if number >> place & 1]
        words = draw.choices(FILLER, k=draw.randint(3, 9)) + [draw.choice(WORDS[label]) for label in labels]
        draw.shuffle(words)
        rows.append({"text": " ".join(words), "kinds": labels})
    return rows


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def several(small_config: Maker, tmp_path: Path) -> Maker:
    """Return a maker of configurations of runs on such texts."""

    def make(name: str = "run", rows: int = 320, **trainer: object) -> TrainConfig:
        config = small_config(name, **trainer)
        path = write_jsonl(tmp_path / "comments.jsonl", made(rows))
        data = replace(config.data, path=path, label_column="kinds", multi_label=True)
        return replace(config, data=data)

    return make


@pytest.fixture(scope="module")
def finished() -> dict[str, Report]:
    return {}


@pytest.fixture
def report(finished: dict[str, Report], several: Maker, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return a run that was trained to the end, made once."""
    if not finished:
        config = several(max_epochs=12)
        config.baseline, config.inspection.causes = True, 24
        kept = tmp_path_factory.mktemp("kept")
        config.data.path = write_jsonl(kept / "comments.jsonl", made(320))
        config.data.cache_dir, config.outputs_dir = str(kept / "cache"), str(kept / "outputs")
        with (kept / "screen.txt").open("w") as screen:
            finished["run"] = train(config, Console(file=screen, width=120))
    return finished["run"]


def test_what_is_easy_is_learned_and_everything_is_kept(report: Report) -> None:
    assert isinstance(report.test, MultiLabelScores)
    assert isinstance(report.baseline, MultiLabelScores)
    assert report.test.macro_f1 > 0.9
    assert report.test.micro_f1 > 0.9
    assert report.test.accuracy > 0.75
    assert report.baseline.macro_f1 > 0.9
    metrics = json.loads((report.folder / "metrics.json").read_text())
    assert metrics["test"]["micro_f1"] == report.test.micro_f1
    assert np.array(metrics["test"]["confusion"]).shape == (3, 2, 2)
    assert np.array(metrics["test"]["confusion"]).sum() == 3 * len(report.targets)
    assert metrics["data"]["mean labels of a text"] == pytest.approx(1.5, abs=0.05)
    thresholds = json.loads((report.folder / "thresholds.json").read_text())
    assert list(thresholds) == report.labels == LABELS
    assert all(0 < threshold < 1 for threshold in thresholds.values())
    objective = load_run(report.folder).objective
    assert isinstance(objective, AnyClasses)
    assert objective.thresholds is not None
    assert objective.thresholds.tolist() == list(thresholds.values())


def test_the_screen_and_tensorboard_have_a_table_for_each_class(report: Report) -> None:
    shown = (report.folder.parents[1] / "screen.txt").read_text()
    assert "micro-F1" in shown
    assert "has, not given" in shown
    assert all(label in shown for label in LABELS)
    events = EventAccumulator(str(report.folder), size_guidance={"images": 0, "tensors": 0}).Reload()
    tags = events.Tags()
    assert {f"test/confusion/{label}" for label in LABELS} <= set(tags["images"])
    assert {f"test/{label}" for label in LABELS} <= set(tags["tensors"])
    assert {"test/micro_f1", "baseline/micro_f1", "validation/macro_f1", "validation/accuracy"} <= set(tags["scalars"])
    assert "_hparams_/session_start_info" in events.summary_metadata
    texts = [events.Tensors(f"probe_{number}/text_summary")[-1].tensor_proto.string_val[0] for number in range(2)]
    assert b"food" in texts[0]  # the classes in turn
    assert b"place" in texts[1]


def test_the_kept_weights_are_those_of_the_best_macro_f1_at_the_best_thresholds(report: Report) -> None:
    events = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload()
    scored = {scalar.step: scalar.value for scalar in events.Scalars("validation/macro_f1")}
    best = max(scored, key=scored.__getitem__)
    assert report.facts_of_training["best validation macro-F1"] == pytest.approx(scored[best])
    found = evaluate(EvaluateConfig(run=str(report.folder), split="validation", accelerator="cpu"))
    assert found.macro_f1 == pytest.approx(scored[best], abs=1e-6)


def test_the_record_says_which_classes_a_text_is_given(report: Report) -> None:
    index = read_index(report.folder / "heads")
    assert index.classes == LABELS
    assert all(text.label is not None and set(text.label.split(", ")) <= {*LABELS, "none"} for text in index.texts)
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    given = arrays["text_0/probabilities"] >= 0.5  # until the thresholds are chosen
    assert arrays["text_0/given"].tolist() == given.astype(int).tolist()
    kept = read_step(report.folder / "heads" / f"step_{report.facts_of_training['kept step']:012d}.npz")
    for name in ("loss_zeroed", "accuracy_zeroed", "gate_gradient", "comprehensiveness"):
        assert np.isfinite(kept[f"numbers/{name}/mean"]).all()
    assert (kept["numbers/gate_gradient/mean"] > 0).any()


def test_evaluating_gives_the_scores_of_training_and_those_of_other_data(report: Report, tmp_path: Path) -> None:
    folder = str(report.folder)
    assert evaluate(EvaluateConfig(run=folder, accelerator="cpu")) == report.test
    rows = [f"{row['text']},{';'.join(row['kinds'])}" for row in made(40, seed=1)]  # type: ignore[arg-type]
    (tmp_path / "new.csv").write_text("\n".join(["text,kinds", *rows]), encoding="utf-8")
    data = DataConfig(path=str(tmp_path / "new.csv"), label_column="kinds", cache_dir=str(tmp_path))
    found = evaluate(EvaluateConfig(run=folder, accelerator="cpu", data=data))
    assert isinstance(found, MultiLabelScores)
    assert found.macro_f1 > 0.8
    assert (report.folder / "evaluations/new-train.json").exists()


def test_predictions_are_lists_or_joined_and_follow_the_thresholds(report: Report, tmp_path: Path) -> None:
    rows = made(60, seed=2)
    source, folder = write_jsonl(tmp_path / "in.jsonl", rows), str(report.folder)
    for ending in ("jsonl", "csv"):
        predict(PredictConfig(folder, source, str(tmp_path / f"out.{ending}"), accelerator="cpu"))
    lists = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    thresholds = json.loads((report.folder / "thresholds.json").read_text())
    for row, cell in zip(lists, cells, strict=True):
        given = [label for label in LABELS if row[f"probability_{label}"] >= thresholds[label]]
        assert row["prediction"] == given
        assert cell["prediction"] == ";".join(given)
    assert sum(row["prediction"] == row["kinds"] for row in lists) > 45
    assert [] in [row["prediction"] for row in lists]


def test_other_thresholds_give_other_predictions(several: Maker, tmp_path: Path) -> None:
    folder, source = train(several(max_epochs=1)).folder, write_jsonl(tmp_path / "in.jsonl", made(9))
    (folder / "thresholds.json").write_text(json.dumps({"food": 0.0, "place": 1.1, "staff": 0.0}))
    predict(PredictConfig(str(folder), source, str(tmp_path / "out.jsonl"), accelerator="cpu"))
    assert {line.split('"prediction": ')[1][:17] for line in (tmp_path / "out.jsonl").read_text().splitlines()} == {
        '["food", "staff"]'
    }
    for broken in ("{}", "[", '{"food": "a", "place": 1, "staff": 1}'):
        (folder / "thresholds.json").write_text(broken)
        with pytest.raises(RunError, match="a file there is broken"):
            load_run(folder)


def test_a_text_is_inspected_with_all_that_it_is_given(report: Report, tmp_path: Path) -> None:
    config = InspectConfig(run=str(report.folder), text="the soup and the cook", label="staff; food", accelerator="cpu")
    page = inspect(config).read_text(encoding="utf-8")
    assert '"label":"food, staff"' in page
    assert '"prediction":"food, staff"' in page
    newest = max((report.folder / "inspect").glob("*/heads"))
    assert read_step(newest / read_index(newest).steps[0].file)["text_0/given"].tolist() == [1, 0, 1]
    nothing = replace(config, text="it was and very", label="", output=str(tmp_path / "none.html"))
    assert '"label":"none","prediction":"none"' in inspect(nothing).read_text(encoding="utf-8")


def test_every_head_is_measured(report: Report) -> None:
    measured = json.loads(measure(InspectConfig(run=str(report.folder), texts=16, accelerator="cpu")).read_text())
    assert measured["texts"] == 16
    head = measured["heads"]["layer 1"][2]
    assert {"loss_zeroed", "accuracy_averaged", "gate_gradient", "sufficiency"} <= set(head)
    assert set(measured["choosers"]) == {"rollout", "gradient", "chance"}


def test_a_resumed_run_ends_as_an_unbroken_one(several: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken, broken = train(several("unbroken")), several("broken")
    steps, callbacks = unbroken.facts_of_training["steps"], session_module.Session._callbacks
    monkeypatch.setattr(
        session_module.Session, "_callbacks", lambda *args: [*callbacks(*args), InterruptAt(steps // 2)]
    )
    with pytest.raises(KeyboardInterrupt):
        train(broken)
    folder = Path(broken.outputs_dir) / "broken"
    assert set(json.loads((folder / "thresholds.json").read_text())) == set(LABELS)  # what was learned can be used
    monkeypatch.setattr(session_module.Session, "_callbacks", callbacks)
    broken.resume = str(folder)
    resumed = train(broken)
    assert resumed.facts_of_training["steps"] == steps
    last = [torch.load(path / "checkpoints/last.ckpt", weights_only=True) for path in (folder, unbroken.folder)]
    torch.testing.assert_close(last[0]["state_dict"], last[1]["state_dict"], rtol=0, atol=1e-4)


def test_weights_and_smoothing_are_used(several: Maker) -> None:
    plain, unweighted, smoothed = several("plain", max_steps=4), several("none", max_steps=4), several("s", max_steps=4)
    unweighted.data.path = plain.data.path
    unweighted.optimizer.class_weights, smoothed.optimizer.label_smoothing = "none", 0.3
    # Half of the texts have each class, so balanced weights are near 1: a rarer class tells them apart.
    rows = [row | {"kinds": row["kinds"] if number % 3 else ["food"]} for number, row in enumerate(made(320))]
    write_jsonl(Path(plain.data.path), rows)
    weights = [load_run(train(config).folder).model.state_dict() for config in (plain, unweighted, smoothed)]
    for other in weights[1:]:
        assert any(not torch.equal(tensor, other[name]) for name, tensor in weights[0].items())


def test_pairs_of_texts_with_any_number_of_labels_are_trained_on(several: Maker) -> None:
    config = several(max_steps=3)
    rows = [{**row, "other": other["text"]} for row, other in zip(made(160), made(160, seed=3), strict=True)]
    write_jsonl(Path(config.data.path), rows)
    config.data.text_pair_column = "other"
    assert isinstance(train(config).test, MultiLabelScores)


def test_labels_that_a_run_was_not_trained_on_are_refused(
    report: Report, several: Maker, small_config: Maker, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"set data\.multi_label=true"):
        train(replace(several(), data=replace(several().data, multi_label=False)))
    single = train(small_config("single", max_steps=2)).folder
    data = replace(several().data, cache_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"data\.multi_label: .* was trained on texts of one label each"):
        evaluate(EvaluateConfig(run=str(single), accelerator="cpu", data=data))
