"""What is promised: a run of version 1.0 loads in this one, and answers as it did."""

import json
import shutil
from pathlib import Path

import pytest

import headscope
from headscope.record.reader import read_index
from kept_run import KEPT, KEPT_PRETRAINED, PRETRAINED, PROMISED, answers

RUNS = [KEPT, *(KEPT_PRETRAINED / name for name in PRETRAINED)]


@pytest.mark.parametrize("kept_run", RUNS, ids=lambda path: path.name)
def test_a_run_of_version_1_answers_as_it_did(kept_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kept_run, tmp_path / "kept")
    run = headscope.load(folder)
    expected = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    for found, kept in zip(answers(run), expected, strict=True):
        assert found["label"] == kept["label"]
        assert found["probabilities"] == pytest.approx(kept["probabilities"], abs=1e-5)
        assert found["log_odds"] == pytest.approx(kept["log_odds"], abs=1e-4)
        assert dict(found["words"]) == pytest.approx(dict(kept["words"]), abs=1e-4)


def test_its_files_are_those_that_the_page_promises(tmp_path: Path) -> None:
    assert sorted(path.name for path in KEPT.iterdir()) == sorted(
        [*PROMISED, "heads", "answers.json"]
    )
    index = read_index(KEPT / "heads")
    assert index.heads == [2, 2]
    assert index.steps[0].step == 0
    metrics = json.loads((KEPT / "metrics.json").read_text(encoding="utf-8"))
    assert {"test", "validation", "baseline", "calibration", "training", "data"} <= set(metrics)
    for folder in (KEPT, KEPT_PRETRAINED):
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 400_000


def test_the_one_file_that_is_the_model_is_enough(tmp_path: Path) -> None:
    shutil.copy(KEPT / "model.safetensors", tmp_path)
    assert headscope.load(tmp_path).predict(["a lovely warm day"])[0].label == "good"
