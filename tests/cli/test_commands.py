"""train, evaluate, inspect and a sweep by their command lines, on the default data."""

import csv
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
Command = Callable[..., str]


def test_a_run_leaves_its_folder_whole(trained: Path) -> None:
    names = {"config.yaml", "tokenizer.json", "labels.json", "model.safetensors", "metrics.json"}
    assert names | {"checkpoints"} <= {path.name for path in trained.iterdir()}
    assert list(trained.glob("events.out.tfevents.*"))
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["data"]["sizes"] == {"train": 300, "test": 300, "validation": 300}
    assert metrics["baseline"]["accuracy"] > 0.5
    assert len(metrics["labels"]) == 7


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.py")), ids=lambda it: it.stem)
def test_each_script_hands_over_to_its_command(command: Command, path: Path) -> None:
    assert f'"-P", "-m", "headscope", "{path.stem}", *sys.argv[1:]' in path.read_text("utf-8")
    assert f"Usage: headscope {path.stem} " in command(path.stem, "--help")


def test_evaluate_says_what_was_trained_on_and_how_to_score_its_own(
    command: Command, trained: Path
) -> None:
    shown = command("evaluate", f"run={trained}", "split=train", "accelerator=cpu")
    assert re.search(r"licenses, split train, \d+ texts, which it was trained on", shown)
    said = command("evaluate", f"run={trained}", "data.limit=10", code=2)
    assert "data.path: expected a file, directory or Hub id, got ''" in said
    assert "or leave out every data.* key" in said


def test_inspect_writes_a_page_of_any_text(command: Command, trained: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = 'Hello, [world] {x}: "quoted" ${none} </script><b>日本語</b>'
    quoted = text.replace('"', '\\"')
    words = ["inspect", f"run={trained}", f'text="{quoted}"', f"output={page}"]
    assert "log-odds" in command(*words)
    html = page.read_text(encoding="utf-8")
    assert "</script><b>" not in html
    assert json.dumps("日本語")[1:-1] in html
    said = command("inspect", f"run={trained}", "text=a", "text_pair=b", code=2)
    assert "text_pair: expected null" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")  # a network that has learned nothing says so
def test_a_sweep_whose_parent_was_killed_goes_on_and_its_best_can_be_trained_again(
    command: Command, sweep: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    words = ["train", *sweep, "-m", "model.num_heads=2,4", "seed=range(2)"]
    started = [sys.executable, "-m", "headscope", *words]
    process = subprocess.Popen(started, stdout=subprocess.DEVNULL)
    while len(list(folder.glob("*/config.yaml"))) < 2:  # the second job has begun
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")}
    assert len(done) == 1
    assert command(*words).count("done before") == 1
    assert {path: path.stat().st_mtime_ns for path in done} == done
    with (folder / "sweep.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    jobs = [(row["model.num_heads"], row["seed"]) for row in found]
    assert jobs == [("2", "0"), ("2", "1"), ("4", "0"), ("4", "1")]
    assert {row["status"] for row in found} == {"done"}
    best = ["--config-dir", str(folder), "--config-name", "best", "name=best"]
    command("train", *best, f"outputs_dir={tmp_path}")
    scores = [row["validation_macro_f1"] for row in found]
    means = np.array(scores, float).reshape(2, 2).sum(axis=1)  # of both seeds
    metrics = json.loads((tmp_path / "best/metrics.json").read_text())
    assert f"{metrics['validation']['macro_f1']:.4f}" == scores[2 * means.argmax()]
