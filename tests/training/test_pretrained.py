"""A run that begins with a checkpoint of transformers: trained, resumed, opened and read without it, with its own logits."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from bert_family import HEADS, LAYERS, PLACES
from headscope.cli.evaluate import evaluate
from headscope.cli.inspect import inspect
from headscope.cli.predict import predict
from headscope.data import features
from headscope.data.batching import TextBatches
from headscope.ground.errors import ConfigError
from headscope.heads.capture import capture
from headscope.heads.contributions import split_likeliest
from headscope.model.classifier import TextClassifier
from headscope.model.encoder import Encoder
from headscope.model.families import architecture_of
from headscope.model.opened import as_transformers, load_weights
from headscope.record.reader import read_index, read_step
from headscope.runs.run import Run, load_run
from headscope.settings.checks import check, override
from headscope.settings.commands import EvaluateConfig, InspectConfig, PredictConfig
from headscope.settings.config import ModelConfig, TrainConfig
from headscope.training.train import train
from training_runs import Rows, from_checkpoint, reviews, unbroken_and_resumed

SLOW = [
    pytest.param(family, marks=pytest.mark.slow)
    for family in ("xlm-roberta", "modernbert", "japanese")
]
FAMILIES = ["bert", *SLOW]


def japanese() -> Rows:
    words = ["とても", "今日の", "古い", "あの", "実に", "東京の"]
    starts = [a + b for a in words for b in words]
    return [
        {
            "text": f"{start}{'素敵な' if number % 2 else 'ひどい'}映画でした",
            "label": "xy"[number % 2],
        }
        for number, start in enumerate(starts * 3)
    ]


def theirs(run: Run, checkpoint: Any, *texts: list[str]) -> torch.Tensor:
    """Return the probabilities that transformers alone gives, with the checkpoint's own tokenizer."""
    encoder = run.setup.encoder
    assert encoder is not None
    config = transformers.AutoConfig.for_model(**encoder | {"num_labels": len(run.labels)})
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    model.load_state_dict(as_transformers(run.model, encoder))  # type: ignore[arg-type]
    options = {"truncation": True, "max_length": run.config.data.max_length, "padding": True}
    with torch.no_grad():
        logits = model.eval()(**checkpoint(*texts, return_tensors="pt", **options)).logits
    return (logits / run.temperature).softmax(dim=-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_is_used_by_every_command_without_its_checkpoint(family: str, tmp_path: Path) -> None:
    rows = japanese() if family == "japanese" else reviews()
    config = from_checkpoint(tmp_path, family, rows)
    config = override(config, {"trainer.max_steps": 2, "inspection.ablation_texts": 0})
    report = train(config)
    assert report is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")

    run = load_run(report.folder)
    assert run.config == override(config, {"data.cache_dir": None, "data.max_length": PLACES})
    assert (run.config.data.max_length, run.tokenizer.padding) == (PLACES, None)
    texts = [row["text"] for row in rows[:9]] + ["a lovely film " * 20, ""]
    expected = theirs(run, tokenizer, texts)
    found = [list(prediction.probabilities.values()) for prediction in run.predict(texts)]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=1e-6)

    index = read_index(report.folder / "heads")
    assert index.heads == [HEADS] * LAYERS
    assert index.texts[0].tokens[0] == tokenizer.cls_token
    assert index.texts[0].readout == 0
    with (
        capture(run.model),
        pytest.raises(ValueError, match=r"predict: expected no capture .* call run\.maps\(texts\)"),
    ):
        run.predict(texts[:1])
    (maps,) = run.maps(texts[:1])
    assert next(iter(maps.values())).shape[0] == HEADS
    explanation = run.explain(texts[0])
    assert explanation.heads.shape == (LAYERS, HEADS, maps[next(iter(maps))].shape[-1])
    share = run.predict(texts[:1])[0].probabilities[explanation.label]
    log_odds = math.log(share / (1 - share))
    assert explanation.words.sum() + explanation.biases == pytest.approx(log_odds, abs=1e-4)
    folder = str(report.folder)
    assert evaluate(EvaluateConfig(run=folder, accelerator="cpu")) == report.test
    (tmp_path / "texts.txt").write_text("\n".join(texts[:2]) + "\n")
    output = str(tmp_path / "labels.csv")
    given = PredictConfig(folder, str(tmp_path / "texts.txt"), output, accelerator="cpu")
    assert predict(given) == 2
    page = inspect(InspectConfig(run=folder, text=texts[0], accelerator="cpu"))
    assert '"heads":[3,3,3]' in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_resumed_run_ends_as_an_unbroken_one_and_needs_no_checkpoint(
    tmp_path: Path, interrupt_at: Callable[..., None]
) -> None:
    whole = quick(from_checkpoint(tmp_path, "modernbert", frozen_layers=1))
    expected, found = unbroken_and_resumed(whole, tmp_path / "checkpoint", interrupt_at)
    assert found.facts_of_training == expected.facts_of_training
    weights = [load_file(each.folder / "model.safetensors") for each in (found, expected)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def quick(config: TrainConfig, steps: int = 4) -> TrainConfig:
    """Leave out what takes longest."""
    changes = {"inspection.enabled": False, "baseline": False, "trainer.max_steps": steps}
    return override(config, changes)


def test_frozen_layers_stay_as_they_are_and_the_others_learn(tmp_path: Path) -> None:
    frozen = 2
    config = quick(from_checkpoint(tmp_path, frozen_layers=frozen), steps=1)
    report = train(replace(config, control="uniform"))
    assert report is not None
    metrics = json.loads((report.folder / "metrics.json").read_text())
    assert metrics["control"]["name"] == "averages in place of attention"
    assert metrics["control"]["loss"] != metrics["test"]["loss"]
    model: Any = load_run(report.folder).model
    encoder = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    before = TextClassifier(architecture_of(encoder), 2)
    load_weights(before, encoder, tmp_path / "checkpoint")
    parts = ["embedding", *(f"encoder.blocks.{number}" for number in range(LAYERS))]
    differs = [
        not torch.equal(
            torch.nn.utils.parameters_to_vector(model.get_submodule(part).parameters()),
            torch.nn.utils.parameters_to_vector(before.get_submodule(part).parameters()),
        )
        for part in parts
    ]
    assert differs == [False] * (frozen + 1) + [True] * (LAYERS - frozen)
    with pytest.raises(ConfigError, match=r"frozen_layers: expected at most 3, .* got 4"):
        train(quick(from_checkpoint(tmp_path / "more", frozen_layers=4)))


def test_frozen_layers_are_computed_once_and_the_losses_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = quick(from_checkpoint(tmp_path, frozen_layers=2))
    starts: list[int] = []
    forward = Encoder.forward

    def counted(encoder: Encoder, *inputs: Any) -> torch.Tensor:
        if encoder.training:
            starts.append(inputs[-1])
        return forward(encoder, *inputs)

    monkeypatch.setattr(Encoder, "forward", counted)
    known = train(override(config, {"name": "known", "inspection.enabled": True}))
    assert starts == [2] * 4
    monkeypatch.setattr(features, "MOST_GIB", 0)
    whole = train(replace(config, name="whole"))
    assert starts[4:] == [0] * 4, "each step computes them"
    assert known is not None
    assert whole is not None
    torch.testing.assert_close(known.logits, whole.logits, rtol=0, atol=2e-3)
    index = read_index(known.folder / "heads")
    assert index.heads == [HEADS] * LAYERS
    arrays = read_step(known.folder / "heads" / index.steps[0].file)
    assert arrays["numbers/entropy_share/mean"].shape == (LAYERS, HEADS), "of frozen layers too"


def test_padding_moves_no_contribution_of_a_network_on_features(tmp_path: Path) -> None:
    config = quick(from_checkpoint(tmp_path), steps=1)
    model = ModelConfig(features=config.model.path, num_heads=2, num_layers=1, d_model=8)
    report = train(replace(config, model=model))
    assert report is not None
    run = load_run(report.folder)
    rows = [(row["text"],) for row in reviews()[:9]]  # more than the width
    whole = split_likeliest(run.model, TextBatches(run.encode(rows))[[*range(9)]], run.reading)
    for number, row in enumerate(rows):
        alone = split_likeliest(run.model, TextBatches(run.encode([row]))[[0]], run.reading)
        T = alone.words.shape[1]
        torch.testing.assert_close(whole.words[number, :T], alone.words[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(whole.biases[number], alone.biases[0], rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*transformers computes it:UserWarning")
def test_a_model_outside_the_registry_has_maps_and_no_control(tmp_path: Path) -> None:
    config = quick(from_checkpoint(tmp_path, "deberta"), steps=1)
    report = train(override(config, {"inspection.enabled": True}))
    assert report is not None
    assert read_index(report.folder / "heads").heads == [HEADS] * LAYERS
    run = load_run(report.folder)
    with capture(run.model) as maps:
        run.model(torch.tensor([[2, 7, 8, 3]]))
    assert len(maps) == LAYERS
    config = replace(config, control="uniform", name="control")
    with pytest.raises(ConfigError, match="control: expected null with this checkpoint"):
        train(config)


@pytest.mark.filterwarnings("default:.*are unknown to the checkpoint:UserWarning")
@pytest.mark.parametrize("family", ["bert", SLOW[0]])
def test_pairs_of_texts_are_trained_on_with_and_without_types(family: str, tmp_path: Path) -> None:
    words = [a + b for a in "abcdefghi" for b in "jklmnopqr"]
    rows = [
        {"text": f"a {word} film", "other": f"the {word[::-1]} day", "label": "xy"[number % 2]}
        for number, word in enumerate(words)
    ]
    report = train(quick(from_checkpoint(tmp_path, family, rows), steps=1))
    assert report is not None
    run = load_run(report.folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    pair = (["a ak film"], ["the day"])
    expected = theirs(run, tokenizer, *pair)
    (prediction,) = run.predict([(pair[0][0], pair[1][0])])
    found = torch.tensor([[*prediction.probabilities.values()]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ""}, "path\n.*should be a directory or a Hub id"),
        ({"path": "./no", "evidence": False}, r"model\.path: expected a directory that exists"),
        ({"frozen_layers": 1}, "frozen_layers\n.*should be null without model.path"),
        ({"revision": "v1"}, "revision\n.*should be null without model.path"),
        ({"path": "some/id", "num_heads": 8}, "num_heads\n.*should be 4 with model.path"),
        ({"path": "some/id", "pooling": "mean"}, "pooling\n.*should be 'first' with model.path"),
    ],
)
def test_what_does_not_go_with_a_checkpoint_is_rejected_early(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises((ValueError, ConfigError), match=words):
        check(TrainConfig(model=ModelConfig(**options)))
