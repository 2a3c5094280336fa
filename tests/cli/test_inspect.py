"""What inspect rejects before anything is written, and what it shows."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from headscope.cli.inspect import inspect
from headscope.data.corpus import load_corpus
from headscope.data.tokenizer import train_tokenizer
from headscope.ground.errors import UserWarningMessage
from headscope.heads.step import make_probe, run_probe
from headscope.record.reader import read_index, read_step
from headscope.runs.folder import Chosen, Setup, save_model
from headscope.runs.run import load_run
from headscope.settings.commands import InspectConfig
from headscope.settings.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig

LABELS = ["Commercial", "Copyleft Limited", "Permissive"]


def untrained(folder: Path, labels: list[str] = LABELS, pooling: str = "mean", **data: Any) -> Path:
    model = ModelConfig(
        d_model=16, num_heads=2, num_layers=1, feedforward_size=32, pooling=pooling, evidence=False
    )
    config = TrainConfig(data=DataConfig(max_length=16, **data), model=model)
    tokenizer = train_tokenizer(iter(["a licence of a kind"]), TokenizerConfig(vocab_size=300))
    digests = load_corpus(config.data).digests() if "path" in data else {}
    setup = Setup(config, labels, tokenizer, digests)
    save_model(folder, setup, setup.build(), Chosen())
    return folder


def test_a_read_only_run_is_inspected_and_its_page_goes_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = untrained(tmp_path / "run")
    (folder / "inspect").touch()  # root may write what is read-only
    monkeypatch.setattr("headscope.runs.run.os.access", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    config = InspectConfig(run=str(folder), text="MIT", accelerator="cpu")
    with pytest.warns(UserWarningMessage, match="record of this text .* is not kept: .*/inspect"):
        page = inspect(config, Console(file=io.StringIO()))
    assert page.parent == Path()
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_what_every_head_put_is_said_where_it_can_be(tmp_path: Path, pooling: str) -> None:
    folder, shown = untrained(tmp_path, pooling=pooling), io.StringIO()
    config = InspectConfig(run=str(folder), text="a licence", accelerator="cpu")
    html = inspect(config, Console(file=shown, width=80)).read_text()
    words = " ".join(shown.getvalue().split())
    assert "layer 0: head " in words
    assert "log-odds" in words
    assert "biases: " in words
    assert "What passes through each head" in html
    # What the model would say without a head is kept too.
    (record,) = (folder / "inspect").glob("*/heads")
    step = read_step(record / read_index(record).steps[0].file)
    heads, layers = step["text_0/without/heads"], step["text_0/without/layers"]
    np.testing.assert_allclose(heads.sum(axis=-1), np.ones((1, 2)), atol=1e-6)
    assert (heads != step["text_0/probabilities"]).any(axis=-1).all()
    np.testing.assert_allclose(layers[0], without_attention(folder), atol=1e-6)


def without_attention(folder: Path) -> np.ndarray:
    """Return the probabilities of the text where the only layer's output projection is 0."""
    run = load_run(folder)
    run.model.encoder.blocks[0].attention.output_projection.weight.data.zero_()
    probe = make_probe(run.tokenizer, ("a licence",), None, 16)
    return run_probe(run.model, probe, run.labels).arrays["probabilities"]
