"""What is promised: a run of version 1.0 loads in this one, and answers as it did."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import headscope
from headscope.ground.errors import RunError
from headscope.record.reader import read_index
from headscope.training.resume import LAST, load_last
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


def metadata_of(name: str) -> dict[str, str]:
    with safe_open(KEPT_PRETRAINED / name / "model.safetensors", "pt") as file:
        return dict(file.metadata())


@pytest.mark.parametrize("name", ["path_bert", "features_bert"])
def test_a_run_of_version_1_on_a_checkpoint_is_not_resumed(name: str, tmp_path: Path) -> None:
    weights = load_file(KEPT_PRETRAINED / name / "model.safetensors")
    setup = {"metadata": metadata_of(name), "tensors": {"ngrams": weights.get("ngrams")}}
    state = {f"model.{key}": weight for key, weight in weights.items()}
    (tmp_path / LAST).parent.mkdir()
    torch.save({"setup": setup, "state_dict": state}, tmp_path / LAST)
    with pytest.raises(RunError, match=r"expected a run of this version, got one of 1\.0"):
        load_last(tmp_path)


def test_an_encoder_of_version_1_that_does_not_open_is_named(tmp_path: Path) -> None:
    metadata = metadata_of("features_bert")
    metadata["encoder"] = metadata["encoder"].replace('"bert"', '"deberta-v2"')
    weights = load_file(KEPT_PRETRAINED / "features_bert" / "model.safetensors")
    save_file(weights, tmp_path / "model.safetensors", metadata)
    with pytest.raises(RunError, match=r"model\.features: model_type: .*got 'deberta-v2'; train"):
        headscope.load(tmp_path)
