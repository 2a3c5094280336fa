"""Every file in configs/ composes and builds, says at its head what it is, and the public keys are a frozen list."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from headscope.cli.compose import CONFIGS, compose, parse
from headscope.cli.main import COMMANDS
from headscope.data.evidence import Ngrams
from headscope.ground.errors import ConfigError
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.settings.checks import check, flatten, keys, validate
from headscope.settings.config import TrainConfig
from headscope.training.module import ClassifierModule

GROUPS = sorted(path for path in CONFIGS.glob("*/*.yaml"))
NEEDED = {"data=files": ["data.path=some/hub-id"], "model=pretrained": ["model.path=some/hub-id"]}


def composed(name: str, words: list[str]) -> Any:
    schema = COMMANDS[name][1]
    return validate(schema, compose(parse(words, schema)))


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_group_composes_checks_and_builds(path: Path) -> None:
    group = f"{path.parent.name}={path.stem}"
    words = [group, *NEEDED.get(group, [])]
    config = composed("train", words)
    check(config)
    is_pair = config.data.text_pair_column is not None
    model = TextClassifier(
        architecture_from(config.model, 1000, config.data.most_tokens, 2 if is_pair else 1), 2, 3
    )
    ClassifierModule(model, config.optimizer, 10).configure_optimizers()
    ids = torch.randint(1, 1000, (1, 7))
    no_ngrams = Ngrams(torch.zeros(0).long(), torch.zeros(0).long(), torch.zeros(1).long())
    beside = [no_ngrams] if config.model.has_evidence else []
    assert model(ids, None, torch.zeros_like(ids) if is_pair else None, *beside).shape == (1, 2)


def test_the_files_of_the_default_say_what_the_code_does() -> None:
    assert composed("train", []) == TrainConfig()


def test_every_file_says_at_its_head_what_it_is() -> None:
    for path in CONFIGS.rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# "), path  # in a global group, the first line says so to Hydra
        is_tried = "Tried:" in text or "figure in the README" in text
        assert path.parent.name != "data" or is_tried, path


@pytest.fixture
def _run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").touch()


@pytest.mark.usefixtures("_run_folder")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_configuration(name: str) -> None:
    words = {
        "evaluate": ["run=.", "data=ag_news"],
        "predict": ["run=."],
        "inspect": ["run=.", "text=words"],
        "export": ["run=.", "output=nowhere"],
        "page": ["run=."],
        "labels": ["run=."],
        "report": ["run=."],
    }
    check(composed(name, words.get(name, [])))


def test_the_public_keys_of_training_are_these() -> None:
    frozen = (Path(__file__).parent / "train_keys.txt").read_text().split()
    assert [*flatten(asdict(TrainConfig()))] == frozen


def test_every_key_says_what_it_means() -> None:
    for _, schema in COMMANDS.values():
        assert all(len(entry["description"]) > 4 for entry in keys(schema).values())


@pytest.mark.usefixtures("_run_folder")
@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_files_want_a_path_instead_of_taking_the_default_texts(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^data.path: expected .* give data.path="):
        composed(name, ["data=files", *(["run=."] if name == "evaluate" else [])])
