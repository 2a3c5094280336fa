"""Your own code, named by an import path: the examples of docs/extending.md, and each mistake."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml

import headscope
from headscope.cli import compose, main
from headscope.data.source import load_source
from headscope.ground.errors import ConfigError, DataError, RunError
from headscope.model.architecture import architecture_from
from headscope.model.encoder import build_attention
from headscope.settings.checks import check, override
from headscope.settings.config import DataConfig, ModelConfig, TrainConfig
from headscope.training.resume import LAST, load_last
from headscope.training.train import train
from training_runs import configured, edit_model

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
PAGE = Path(__file__).parents[2] / "docs/extending.md"
Write = Callable[[str], None]
BROKEN = """
import torch
from torch import nn
from headscope import HeadedAttention, MultiHeadAttention

number = 5

class Plain(nn.Module):
    pass

class Lacking(MultiHeadAttention):
    def __init__(self, embed_dim, num_heads, dropout):
        super().__init__(embed_dim, num_heads, dropout)

class Raising(MultiHeadAttention):
    def forward(self, *args, **options):
        raise KeyError("oh")

class Wide(MultiHeadAttention):
    def forward(self, *args, **options):
        output, weights = super().forward(*args, **options)
        return torch.cat([output, output], dim=-1), weights

class Unseen(MultiHeadAttention):
    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        return query, None

class Unpadded(MultiHeadAttention):
    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        return super().forward(query, key, value, None, need_weights, attn_mask)

class Gated(MultiHeadAttention):
    def forward(self, query, *args, **options):
        output, weights = super().forward(query, *args, **options)
        return output * query.sigmoid(), weights

def fails(config):
    raise OSError("disk gone")

def list_of_rows(config):
    return [{"text": "a", "label": "b"}]

def odd_rows(config):
    return {"train": [1, 2]}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return what writes my_package.py where it can be imported; it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda code: (tmp_path / "my_package.py").write_text(code) and None
    sys.modules.pop("my_package", None)


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_pages_examples_train_and_their_run_loads_only_where_it_is_allowed(
    tmp_path: Path, package: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    package("\n".join(examples()))
    config = configured(tmp_path, max_epochs=1)
    config = override(
        config, {"data.path": "my_package:load", "model.attention": "my_package:MyAttention"}
    )
    check(config)
    folder = train(config).folder
    with pytest.raises(
        RunError,
        match=r"model.attention=my_package:MyAttention.*data.path=my_package:load.*ALLOW_CODE=1",
    ):
        headscope.load(folder)
    with pytest.raises(RunError, match="names Python code"):
        load_last(folder)
    run = headscope.load(folder, allow_code=True)
    own = sys.modules["my_package"]
    assert all(type(block.attention) is own.MyAttention for block in run.model.encoder.blocks)  # type: ignore[attr-defined]
    assert run.predict(["the film was lovely"])[0].probabilities.keys() == {"bad", "good"}
    monkeypatch.setenv("HEADSCOPE_ALLOW_CODE", "1")
    assert headscope.load(folder).predict(["cold day"]) == run.predict(["cold day"])
    (maps,) = run.maps(["it was awful"])
    assert all(len(weights) == 3 for weights in maps.values())
    assert len(maps) == 2
    sys.modules.pop("my_package")
    (tmp_path / "my_package.py").unlink()
    with pytest.raises(
        ConfigError,
        match=r"model.attention=my_package:MyAttention: ModuleNotFoundError",
    ):
        headscope.load(folder)


def test_no_folder_names_code_for_a_command_that_was_not_asked_for_it(
    tmp_path: Path, package: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run with and without a checkpoint, of --config-dir, or Hydra's own settings."""
    package("raise SystemExit('this must not run')")
    monkeypatch.chdir(tmp_path)
    config = override(configured(tmp_path, max_epochs=1), {"inspection.enabled": False})
    run = train(config).folder

    def named(metadata: dict[str, str]) -> dict[str, str]:
        settings = json.loads(metadata["settings"])
        settings["model"]["attention"] = "my_package:A"
        return metadata | {"settings": json.dumps(settings)}

    edit_model(run, named)
    checkpoint = torch.load(run / LAST, weights_only=True)
    checkpoint["setup"]["metadata"] = named(checkpoint["setup"]["metadata"])
    torch.save(checkpoint, run / LAST)
    content = yaml.safe_load((run / "config.yaml").read_text())
    content["data"]["path"] = "my_package:load"
    for path, texts in {
        "started/config.yaml": content,
        "theirs/best.yaml": {"defaults": ["train", "_self_"], "data": content["data"]},
        "theirs/asks.yaml": {"defaults": ["train", "_self_"], "name": "a${oc.env:HOME}"},
        "theirs/nests.yaml": {
            "defaults": ["train", "_self_"],
            "metric": "oc.env",
            "name": "${${metric}:HOME}",
        },
        "theirs/calls.yaml": {"defaults": ["train", "_self_"], "hydra": {"callbacks": {"a": {}}}},
        "theirs/writes.yaml": {"defaults": ["train", "_self_"], "hydra": {"output_subdir": "../a"}},
        "theirs/makes.yaml": {
            "defaults": ["train", "_self_"],
            "hydra": {"sweep": {"subdir": "../a"}},
        },
        "theirs/runs.yaml": {"defaults": ["train", "_self_"], "hydra": {"mode": "RUN"}},
        "theirs/imports.yaml": {
            "defaults": ["train", "_self_"],
            "hydra": {"searchpath": ["pkg://my_package"]},  # which ends the process
            "data": content["data"],
        },
    }.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(yaml.safe_dump(texts, sort_keys=False))
    theirs = ["--config-dir", "theirs", "--config-name"]
    for words in (
        ["train", f"resume={run}"],
        ["train", "resume=started"],
        ["train", "resume=started", "model.attention=my_package:A"],
        ["train", *theirs, "best"],
        ["train", *theirs, "asks"],
        ["train", *theirs, "nests"],
        ["train", "-m", *theirs, "asks", "seed=0,1"],
        ["train", "-m", *theirs, "calls", "seed=0,1"],
        ["train", "-m", *theirs, "writes", "seed=0,1"],
        ["train", "-m", *theirs, "makes", "seed=0,1"],
        ["train", "-m", *theirs, "runs", "seed=0,1"],
    ):
        with pytest.raises(RunError, match="HEADSCOPE_ALLOW_CODE=1"):
            main.run(words[0], words[1:])
    for folder in (run, "started"):
        with pytest.raises(RunError, match=f"resume={folder}: names Python code .*ALLOW_CODE=1"):
            headscope.train(resume=folder)
    monkeypatch.setattr("sys.argv", ["headscope"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert main.run("train", ["-m", "name=jobs", *theirs, "best", "seed=0"]) == 2
    (failure,) = Path("outputs/jobs").glob("*/failure.json")
    assert "names Python code to be run: data.path=my_package:load" in failure.read_text()
    assert main.run("train", ["-m", "name=imports", *theirs, "imports", "seed=0"]) == 2
    line = compose.parse(["resume=started", "data.path=my_package:load"], TrainConfig)
    compose.check_code(line, compose.compose(line))  # what you have typed is yours


def test_an_own_attention_is_read_head_by_head(package: Write) -> None:
    package(examples()[0])
    layer = build_attention(
        architecture_from(
            ModelConfig(12, 3, attention="my_package:MyAttention", positions="learned"), 7, 5
        )
    ).eval()
    tokens = torch.zeros(1, 5, 12)
    # All scores are 0 but for the penalty.
    weights = layer(tokens, tokens, tokens, average_attn_weights=False)[1][0]
    penalty = torch.tensor([0.0, -0.5, -1.0, -1.5, -2.0])
    torch.testing.assert_close(weights[0, 0], penalty.softmax(dim=0))
    torch.testing.assert_close(weights[1, 0], (penalty / 2).softmax(dim=0))


def attention(path: str) -> None:
    build_attention(architecture_from(ModelConfig(12, 3, attention=path), 7, 5))


def loader(path: str) -> None:
    load_source(DataConfig(path=path))


@pytest.mark.parametrize(
    ("build", "name", "message"),
    [
        (attention, "nowhere", "AttributeError: .*nowhere"),
        (loader, "number", "TypeError: 'int' object is not callable"),
        (attention, "Plain", "expected a subclass of headscope.HeadedAttention"),
        (attention, "Lacking", "TypeError: .*__init__.* 'rotary'"),
        (attention, "Raising", "KeyError: 'oh'"),
        (attention, "Wide", r".*output: expected \[2, 1, 12\], got \[2, 1, 24\]"),
        (attention, "Unseen", ".*forward must call self.attend_heads once"),
        (attention, "Unpadded", ".*attends to padding"),
        (attention, "Gated", ".*its output is not self.output_projection of"),
        (loader, "fails", "OSError: disk gone"),
        (loader, "list_of_rows", "expected a mapping split -> rows .*, got list"),
        (loader, "odd_rows", r".*rows such as \{'text': ..., 'label': ...\}"),
    ],
)  # fmt: skip
def test_a_mistake_in_your_code_is_one_line(
    build: Callable[[str], None], name: str, message: str, package: Write, unchecked_shapes: None
) -> None:
    package(BROKEN)
    key = "data.path" if build is loader else "model.attention"
    path = f"my_package:{name}"
    with pytest.raises((ConfigError, DataError), match=f"{key}={path}:? ?{message}"):
        build(path)


def test_a_package_that_is_not_there_is_named_before_anything_is_loaded(package: Write) -> None:
    package("raise SystemExit('the check must not run this')")
    own = TrainConfig(model=ModelConfig(attention="my_package:A"))
    check(own)
    lost = TrainConfig(data=DataConfig(path="gone:load"), model=ModelConfig(attention="gone:A"))
    with pytest.raises(ConfigError) as refused:
        check(lost)
    lines = str(refused.value).splitlines()
    keys = [line.split(":")[0] for line in lines]
    assert keys == ["model.attention", "data.path"]
    assert all("expected an installed module gone" in line for line in lines)
