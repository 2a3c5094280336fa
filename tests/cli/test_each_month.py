"""The month of docs/data.md: its commands, in order, by small networks."""

import json
import re
import shlex
from pathlib import Path

import pytest

from hard.forked import Case, Server
from training_runs import reviews, write

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
COMMANDS = re.findall(
    r"^    headscope (.+)$", PAGE.partition("## Each month")[2].partition("\n## ")[0], re.MULTILINE
)
SMALL = ("model.d_model=32", "model.feedforward_size=64", "inspection=off", "baseline=false")


@pytest.mark.slow
def test_a_month_is_trained_compared_and_exported(tmp_path: Path, server: Server) -> None:
    rows = reviews(420)
    files = {
        "september": rows[:240],
        "october": rows[:300],
        "test": rows[300:],
        "new": rows[240:300],
    }
    for name, some in files.items():
        write(tmp_path / f"{name}.csv", some)
    words = [shlex.split(line, comments=True) for line in COMMANDS]
    assert [each[0] for each in words] == ["train", "predict", "train", "evaluate", "export"]
    for each in words:
        outcome = server.run(Case(each + [*SMALL] * (each[0] == "train"), str(tmp_path)))
        assert outcome.code == 0, f"{each}\n{outcome.stdout}\n{outcome.stderr}"
    (kept,) = (tmp_path / "outputs/october/evaluations").glob("*.json")
    against = json.loads(kept.read_text())["against"]
    assert against["name"] == "outputs/september"
    assert "accuracy" in against["differences"]  # macro-F1 only where the runs differ
    assert json.loads(kept.read_text())["texts"] == 120
    assert (tmp_path / "outputs/october/model.safetensors").exists()
    assert (tmp_path / "models/october/model.onnx").exists()
