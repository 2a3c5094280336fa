"""What a training records of every head, in its record and for TensorBoard."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from headscope.cli.inspect import inspect
from headscope.data.batching import TextBatches
from headscope.data.datamodule import TextDataModule
from headscope.heads import lightning_callback
from headscope.heads.capture import capture, read_at_first
from headscope.heads.measures import HeadStatistics
from headscope.heads.study import draw_samples, special_tokens
from headscope.record.reader import read_index, read_step
from headscope.runs.run import load_run
from headscope.settings.checks import override
from headscope.settings.commands import InspectConfig
from headscope.settings.config import TrainConfig
from headscope.training.train import train
from training_runs import Trained, events_of

Maker = Callable[..., TrainConfig]


def arrays_of(folder: Path, place: int = -1) -> dict[str, np.ndarray]:
    """Return what is recorded of one step, the last if it isn't said which."""
    return read_step(folder / "heads" / read_index(folder / "heads").steps[place].file)


def test_tensorboard_holds_the_means_of_heads_at_step_zero_and_each_validation(
    plain: Trained,
) -> None:
    events, last = events_of(plain.folder), plain.report.facts_of_training["steps"]
    tags, steps = events.Tags(), [number * last // 4 for number in range(5)]
    for number in ("entropy_share", "mean_distance"):
        assert [scalar.step for scalar in events.Scalars(f"heads/{number}")] == steps
    # A card for each, with those of a baseline; the other measures are in the Heads tab alone.
    assert len(tags["scalars"]) == 21
    assert {"test/confusion"} <= set(tags["images"])
    needed = {"best_validation/accuracy", "test/accuracy", "validation/macro_f1", "train/loss"}
    assert needed | {"train/learning_rate"} <= set(tags["scalars"])
    *_, rate = events.Scalars("train/learning_rate")  # of the last step, not an older one
    peak = plain.report.config.optimizer.learning_rate
    assert (rate.step, rate.value < peak / 500) == (last - 1, True)
    assert {"test/bad", "test/good"} <= set(tags["tensors"])
    assert {"_hparams_/session_start_info", "heads"} <= set(events.summary_metadata)
    # Of single texts nothing is said that only a pair has.
    assert not [tag for tag in tags["scalars"] if "crossing" in tag]


def test_the_record_holds_every_probe_at_step_zero_each_validation_and_as_often_as_wished(
    plain: Trained,
) -> None:
    index, last = read_index(plain.folder / "heads"), plain.report.facts_of_training["steps"]
    validations = [number * last // 4 for number in range(5)]
    assert [step.step for step in index.steps] == sorted({*validations, *range(7, last + 1, 7)})
    assert [(text.label, text.segments) for text in index.texts] == [("bad", None), ("good", None)]
    assert (index.layers, index.heads, index.classes) == (
        ["layer 0", "layer 1"],
        [3, 3],
        ["bad", "good"],
    )
    assert index.notes["precision"] == "32-true"  # that of the maps, which are made for the record
    assert index.notes["trained in"] == "32-true"  # of so narrow a network on a CPU
    assert index.notes["dropout"] == "off"
    assert index.notes["numbers"] == "over all 24 validation texts"
    assert index.notes["ablation"].endswith("the best checkpoint, on 24 texts")
    assert plain.report.facts_of_training["ablation"]["texts"] == 24
    arrays, events = arrays_of(plain.folder), events_of(plain.folder)
    for text in range(2):
        assert arrays[f"text_{text}/check"] < 5e-5
        assert arrays[f"text_{text}/probabilities"].sum() == pytest.approx(1)
    scalar = events.Scalars("heads/entropy_share")[-1].value
    assert arrays["numbers/entropy_share/mean"].mean() == pytest.approx(scalar)
    assert not [name for name in arrays if "crossing" in name or "pooling" in name]
    between = read_step(plain.folder / "heads" / "step_000000000007.npz")
    assert "numbers/entropy_share/mean" not in between
    assert "text_1/layer_1/weights" in between


def recorded_between(
    monkeypatch: pytest.MonkeyPatch, seconds: float, size: int, first: int = 0
) -> list[int]:
    """Return the steps of 934 that are recorded, at 0.1 s a step, if each takes as much."""
    clock = [0.0]
    monkeypatch.setattr(lightning_callback.time, "perf_counter", lambda: clock[0])
    between = lightning_callback.Between(934, first)
    recorded, found = 0.0, []
    for step in range(first + 1, 935):
        clock[0] += 0.1
        if between.has_room(step, recorded):
            found.append(step)
            clock[0] += seconds
            recorded += seconds
            between.count(seconds, size)
    return found


def test_steps_between_validations_are_spaced_by_their_logarithm_within_five_percent_and_10_mb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = recorded_between(monkeypatch, 0.01, 100_000)
    assert every[:4] == [1, 2, 3, 5]
    assert 16 <= len(every) <= 18
    ratios = np.divide(every[6:], every[5:-1])
    assert np.ptp(np.log(ratios)) < 0.3  # even
    slow = recorded_between(monkeypatch, 0.5, 100_000)  # of 93.4 s
    assert 6 <= len(slow) < len(every)
    assert 0.5 * len(slow) <= 0.05 * 93.4
    assert max(slow) > 300  # they are spread over all of training
    large = recorded_between(monkeypatch, 0.01, 1_500_000)
    assert 5 <= len(large) * 1.5 <= 10
    assert max(large) > 300
    assert recorded_between(monkeypatch, 12.5, 100_000)[1:] == []
    assert min(recorded_between(monkeypatch, 0.01, 1, first=467)) > 467  # of a resumed run


def test_what_every_head_put_is_recorded_printed_and_kept(plain: Trained) -> None:
    arrays = arrays_of(plain.folder)
    for place, text in enumerate(read_index(plain.folder / "heads").texts):
        parts = {
            name: arrays[f"text_{place}/contributions/{name}"]
            for name in ("classes", "shown", "words", "heads", "past", "biases", "through")
        }
        shares = arrays[f"text_{place}/probabilities"]
        T = len(text.tokens)
        shapes = [parts[name].shape for name in ("heads", "through", "past", "biases")]
        assert shapes == [(2, 3, T, 2), (2, 3, 2), (T, 2), (2,)]
        has_maps = f"text_{place}/contributions/maps" in arrays
        assert has_maps
        assert parts["shown"].tolist() == parts["classes"].tolist() == (-shares).argsort().tolist()
        logits = parts["words"].sum(axis=0) + parts["biases"]
        odds = np.log(shares.max() / shares.min())
        assert logits[0] - logits[1] == pytest.approx(odds, rel=1e-5, abs=1e-5)
    put = json.loads((plain.folder / "metrics.json").read_text())["training"]["contributions"]
    assert put["texts"] == 24
    above = np.cumsum(put["biases"][::-1])[::-1][1:]  # each layer
    sums = np.sum(put["heads"], axis=1) + put["past"] + above
    assert sums[0] == pytest.approx(sums[1], abs=1e-4)
    assert put["against"] == "the runner-up"
    assert "passes through" in plain.screen


def test_what_depends_on_each_head_is_added_to_the_kept_step(plain: Trained) -> None:
    index, kept = read_index(plain.folder / "heads"), plain.report.facts_of_training["best_step"]
    studied = [
        step.step
        for step in index.steps
        if "effects" in read_step(plain.folder / "heads" / step.file)
    ]
    assert studied == [kept]
    arrays = read_step(plain.folder / "heads" / f"step_{kept:012d}.npz")
    for name in ("loss_zeroed", "accuracy_zeroed", "entropy_share"):
        assert arrays[f"numbers/{name}/mean"].shape == (2, 3)
        assert np.isfinite(arrays[f"numbers/{name}/error"]).all()
    assert arrays["sets/heads"].shape == (6, 2)
    assert plain.report.seconds["ablation"] > 0


def test_a_pooling_that_attends_own_probes_and_a_sample_of_texts(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.results.metrics.MOST_CLASSES", 1)
    config = small_config(max_steps=2)
    config = override(
        config,
        {
            "model.pooling": "additive",
            "model.attention": "shared_projection",
            "model.causal": True,
            "inspection.probes": ["a lovely day and " * 6, "日本語 <b>bold</b>"],
            "inspection.texts": 10,
        },
    )
    folder = train(config).folder
    events, arrays, index = events_of(folder), arrays_of(folder), read_index(folder / "heads")
    assert "text_1/contributions/words" in arrays
    # Texts of one's own are whole.
    tokens = len(index.texts[0].tokens)
    assert tokens > config.inspection.max_tokens
    assert arrays["text_0/layer_0/weights"].shape == (3, tokens, tokens)
    # Of too many classes no picture of a confusion matrix is drawn.
    assert "test/confusion" not in events.Tags()["images"]
    # Numbers are means over a sample of the validation texts.
    assert index.notes["numbers"] == "over 10 of 24 validation texts, drawn at random"
    run = load_run(folder)
    data = TextDataModule(
        config.data, config.tokenizer, config.seed, run.tokenizer, run.evidence or False
    )
    texts = TextBatches(data.encoded["validation"], data.labels("validation"))
    statistics = HeadStatistics()
    special = special_tokens(run.tokenizer)
    for batch in draw_samples(texts, 10, 256, config.seed)[0]:
        with capture(run.model, poolings=False) as maps, torch.no_grad():
            run.model(*batch.inputs)
        for layer, weights in maps.items():
            rows_read = weights[:, :, :1] if layer in read_at_first(run.model) else weights
            statistics.update(layer, rows_read, special.tokens_of(batch))
    for layer, measures in enumerate(statistics.summary().values()):
        for name, (means, errors) in measures.items():
            np.testing.assert_allclose(arrays[f"numbers/{name}/mean"][layer], means, atol=1e-5)
            np.testing.assert_allclose(arrays[f"numbers/{name}/error"][layer], errors, atol=1e-5)


def test_a_run_on_pairs_records_segments_and_crossing(of_pairs: Trained) -> None:
    folder = of_pairs.folder / "heads"
    index = read_index(folder)
    for text in index.texts:
        assert text.segments is not None
        special = [
            token
            for token, segment in zip(text.tokens, text.segments, strict=True)
            if segment is None
        ]
        assert special == ["[CLS]", "[SEP]", "[SEP]"]
        texts = [
            "".join(t for t, s in zip(text.tokens, text.segments, strict=True) if s == which)
            for which in (0, 1)
        ]
        assert texts == [part.replace(" ", "") for part in text.text.split(" ⏐ ")]
    steps = [read_step(folder / kept.file) for kept in index.steps]
    validated = [arrays for arrays in steps if "numbers/self/mean" in arrays]
    assert len(validated) >= 2  # step 0, and each validation
    for arrays in validated:
        crossing = arrays["numbers/crossing/mean"]
        assert crossing.shape == (2, 3)
        assert ((crossing[:-1] > 0) & (crossing[:-1] < 1)).all()
        assert (crossing[-1] == 0).all()  # the row of [CLS], which is of neither text


def test_a_finished_run_on_pairs_is_inspected(of_pairs: Trained, tmp_path: Path) -> None:
    folder = of_pairs.copy(tmp_path)
    page = tmp_path / "page.html"
    inspect(
        InspectConfig(
            run=str(folder), text="the cat", text_pair="a dog", output=str(page), accelerator="cpu"
        )
    )
    assert '"segments":[null,0,0,null,1,1,null]' in page.read_text()
