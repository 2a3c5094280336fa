"""The command line before Hydra reads it: text in any script, words that are no key=value, unknown options and sets."""

import re
from pathlib import Path

import pytest
from headscope.commands.command_line import prepared
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from headscope.commands.config import EvaluateConfig, InspectConfig, PredictConfig
from headscope.errors import ConfigError
from headscope.training.config import TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs"
SCHEMAS = {"train": TrainConfig, "evaluate": EvaluateConfig, "inspect": InspectConfig, "predict": PredictConfig}


def composed(name: str, *arguments: str) -> DictConfig:
    """Return what a script makes of its command line."""
    ConfigStore.instance().store("schema", SCHEMAS[name])
    ConfigStore.instance().store("headscope", {"template": ""}, group="hydra/help")
    given = prepared(arguments, SCHEMAS[name], CONFIGS, name)
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, given)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("train", "data.text_column", "感想"),
        ("train", "data.path", "my reviews, 2.csv"),
        ("train", "data.path", "/a b/reviews (1).csv"),
        ("train", "data.path", "/a/x=1.csv"),
        ("train", "data.path", "it's.csv"),
        ("train", "data.path", "~/été.csv"),
        ("train", "data.label_separator", ";"),
        ("train", "data.label_separator", ","),
        ("train", "name", "première"),
        ("train", "resume", "outputs/日本語"),
        ("train", "data.path", "plain.csv"),
        ("evaluate", "run", "outputs/日本語"),
        ("predict", "input", "../w/レビュー.csv"),
        ("predict", "output", "a, b.csv"),
        ("inspect", "label", "とても良い"),
    ],
)
def test_text_needs_no_quotes_whatever_its_script(name: str, key: str, value: str) -> None:
    assert OmegaConf.select(composed(name, f"{key}={value}"), key) == value
    assert OmegaConf.select(composed(name, f"{key}='{value}'"), key) == value if "'" not in value else True


def test_lists_interpolations_and_numbers_are_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/a")
    found = composed(
        "train",
        "inspection.probes=[素晴らしい, a film]",
        "data.path=${oc.env:PLACE}/レビュー.csv",
        "model.d_model=64",
        "data.name=null",
        "data.text_column=",
    )
    assert OmegaConf.select(found, "inspection.probes") == ["素晴らしい", "a film"]
    assert OmegaConf.select(found, "data.path") == "/a/レビュー.csv"
    assert OmegaConf.select(found, "model.d_model") == 64
    assert OmegaConf.select(found, "data.name") is None


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("model.num_heads=1,2,4", "model.num_heads=1,2,4"),
        ("data.path=a.csv,b.csv", "data.path=a.csv,b.csv"),
        ("data.path=a.csv,映画.csv", 'data.path=a.csv,"映画.csv"'),
        ("data.path='映画, 1.csv','b'", "data.path='映画, 1.csv','b'"),
        ("data.path=choice(a,b)", "data.path=choice(a,b)"),
        ("data.label_separator=,", 'data.label_separator=","'),
        ("data=licenses,files", "data=licenses,files"),
    ],
)
def test_a_sweep_stays_one(argument: str, wanted: str) -> None:
    assert prepared(["-m", argument], TrainConfig, CONFIGS, "train") == ["-m", wanted]


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["name=heads"], "outputs/heads"),
        (["outputs_dir=/data/runs", "name=heads"], "/data/runs/heads"),
        (["outputs_dir='my runs'", "name=頭"], '"my runs/頭"'),
        (["outputs_dir=runs", "name=a,b"], r"runs/sweep_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"),
        (["outputs_dir=runs", "name=null"], r"runs/sweep_[\d_-]+"),
    ],
)
def test_a_sweep_lands_where_its_name_says(arguments: list[str], folder: str) -> None:
    found = prepared(["-m", *arguments], TrainConfig, CONFIGS, "train")
    assert re.fullmatch(f"hydra.sweep.dir={folder}", found[-1])
    assert not any(argument.startswith("hydra.") for argument in prepared(arguments, TrainConfig, CONFIGS, "train"))


def test_hydras_own_key_of_a_sweeps_folder_goes_first() -> None:
    arguments = ["-m", "hydra.sweep.dir=elsewhere", "name=heads"]
    assert prepared(arguments, TrainConfig, CONFIGS, "train") == arguments
    assert prepared(["-m", "name=a,b"], TrainConfig, CONFIGS, "train") == ["-m", "name=a,b"]


def test_options_may_stand_behind_keys() -> None:
    arguments = ["data=licenses", "-m", "--cfg", "job", "model.num_heads=1,2"]
    assert prepared(arguments, TrainConfig, CONFIGS, "train") == [
        "-m", "--cfg", "job", "data=licenses", "model.num_heads=1,2",
    ]  # fmt: skip


def test_a_sweep_does_not_go_into_another(tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads/sweep.csv").touch()
    with pytest.raises(ConfigError, match=r"name=heads: .*heads holds a sweep already; take another name"):
        prepared(["-m", f"outputs_dir={tmp_path}", "name=heads"], TrainConfig, CONFIGS, "train")


@pytest.mark.parametrize(
    "argument",
    ["model.num_heads=1,2", "model.pooling=mean,max", "inspection.probes=[a,b]", "data={path: a}", "-m", "~data.name"],
)
def test_what_may_be_meant_otherwise_is_left_as_it_is(argument: str) -> None:
    assert prepared([argument], TrainConfig, CONFIGS, "train") == [argument]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("train", ["=1"], "=1: takes the form key=value"),
        ("train", ["data=1"], "data: got '1'; takes one of ag_news"),
        ("train", ["foo"], "foo: takes the form key=value; --help lists the keys"),
        (
            "inspect",
            ["run=r", "text=hello", "big", "world", "label=x"],
            'big: takes the form key=value; put quotes around a text with spaces: "text=hello big world"',
        ),
        ("train", ["--name=foo"], "--name=foo: keys are given without dashes: name=foo"),
        ("train", ["--model.d_model", "8"], "--model.d_model: keys are given without dashes: model.d_model=..."),
        ("predict", ["--run=r"], "--run=r: keys are given without dashes: run=r"),
        ("train", ["--fast"], "--fast: unknown option; settings are given as key=value, and --help lists them"),
        ("train", ["data=licences"], "data: got 'licences'; did you mean data=licenses? takes one of ag_news, "),
        (
            "train",
            ["experiment=smok"],
            "experiment: got 'smok'; did you mean experiment=smoke? takes one of attention,",
        ),
        ("evaluate", ["run=r", "data=filez", "data.path=a"], "data: got 'filez'; did you mean data=files? takes one"),
    ],
)
def test_what_hydra_would_tell_at_length_is_one_line(name: str, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepared(arguments, SCHEMAS[name], CONFIGS, name)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--cfg", "job"], ["-c", "job", "-m"], ["data=null"], ["data=imdb"], ["--help"]])
def test_hydras_own_options_and_ready_sets_are_left_alone(arguments: list[str]) -> None:
    assert prepared(arguments, EvaluateConfig, CONFIGS, "evaluate") == arguments


def test_other_data_for_evaluate_need_no_group() -> None:
    found = composed("evaluate", "run=r", "data.path=../x.csv", "data.label_column=stars")
    assert OmegaConf.select(found, "data.path") == "../x.csv"
    assert OmegaConf.select(found, "data.label_column") == "stars"
    assert (
        OmegaConf.select(composed("evaluate", "run=r", "data=imdb", "data.limit=3"), "data.path") == "stanfordnlp/imdb"
    )
    assert OmegaConf.select(composed("evaluate", "run=r"), "data") is None
