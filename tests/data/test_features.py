"""Our encoder on top of a frozen one of transformers: trained, kept in the cache, resumed, explained."""

import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from rich.console import Console
from safetensors.torch import load_file

from bert_family import HEADS, LAYERS, WIDTH, fast_tokenizer, peer, write_checkpoint
from headscope.cli.evaluate import evaluate
from headscope.cli.inspect import inspect
from headscope.data import features
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError
from headscope.ground.terminal import Bar
from headscope.heads.contributions import decompose
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.pages.live import live_html
from headscope.record.reader import read_index
from headscope.runs.prediction import split_logits
from headscope.runs.run import load_run
from headscope.runs.setup import kept_settings
from headscope.settings.checks import check, override
from headscope.settings.commands import EvaluateConfig, InspectConfig
from headscope.settings.config import ModelConfig, TrainConfig
from headscope.training import prepare
from headscope.training.train import train
from training_runs import configured, reviews, unbroken_and_resumed

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

QUIET = partial(Bar, Console(quiet=True), is_hidden=True)
OWN = (2, 4)  # layers and heads of our own, not as many as there are below


def on_top(folder: Path, family: str = "bert", **model: Any) -> TrainConfig:
    """Return a configuration of a short run on the first two layers of a tiny checkpoint."""
    config = configured(folder, max_epochs=1)
    config = override(config, {"trainer.max_steps": 4, "inspection.enabled": False})
    path = write_checkpoint(folder / "checkpoint", family, [row["text"] for row in reviews()])
    sizes = {"d_model": 16, "num_heads": OWN[1], "num_layers": OWN[0], "feedforward_size": 24}
    options = sizes | {"features": str(path), "features_layer": 2, "evidence": False, "members": 1}
    options |= model
    return replace(config, model=ModelConfig(**options), baseline=False)


@pytest.mark.parametrize(
    "family",
    [
        "modernbert",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("bert", "xlm-roberta")),
    ],
)
def test_a_run_is_its_own_file_and_every_command_reads_it(family: str, tmp_path: Path) -> None:
    config = on_top(tmp_path, family)
    config = override(config, {"inspection.enabled": True, "inspection.ablation_texts": 0})
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "checkpoint").eval()
    report = train(config)
    assert report is not None
    shutil.rmtree(tmp_path / "checkpoint")
    run = load_run(report.folder)
    assert asdict(run.config) == kept_settings(report.config)
    assert read_index(report.folder / "heads").heads == [OWN[1]] * OWN[0], "not of the frozen ones"

    text = "a lovely film"
    ids = torch.tensor([run.tokenizer.encode(text).ids])
    states = theirs(ids, output_hidden_states=True).hidden_states[2]
    model: Any = run.model
    torch.testing.assert_close(model.features(ids), states, rtol=0, atol=1e-5)

    scores = evaluate(EvaluateConfig(run=str(report.folder), accelerator="cpu"))
    assert scores.loss == pytest.approx(report.test.loss, abs=1e-3), "float16 in the cache"
    explanation = run.explain(text)
    assert explanation.heads.shape == (*OWN, ids.shape[1])
    assert abs(explanation.miss) < 1e-4
    assert abs(explanation.words).min() > 0
    exact = decompose(run.model.double(), (ids,), ids.shape[1], lambda logits: logits)
    assert exact.missed.abs().max() < 1e-12
    page = inspect(InspectConfig(run=str(report.folder), text=text, accelerator="cpu"))
    assert '"heads":[4,4]' in page.read_text(encoding="utf-8")
    assert "<script" in live_html(run)


def test_frozen_layers_stay_as_they_are_and_a_resumed_run_ends_as_an_unbroken_one(
    tmp_path: Path, interrupt_at: Callable[..., None]
) -> None:
    whole = on_top(tmp_path)
    before = transformers.AutoModel.from_pretrained(tmp_path / "checkpoint").state_dict()
    expected, found = unbroken_and_resumed(whole, tmp_path / "checkpoint", interrupt_at)
    weights = [load_file(each.folder / "model.safetensors") for each in (found, expected)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    frozen = {name: each for name, each in weights[0].items() if name.startswith("features.")}
    token = frozen["features.embedding.token.weight"]
    assert torch.equal(token, before["embeddings.word_embeddings.weight"])
    output = frozen["features.encoder.blocks.1.feedforward.2.weight"]
    assert torch.equal(output, before["encoder.layer.1.output.dense.weight"])
    assert not any(f"blocks.{layer}." in name for name in frozen for layer in range(2, LAYERS))
    assert not any("pooler" in name for name in frozen)


def test_hidden_states_are_computed_once_for_texts_weights_and_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = on_top(tmp_path)
    config = override(config, {"control": "uniform"})
    written: list[int] = []
    write = features._write
    monkeypatch.setattr(features, "_write", lambda *given: written.append(1) or write(*given))
    report = train(config)
    assert report is not None
    assert len(written) == 3, "each split once, for the control too"

    run = load_run(report.folder)
    known_ngrams = run.evidence or False
    data = TextDataModule(config.data, config.tokenizer, config.seed, run.tokenizer, known_ngrams)
    known = list(data.loader("test"))
    model: Any = run.model
    for count, settings in ((6, "another layer"), (6, "another layer"), (9, "other weights")):
        data.add_features(model.features, WIDTH, settings, run.device, lambda done, of: None)
        assert len(written) == count
    read = list(data.loader("test"))
    assert (known[0].features, read[0].features.shape[-1]) == (None, WIDTH)  # type: ignore[union-attr]
    logits = [split_logits(run.model, batches, run.device)[0] for batches in (known, read)]
    torch.testing.assert_close(*logits, rtol=0, atol=5e-3)
    monkeypatch.setattr(features, "MOST_GIB", 0)
    data.add_features(model.features, WIDTH, "test", run.device, lambda done, of: None)
    assert next(iter(data.loader("test"))).features is None, "too large: computed by the network"


def test_hidden_states_are_in_bfloat16_where_the_processor_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = on_top(tmp_path)
    states = []
    for precision, has_it in (("auto", True), ("auto", False), ("32-true", True)):
        monkeypatch.setattr(prepare, "has_bfloat16", lambda device, found=has_it: found)
        settings = override(config, {"trainer.precision": precision})
        folder = tmp_path / f"{precision}_{has_it}"
        data = prepare.prepare(settings, folder, QUIET, print).data
        states.append(torch.from_numpy(np.array(data.encoded["test"].features, np.float32)))
    short, exact, asked = states
    assert torch.equal(exact, asked)
    assert len([*(tmp_path / "cache" / "features").iterdir()]) == 6, "files of their own"
    assert 1e-4 < (short - exact).norm() / exact.norm() < 1e-2


# Five encoders that people use, by architecture and kind of tokenizer; their weights are random.
ENCODERS = {
    "all-MiniLM-L6-v2": ("bert", "bert", 6),
    "e5-small-v2, bge-small-en-v1.5": ("bert", "bert", 12),
    "multilingual-e5-small": ("bert", "xlm-roberta", 12),
    "modernbert-ja-130m, ruri-v3-30m": ("modernbert", "xlm-roberta", 10),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name.startswith("multi") else pytest.mark.slow)
        for name in ENCODERS
    ],
)
def test_encoders_that_people_use(name: str, tmp_path: Path) -> None:
    model, tokenizer, layers = ENCODERS[name]
    several = {"features_layer": [1, 3, layers], "members": None}
    config = on_top(tmp_path, num_layers=1, evidence=True, **several)
    made = fast_tokenizer(tokenizer, [row["text"] for row in reviews()])
    made.save_pretrained(tmp_path / "checkpoint")
    options = {"vocab_size": len(made), "num_hidden_layers": layers}
    peer(model, **options).save_pretrained(tmp_path / "checkpoint")
    report = train(config)
    assert report is not None
    shutil.rmtree(tmp_path / "checkpoint")
    run = load_run(report.folder)
    assert isinstance(run.model, Ensemble)
    assert run.config.model.members == len(run.model.members) == 5, "of few texts"
    explanation = run.explain("a lovely film")
    assert explanation.layers == [
        f"members.{number}.encoder.blocks.0.attention" for number in range(5)
    ]
    assert abs(explanation.miss) < 1e-4
    (prediction,) = run.predict(["a lovely film"])
    assert prediction.probabilities[explanation.label] == pytest.approx(
        explanation.probabilities[explanation.label], abs=1e-6
    )


@pytest.mark.parametrize(("few", "chosen"), [(10, (1, 3)), (10_000, (5, [3]))])
def test_the_number_of_texts_chooses_networks_and_layers(
    few: int, chosen: tuple[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "FEW_TEXTS", few)
    config = on_top(tmp_path, members=None, features_layer=None)  # of three layers
    setup = prepare.prepare(config, tmp_path / "run", QUIET, print).setup
    model = setup.config.model
    assert (model.members, model.features_layer) == chosen
    assert isinstance(setup.build(), TextClassifier if model.members == 1 else Ensemble)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": ""}, "features\n.*should be a directory or a Hub id"),
        ({"features": "./no"}, r"model\.features: expected a directory that exists"),
        ({"features": "a/b", "path": "a/b"}, "features\n.*should be null with model.path"),
    ],
)
def test_what_does_not_go_together_is_rejected_early(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises((ValueError, ConfigError), match=words):
        check(TrainConfig(model=ModelConfig(**{"evidence": False, **options})))


def test_a_layer_that_the_encoder_does_not_have_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"features_layer: expected at most 3, .* got 4"):
        train(on_top(tmp_path, features_layer=HEADS + 1))
