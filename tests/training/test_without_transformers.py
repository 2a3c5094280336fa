"""A network that was opened from a checkpoint needs no transformers: every command runs with its import forbidden."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from training_runs import from_checkpoint

# Commands one after the other, in one process, as a user types them.
COMMANDS = """
import importlib.metadata, json, sys
from importlib.machinery import PathFinder

def without(find):
    def found(name, *rest):
        return None if name == "transformers" else find(name, *rest)
    return found

def unnamed(name, of=importlib.metadata.Distribution.from_name):
    if name == "transformers":  # by which torchmetrics would find it installed
        raise importlib.metadata.PackageNotFoundError(name)
    return of(name)

PathFinder.find_spec = without(PathFinder.find_spec)
importlib.metadata.Distribution.from_name = unnamed
import headscope
from headscope.cli.main import run
for name, *words in json.loads(sys.argv[1]):
    assert run(name, words) == 0, name
print(headscope.load(sys.argv[2]).explain("a lovely day").words.sum())
assert not {"transformers", "headscope.foreign"} & {*sys.modules}
"""
QUICK = ["trainer.max_epochs=1", "trainer.max_steps=2", "trainer.accelerator=cpu"]
QUICK += ["trainer.progress=false", "inspection.ablation_texts=24", "baseline=false"]
ON_FEATURES = ["model.num_layers=1", "model.d_model=12", "model.num_heads=3"]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["path", "features"])
def test_an_opened_network_is_used_without_transformers(key: str, tmp_path: Path) -> None:
    checkpoint = from_checkpoint(tmp_path).model.path
    texts = str(tmp_path / "reviews.csv")
    folder = str(tmp_path / "outputs" / "run")
    train = ["data=files", f"data.path={texts}", f"data.cache_dir={tmp_path / 'cache'}", *QUICK]
    train += [f"outputs_dir={tmp_path / 'outputs'}", "name=run", f"model.{key}={checkpoint}"]
    train += ON_FEATURES if key == "features" else ["model.evidence=true"]
    answers = str(tmp_path / "answers.csv")
    commands = [
        ["train", *train],
        ["train", f"resume={folder}", "trainer.max_steps=4", "trainer.max_epochs=2"],
        ["predict", f"run={folder}", f"input={texts}", f"output={answers}", "reasons=true"],
        ["inspect", f"run={folder}", "text=a lovely day"],
        ["evaluate", f"run={folder}"],
        ["export", f"run={folder}", f"output={tmp_path / 'exported'}", "reasons=true"],
    ]
    given = [json.dumps(commands), folder]
    done = subprocess.run([sys.executable, "-c", COMMANDS, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) != 0.0
    with Path(answers).open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 240
    assert {row["prediction"] for row in rows} <= {"good", "bad"}
    script = [sys.executable, str(tmp_path / "exported" / "classify.py"), texts]
    exported = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    for row, line in zip(rows, exported.splitlines(), strict=True):
        found = json.loads(line)
        for name in ("probability_bad", "probability_good"):
            assert found[name] == pytest.approx(float(row[name]), abs=3e-6)
