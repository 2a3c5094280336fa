"""train final=run: the network of a finished run, trained on its validation texts too."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.abstaining import FAMILIAR
from headscope.cli.compose import checked, compose, parse
from headscope.cli.evaluate import data_of
from headscope.config import TrainConfig
from headscope.errors import ConfigError, RunError, UserWarningMessage
from headscope.run import load_run
from headscope.training.report import Report
from headscope.training.train import train
from training_runs import Trained, comments, edit_model, reviews, weights_of

Maker = Callable[..., TrainConfig]


def settings(run: Path, outputs: Path, *words: str) -> TrainConfig:
    words = (f"final={run}", f"outputs_dir={outputs}", "trainer.progress=false", *words)
    line = parse(words, TrainConfig)
    config: TrainConfig = checked(TrainConfig, compose(line), line.overrides)
    return config


def metrics_of(folder: Path) -> dict:
    content: dict = json.loads((folder / "metrics.json").read_text())
    return content


@pytest.mark.slow
@pytest.mark.parametrize("rows", [reviews, comments])
def test_all_texts_are_learned_and_what_validation_chose_is_kept(
    small_config: Maker, tmp_path: Path, rows: Callable[[], list]
) -> None:
    config = small_config("first", rows(), max_epochs=3, ema_decay=0.9)
    config.inspection.enabled = False
    first = train(config)
    final = train(settings(first.folder, tmp_path / "out"))
    assert final.folder == tmp_path / "out" / "first-final"
    before, after = metrics_of(first.folder), metrics_of(final.folder)
    sizes = [before["data"]["sizes"], after["data"]["sizes"]]
    assert sizes[1] == sizes[0] | {"train": sizes[0]["train"] + sizes[0]["validation"]}
    share = sizes[1]["train"] / sizes[0]["train"]
    kept = before["training"]["kept step"]
    # Batches do not fill up in proportion to texts.
    assert after["training"]["kept step"] == pytest.approx(share * kept, abs=3)
    assert after["training"]["kept step"] == after["training"]["steps"]
    assert after["validation"] == before["validation"]  # of the run that chose
    assert after[FAMILIAR] == before[FAMILIAR]
    run = load_run(final.folder)
    assert run.temperature == load_run(first.folder).temperature
    assert run.chosen.thresholds == load_run(first.folder).chosen.thresholds
    assert after["test"] != before["test"]
    assert not (final.folder / "validations.json").exists()
    with pytest.warns(UserWarningMessage, match="trained on its validation texts too"):
        data = data_of(run)
    assert len(data.corpus.splits["train"]) == sizes[1]["train"]


@pytest.mark.slow
def test_a_final_run_that_was_stopped_ends_as_an_unbroken_one(
    plain: Trained, tmp_path: Path, interrupt_at: Callable[..., None]
) -> None:
    run = plain.folder
    whole = train(settings(run, tmp_path, "name=whole"))
    assert isinstance(whole, Report)
    interrupt_at(3, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="at step 3"):
        train(settings(run, tmp_path, "name=broken"))
    line = parse([f"resume={tmp_path / 'broken'}"], TrainConfig)
    train(checked(TrainConfig, compose(line), line.overrides))
    assert weights_of(tmp_path / "broken") == weights_of(whole.folder)
    with pytest.raises(ConfigError, match="expected a finished run, itself without final"):
        settings(whole.folder, tmp_path)


def test_what_final_does_not_fit_is_an_error_before_anything_is_trained(
    plain: Trained, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"model.num_heads: expected the setting of final=.*"):
        settings(plain.folder, tmp_path, "model.num_heads=1")
    copy = plain.copy(tmp_path)
    edit_model(
        copy,
        lambda metadata: (
            metadata | {"digests": metadata["digests"].replace('"rows": ', '"rows": 1')}
        ),
    )
    with pytest.raises(RunError, match="its data have changed"):
        train(settings(copy, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    edit_model(copy, lambda metadata: metadata | {"chosen": "{}"})
    with pytest.raises(ConfigError, match="final: expected a finished run"):
        settings(copy, tmp_path)
    with pytest.raises(ConfigError, match="final: expected a run folder"):
        settings(tmp_path / "none", tmp_path)
    with pytest.raises(ConfigError, match="final: expected a finished run with data"):
        line = parse(["data.train_on_validation=true"], TrainConfig)
        checked(TrainConfig, compose(line), line.overrides)
