"""A run on the Hub: sent to and loaded from a server on loopback, by processes of their own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import HfHubHTTPError
from PIL import Image

from headscope import load as headscope_load
from headscope.cli.push import model_card, without_paths, write_live_page
from headscope.command_settings import PredictConfig, PushConfig
from headscope.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from headscope.data.tokenizer import train_tokenizer
from headscope.errors import ConfigError, RunError
from headscope.hub import one_line
from headscope.run import load_run
from headscope.run_folder import build_model, save_config, save_vocabulary, save_weights
from headscope.validation import check, validate
from hub_server import HubServer

METRICS: dict[str, Any] = {
    "test": {"accuracy": 0.95, "macro_f1": 0.9, "loss": 0.2},
    "baseline": {"name": "TF-IDF | <b>", "accuracy": 0.9, "macro_f1": 0.85},
    "labels": ["good\n\n<script>", "bad"],
    "training": {
        "loss without a head": {"texts": 80, "heads": {"layer 0 head 0": [0.3, 0.1]}},
        "which heads matter": "1 of 2 heads is enough.",
    },
    "data": {"sizes": {"train": 8, "test": 2}},
}


def headscope(
    environment: Mapping[str, str], *words: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headscope", *words]
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, env=environment, input="a text\n", cwd=folder, **settings)


def files_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def save_run(folder: Path, **options: Any) -> Path:
    folder.mkdir()
    secret = str(folder / "secret.csv")
    config = TrainConfig(
        data=DataConfig(path=secret, max_length=16),
        model=ModelConfig(16, 2, 1, 32, evidence=False, **options),
    )
    tokenizer = train_tokenizer(iter(["a text", "a text"]), TokenizerConfig(vocab_size=300))
    save_config(folder, config)
    save_vocabulary(folder, tokenizer, ["good", "bad"])
    save_weights(folder, build_model(config, tokenizer, ["good", "bad"]))
    (folder / "events.out.tfevents.1").write_bytes(b"x")
    (folder / "metrics.json").write_text(json.dumps(METRICS), encoding="utf-8")
    return folder


def test_paths_of_this_machine_are_not_sent() -> None:
    config = TrainConfig(data=DataConfig(path="/home/me/x.csv", cache_dir="/home/me/c"))
    sent = without_paths(config).data
    assert (sent.path, sent.cache_dir) == ("x.csv", None)
    assert without_paths(TrainConfig(data=DataConfig(path="user/set"))).data.path == "user/set"


def test_the_model_card_escapes_what_comes_from_data() -> None:
    config = TrainConfig(data=DataConfig(path="x <img src=1>|`\n# y.csv"))
    lines = "\n".join(model_card("me/it", config, METRICS)).split("\n")
    assert "<" not in "\n".join(line for line in lines if not line.startswith("    "))
    assert [line for line in lines if line.startswith("#")] == ["# me/it"]
    assert '    labels: ["good\\n\\n<script>", "bad"]' in lines  # in a code block
    assert "| | test split | TF&#45;IDF &#124; &#60;b&#62; |" in lines
    bare = "\n".join(model_card("me/it", config, {}))
    assert "test split" not in bare


@pytest.mark.filterwarnings("ignore:.*has no manifest.json")
def test_without_a_page_the_card_has_no_link(tmp_path: Path) -> None:
    run = load_run(save_run(tmp_path / "run", attention="shared_projection"))
    with pytest.warns(UserWarning, match=r"no page\.html is pushed: "):
        assert write_live_page(tmp_path, run) == []


def test_errors_of_the_client_are_one_line_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)  # as where headscope alone is installed
    of_client = HfHubHTTPError.__mro__[1]("no route\nto host")
    for error in (of_client, OSError("no route")):
        with (
            pytest.raises(RunError, match=r"^run=x: the Hub cannot be reached: no route$"),
            one_line("run=x"),
        ):
            raise error


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
    assert {*files} >= {"config.yaml", "model.safetensors", "README.md", "heads.png", "page.html"}
    card = files["README.md"].decode()
    assert "| accuracy | 0.9500 | 0.9000 |\n" in card
    assert "| loss | 0.2000 |  |\n" in card
    assert "](heads.png)" in card
    assert "](page.html)" in card
    assert Image.open(BytesIO(files["heads.png"])).size[0] == 600
    assert b"wasm-unsafe-eval" in files["page.html"]
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
