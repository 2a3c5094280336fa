"""Every file in configs/ composes and builds, says at its head what it is, and the public keys are a frozen list."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from headscope.cli.main import COMMANDS, CONFIGS
from headscope.config import TrainConfig
from headscope.data.evidence import Evidence
from headscope.model.classifier import TextClassifier
from headscope.settings import described, problems
from headscope.training.module import ClassifierModule

SCHEMAS = {name: schema for name, (_, schema, _) in COMMANDS.items()}
GROUPS = sorted(path for path in CONFIGS.glob("*/*.yaml"))


def composed(name: str, overrides: list[str]) -> Any:
    ConfigStore.instance().store("schema", SCHEMAS[name])
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return OmegaConf.to_object(compose("train" if name == "tune" else name, overrides))


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_group_composes_checks_and_builds(path: Path) -> None:
    overrides = [f"{path.parent.name}={path.stem}"]
    if path.stem == "files":
        overrides.append("data.path=some/hub-id")
    if path.stem == "pretrained":
        overrides.append("model.path=some/hub-id")
    config = composed("train", overrides)
    assert list(problems(config)) == []
    is_pair = config.data.text_pair_column is not None
    model = TextClassifier(
        config.model, 1000, 2, config.data.max_length, 2 if is_pair else 1, num_ngrams=3
    )
    ClassifierModule(model, config.optimizer, 2, 10).configure_optimizers()
    ids = torch.randint(1, 1000, (1, 7))
    no_ngrams = Evidence(torch.zeros(0).long(), torch.zeros(0).long(), torch.zeros(1).long())
    beside = [no_ngrams] if config.model.evidence else []
    assert model(ids, None, torch.zeros_like(ids) if is_pair else None, *beside).shape == (1, 2)


def test_every_file_says_at_its_head_what_it_is() -> None:
    for path in CONFIGS.rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# "), (
            path
        )  # of a group that reaches everywhere, the first line says so to Hydra
        assert path.parent.name != "data" or "Tried:" in text or "figure in the README" in text, (
            path
        )


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_script_has_its_configuration(name: str) -> None:
    runs = {name: ["run=."] for name in ("evaluate", "predict", "inspect", "export")}
    wanted = {"inspect": ["text=words"], "export": ["output=nowhere"], "tune": ["space=learning"]}
    assert list(problems(composed(name, runs.get(name, []) + wanted.get(name, [])))) == []
    assert (CONFIGS.parent / "scripts" / f"{name}.py").exists()


def test_the_public_keys_of_training_are_these() -> None:
    frozen = (Path(__file__).parent / "train_keys.txt").read_text().split()
    assert [key for key, _, _ in described(TrainConfig())] == frozen


def test_every_key_says_what_it_means() -> None:
    for schema in SCHEMAS.values():
        assert all(len(rule.meaning) > 4 for _, _, rule in described(schema()))


def test_files_want_a_path_instead_of_taking_the_default_texts() -> None:
    found = list(problems(composed("train", ["data=files"])))
    assert found == ["data.path: is missing; give it as data.path=<file, folder or Hub id>"]
