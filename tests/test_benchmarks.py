"""Every benchmark says how it is run; two of them are run, and fill their tables."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HELPERS = ("label_file", "run_differences", "side_by_side")
BENCHMARKS = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {*HELPERS})


@pytest.fixture
def told_by_a_word(tmp_path: Path) -> Path:
    """Return a file of 120 texts whose class is one of their words."""
    things = [a + b for a in "bdfgklmnprst" for b in ("ale", "ine", "ost", "ump", "eed")]
    pairs = [(word, thing) for thing in things for word in ("good", "bad")]
    rows = [{"text": f"a {word} {thing} of theirs", "label": word} for word, thing in pairs]
    file = tmp_path / "told by a word.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def run(name: str, *arguments: str) -> str:
    """Run a benchmark in a process of its own, on one thread, and return what it printed."""
    options = {"cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "timeout": 900}
    command = [sys.executable, f"benchmarks/{name}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tables(page: str) -> list[list[list[str]]]:
    """Return the cells of each table, the row of dashes left out."""
    found = re.findall(r"(?:^\|.*\|$\n?)+", page, re.MULTILINE)
    return [
        [re.split(r" \| ", row[2:-2]) for row in table.splitlines() if "---" not in row]
        for table in found
    ]


def numbers(cells: list[str]) -> list[float]:
    """Return the first number of each cell that begins with one."""
    return [float(found[0]) for cell in cells if (found := re.match(r"[\d.]+", cell))]


def test_each_says_its_command_its_minutes_and_what_it_prints() -> None:
    assert BENCHMARKS
    for name in BENCHMARKS:
        path = ROOT / "benchmarks" / f"{name}.py"
        head = compile(path.read_text(encoding="utf-8"), str(path), "exec").co_consts[0]
        assert f"python benchmarks/{name}.py" in head, name
        assert re.search(r"\d+ minutes", head), name
        assert re.search("Prints (a table|two tables)", head), name


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_training_beside_bert() -> None:
    page = run("train", "--size", "tiny", "--rounds", "1")
    steps, layers = tables(page)
    assert all(min(numbers(row[2:])) > 0 and len(numbers(row[2:])) == 5 for row in steps[1:])
    assert all(min(numbers(row[3:])) > 0 and len(numbers(row[3:])) == 3 for row in layers[1:])
    assert {row[1] for row in steps[1:]} == {row[2] for row in layers[1:]} == {"0", "0.1"}
    assert "commit" in page


@pytest.mark.slow
def test_accuracy_of_a_file_over_seeds(told_by_a_word: Path, tmp_path: Path) -> None:
    options = ["--folder", str(tmp_path / "kept"), "--seeds", "2", "--skip-fasttext"]
    options += ["--also", "model.num_layers=1"]
    overrides = ["trainer.max_epochs=2", "trainer.epoch_steps=1", "data.tokens_per_batch=256"]
    page = run("accuracy", str(told_by_a_word), *options, *overrides)
    ((_, counted, wide, ours, whole),) = tables(page)
    assert "## told by a word: 96 / 12 / 12 texts of train / validation / test, 2 classes" in page
    assert (counted[1], counted[8]) == ("100.0", "1")
    assert wide[0] == "TF-IDF + wide MLP"
    assert ours[1] == "100.0 ± 0.0"  # one word tells the class
    assert ours[8] == "2"
    assert re.fullmatch(r"[\d.]+ to [\d.]+", ours[7])
    assert re.fullmatch(r"C = [\d.]+", counted[10])
    assert re.match(r"step \d+ of \d+", ours[10])
    assert whole[0] == "headscope, `model.num_layers=1`"
    assert whole[1:] != ours[1:]  # another network
