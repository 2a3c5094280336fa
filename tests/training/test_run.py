"""Whole trainings in seconds: what is left in the folder, resume, determinism, and ends that are not the last epoch."""

import io
import json
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headscope.commands.config import InspectConfig
from headscope.commands.inspect import measure
from headscope.data.batching import TextBatches
from headscope.data.datamodule import TextDataModule
from headscope.errors import ConfigError, RunError, TrainingError
from headscope.inspection.capture import capture
from headscope.inspection.measures import HeadStatistics
from headscope.inspection.record import read_index, read_step
from headscope.settings import problems
from headscope.training import run as run_module
from headscope.training import session as session_module
from headscope.training.config import TrainConfig, TrainerConfig
from headscope.training.folder import load_run
from headscope.training.logits import split_logits
from headscope.training.precision import chosen_precision
from headscope.training.probes import make_probe
from headscope.training.run import train
from headscope.training.scoring import scores
from headscope.training.stopping import Patience
from headscope.training.study import sample
from interrupting import InterruptAt

Maker = Callable[..., TrainConfig]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_run(folder).model.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_run_learns_and_leaves_everything_needed_to_use_it(small_config: Maker) -> None:
    config = small_config(max_epochs=6)
    config.baseline = True
    report = train(config)
    folder = report.folder
    assert report.test.accuracy > 0.9
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] == report.test.accuracy
    assert metrics["baseline"]["accuracy"] > 0.9
    assert 0 < metrics["seconds"]["inspection (within training)"] < metrics["seconds"]["training"]
    assert 0 <= metrics["data"]["share of padding"] < 0.5
    assert json.loads((folder / "labels.json").read_text()) == ["bad", "good"]
    run = load_run(folder)
    assert run.config == config
    data = TextDataModule(run.config.data, run.config.tokenizer, 0, run.tokenizer, run.evidence or False)
    logits, targets = split_logits(run.model, data.loader("test"), torch.device("cpu"))
    assert scores(logits, targets) == report.test  # the kept model is the one that was scored
    assert not list(folder.rglob("*.pkl"))
    for checkpoint in (folder / "checkpoints").iterdir():
        torch.load(checkpoint, weights_only=True)  # nothing that would have to be trusted


def test_tensorboard_holds_every_head_at_step_zero_and_each_validation(small_config: Maker) -> None:
    report = train(small_config(max_epochs=2))
    events = EventAccumulator(str(report.folder), size_guidance={"images": 0, "scalars": 0, "tensors": 0}).Reload()
    tags, steps = events.Tags(), [0, report.facts_of_training["steps"] // 2, report.facts_of_training["steps"]]
    for layer in range(2):
        for head in range(3):
            for number in ("entropy", "mean_distance", "self", "previous", "next", "first"):
                scalars = events.Scalars(f"heads/layer_{layer}/head_{head}/{number}")
                assert [scalar.step for scalar in scalars] == steps
    assert [image.step for image in events.Images("attention/probe_1")] == steps
    assert events.Images("attention/probe_0")[0].encoded_image_string.startswith(b"\x89PNG")
    assert [image.step for image in events.Images("tokens/probe_0/layer_1")] == steps[-1:]
    assert [tensor.step for tensor in events.Tensors("probe_0/text_summary")] == steps
    assert {"test/confusion"} <= set(tags["images"])
    assert {"test/accuracy", "validation/macro_f1", "train/loss"} <= set(tags["scalars"])
    assert {"test/bad", "test/good"} <= set(tags["tensors"])
    assert "_hparams_/session_start_info" in events.summary_metadata


@pytest.mark.parametrize("pooling", ["additive", "dot"])
def test_a_pooling_that_attends_is_shown_beside_the_heads(small_config: Maker, pooling: str) -> None:
    config = small_config(max_epochs=1)
    config.model.pooling = pooling
    config.model.attention, config.model.causal = "shared_projection", True
    folder = train(config).folder
    events = EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0}).Reload()
    steps = [scalar.step for scalar in events.Scalars("pooling/entropy")]
    assert steps == [image.step for image in events.Images("attention/probe_0")]
    assert len(steps) == 2
    assert 0 <= events.Scalars("pooling/first")[-1].value <= 1
    assert len(events.Images("tokens/probe_1/pooling")) == 1
    assert (
        "pooling/entropy"
        not in EventAccumulator(str(train(small_config("mean", max_epochs=1)).folder)).Reload().Tags()["scalars"]
    )


def test_inspection_does_not_change_the_training(small_config: Maker) -> None:
    inspected, plain = small_config("inspected"), small_config("plain")
    plain.inspection.enabled = False
    assert same(weights(train(inspected).folder), weights(train(plain).folder))


def test_the_same_seed_gives_the_same_run_and_another_seed_another(small_config: Maker) -> None:
    first, second, other = (small_config(name) for name in ("a", "b", "c"))
    other.seed = 1
    reports = [train(config) for config in (first, second, other)]
    assert reports[0].test == reports[1].test
    assert same(weights(reports[0].folder), weights(reports[1].folder))
    assert not same(weights(reports[0].folder), weights(reports[2].folder))


@pytest.mark.parametrize(("ema_decay", "accumulate"), [(None, 1), (0.9, 1), (None, 3)])
def test_ctrl_c_saves_and_a_resumed_run_ends_as_an_unbroken_one(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch, ema_decay: float | None, accumulate: int
) -> None:
    handler = signal.getsignal(signal.SIGINT)  # none in a shell's background
    unbroken = train(small_config("unbroken", ema_decay=ema_decay, accumulate=accumulate))
    steps = unbroken.facts_of_training["steps"]
    broken = small_config("broken", ema_decay=ema_decay, accumulate=accumulate)
    callbacks = session_module.Session._callbacks
    # Of three batches of a step the second: the third is gone through, since gradients are not kept.
    pressed = InterruptAt(steps // 2 if accumulate == 1 else 5)
    monkeypatch.setattr(session_module.Session, "_callbacks", lambda *args: [*callbacks(*args), pressed])
    with pytest.raises(KeyboardInterrupt, match=f"step {steps // 2 if accumulate == 1 else 2};"):
        train(broken)
    folder = Path(broken.outputs_dir) / "broken"
    assert load_run(folder).labels == ["bad", "good"]  # what was learned can be used
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.setattr(session_module.Session, "_callbacks", callbacks)
    broken.resume = str(folder)
    resumed = train(broken)
    assert resumed.facts_of_training["steps"] == steps
    last = [torch.load(path / "checkpoints/last.ckpt", weights_only=True) for path in (folder, unbroken.folder)]
    # Not bit by bit: sums in a kernel may end differently in their last digit where memory is laid out otherwise.
    for kept in ("state_dict", *(["current_model_state"] if ema_decay else [])):
        torch.testing.assert_close(last[0][kept], last[1][kept], rtol=0, atol=1e-4)


def test_max_steps_ends_with_a_validation(small_config: Maker) -> None:
    report = train(small_config(max_steps=5))
    assert report.facts_of_training["steps"] == 5
    events = EventAccumulator(str(report.folder)).Reload()
    assert [scalar.step for scalar in events.Scalars("heads/layer_0/head_0/entropy")] == [0, 5]


def test_a_loss_that_is_not_a_number_stops_with_step_and_checkpoint(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, step = small_config(), session_module.ClassifierModule.training_step

    def spoilt(module: session_module.ClassifierModule, batch: object, index: int) -> torch.Tensor:
        loss = step(module, batch, index)
        return loss * float("nan") if module.trainer.global_step == 29 else loss

    monkeypatch.setattr(session_module.ClassifierModule, "training_step", spoilt)
    with pytest.raises(TrainingError, match=r"step 30.*last\.ckpt"):
        train(config)
    kept = torch.load(Path(config.outputs_dir) / "run/checkpoints/last.ckpt", weights_only=True)
    assert kept["global_step"] < 30
    assert all(torch.isfinite(tensor).all() for tensor in kept["state_dict"].values())


def test_early_stopping_ends_when_nothing_gets_better(small_config: Maker) -> None:
    config = small_config(max_epochs=40, patience=2)
    config.optimizer.learning_rate = config.optimizer.evidence_rate = 1e-12
    assert train(config).facts_of_training["epochs"] < 10


def test_weights_that_the_last_step_spoilt_are_not_saved(small_config: Maker) -> None:
    """No loss tells: the only one is of the step before."""
    config = small_config(max_epochs=1)
    config.data.tokens_per_batch, config.optimizer.learning_rate, config.optimizer.warmup_share = 2**16, 1e30, 0.0
    with pytest.raises(
        TrainingError, match=r"validation gave what is no number after step 1\. Last good checkpoint: none yet"
    ):
        train(config)
    assert not list((Path(config.outputs_dir) / "run").rglob("*.ckpt"))


def test_a_resumed_run_has_the_patience_of_today() -> None:
    before = Patience(2)
    before.wait_count, before.stopped_epoch = 1, 3
    after = Patience(10)
    after.load_state_dict(before.state_dict())
    assert (after.patience, after.wait_count, after.stopped_epoch) == (10, 1, 3)


def test_of_two_runs_of_one_name_the_second_is_refused(small_config: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have loaded their texts by the time that the first writes to the folder."""
    config, loaded = small_config(max_epochs=1), run_module.TextDataModule
    folder = Path(config.outputs_dir) / "run"

    def slow(*args: object) -> TextDataModule:
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("of the first")
        return loaded(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "TextDataModule", slow)
    with pytest.raises(RunError, match="holds a run already; choose another name"):
        train(config)
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]
    assert (folder / "config.yaml").read_text() == "of the first"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_loaded(small_config: Maker) -> None:
    config = small_config(accelerator="gpu")
    with pytest.raises(ConfigError, match=r"trainer\.accelerator: got 'gpu', and torch finds none on this machine"):
        train(config)
    assert not Path(config.outputs_dir).exists()
    config.trainer.devices = 2
    assert [line for line in problems(config) if line.startswith("trainer.devices: got 2, takes 1")]


def test_a_run_without_probes_is_measured_all_the_same(small_config: Maker) -> None:
    config = small_config(max_epochs=1)
    config.inspection.num_probes = 0
    folder, output = train(config).folder, io.StringIO()
    path = measure(InspectConfig(run=str(folder), texts=8, accelerator="cpu"), Console(file=output, width=200))
    assert len(json.loads(path.read_text())["heads"]) == 2
    assert "heads.json\n" in output.getvalue()  # and not "in the run's record", which it has not


def test_of_too_many_classes_no_picture_is_drawn(small_config: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.training.closing.MOST_CLASSES", 1)
    events = EventAccumulator(str(train(small_config(max_epochs=1)).folder)).Reload()
    assert "test/confusion" not in events.Tags()["images"]
    assert "test/confusion/text_summary" in events.Tags()["tensors"]


def test_class_weights_label_smoothing_and_accumulation_are_used(small_config: Maker) -> None:
    plain, other = small_config("plain", max_epochs=1), small_config("other", max_epochs=1)
    other.optimizer.class_weights, other.optimizer.label_smoothing = "none", 0.2
    assert not same(weights(train(plain).folder), weights(train(other).folder))
    halved = train(small_config("halved", max_epochs=1, accumulate=2))
    batches = len(halved.facts_of_data) and train(small_config("again", max_epochs=1)).facts_of_training["steps"]
    assert halved.facts_of_training["steps"] == -(-batches // 2)


def test_probes_can_be_given_as_text(small_config: Maker) -> None:
    config = small_config(max_epochs=1)
    config.inspection.probes = ["a lovely day", "日本語 <b>bold</b>"]
    events = EventAccumulator(str(train(config).folder)).Reload()
    assert b"a lovely day" in events.Tensors("probe_0/text_summary")[0].tensor_proto.string_val[0]
    assert b"<b>" not in events.Tensors("probe_1/text_summary")[0].tensor_proto.string_val[0]


def test_of_a_long_probe_the_record_keeps_the_largest_weights_and_pictures_the_beginning(small_config: Maker) -> None:
    config = small_config(max_epochs=1)
    config.inspection.probes, config.inspection.max_tokens = ["a lovely day and " * 6], 17
    report = train(config)
    (text,) = read_index(report.folder / "heads").texts
    assert len(text.tokens) > 20
    arrays = read_step(report.folder / "heads" / read_index(report.folder / "heads").steps[-1].file, "text_0/layer_0/")
    assert arrays["text_0/layer_0/top_keys"].shape == (3, len(text.tokens), 16)
    events = EventAccumulator(str(report.folder)).Reload()
    assert events.Images("attention/probe_0")[-1].height == events.Images("attention/probe_0")[0].height
    assert events.Images("tokens/probe_0/layer_0")[0].width < 2 * (17 * 15 + 120)


def test_a_taken_name_is_refused_and_nothing_is_overwritten(small_config: Maker) -> None:
    folder = train(small_config(max_epochs=1)).folder
    before = (folder / "metrics.json").read_bytes()
    with pytest.raises(RunError, match="holds a run already"):
        train(small_config(max_epochs=1))
    assert (folder / "metrics.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"broken", "broken"),
        ("labels.json", b"[", "broken"),
        ("tokenizer.json", b"{}", "broken"),
        ("config.yaml", b"surprise: 1", "does not fit"),
        ("model.safetensors", None, "did not finish"),
        ("config.yaml", None, "no config.yaml"),
    ],
)
def test_a_run_folder_with_a_broken_file_is_refused_by_name(
    small_config: Maker, name: str, content: bytes | None, words: str
) -> None:
    folder = train(small_config(max_epochs=1)).folder
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(RunError, match=words):
        load_run(folder)


def test_the_record_holds_every_probe_at_step_zero_and_each_validation(small_config: Maker) -> None:
    config = small_config(max_epochs=2)
    config.inspection.every, config.model.pooling = 7, "additive"
    report = train(config)
    index = read_index(report.folder / "heads")
    last = report.facts_of_training["steps"]
    assert [step.step for step in index.steps] == sorted({0, *range(7, last + 1, 7), last // 2, last})
    assert [text.label for text in index.texts] == ["bad", "good"]
    assert (index.layers, index.heads, index.classes) == (["layer 0", "layer 1"], [3, 3], ["bad", "good"])
    assert index.notes["precision"] == "32-true"  # that of the maps, which are made for the record
    assert index.notes["trained in"] == chosen_precision(TrainerConfig())
    assert index.notes["dropout"] == "off"
    assert index.notes["causes"].endswith("whose weights were kept, on 24 texts")
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    for text in range(2):
        assert arrays[f"text_{text}/check"] < 1e-6
        assert arrays[f"text_{text}/probabilities"].sum() == pytest.approx(1)
        assert arrays[f"text_{text}/pooling"].sum() == pytest.approx(1)
    events = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload()
    for head in range(3):
        scalar = events.Scalars(f"heads/layer_1/head_{head}/entropy")[-1].value
        assert arrays["numbers/entropy/mean"][1, head] == pytest.approx(scalar)
    assert "heads" in events.summary_metadata
    between = read_step(report.folder / "heads" / "step_000000000007.npz")
    assert "numbers/entropy/mean" not in between
    assert "text_1/layer_1/levels" in between


def test_what_every_head_put_is_recorded_printed_and_kept(small_config: Maker) -> None:
    config, output = small_config(max_epochs=2), io.StringIO()
    config.model.pooling, config.inspection.causes = "first", 24
    report = train(config, Console(file=output, width=200))
    index = read_index(report.folder / "heads")
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    for place, text in enumerate(index.texts):
        numbers = {name: arrays[f"text_{place}/nats/{name}"] for name in ("heads", "keys", "by_key", "feedforward")}
        assert [values.shape for values in numbers.values()] == [(2, 3), (2, 3, 5), (2, 3, 5), (2,)]
        assert arrays[f"text_{place}/nats/class"] == arrays[f"text_{place}/probabilities"].argmax()
        assert 0 <= numbers["keys"].min() <= numbers["keys"].max() < len(text.tokens)
        total = numbers["heads"].sum() + numbers["feedforward"].sum() + arrays[f"text_{place}/nats/constant"]
        logits = np.log(arrays[f"text_{place}/probabilities"])
        assert total == pytest.approx(logits.max() - logits.mean(), abs=1e-5)
    put = json.loads((report.folder / "metrics.json").read_text())["training"]["nats put for the predicted class"]
    assert put["texts"] == 24
    run = load_run(report.folder)
    data = TextDataModule(config.data, config.tokenizer, 0, run.tokenizer, run.evidence or False)
    logits, _ = split_logits(run.model, data.loader("validation"), torch.device("cpu"))
    expected = (logits.amax(dim=-1) - logits.mean(dim=-1)).mean().item()
    assert np.sum(put["heads"]) + np.sum(put["feedforward"]) + put["constant"] == pytest.approx(expected, abs=1e-5)
    assert "put for the predicted class, in nats, mean over 24 validation texts: layer " in output.getvalue()
    kept = read_step(report.folder / "heads" / f"step_{report.facts_of_training['kept step']:012d}.npz")
    np.testing.assert_allclose(kept["numbers/nats/mean"], put["heads"], atol=1e-6)


def test_with_another_read_out_nothing_is_said_of_it(small_config: Maker) -> None:
    config, output = small_config(max_steps=2), io.StringIO()
    config.model.pooling = "mean"
    report = train(config, Console(file=output, width=200))
    arrays = read_step(report.folder / "heads" / read_index(report.folder / "heads").steps[-1].file)
    assert not [name for name in arrays if "nats" in name]
    assert "nats put for the predicted class" not in report.facts_of_training
    assert "put for the predicted class" not in output.getvalue()


def test_numbers_are_taken_over_a_sample_of_the_validation_texts(small_config: Maker) -> None:
    config = small_config(max_epochs=1, precision="32-true")
    config.inspection.texts = 10
    report = train(config)
    index = read_index(report.folder / "heads")
    assert index.notes["numbers"] == "over 10 of 24 validation texts, drawn at random"
    run = load_run(report.folder)
    data = TextDataModule(config.data, config.tokenizer, config.seed, run.tokenizer, run.evidence or False)
    texts = TextBatches(data.encoded["validation"], data.labels("validation"))
    chosen = sample(texts, 10, 256, config.seed)
    rows = {row for batch in chosen for row in batch.rows.tolist()}
    statistics = HeadStatistics()
    for batch in chosen:
        with capture(run.model) as maps, torch.no_grad():
            run.model(*batch.inputs)
        for layer, weights in maps.items():
            statistics.update(layer, weights, batch.key_padding_mask)
    last = read_step(report.folder / "heads" / index.steps[-1].file)
    for layer, measures in enumerate(statistics.summary().values()):
        for name, (means, errors) in measures.items():
            np.testing.assert_allclose(last[f"numbers/{name}/mean"][layer], means, atol=1e-5)
            np.testing.assert_allclose(last[f"numbers/{name}/error"][layer], errors, atol=1e-5)
    assert set(last["examples/rows"].tolist()) <= rows
    assert last["examples/changed/rows"].min() >= 0  # step 0 was over the same texts


@pytest.mark.parametrize("texts", [None, 24, 1000])
def test_numbers_are_taken_over_all_validation_texts_where_a_sample_would_not_be_smaller(
    small_config: Maker, texts: int | None
) -> None:
    config = small_config(max_steps=2)
    config.inspection.texts = texts
    report = train(config)
    assert read_index(report.folder / "heads").notes["numbers"] == "over all 24 validation texts"


def test_without_numbers_maps_are_recorded_and_no_pass_is_made_for_step_zero(small_config: Maker) -> None:
    config = small_config(max_steps=2)
    config.inspection.numbers = False
    index = read_index(train(config).folder / "heads")
    assert [step.step for step in index.steps] == [0, 2]
    assert "numbers" not in index.notes


def test_the_recorded_map_is_the_kept_models(small_config: Maker) -> None:
    config = small_config(max_epochs=1)
    config.inspection.precision = "float16"
    report = train(config)
    run = load_run(report.folder)
    index = read_index(report.folder / "heads")
    with capture(run.model) as maps:
        probe = make_probe(run.tokenizer, (index.texts[1].text,), None, 16, run.evidence)
        run.model(probe.token_ids, None, None, probe.evidence)
    assert probe.tokens == index.texts[1].tokens
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    for layer, weights in enumerate(maps.values()):
        np.testing.assert_allclose(arrays[f"text_1/layer_{layer}/weights"], weights[0].numpy(), atol=1e-3)


def test_recording_between_validations_does_not_change_the_training(small_config: Maker) -> None:
    often, plain = small_config("often", max_epochs=1), small_config("plain", max_epochs=1)
    often.inspection.every = 3
    assert same(weights(train(often).folder), weights(train(plain).folder))


def test_what_depends_on_each_head_is_added_to_the_kept_step(small_config: Maker) -> None:
    config = small_config(max_epochs=3)
    config.inspection.causes = 24
    report = train(config)
    index = read_index(report.folder / "heads")
    kept = torch.load(report.folder / "checkpoints/best.ckpt", weights_only=True)["global_step"]
    studied = [step.step for step in index.steps if "studied" in read_step(report.folder / "heads" / step.file)]
    assert studied == [kept]
    arrays = read_step(report.folder / "heads" / f"step_{kept:012d}.npz")
    assert arrays["studied"] == 24
    measured = ("loss_zeroed", "accuracy_averaged", "gate_gradient", "comprehensiveness", "position_only", "entropy")
    for name in measured:
        assert arrays[f"numbers/{name}/mean"].shape == (2, 3)
        assert np.isfinite(arrays[f"numbers/{name}/error"]).all()
    assert (arrays["numbers/gate_gradient/mean"] > 0).any()
    assert arrays["likeness"].shape == (6, 6)
    assert arrays["faithfulness/chance"].shape == (2, 2)
    events = EventAccumulator(str(report.folder), size_guidance={"scalars": 0}).Reload()
    assert [scalar.step for scalar in events.Scalars("heads/layer_0/head_2/loss_zeroed")] == [kept]
    assert report.seconds["causes (after training)"] > 0


def test_the_texts_that_stand_out_are_recorded_with_what_they_say(small_config: Maker) -> None:
    report = train(small_config(max_epochs=2))
    index = read_index(report.folder / "heads")
    first, *_, last = (read_step(report.folder / "heads" / step.file, "examples/") for step in index.steps)
    assert "examples/changed/rows" not in first
    texts = dict(zip(last["examples/rows"].tolist(), last["examples/texts"].tolist(), strict=True))
    for kind in ("focused", "changed"):
        rows, scores = last[f"examples/{kind}/rows"], last[f"examples/{kind}/scores"]
        assert rows.shape == scores.shape == (2, 3, 5)
        assert (np.diff(scores, axis=-1) <= 0).all()
        assert set(rows.ravel().tolist()) <= set(texts)
    assert all(len(text.split()) > 2 for text in texts.values())


def test_texts_of_one_word_can_be_trained_on_and_studied(small_config: Maker, tmp_path: Path) -> None:
    config = small_config(max_epochs=1)
    letters = "abcdefghijkl"
    rows = [f"{one}{other},{'xy'[number % 2]}" for number, (one, other) in enumerate(product(letters, letters))]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    config.tokenizer.kind, config.inspection.causes = "wordpiece", 8
    assert train(config).test.accuracy >= 0


@pytest.mark.parametrize(("max_epochs", "is_told"), [(1, True), (6, True), (25, False)])
def test_too_few_steps_are_told(small_config: Maker, max_epochs: int, is_told: bool) -> None:
    output, config = io.StringIO(), small_config(max_epochs=max_epochs)
    config.inspection.enabled = False
    train(config, Console(file=output, width=200))
    assert ("raise trainer.max_epochs" in output.getvalue()) == is_told
