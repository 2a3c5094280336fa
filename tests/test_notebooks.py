"""The first steps run as a reader runs them, in both languages; their code differs in words alone."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from bert_family import write_checkpoint

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = ("first_steps", "first_steps.ja")


def code_of(name: str) -> list[str]:
    cells = nbformat.read(DOCS / f"{name}.ipynb", as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def test_both_take_the_same_steps() -> None:
    words = re.compile(r"\"[^\"]*\"|#.*|'[^']*'")
    english, japanese = ([words.sub("", code) for code in code_of(name)] for name in NOTEBOOKS)
    assert len(english) == len(japanese) == 7
    assert english[0] == japanese[0]
    assert english[2:] == japanese[2:]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(DOCS / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=2400, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    assert ("layer 0 head 0: " if name == "first_steps" else "層0 ヘッド0：") in printed
    if name != "first_steps":
        assert "log-odds" not in printed
    *_, told, without = re.findall(r"\['(\w+)', '(\w+)'\]", printed)
    assert told in (("Ann", "Ben"), ("ミカ", "ケン"))  # the verb alone differs
    assert without != told  # plain averages in place of attention
    assert "Attention heads" in outputs[-1]["data"]["text/html"]


@pytest.mark.slow
def test_a_papers_figures_are_made_of_a_checkpoint_with_random_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    checkpoint = write_checkpoint(
        tmp_path / "checkpoint", "bert", ["Ann", "Ben", "Eve", "Tom", "was", "help"]
    )
    monkeypatch.setenv("CHECKPOINT", str(checkpoint))
    notebook = nbformat.read(DOCS / "paper_figures.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=2400, kernel_name="python3", resources=place).execute()
    for name in ("effects", "words", "map", "patching"):
        drawn = (tmp_path / f"{name}.svg").read_text("utf-8")
        assert "<text" in drawn, name  # letters, no outlines
        assert "run 'paper'" in (tmp_path / f"{name}.txt").read_text("utf-8")
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
    header, first, *_ = (tmp_path / "effects.csv").read_text("utf-8").splitlines()
    assert header.startswith("head,zero,zero low,zero high,mean,")
    assert len(first.split(",")[1].split(".")[1]) > 10  # all digits
