"""model.safetensors alone is the model: nothing beside it decides an answer, and a damaged one is named."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

from headscope.cli.evaluate import evaluate
from headscope.ground.errors import RunError, UserWarningMessage
from headscope.ground.files import read_text
from headscope.pages.live import recorded_step
from headscope.runs.folder import load_validation, write_tensors
from headscope.runs.run import Prediction, load_run
from headscope.settings.commands import EvaluateConfig
from headscope.training.resume import LAST, load_last, resumed_config
from headscope.training.train import train
from training_runs import Trained, edit_model

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

TEXTS = ["the film was lovely", "dark", "quite a day"]


def answers(folder: Path) -> list[Prediction]:
    return load_run(folder).predict(TEXTS)


def test_a_run_is_used_and_resumed_without_the_files_beside(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path).rename(tmp_path / "moved")
    expected = answers(plain.folder)
    for path in folder.iterdir():
        if path.name not in ("model.safetensors", LAST.parts[0]):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert answers(folder) == expected
    assert evaluate(EvaluateConfig(str(folder), accelerator="cpu")) == plain.report.test
    assert resumed_config(folder).model == plain.report.config.model
    last = load_last(folder)
    assert last is not None
    assert last.steps == plain.report.facts_of_training["steps"]


def test_a_first_answer_imports_neither_lightning_nor_the_compiler(plain: Trained) -> None:
    code = f"""
import sys, headscope
headscope.load({str(plain.folder)!r}).predict({TEXTS!r})
print(*{{"lightning", "torch._dynamo", "sympy", "datasets", "sklearn"}} & {{*sys.modules}})"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_part_of_another_run_changes_nothing_or_is_an_error(
    plain: Trained, mistaken: Trained, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path / "mine")
    expected = answers(folder)
    for path in mistaken.folder.iterdir():
        if path.name == "model.safetensors":  # which is the other run
            continue
        shutil.rmtree(folder / path.name) if path.is_dir() else None
        kept = folder / path.name
        own = kept.read_bytes() if path.is_file() and kept.exists() else None
        shutil.copytree(path, kept) if path.is_dir() else shutil.copy(path, folder)
        if path.name == "private.safetensors":
            with pytest.raises(RunError, match=r"private\.safetensors is of another model\.saf"):
                load_run(folder)
        elif path.name == "metrics.json":
            with pytest.warns(UserWarningMessage, match=r"metrics\.json has the scores of another"):
                load_run(folder)
        if own is not None:
            kept.write_bytes(own)
        run = load_run(folder)
        assert run.predict(TEXTS) == expected
        if path.name == "heads":
            with pytest.warns(UserWarningMessage, match=r"heads/index\.json: is the record of an"):
                assert recorded_step(run) == {}
    with pytest.raises(RunError, match=r"resume=.*: checkpoints/last\.ckpt is another run's; put"):
        load_last(folder)
    with pytest.raises(RunError, match=r"last\.ckpt is another run's"):
        train(replace(plain.report.config, resume=str(folder)))
    assert answers(folder) == expected


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Path("unpickled").touch)),
    "without settings": lambda path: path.write_bytes(save(load_file(path))),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "gone": Path.unlink,
    "not finite": lambda path: edit_model(
        path.parent, dict, **{"head.weight": torch.full((2, 12), torch.nan)}
    ),
    "unsorted n-grams": lambda path: edit_model(path.parent, dict, ngrams=torch.tensor([2, 1])),
    "a key less": lambda path: edit_model(
        path.parent, lambda metadata: metadata | {"settings": json.dumps({"sede": 1})}
    ),
    "a class twice": lambda path: edit_model(
        path.parent, lambda metadata: metadata | {"labels": json.dumps(["bad", "bad"])}
    ),
    "no temperature": lambda path: edit_model(
        path.parent, lambda metadata: metadata | {"chosen": '{"temperature": 0}'}
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_named_in_one_line(plain: Trained, tmp_path: Path, damage: str) -> None:
    folder = plain.copy(tmp_path)
    DAMAGES[damage](folder / "model.safetensors")
    with pytest.raises(RunError, match=rf"^run={folder}: .*model\.safetensors") as caught:
        load_run(folder)
    assert len(str(caught.value).splitlines()) == 1


class Evil:
    """What touches a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize("kind", ["code", "cut", "gone"])
def test_a_damaged_checkpoint_is_named_in_one_line_and_runs_no_code(
    plain: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = plain.copy(tmp_path)
    last = folder / LAST
    if kind == "code":
        torch.save(torch.load(last, weights_only=True) | {"more": Evil()}, last)
    elif kind == "cut":
        last.write_bytes(last.read_bytes()[:5000])
    else:
        last.unlink()
    with pytest.raises(RunError, match=rf"^run={folder}: .*last\.ckpt") as caught:
        load_last(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert not Path("unpickled").exists()


def test_no_text_of_the_run_is_recognized_by_what_is_published(
    plain: Trained, tmp_path: Path
) -> None:
    """Neither the keys of its texts, nor the logits or the confidence of one of them are in the file."""
    folder = plain.copy(tmp_path)
    run = load_run(folder)
    learned = run.setup.learned
    assert learned is not None
    content = (folder / "model.safetensors").read_bytes()
    assert not any(key.tobytes() in content for key in learned.numpy())
    logits, _ = load_validation(folder)
    assert not any(row.numpy().tobytes() in content for row in logits)
    assert run.chosen.curve is not None
    assert all(round(confidence, 2) == confidence for confidence, _, _ in run.chosen.curve)
    (folder / "private.safetensors").unlink()
    assert load_run(folder).setup.learned is None
    with pytest.raises(RunError, match=r"keeps no logits .* private\.safetensors is gone"):
        load_validation(folder)


def test_nothing_but_what_is_its_own_is_read_of_the_private_file(
    plain: Trained, tmp_path: Path
) -> None:
    """It stands beside the model, so no weight of it counts; and its table is checked."""
    folder = plain.copy(tmp_path)
    expected = answers(folder)
    path = folder / "private.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    bias = torch.full((2,), 50.0)
    write_tensors(path, {"head.bias": bias}, {"model": metadata["model"]})
    assert answers(folder) == expected
    tables = [torch.zeros(5), torch.zeros(0, 3), torch.full((4, 3), 99.0), torch.zeros(4, 9)]
    for table in tables:
        write_tensors(path, {"validation": table}, {"model": metadata["model"]})
        with pytest.raises(RunError, match="expected logits and labels of 2 classes"):
            load_validation(folder)


def test_a_link_to_a_device_without_an_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").symlink_to("/dev/zero")
    with pytest.raises(RunError, match="is a pipe or a device"):
        read_text(tmp_path / "metrics.json", most=1)
