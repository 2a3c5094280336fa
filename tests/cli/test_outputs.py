"""No command replaces or removes a file that it has not made, unless overwrite=true says so."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headscope.cli import labels as labels_module
from headscope.cli.main import COMMANDS
from headscope.ground.errors import ConfigError, RunError, UserError, UserWarningMessage
from headscope.runs.run import load_run
from headscope.settings.checks import override, validate
from headscope.settings.commands import ExportConfig, WritesFile
from headscope.settings.config import TrainConfig
from headscope.training.callbacks import RunCheckpoint
from headscope.training.train import train
from training_runs import Trained, configured, from_checkpoint, write

# Of each command what makes a file where the user says; the others write into the run folder alone,
# under names that are free, or nothing.
WRITING: dict[str, dict[str, Any]] = {
    "predict": {"input": "texts.csv", "output": "out.csv"},
    "labels": {"output": "labels.csv", "folds": 2},
    "inspect": {"text": "a lovely film", "output": "page.html"},
    "page": {"output": "page.html"},
    "report": {"output": "report.html", "seconds": 1},
}


def test_every_command_is_here() -> None:
    others = {"train", "evaluate", "verify", "trace", "export"}
    assert {*WRITING} | others == {*COMMANDS}
    writes = {name for name, (_, schema) in COMMANDS.items() if issubclass(schema, WritesFile)}
    assert writes == {*WRITING}
    assert COMMANDS["export"][1] is ExportConfig  # into a folder that is new or empty


@pytest.mark.parametrize("name", WRITING)
def test_every_file_that_a_command_writes_is_asked_for_before(
    name: str, plain: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(labels_module, "trained_without", lambda run, *_: load_run(run.folder))
    write(tmp_path / "texts.csv", [{"text": "a lovely film"}])
    before = {*tmp_path.iterdir()}
    words = [f"{key}={value}" for key, value in WRITING[name].items()]
    command(name, f"run={plain.folder}", *words)
    schema: Any = COMMANDS[name][1]
    config = validate(schema, {"run": str(plain.folder), "overwrite": True, **WRITING[name]})
    made = {*tmp_path.iterdir()} - before
    assert made == {path.absolute() for path in config.outputs()}
    for path in made:
        for other in made:
            other.unlink(missing_ok=True)
        path.write_text("mine")
        with pytest.raises(ConfigError, match=r"does not exist.*overwrite=true replaces it"):
            validate(schema, {"run": str(plain.folder), **WRITING[name]})


@pytest.mark.parametrize("name", ["page", "report"])
@pytest.mark.parametrize("output", ["", ".", "page.txt"])
def test_an_output_without_a_name_or_of_another_kind_is_one_message(
    name: str, output: str, plain: Trained
) -> None:
    settings = {"run": str(plain.folder), "output": output}
    with pytest.raises(ConfigError, match=r"^output: expected a name that ends in \.html, got '"):
        validate(COMMANDS[name][1], settings)


@pytest.mark.slow
def test_nothing_that_is_sent_on_names_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    """Where data, run and checkpoint are absolute paths below it: for a review that is blind."""
    monkeypatch.setenv("HOME", str(tmp_path / "home_of_alice"))
    base = tmp_path / "home_of_alice" / "work"
    base.mkdir(parents=True)
    monkeypatch.chdir(base)
    config = replace(from_checkpoint(base), baseline=True)
    train(config, Console(quiet=True))
    run = f"run={base / 'outputs' / 'run'}"
    command("evaluate", run)
    command("inspect", run, "text=a lovely film")
    command("report", run, "seconds=1")
    command("export", run, "output=model")
    files = [path for path in base.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} > {".safetensors", ".html", ".onnx", ".npz", ".json"}
    assert [path for path in files if b"home_of_alice" in path.read_bytes()] == []
    settings = load_run(base / "outputs" / "run").config
    assert settings.data.path == config.data.path  # and they are found


def test_a_run_folder_that_is_removed_while_it_trains_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = override(configured(tmp_path, max_epochs=1), {"inspection.enabled": False})
    validated = RunCheckpoint.on_validation_end

    def removed(self: RunCheckpoint, *given: Any) -> None:
        shutil.rmtree(tmp_path / "outputs")
        validated(self, *given)

    monkeypatch.setattr(RunCheckpoint, "on_validation_end", removed)
    with pytest.warns(UserWarningMessage, match="was moved or removed while it trained"):
        train(config, Console(quiet=True))
    names = {path.name for path in (tmp_path / "outputs" / "run").iterdir()}
    assert names >= {"config.yaml", "labels.json", "tokenizer.json", "model.safetensors"}


def test_a_report_follows_no_link_out_of_the_run_folder(
    plain: Trained, tmp_path: Path, command: Any
) -> None:
    folder = plain.copy(tmp_path)
    (folder / "words.csv").unlink(missing_ok=True)
    (folder / "words.csv").symlink_to(tmp_path / "elsewhere.csv")
    page = f"output={folder / 'report.html'}"
    shown = command("report", f"run={folder}", page, "seconds=1", "overwrite=true", code=2)
    assert "words.csv is a link that leads outside" in shown
    assert not (tmp_path / "elsewhere.csv").exists()


def test_a_run_replaces_no_file_and_removes_no_folder_of_the_users(tmp_path: Path) -> None:
    config = configured(tmp_path)
    outputs = tmp_path / "outputs"
    (outputs / "run").mkdir(parents=True)
    (outputs / "run" / "words.csv").write_text("mine")
    with pytest.raises(RunError, match=r"has files that a run would replace: words\.csv; choose"):
        train(config, Console(quiet=True))
    assert (outputs / "run" / "words.csv").read_text() == "mine"
    shutil.rmtree(outputs)
    wrong = {"path": write(tmp_path / "wrong.csv", [{"text": "a", "label": "x"}] * 9)}
    for made in ([], [outputs], [outputs, outputs / "run"]):
        for name in ("run", None):
            for folder in made:
                folder.mkdir(exist_ok=True)
            settings = {"name": name, "outputs_dir": str(outputs), "data": wrong}
            with pytest.raises(UserError):
                train(validate(TrainConfig, settings), Console(quiet=True))
            assert [path for path in (outputs, outputs / "run") if path.exists()] == made
