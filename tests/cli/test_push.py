"""A run on the Hub: sent to and loaded from a server on loopback, by processes of their own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headscope import load as headscope_load
from headscope.cli.push import without_paths
from headscope.command_settings import PredictConfig, PushConfig
from headscope.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from headscope.data.tokenizer import train_tokenizer
from headscope.errors import ConfigError, RunError
from headscope.run_folder import build_model, save_config, save_vocabulary, save_weights
from headscope.validation import check, validate
from hub_server import HubServer


def headscope(
    environment: Mapping[str, str], *words: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headscope", *words]
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, env=environment, input="a text\n", cwd=folder, **settings)


def files_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def save_run(folder: Path) -> Path:
    folder.mkdir()
    secret = str(folder / "secret.csv")
    config = TrainConfig(
        data=DataConfig(path=secret, max_length=16),
        model=ModelConfig(16, 2, 1, 32, evidence=False),
    )
    tokenizer = train_tokenizer(iter(["a text", "a text"]), TokenizerConfig(vocab_size=300))
    save_config(folder, config)
    save_vocabulary(folder, tokenizer, ["good", "bad"])
    save_weights(folder, build_model(config, tokenizer, ["good", "bad"]))
    (folder / "events.out.tfevents.1").write_bytes(b"x")
    return folder


def test_paths_of_this_machine_are_not_sent() -> None:
    config = TrainConfig(data=DataConfig(path="/home/me/x.csv", cache_dir="/home/me/c"))
    sent = without_paths(config).data
    assert (sent.path, sent.cache_dir) == ("x.csv", None)
    assert without_paths(TrainConfig(data=DataConfig(path="user/set"))).data.path == "user/set"


@pytest.mark.parametrize("name", ["me//x", "/x", "me", "me/x/y", "", "me/a b", "../x"])
def test_a_name_of_no_repository_is_one_line(name: str) -> None:
    expected = "expected hub:user/name, got"
    with pytest.raises(ConfigError, match=expected):
        check(PredictConfig(run=f"hub:{name}"))
    with pytest.raises(RunError, match=f"^run=hub:{name}: expected hub:user/name"):
        headscope_load(f"hub:{name}")
    with pytest.raises(ConfigError, match=r"^to: expected user/name, of letters"):
        validate(PushConfig, {"run": ".", "to": name})


@pytest.mark.slow
def test_a_run_is_sent_and_loaded(tmp_path: Path) -> None:
    run = save_run(tmp_path / "run")
    with HubServer({}) as server:
        environment = server.environment(tmp_path / "home")
        refused = headscope(environment, "push", f"run={run}", "to=me/it")
        assert "set HF_TOKEN" in refused.stderr
        assert "Traceback" not in refused.stderr
        sent = headscope({**environment, "HF_TOKEN": "hf_x"}, "push", f"run={run}", "to=me/it")
        assert sent.returncode == 0, sent.stderr
        files = server.uploads["me/it"]
    assert {*files} >= {"config.yaml", "model.safetensors", "README.md"}
    assert "events.out.tfevents.1" not in files
    assert not any(str(tmp_path).encode() in content for content in files.values())
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, content in files.items():
        (repository / name).write_bytes(content)
    (repository / "code.pkl").write_bytes(b"x")
    with HubServer({"me/it": repository}) as server:
        environment = server.environment(tmp_path / "other home")
        answer = headscope(environment, "predict", "run=hub:me/it")
        assert answer.returncode == 0, answer.stderr
        local = headscope(environment, "predict", f"run={run}")
        assert json.loads(answer.stdout) == json.loads(local.stdout)
        assert not any("code.pkl" in path for _, path in server.requests)
        before = files_below(tmp_path / "other home")
        words = ("inspect", "run=hub:me/it", "text=a text")
        shown = headscope(environment, *words, folder=tmp_path)
        assert shown.returncode == 0, shown.stderr
        kept = Path("outputs/hub/me/it")
        (page,) = (tmp_path / kept).glob("inspect/*.html")
        assert str(page.relative_to(tmp_path)) in shown.stdout
        assert f"tensorboard --logdir {kept}" in shown.stdout
        assert "Traceback" not in shown.stderr
        content = page.read_text(encoding="utf-8")
        assert str(tmp_path) not in content
        assert "run it: " in content
        assert files_below(tmp_path / "other home") == before
        missing = headscope(environment, "predict", "run=hub:me/none")
        assert "error: run=hub:me/none: no such repository" in missing.stderr
    offline = headscope(environment, "predict", "run=hub:me/other")
    assert "error: run=hub:me/other: the Hub cannot be reached" in offline.stderr
