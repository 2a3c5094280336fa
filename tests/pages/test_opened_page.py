"""The page of runs on checkpoints: every family's network, frozen encoders and ensembles say what Python says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bert_family import write_checkpoint
from chromium import PageOpener
from headscope.data.batching import TextBatches, encode_texts
from headscope.data.evidence import known_ngrams
from headscope.model.checkpoint import read_checkpoint
from headscope.model.opened import load_weights
from headscope.pages.live import live_html
from headscope.pages.pack import live_content
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.pages.stored import (
    Change,
    Storage,
    as_stored,
    measured,
    quantized,
    restored,
    seen_ids,
)
from headscope.pages.tokenizer import page_tokenizer
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


# --- how weights are stored ---


def test_blocks_of_8_bits_are_within_half_a_step_of_their_numbers() -> None:
    random = np.random.default_rng(0)
    array = random.normal(size=(7, 150)).astype(np.float32)
    array[3] = 0
    whole, scales = quantized(array)
    assert whole.dtype == np.int8
    assert whole.shape == array.shape
    steps = np.repeat(scales, 64, axis=1)[:, : array.shape[1]]
    assert (np.abs(restored(whole, scales) - array) <= steps / 2 + 1e-9).all()


def test_the_page_computes_with_the_weights_and_tokens_that_were_measured(
    script: Any, tmp_path: Path
) -> None:
    run = on_checkpoint(tmp_path, "bert")
    texts = [(text,) for text in TEXTS]
    storage = Storage("int8", seen_ids(run, texts[1:]))
    content = live_content(run, storage)
    ids = page_tokenizer(run.tokenizer, 24, storage.kept)["ids"]
    assert len(content["tokenizer"]["pieces"]) == len(ids) < run.tokenizer.get_vocab_size()
    script.evaluate(OPEN, content)
    stored = as_stored(run, storage, ids)
    rows = [*stored.predict(TEXTS)]
    for text, row in zip(TEXTS, rows, strict=True):
        found = script.evaluate(READ, [[text], []])
        values = {name: array for name, _, array in found["arrays"]}
        np.testing.assert_allclose(
            values["probabilities"], [*row.probabilities.values()], atol=1e-4
        )
        cut = stored.tokenizer.encode(text).tokens
        assert len(found["tokens"]) == len(cut)
    assert stored.tokenizer.encode(TEXTS[0]).tokens != run.tokenizer.encode(TEXTS[0]).tokens
    change = measured(run, storage, ids, texts)
    whole = run.predict(TEXTS)
    most = [
        abs(before.probabilities[name] - after.probabilities[name])
        for before, after in zip(whole, rows, strict=True)
        for name in run.labels
    ]
    labels = sum(a.labels != b.labels for a, b in zip(whole, rows, strict=True))
    assert change == Change(3, pytest.approx(max(most)), labels)
    assert 0 < change.most < 0.5
    assert measured(run, Storage("float32"), ids, texts) is None


# --- heads by words, where that takes long ---

SOME = """([text, pair, places]) => {
  const { finished } = modules.classifier;
  const cells = finished(classifier.cells([text], new Map(), pair, places));
  return [...cells].map(([at, { tokens, bias }]) => [at, [...tokens], bias]);
}"""


def test_sums_of_all_heads_come_without_their_cells_and_cells_of_those_that_are_asked_for(
    script: Any, tmp_path: Path
) -> None:
    run = on_checkpoint(tmp_path, "roberta", options={"num_hidden_layers": 5})
    content = live_content(run, Storage("float32")) | {"most_at_once": 0}
    script.evaluate(OPEN, content)
    found = script.evaluate(READ, [[TEXTS[0]], []])
    arrays = {name: np.array(values).reshape(shape) for name, shape, values in found["arrays"]}
    expected = run.explain(TEXTS[0])
    sums = arrays["contributions/sums"]
    np.testing.assert_allclose(sums[..., 0] - sums[..., 1], expected.head_sums, atol=1e-4)
    assert all(
        value is None or np.isnan(value) for value in arrays["contributions/heads"][..., 0].ravel()
    )
    pair = arrays["contributions/shown"].tolist()
    for at, tokens, bias in script.evaluate(SOME, [TEXTS[0], pair, [1, 5]]):
        place = divmod(at, 3)
        np.testing.assert_allclose(tokens, expected.heads[place], atol=1e-4)
        assert bias == pytest.approx(expected.head_biases[place], abs=1e-4)


def as_number(shown: str) -> float:
    return float(shown.replace("\u2212", "-"))


def test_cells_of_heads_in_sight_come_at_rest_and_those_of_all_on_request(
    open_page: PageOpener, tmp_path: Path
) -> None:
    run = on_checkpoint(
        tmp_path, "bert", options={"num_hidden_layers": 5, "num_attention_heads": 4}
    )
    html = live_html(run, [TEXTS[0]]).replace('"most_at_once":3000000000.0', '"most_at_once":0')
    tab = open_page(html)
    heads = tab.locator(".cells-table .head-name")
    tab.locator(".cells-table >> text=10 other heads").wait_for()
    assert heads.count() == 10
    names = heads.all_inner_texts()
    sums = tab.locator(".cells-table tbody .sum-of b").all_inner_texts()
    tab.locator("text=All heads and words").click()
    tab.locator(".cells-table >> text=other heads").wait_for(state="detached")
    assert heads.count() == 20
    assert heads.all_inner_texts()[:10] == names
    found = tab.locator(".cells-table tbody .sum-of b").all_inner_texts()
    pairs = zip(sums[:10], found[:10], strict=True)  # rounded so that what is shown adds up
    assert all(abs(as_number(one) - as_number(other)) < 0.011 for one, other in pairs)
    expected = run.predict([TEXTS[0]])[0]
    assert expected.label in tab.locator(".classes").inner_text()
    assert "weights in 8 bits" in tab.locator(".box").inner_text()
