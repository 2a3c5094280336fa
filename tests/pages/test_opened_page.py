"""The page of runs on checkpoints: every family's network, frozen encoders and ensembles say what Python says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_family import write_checkpoint
from headscope.data.batching import TextBatches, encode_texts
from headscope.data.evidence import known_ngrams
from headscope.model.checkpoint import read_checkpoint
from headscope.model.opened import load_weights
from headscope.pages.pack import live_content
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.pages.stored import Storage
from headscope.runs.folder import save_model
from headscope.runs.setup import Chosen, Setup
from headscope.settings.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from headscope.tab.html import bundled
from page_answers import OPEN, READ, same_answer
from untrained import words_of

pytestmark = pytest.mark.slow
TEXTS = [
    "the film was lovely and so was the book",
    "a dull film",
    "so cold, so cruel a book of quite dark stories about nobody in the cold dark rain",
]
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"layer_norm_eps": 1e-3, "hidden_act": "gelu_new"},
    "electra": {"embedding_size": 20, "hidden_act": "relu"},
    "distilbert": {},
    "roberta": {"hidden_act": "silu"},
    "xlm-roberta": {},
    "modernbert": {"local_attention": 6, "classifier_pooling": "mean"},
}


@pytest.fixture
def script(browser: Any) -> Iterator[Any]:
    """Return a tab that has the page's modules and nothing else."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.evaluate(f"{bundled('classifier.js')};window.modules = modules;0")
        yield tab


def on_checkpoint(
    folder: Path,
    family: str,
    key: str = "path",
    options: dict[str, Any] | None = None,
    **model: Any,
) -> ShownRun:
    """Return a run on a random checkpoint, whose every weight that was learned is random too."""
    checkpoint_folder = write_checkpoint(
        folder / "checkpoint", family, TEXTS, "ForSequenceClassification", **(options or {})
    )
    checkpoint = read_checkpoint(f"model.{key}", str(checkpoint_folder))
    settings: dict[str, Any] = {key: str(checkpoint_folder), **model}
    config = TrainConfig(
        data=DataConfig(max_length=24),
        tokenizer=TokenizerConfig("words"),
        model=ModelConfig(**settings),
    )
    tokenizer = checkpoint.tokenizer
    tokenizer.enable_truncation(24)
    rows = [(text,) for text in TEXTS]
    known = known_ngrams(words_of(tokenizer, rows * 4)) if config.model.has_evidence else None
    labels = ["good", "bad", "so so"]
    setup = Setup(config, labels, tokenizer, {}, checkpoint.encoder, known)
    torch.manual_seed(0)
    network: Any = setup.build().eval()
    if key == "path":
        load_weights(network, checkpoint.encoder, checkpoint.folder)
    else:
        load_weights(network.features, checkpoint.encoder, checkpoint.folder)
        for name, weight in network.state_dict().items():
            if not name.startswith("features."):
                weight += torch.randn_like(weight) * 0.2
    batch = TextBatches(encode_texts(tokenizer, rows, known))[[0, 1, 2]]
    with torch.no_grad():  # else most texts would have the same class
        spread = network(*batch.inputs)
        for head in [each.head for each in getattr(network, "members", [network])]:
            head.bias -= 0.9 * spread.mean(dim=0)
            head.weight /= spread.std()
            head.bias /= spread.std()
    save_model(folder / "run", setup, network, Chosen(temperature=1.3))
    return load_shown(folder / "run")


def page_says_the_same(script: Any, run: ShownRun) -> None:
    script.evaluate(OPEN, live_content(run, Storage("float32")))
    for text in TEXTS:
        same_answer(run, (text,), [], script.evaluate(READ, [[text], []]))
    heads = [["0,1", "zero"], ["1,0", "uniform"]]
    same_answer(run, (TEXTS[0],), heads, script.evaluate(READ, [[TEXTS[0]], heads]))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fine_tuned_checkpoint_says_what_python_says(
    script: Any, tmp_path: Path, family: str
) -> None:
    page_says_the_same(script, on_checkpoint(tmp_path, family, options=FAMILIES[family]))


ABOVE: list[dict[str, Any]] = [
    {"features_layer": 2},
    {"features_layer": [1, 3], "members": 2, "evidence": True},
]


@pytest.mark.parametrize("model", ABOVE)
def test_networks_above_a_frozen_encoder_say_what_python_says(
    script: Any, tmp_path: Path, model: dict[str, Any]
) -> None:
    own = {"d_model": 16, "num_heads": 4, "num_layers": 2, "feedforward_size": 24, "members": 1}
    run = on_checkpoint(tmp_path, "bert", "features", **(own | model))
    page_says_the_same(script, run)
