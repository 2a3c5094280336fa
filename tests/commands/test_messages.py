"""A mistake in the command line is answered with the key, what it got and what it takes."""

from pathlib import Path

import pytest
from headscope.commands.arguments import quoted
from headscope.commands.messages import explain
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headscope.benchmark.config import BenchmarkConfig
from headscope.errors import ConfigError
from headscope.settings import check
from headscope.training.config import TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs"


def refused(*overrides: str) -> str:
    """Compose and check as the entry does, and return the message."""
    ConfigStore.instance().store("schema", TrainConfig)
    ConfigStore.instance().store("headscope", {"template": ""}, group="hydra/help")
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            check(OmegaConf.to_object(compose("train", list(overrides))))
    except (HydraException, OmegaConfBaseException) as error:
        return explain(error, TrainConfig)
    except ConfigError as error:
        return str(error)
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.d_modl=8", ["model.d_modl", "unknown key", "did you mean model.d_model"]),
        ("modle.d_model=8", ["modle", "unknown key", "model"]),
        ("surprise=1", ["surprise", "unknown key"]),
        ("model.d_model=wide", ["model.d_model", "'wide'", "a whole number"]),
        ("model.d_model=null", ["model.d_model", "a whole number"]),
        ("baseline=perhaps", ["baseline", "'perhaps'", "true or false"]),
        ("optimizer.learning_rate=fast", ["optimizer.learning_rate", "'fast'", "a number"]),
        ("inspection.probes=3", ["inspection.probes"]),
        ("model.num_heads=3", ["model.num_heads", "got 3", "divisor of model.d_model=128"]),
        ("model.num_heads=0", ["model.num_heads", "got 0", "at least 1"]),
        ("model.dropout=2", ["model.dropout", "got 2.0", "less than 1"]),
        ("model.pooling=median", ["model.pooling", "'median'", "first, mean, max"]),
        ("optimizer.learning_rate=0", ["optimizer.learning_rate", "more than 0"]),
        ("data.path=no/such/file.csv", ["data.path", "no/such/file.csv", "exists"]),
        ("data.tokens_per_batch=16", ["data.tokens_per_batch", "got 16", "data.max_length=256"]),
        ("data.test_split=validation", ["data.test_split", "three splits"]),
        ("data=nothing", ["data: got 'nothing'", "takes one of ag_news", "licenses"]),
        ("name=../elsewhere", ["name", "below outputs_dir"]),
        ("resume=no/such/run", ["resume", "no/such/run"]),
        ("data.path=[a", ["data.path=[a", "Quote"]),
        ("model.num_heads=1,2", ["model.num_heads=1,2", "Give -m"]),
    ],
)
def test_each_mistake_is_named(override: str, words: list[str]) -> None:
    message = refused(override)
    assert [word for word in words if word not in message] == []
    assert "Traceback" not in message
    assert "\n" not in message


def test_all_wrong_values_are_named_at_once() -> None:
    message = "\n" + refused("model.dropout=2", "seed=-1", "trainer.max_epochs=0")
    assert [message.count(f"{key}: got") for key in ("model.dropout", "\nseed", "trainer.max_epochs")] == [1, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "a, b, c",
        'say "hello" [twice] {or} (more)',
        "key=value: ${not_a_key}",
        'back\\slash and \\" and ending \\',
        "日本語、中文",
        '"Yes," she said. "No, not this."',
        "it's",
        "",
        " spaces ",
    ],
)
def test_free_text_is_taken_as_it_stands(text: str) -> None:
    ConfigStore.instance().store("schema", {"text": ""})
    ConfigStore.instance().store("headscope", {"template": ""}, group="hydra/help")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("inspect", [quoted(f"text={text}")])
    assert config.text == text


def test_other_arguments_and_quoted_text_are_left_alone() -> None:
    for argument in ("model.d_model=8", 'text="in quotes"', "-m", "--help"):
        assert quoted(argument) == argument


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("train=[trainer.max_epochs=3]", ["trainer.max_epochs=3"]),
        ("train=[model.d_model=8, data.path=/a b/c.csv]", ["model.d_model=8", "data.path=/a b/c.csv"]),
        ("train=[inspection.probes=[a,b],seed=1]", ["inspection.probes=[a,b]", "seed=1"]),
        ("""train=["seed=1",'name=a,b',data.path="x, y"]""", ["seed=1", "name=a,b", 'data.path="x, y"']),
        ("train=[]", []),
    ],
)
def test_a_list_of_arguments_needs_no_quotes(argument: str, wanted: list[str]) -> None:
    assert benchmark_config(argument).train == wanted


def test_variants_are_named_by_who_gives_them() -> None:
    found = benchmark_config("variants.smoothed=[optimizer.label_smoothing=0.1]", "variants.plain-1=[seed=1,name=x]")
    assert found.variants == {"smoothed": ["optimizer.label_smoothing=0.1"], "plain-1": ["seed=1", "name=x"]}
    assert found.rows is None
    assert benchmark_config("rows=[tfidf]", "data_sets=[licenses,/a/b.csv]").data_sets == ["licenses", "/a/b.csv"]


def benchmark_config(*arguments: str) -> BenchmarkConfig:
    ConfigStore.instance().store("schema", BenchmarkConfig)
    ConfigStore.instance().store("headscope", {"template": ""}, group="hydra/help")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = compose("benchmark", ["suite=accuracy", *map(quoted, arguments)])
    found = OmegaConf.to_object(composed)
    assert isinstance(found, BenchmarkConfig)
    return found
