"""The month of docs/next-month.md: trained again, compared, promoted and exported by its script."""

import csv
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headscope.ground.tables import write_rows
from training_runs import reviews, write

PAGE = (Path(__file__).parents[2] / "docs" / "next-month.md").read_text(encoding="utf-8")
ONCE = re.findall(r"^    (headscope .*|ln .*)$", PAGE, re.MULTILINE)
(SCRIPT,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# A network that takes seconds, in the first run; the script takes its settings.
SMALL = ("model.d_model=32", "model.feedforward_size=64", "inspection=off", "baseline=false")
COMMAND = f"""#!/bin/bash
small=""
[ "$1" = train ] && small="{" ".join(SMALL)}"
exec {sys.executable} -m headscope "$@" $small
"""


def run_of(folder: Path, command: str) -> "subprocess.CompletedProcess[str]":
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": path},
    )


def labels_of(path: Path) -> dict[str, str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row["text"]: row["label"] for row in csv.DictReader(file)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = reviews(420)
    (tmp_path / "data/start").mkdir(parents=True)
    files = {"data/start/texts": rows[:240], "new": rows[240:300], "data/start/test": rows[300:]}
    for name, some in files.items():
        write(tmp_path / f"{name}.csv", some)
    (tmp_path / "bin").mkdir()
    for name, content in (("bin/headscope", COMMAND), ("month.py", SCRIPT)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    done = run_of(tmp_path, "\n".join(ONCE))
    assert done.returncode == 0, done.stdout
    return tmp_path


@pytest.mark.slow
def test_a_month_is_trained_compared_promoted_and_exported(folder: Path) -> None:
    month = f"{datetime.now(UTC).astimezone():%Y-%m}"
    wrong, tested = reviews(420)[0], reviews(420)[310]
    listed = [
        {**wrong, "key": "", "split": "train", "row": 0, "corrected": " bad "},
        {**tested, "key": "", "split": "test", "row": 10, "corrected": "bad"},
        {**tested, "key": "", "split": "test", "row": 11, "corrected": ""},
    ]
    listed[2]["text"] = reviews(420)[311]["text"]
    write_rows(str(folder / "labels.csv"), listed, [])
    (folder / "serve.py").write_text("app = None\n")
    done = run_of(folder, f"{sys.executable} month.py")
    assert done.returncode == 0, done.stdout
    number = r"[+-]\d+\.\d"
    for score in ("accuracy", "macro_f1"):
        assert re.search(rf"^{score} {number} points \({number} to {number}\)$", done.stdout, re.M)
    for name in ("data", "runs", "models"):
        assert (folder / name / "current").readlink() == Path(month)
    assert (folder / "models/current/model.onnx").exists()
    assert (folder / "models/current/serve.py").exists()
    assert {path.name for path in (folder / f"data/{month}").iterdir()} == {
        *("texts.csv", "test.csv", "new.csv", "labels.csv")
    }
    sizes = {"texts": 240 + 54, "test": 120 + 6}
    for name, size in sizes.items():
        assert len((folder / f"data/current/{name}.csv").read_text().splitlines()) == size + 1
    assert labels_of(folder / "data/current/texts.csv")[str(wrong["text"])] == "bad"
    assert labels_of(folder / "data/current/test.csv")[str(tested["text"])] == "bad"
    learned = json.loads((folder / f"runs/{month}/metrics.json").read_text())["data"]["sizes"]
    assert sum(learned.values()) <= 420
    again = run_of(folder, f"{sys.executable} month.py")
    assert again.returncode == 1
    assert "exists: remove it" in again.stdout


@pytest.mark.slow
def test_a_month_of_unknown_classes_or_worse_scores_changes_nothing(folder: Path) -> None:
    write(folder / "new.csv", [{"text": "a lovely film", "label": "typo"}])
    done = run_of(folder, f"{sys.executable} month.py")
    assert done.returncode == 1
    assert "with --new-classes they are: {'typo'}" in done.stdout
    write(folder / "new.csv", [{"text": "a lovely film", "label": " "}])
    done = run_of(folder, f"{sys.executable} month.py --new-classes")
    assert done.returncode == 1
    assert "has rows without a label" in done.stdout
    other = {"text": "another text", "key": "", "split": "train", "row": 0, "corrected": "bad"}
    write_rows(str(folder / "labels.csv"), [other], [])
    done = run_of(folder, f"{sys.executable} month.py")
    assert done.returncode == 1
    assert "labels.csv: row 0 has another text in data/current/texts.csv" in done.stdout
    (folder / "labels.csv").unlink()
    flipped = [
        {"text": row["text"], "label": {"good": "bad", "bad": "good"}[str(row["label"])]}
        for row in reviews(420)[:240] * 2
    ]
    write(folder / "new.csv", flipped)
    done = run_of(folder, f"{sys.executable} month.py")
    assert done.returncode == 1
    assert "is shown to be worse: everything stays as it was" in done.stdout
    for name in ("data", "runs"):
        assert (folder / name / "current").readlink() == Path("start")
    assert (folder / "new.csv").exists()
