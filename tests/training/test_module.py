"""The learning rate's course, what is decayed, and class weights."""

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from headscope.data.batching import Batch
from headscope.data.datamodule import TextDataModule
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.runs.setup import Setup
from headscope.settings.checks import override
from headscope.settings.config import ModelConfig, OptimizerConfig, TrainConfig, TrainerConfig
from headscope.training import module as train_module
from headscope.training.module import (
    ClassifierModule,
    build_module,
    chosen_precision,
    measured_bfloat16,
)
from headscope.training.prepare import prepare
from headscope.training.train import train
from training_runs import configured


def network(layers: int = 2) -> TextClassifier:
    sizes = {"d_model": 6, "num_heads": 3, "num_layers": layers, "feedforward_size": 5}
    return TextClassifier(architecture_from(ModelConfig(**sizes, evidence=False), 11, 7), 2)


def module(model: TextClassifier | None = None, **options: float) -> ClassifierModule:
    return ClassifierModule(model or network(1), OptimizerConfig(**options), 100)


def test_the_learning_rate_rises_then_falls_as_half_a_cosine() -> None:
    share = module(warmup_share=0.1).learning_rate_share
    assert [share(step) for step in range(10)] == pytest.approx(
        [(step + 1) / 10 for step in range(10)]
    )
    assert share(10) == pytest.approx(1)
    assert share(55) == pytest.approx(0.5)
    assert share(100) == share(1000) == pytest.approx(0)
    assert share(40) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)


def test_matrices_alone_are_decayed() -> None:
    trained = module(weight_decay=0.3)
    groups = trained.configure_optimizers()["optimizer"].param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0]
    assert {weight.dim() for weight in groups[0]["params"]} == {2}
    assert {weight.dim() for weight in groups[1]["params"]} == {1}
    assert sum(len(group["params"]) for group in groups) == len(list(trained.model.parameters()))


def test_the_weights_of_ngrams_learn_as_far_in_several_passes_as_in_one(tmp_path: Path) -> None:
    config = configured(tmp_path)
    data = TextDataModule(config.data, config.tokenizer, seed=0, evidence=True)
    data.passes = 4
    setup = Setup(config, data.corpus.labels, data.tokenizer, {}, evidence=data.evidence)
    module = build_module(setup, data, None)
    assert module.class_weights is None
    evidence, *others = module._adamw().param_groups
    assert evidence["lr"] == config.optimizer.evidence_rate / 4
    assert [group["lr"] for group in others] == [config.optimizer.learning_rate] * 2


@pytest.mark.parametrize(("num_classes", "weights"), [(19, "auto"), (9, "auto"), (19, "none")])
def test_texts_of_ten_classes_or_more_are_drawn_by_the_root_of_inverse_frequency(
    num_classes: int, weights: str, tmp_path: Path
) -> None:
    words = [f"{first}{second}" for first in ascii_lowercase for second in ascii_lowercase]
    names = [f"c{n % 30 % num_classes:02}" for n in range(len(words))]
    rows = [{"text": f"{word} it", "label": name} for word, name in zip(words, names, strict=True)]
    changes = {"optimizer.class_weights": weights, "trainer.epoch_steps": 17}  # batches of a pass
    config = override(configured(tmp_path, rows), changes)
    prepared = prepare(config, tmp_path / "run", nullcontext, lambda facts: None)
    labels = prepared.data.labels("train")
    rows_of_epoch = np.concatenate([*prepared.data.sampler("train")])
    shares = np.bincount(labels).astype(float)
    if (num_classes, weights) == (19, "auto"):
        shares **= 0.5
    drawn = np.bincount(labels[rows_of_epoch]) / prepared.data.passes  # more of more classes
    assert drawn == pytest.approx(len(labels) * shares / shares.sum(), abs=3)
    assert (prepared.module.class_weights, prepared.data.passes) == (None, num_classes // 6)


def test_the_loss_of_validation_is_the_mean_over_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, found = module(), {}
    monkeypatch.setattr(trained, "log", found.__setitem__)
    monkeypatch.setattr(trained, "log_dict", found.update)
    trained.eval()
    ids, labels = torch.randint(1, 11, (8, 7)), torch.tensor([0, 1, 1, 0, 1, 1, 1, 0])
    batches = [
        Batch(ids[part], None, None, labels[part], torch.arange(8)[part])
        for part in (slice(7), slice(7, 8))
    ]
    for number, batch in enumerate(batches):
        trained.validation_step(batch, number)
    trained.on_validation_epoch_end()
    losses = torch.nn.functional.cross_entropy(trained.model(ids), labels, reduction="none")
    assert len(losses.unique()) > 1
    assert float(found["validation/loss"]) == pytest.approx(float(losses.mean().detach()))


def test_a_resumed_run_has_its_own_rates_and_the_moments_of_each_weight() -> None:
    model = network()
    for weight in model.encoder.blocks[0].parameters():
        weight.requires_grad_(False)  # nothing is remembered of what is frozen
    parts = module(model, learning_rate=0.1).configure_optimizers()
    before, schedule = parts["optimizer"], parts["lr_scheduler"]["scheduler"]
    for _ in range(3):
        model(torch.arange(1, 8)[None]).square().sum().backward()
        before.step()
        before.zero_grad()
        schedule.step()
    kept = {
        "optimizer_states": [copy.deepcopy(before.state_dict())],
        "lr_schedulers": [schedule.state_dict()],
        "random_state": torch.get_rng_state()[None],
    }
    resumed = module(model, learning_rate=0.2, weight_decay=0.7)
    resumed.on_load_checkpoint(kept)
    parts = resumed.configure_optimizers()
    optimizer, schedule = parts["optimizer"], parts["lr_scheduler"]["scheduler"]
    optimizer.load_state_dict(kept["optimizer_states"][0])
    schedule.load_state_dict(kept["lr_schedulers"][0])
    assert len(optimizer.state) == sum(weight.requires_grad for weight in model.parameters())
    for weight, memory in before.state.items():
        assert memory["step"] == 3
        assert all(torch.equal(memory[name], optimizer.state[weight][name]) for name in memory)
    # The fourth of ten steps of warm-up.
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.2 * 0.4] * 2)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.7, 0.0]
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.2 * 0.5] * 2)


def precision(model: ModelConfig | None = None, **settings: str) -> str:
    model = model or ModelConfig()
    return chosen_precision(TrainConfig(model=model, trainer=TrainerConfig(**settings)))


def test_auto_precision_is_bf16_on_a_gpu_with_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train_module, "has_fast_bfloat16", lambda: False)
    assert precision(accelerator="cpu") == "32-true"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for has_it, expected in ((True, "bf16-mixed"), (False, "32-true")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has_it=has_it, **_: has_it)
        assert precision(accelerator="auto") == expected
    assert precision(accelerator="cpu") == "32-true"
    assert precision(precision="16-mixed") == "16-mixed"


def test_auto_precision_is_bf16_on_a_cpu_that_is_faster_in_it_for_a_wide_network_from_scratch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train_module, "has_fast_bfloat16", lambda: True)
    assert precision(accelerator="cpu") == "bf16-mixed"
    for other in ({"d_model": 64}, {"path": "a/b", "evidence": False}, {"features": "a/b"}):
        assert precision(ModelConfig(**other), accelerator="cpu") == "32-true"
    assert precision(accelerator="cpu", precision="32-true") == "32-true"


@pytest.mark.parametrize(("factor", "is_fast"), [(3.0, True), (0.7, False)])
def test_bfloat16_is_fast_where_products_are_measured_to_be(
    factor: float, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def product(left: torch.Tensor, right: torch.Tensor) -> None:
        nonlocal now
        now += 1.0 if left.dtype == torch.bfloat16 else factor

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(train_module.time, "perf_counter", lambda: now)
    assert measured_bfloat16.__wrapped__() == is_fast


@pytest.mark.slow  # tracing takes ten times as long as these steps
@pytest.mark.usefixtures("unchecked_shapes")
def test_compiled_steps_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def traced(function: Callable[..., Tensor], **options: bool) -> Callable[..., Tensor]:
        calls.append(options)
        return compiler(function, backend="eager", **options)

    compiler = torch.compile  # without C++, which a machine may lack
    monkeypatch.setattr(torch, "compile", traced)
    weights = []
    for compiled in (False, True):
        config = override(configured(tmp_path / str(compiled)), {"trainer.compile": compiled})
        results = train(config)
        assert results is not None
        weights.append(load_file(results.folder / "model.safetensors"))
    assert calls == [{"dynamic": True}]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=1e-4, atol=1e-5)
