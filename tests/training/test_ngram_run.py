"""A run with a bag of n-grams: trained, kept, resumed, used and inspected with them."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from headscope.commands.config import EvaluateConfig, InspectConfig
from headscope.commands.evaluate import evaluate
from headscope.commands.inspect import inspect
from headscope.commands.predict import encoded, probabilities
from headscope.data.batching import TextBatches
from headscope.data.columns import row_texts
from headscope.data.corpus import load_corpus
from headscope.errors import RunError
from headscope.inspection.record import read_index, read_step
from headscope.training.config import TrainConfig
from headscope.training.decision import ENCODER_MEANS
from headscope.training.folder import load_run
from headscope.training.kept import NGRAMS, training_fact
from headscope.training.probes import make_probe, read_probe
from headscope.training.run import train
from headscope.training.text_decision import TextDecision, text_decision

Maker = Callable[..., TrainConfig]


@pytest.fixture
def with_ngrams(small_config: Maker) -> Maker:
    def make(name: str = "run", **options: object) -> TrainConfig:
        config = small_config(name, **options)
        config.model.ngrams = True
        return config

    return make


def test_what_a_run_kept_gives_the_logits_that_were_scored(with_ngrams: Maker) -> None:
    report = train(with_ngrams(max_epochs=2))
    run = load_run(report.folder)
    texts = [(text,) for text in row_texts(load_corpus(run.config.data).splits["test"])]
    found = encoded(run.tokenizer, texts, run.ngrams)
    device = torch.device("cpu")
    shares = probabilities(run.model, found, 256, device, temperature=run.temperature)
    wanted = (report.logits.double() / run.temperature).softmax(dim=-1)
    torch.testing.assert_close(shares, wanted, atol=1e-5, rtol=0)
    alone = probabilities(run.model, encoded(run.tokenizer, texts), 256, device, temperature=run.temperature)
    assert (alone - wanted).abs().max() > 1e-3  # the bag has learned something
    assert evaluate(EvaluateConfig(run=str(report.folder))).accuracy == report.test.accuracy


def test_the_report_says_who_decided(with_ngrams: Maker) -> None:
    report = train(with_ngrams(max_epochs=2))
    shares = report.facts_of_training["decided by"]
    assert set(shares) == {"n-grams", "encoder"}
    assert 0 < shares["n-grams"] < 1
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("against", [None, "bad", "good"])
def test_what_spoke_for_the_class_of_a_text_adds_up(with_ngrams: Maker, against: str | None) -> None:
    run = load_run(train(with_ngrams(max_epochs=2)).folder)
    assert run.ngrams is not None
    assert run.model.bag is not None
    probe = make_probe(run.tokenizer, ("The dog, a bad cat",), None, 30, run.ngrams)
    reading = read_probe(run.model, probe, run.labels, torch.device("cpu"))
    means = {"bad": 0.25, "good": -0.5}
    found = text_decision(run.model.bag, run.ngrams, probe, reading, means, against)
    with torch.inference_mode():
        alone = run.model(probe.token_ids)[0]
    label = int(reading.logits.argmax())
    assert found.label == run.labels[label]

    def above(logits: torch.Tensor) -> float:
        return float(logits[label] - (logits.mean() if against is None else logits[run.labels.index(against)]))

    usual = above(torch.tensor([means[name] for name in run.labels]))
    assert found.lifts["any text"] == pytest.approx(usual, abs=1e-5)
    assert found.lifts["encoder"] == pytest.approx(above(alone) - usual, abs=1e-5)
    assert sum(found.lifts.values()) == pytest.approx(above(reading.logits), abs=1e-5)
    named = [lift for kind in found.ngrams.values() for lift in kind.values()]
    assert len(named) == len(probe.ngrams.ids)
    assert sum(named) == pytest.approx(found.lifts["n-grams"], abs=1e-5)
    for kind in found.ngrams.values():
        sizes = [abs(lift) for lift in kind.values()]
        assert sizes == sorted(sizes, reverse=True)


def test_what_is_not_known_of_an_average_text_is_not_told(with_ngrams: Maker) -> None:
    run = load_run(train(with_ngrams(max_epochs=1)).folder)
    assert run.ngrams is not None
    assert run.model.bag is not None
    probe = make_probe(run.tokenizer, ("The dog, a bad cat",), None, 30, run.ngrams)
    reading = read_probe(run.model, probe, run.labels, torch.device("cpu"))
    found = text_decision(run.model.bag, run.ngrams, probe, reading, {})
    assert set(found.lifts) == {"n-grams", "encoder"}
    assert sum(found.lifts.values()) == pytest.approx(float(reading.logits.max() - reading.logits.mean()), abs=1e-5)


def test_it_is_told_in_words() -> None:
    lifts = {"n-grams": 0.5, "encoder": -0.25, "any text": 0.125}
    words = dict(zip("abcdefgh", [1.0, -0.5, 0.1, 0.1, 0.1, 0.1, 0.25, 0.5], strict=True))
    told = TextDecision("MIT", "ISC", lifts, {"words": words, "letters": {}}).notes()
    assert told == {
        "speaks for MIT, not ISC": "n-grams +0.50, encoder -0.25, any text +0.12 (nats)",
        "words": "a +1.00, b -0.50, c +0.10, d +0.10, e +0.10, f +0.10, 2 more +0.75",
        "letters": "none is known",
    }
    assert next(iter(TextDecision("MIT", None, lifts, {}).notes())) == "speaks for MIT"


def test_what_the_encoder_says_on_average_is_kept(with_ngrams: Maker) -> None:
    report = train(with_ngrams(max_epochs=1))
    run = load_run(report.folder)
    texts = [(text,) for text in row_texts(load_corpus(run.config.data).splits["test"])]
    ids = encoded(run.tokenizer, texts)
    with torch.inference_mode():
        alone = run.model(*TextBatches(ids)[list(range(len(texts)))].inputs).mean(dim=0)
    kept = training_fact(report.folder, ENCODER_MEANS)
    assert kept == pytest.approx(dict(zip(run.labels, alone.tolist(), strict=True)), abs=1e-3)


def test_inspect_and_the_page_of_mistakes_say_it(with_ngrams: Maker) -> None:
    report = train(with_ngrams(max_epochs=1))
    output = io.StringIO()
    page = inspect(InspectConfig(run=str(report.folder), text="good dog"), Console(file=output, width=200))
    label = max(load_run(report.folder).labels, key=lambda label: f"speaks for {label}" in output.getvalue())
    assert f"speaks for {label}: n-grams" in output.getvalue()
    assert f"speaks for {label}" in page.read_text("utf-8")
    if report.most_wrong is not None:
        assert "speaks for" in report.most_wrong.read_text("utf-8")


def test_heads_are_studied_beside_the_bag(with_ngrams: Maker) -> None:
    config = with_ngrams(max_epochs=1)
    config.inspection.causes = 24
    report = train(config)
    index = read_index(report.folder / "heads")
    arrays = read_step(report.folder / "heads" / index.steps[-1].file)
    for measure in ("loss_zeroed", "gate_gradient", "comprehensiveness"):
        assert np.isfinite(arrays[f"numbers/{measure}/mean"]).all()
    run = load_run(report.folder)
    shown = arrays["text_0/probabilities"]
    found = encoded(run.tokenizer, [(index.texts[0].text,)], run.ngrams)
    again = probabilities(run.model, found, 256, torch.device("cpu"))
    np.testing.assert_allclose(shown, again[0], atol=2e-3)


def test_a_resumed_run_goes_on_with_its_ngrams(with_ngrams: Maker) -> None:
    whole = train(with_ngrams("whole", max_epochs=2, precision="32-true"))
    begun = train(with_ngrams("begun", max_epochs=2, max_steps=whole.facts_of_training["steps"] // 2))
    config = with_ngrams("begun", max_epochs=2)
    config.resume = str(begun.folder)
    kept = (begun.folder / NGRAMS).read_bytes()
    assert train(config).facts_of_training["steps"] == whole.facts_of_training["steps"]
    assert (begun.folder / NGRAMS).read_bytes() == kept


def test_the_same_seed_gives_the_same_weights(with_ngrams: Maker) -> None:
    one, other = (
        load_file(train(with_ngrams(name, max_epochs=1, precision="32-true")).folder / "model.safetensors")
        for name in ("one", "other")
    )
    assert "bag.weight" in one
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("content", "words"), [(b"broken", "broken"), (None, "did not finish")])
def test_a_run_whose_ngrams_are_broken_is_refused_by_name(
    with_ngrams: Maker, content: bytes | None, words: str
) -> None:
    folder: Path = train(with_ngrams(max_epochs=1)).folder
    (folder / NGRAMS).unlink()
    if content is not None:
        (folder / NGRAMS).write_bytes(content)
    with pytest.raises(RunError, match=words):
        load_run(folder)
