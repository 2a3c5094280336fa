"""What inspect rejects before anything is written, and what it shows."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from headscope.cli.inspect import inspect
from headscope.runs.run import load_run
from headscope.settings.commands import InspectConfig
from headscope.settings.config import DataConfig
from untrained import untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
LABELS = ["Commercial", "Copyleft Limited", "Permissive"]


LONG = " ".join(["a licence of a kind"] * 60)


def made(folder: Path, pooling: str = "mean") -> Path:
    model = {"num_layers": 1, "num_heads": 2, "pooling": pooling, "evidence": False}
    return untrained(folder, ["a licence of a kind"], DataConfig(max_length=320), LABELS, **model)


def test_a_read_only_run_is_inspected_and_its_page_goes_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "run")
    monkeypatch.setattr("headscope.cli.inspect.os.access", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    config = InspectConfig(run=str(folder), text="MIT", accelerator="cpu")
    page = inspect(config, Console(file=io.StringIO()))
    assert page.parent == Path()
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_what_every_head_put_is_said_where_it_can_be(tmp_path: Path, pooling: str) -> None:
    folder, shown = made(tmp_path, pooling=pooling), io.StringIO()
    config = InspectConfig(run=str(folder), text="a licence", accelerator="cpu")
    html = inspect(config, Console(file=shown, width=80)).read_text()
    words = " ".join(shown.getvalue().split())
    assert "layer 0 head " in words
    assert "log-odds" in words
    assert "biases" in words
    assert "All heads and words" in html


def test_a_text_is_read_as_far_as_predict_reads_it_and_a_shorter_limit_is_said(
    tmp_path: Path,
) -> None:
    folder = made(tmp_path)
    (answer,) = load_run(folder).predict([LONG])
    likeliest = f"{answer.label} {answer.probabilities[answer.label]:.3f}"
    said = {}
    for limit in (None, 256):
        shown = io.StringIO()
        config = InspectConfig(run=str(folder), text=LONG, max_tokens=limit, accelerator="cpu")
        inspect(config, Console(file=shown, width=300))
        said[limit] = shown.getvalue()
    assert f"302 tokens; {likeliest}" in said[None]
    assert "256 tokens; " in said[256]
    cut = "of this text alone: max_tokens=256 cuts the text: the run reads 302 tokens of it"
    assert [cut in said[limit] for limit in (None, 256)] == [False, True]
