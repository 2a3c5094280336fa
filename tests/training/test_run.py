"""Whole trainings in seconds: what is left in the folder, what the seed decides, ends that are not the last epoch."""

import io
import json
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import headscope
from headscope.data.batching import TextBatches, encode_texts
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError, RunError, TrainingError, UserWarningMessage
from headscope.heads.capture import capture, headed_layers
from headscope.results.baseline import averages_in_place_of_attention
from headscope.results.scores import scores
from headscope.runs.prediction import split_logits
from headscope.runs.run import load_run
from headscope.settings.checks import flatten, override
from headscope.settings.config import DataConfig, TrainConfig
from headscope.training.module import ClassifierModule
from headscope.training.prepare import prepare, warn_of_cut
from headscope.training.train import train
from headscope.training.trainer import build_trainer
from training_runs import Trained, changed, events_of, reviews

Maker = Callable[..., TrainConfig]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_run(folder).model.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_run_learns_and_leaves_everything_needed_to_use_it(plain: Trained) -> None:
    report, folder = plain.report, plain.folder
    assert report.test.accuracy > 0.9
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] == report.test.accuracy
    assert set(metrics["test"]["classes"]["bad"]) == {"precision", "recall", "f1", "texts"}
    assert set(metrics["baseline"]["classes"]) == {"bad", "good"}
    assert metrics["baseline"]["accuracy"] > 0.9
    assert 0 < metrics["seconds"]["inspection"] < metrics["seconds"]["training"]
    assert json.loads((folder / "labels.json").read_text()) == ["bad", "good"]
    run = load_run(folder)
    assert run.config == changed(report.config, "data.cache_dir", None)
    data = TextDataModule(
        run.config.data, run.config.tokenizer, 0, run.tokenizer, run.evidence or False
    )
    logits, targets = split_logits(run.model, data.loader("test"), torch.device("cpu"))
    assert scores(logits, targets) == report.test  # the kept model is the one that was scored
    assert not list(folder.rglob("*.pkl"))
    assert repr(run) == f"Run({str(folder)!r}, classes: bad, good)"
    names = re.findall(r'"([^"]+)":', json.dumps({**metrics, "labels": 0}))
    assert [name for name in names if not re.fullmatch(r"[a-z0-9_/]+", name)] == []
    assert {*events_of(folder).Tags()["scalars"]} >= {"test/macro_f1", "best_validation/loss"}


def test_maps_are_those_of_each_text_and_a_capture_of_predict_is_an_error(plain: Trained) -> None:
    run = load_run(plain.folder)
    texts = ["the film was lovely " * 4, "dark", "the day was"]
    with (
        capture(run.model),
        pytest.raises(ValueError, match=r"predict: expected no capture .* call run\.maps\(texts\)"),
    ):
        run.predict(texts)
    for text, maps in zip(texts, run.maps(texts), strict=True):
        T = len(run.tokenizer.encode(text))
        assert {tuple(weights.shape) for weights in maps.values()} == {(3, T, T)}
        with capture(run.model) as alone:
            run.model(
                *TextBatches(encode_texts(run.tokenizer, [(text,)], run.evidence))[[0]].inputs
            )
        assert all(torch.equal(weights, alone[name][0]) for name, weights in maps.items())
    assert run.predict(texts) == run.predict(texts)  # the capture has ended
    assert run.maps([]) == []


def test_the_kept_weights_are_those_of_the_lowest_validation_loss(plain: Trained) -> None:
    events, facts = events_of(plain.folder), plain.report.facts_of_training
    best = min(events.Scalars("validation/tempered_loss"), key=lambda scalar: scalar.value)
    assert facts["best_step"] == best.step + 1  # Lightning logs before it counts the step
    line = f"best checkpoint: epoch {facts['best_epoch']} (step {facts['best_step']} of {facts['steps']})"
    assert line in plain.screen
    validations = re.findall("^epoch .*", plain.screen, re.MULTILINE)
    assert len(validations) == 4
    assert max(map(len, validations)) <= 80


def test_the_seed_decides_the_weights_and_neither_name_nor_inspection_nor_a_control(
    small_config: Maker,
) -> None:
    first = weights(train(small_config(max_steps=4)).folder)
    other = changed(small_config("other", max_steps=4), "inspection.enabled", False)
    output = io.StringIO()
    report = train(changed(other, "control", "uniform"), Console(file=output, width=200))
    assert same(weights(report.folder), first)
    seeded = train(changed(changed(other, "seed", 1), "name", "seeded"))
    assert not same(weights(seeded.folder), first)
    metrics = json.loads((report.folder / "metrics.json").read_text())
    assert metrics["control"]["name"] == "averages in place of attention"
    assert metrics["control"].keys() - {"name", "differences"} == metrics["test"].keys()
    assert metrics["baseline"] is None
    mean, low, high = metrics["control"]["differences"]["accuracy"]
    assert low <= mean <= high
    assert metrics["test"]["accuracy"] - metrics["control"]["accuracy"] == pytest.approx(mean)
    assert "percentage points above averages in place of attention: accuracy" in output.getvalue()


def test_a_loss_that_is_not_a_number_stops_with_step_and_checkpoint(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, step = small_config(), ClassifierModule.training_step
    config = override(config, {"inspection.enabled": False})

    def spoilt(module: ClassifierModule, batch: object, index: int) -> torch.Tensor:
        loss = step(module, batch, index)
        return loss * float("nan") if module.trainer.global_step == 14 else loss

    monkeypatch.setattr(ClassifierModule, "training_step", spoilt)
    with pytest.raises(TrainingError, match=r"step 15.*last\.ckpt"):
        train(config)
    kept = torch.load(Path(config.outputs_dir) / "run/checkpoints/last.ckpt", weights_only=True)
    assert kept["global_step"] < 15
    assert all(torch.isfinite(tensor).all() for tensor in kept["state_dict"].values())


def test_weights_that_the_last_step_spoilt_are_not_saved(small_config: Maker) -> None:
    """No loss tells: the only one is of the step before."""
    config = small_config(max_epochs=1)
    rates = {"optimizer.learning_rate": 1e30, "optimizer.warmup_share": 0.0}
    config = override(config, {"data.tokens_per_batch": 2**16, **rates})
    with pytest.raises(TrainingError, match=r"after step 1\. Last good checkpoint: none yet"):
        train(config)
    assert not list((Path(config.outputs_dir) / "run").rglob("*.ckpt"))


def test_a_taken_name_is_refused_and_nothing_is_overwritten(plain: Trained) -> None:
    before = (plain.folder / "metrics.json").read_bytes()
    with pytest.raises(RunError, match="has a run already"):
        train(plain.report.config)
    assert (plain.folder / "metrics.json").read_bytes() == before


def test_a_name_that_is_a_file_is_refused_before_texts_are_loaded(small_config: Maker) -> None:
    config = small_config()
    Path(config.outputs_dir).mkdir()
    (Path(config.outputs_dir) / "run").touch()
    with pytest.raises(RunError, match="run is not a directory; choose another name"):
        train(config)


def test_a_job_of_a_scheduler_is_one_process(
    small_config: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning would refuse, or wait for the others."""
    for name, value in {"NTASKS": "4", "JOB_NAME": "train", "JOB_ID": "7", "PROCID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    prepared = prepare(small_config(), tmp_path, nullcontext, lambda facts: None)
    assert build_trainer(prepared, tmp_path, Console()).world_size == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_loaded(small_config: Maker) -> None:
    config = small_config(accelerator="gpu")
    with pytest.raises(
        ConfigError, match=r"trainer\.accelerator: expected a device that torch finds .*, got 'gpu'"
    ):
        train(config)
    assert not Path(config.outputs_dir).exists()


def test_max_steps_ends_with_a_validation_and_every_phase_has_its_name(small_config: Maker) -> None:
    config = small_config(max_steps=3, accumulate=2)
    config = override(
        config, {"baseline": True, "inspection.num_probes": 0, "inspection.ablation_texts": 8}
    )
    output = io.StringIO()
    report = train(config, Console(file=output, width=200, force_terminal=True))
    phases = (
        "reading texts", "training the tokenizer", "encoding train texts",
        "counting n-grams of train texts", "preparing the network", "0/3",
        "scoring the best checkpoint", "ablating heads", "contributions of heads",
        "baseline: TF-IDF", "pictures for TensorBoard",
    )  # fmt: skip
    places = [output.getvalue().find(name) for name in phases]
    assert min(places) >= 0
    assert places == sorted(places)
    assert report.facts_of_training["steps"] == 3
    events = events_of(report.folder)
    assert [scalar.step for scalar in events.Scalars("heads/entropy_share")] == [0, 3]


def test_a_control_has_uniform_weights_and_learns_values_alone(plain: Trained) -> None:
    run = load_run(plain.folder)
    model = run.model
    encoded = encode_texts(run.tokenizer, [("a lovely day",), ("bad",)], run.evidence)
    inputs = TextBatches(encoded)[[0, 1]].inputs
    model.train()
    with averages_in_place_of_attention(model), capture(model) as maps:
        logits = model(*inputs)
    padding = inputs[1]
    assert padding is not None
    count = (~padding).sum(dim=1)
    for weights in maps.values():
        for row in range(2):
            wanted = (~padding[row]) / count[row]
            torch.testing.assert_close(weights[row], wanted.expand_as(weights[row]))
    logits.sum().backward()
    for name in headed_layers(model):
        query, key, value = model.get_submodule(name).in_proj_weight.grad.chunk(3)
        assert not query.any()
        assert not key.any()
        assert value.any()


def test_train_from_python_has_the_keys_of_the_command_and_returns_the_run(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row | {"label": f"{row['label']}\nnamed"} for row in reviews()]  # a line end in a name
    config = small_config(rows=rows)
    settings = {
        **flatten({"data": asdict(config.data), "model": asdict(config.model)}),
        "outputs_dir": config.outputs_dir,
        "baseline": False,
        "inspection.enabled": False,
    }
    monkeypatch.setattr(time, "strftime", lambda *_: "now")
    trainer = {"max_steps": 1, "accelerator": "cpu", "logger": "csv"}
    runs = [headscope.train(settings, seed=seed, trainer=trainer) for seed in (0, 1)]
    assert [run.folder.name for run in runs] == ["reviews_now", "reviews_now_2"]
    assert (runs[1].config.seed, runs[1].labels) == (1, ["bad\nnamed", "good\nnamed"])
    table = (runs[1].folder / "csv/metrics.csv").read_text()
    assert {"validation/loss", "test/macro_f1"} <= set(table.splitlines()[0].split(","))
    with pytest.raises(ConfigError, match=r"modle: unknown key; did you mean model"):
        headscope.train({"modle.d_model": 3})
    with pytest.raises(ConfigError, match=r"trainer\.logger: .*pip install mlflow"):
        headscope.train(trainer={"logger": "mlflow"})


@pytest.mark.parametrize(
    ("lengths", "budget", "most", "note"),
    [
        ([9] * 90 + [500] * 10, 512, None, None),
        ([9] * 80 + [500] * 20, 512, None, "20% of the training texts are cut at 256 tokens, and 46% of all tokens are not read; data.max_length=512 reads nine in ten whole, in more time"),
        ([900] * 9, 512, None, "100% .* data.max_length=960 .* \\(with data.tokens_per_batch=960\\)"),
        ([900] * 9, 512, 256, "not read; the checkpoint reads at most 256"),
    ],
)  # fmt: skip
def test_where_more_than_a_tenth_is_cut_a_note_says_what_is_lost_and_what_to_do(
    lengths: list[int], budget: int, most: int | None, note: str | None
) -> None:
    whole = np.array(lengths)
    config = DataConfig(max_length=256, tokens_per_batch=budget)
    unread = 1 - whole.clip(max=256).sum() / whole.sum()
    facts = {"whole_lengths": whole, "unread": unread, "rest_counts": False}
    data: Any = SimpleNamespace(config=config, **facts)
    checkpoint: Any = None if most is None else SimpleNamespace(max_tokens=most)
    with pytest.warns(UserWarningMessage, match=note) if note else nullcontext():
        warn_of_cut(data, checkpoint)
