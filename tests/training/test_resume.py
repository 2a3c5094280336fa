"""A resumed run ends as an unbroken one, keeps what its weights need, and is checked before it is written."""

import io
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headscope.cli.evaluate import evaluate
from headscope.cli.inspect import inspect
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError, RunError
from headscope.ground.signals import Stopped
from headscope.ground.terminal import logged
from headscope.runs.folder import METRICS, WEIGHTS
from headscope.runs.run import load_run
from headscope.settings.checks import override
from headscope.settings.commands import EvaluateConfig, InspectConfig
from headscope.settings.config import TrainConfig
from headscope.training import module
from headscope.training.resume import LAST, check_resumed, load_last, locked
from headscope.training.train import train
from training_runs import Rows, Trained, changed, comments, reviews, weights_of

Maker = Callable[..., TrainConfig]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("rows", "accumulate", "number"),
    [
        (reviews(), 3, signal.SIGTERM),
        pytest.param(comments(), 1, signal.SIGINT, marks=pytest.mark.slow),
    ],
    ids=["three batches a step", "any number of labels"],
)
def test_a_signal_saves_and_a_resumed_run_ends_as_an_unbroken_one(
    small_config: Maker, interrupt_at: Callable[..., None], rows: Rows, accumulate: int, number: int
) -> None:
    handler = signal.getsignal(number)  # none in a shell's background
    settings = {"rows": rows, "max_epochs": 2, "accumulate": accumulate}
    unbroken, broken = (small_config(name, **settings) for name in ("unbroken", "broken"))
    unbroken = override(unbroken, {"inspection.enabled": False})
    broken = override(broken, {"inspection.enabled": False})
    whole = train(unbroken)
    steps = whole.facts_of_training["steps"]
    # Of three batches of a step the second: the third is gone through, since gradients are not kept.
    # The first one counts.
    interrupt_at(steps // 2 - 1 if accumulate == 1 else 5, number, signal.SIGTERM)
    step = steps // 2 - 1 if accumulate == 1 else 2
    folder = Path(broken.outputs_dir) / "broken"
    message = f"at step {step}; resume it: headscope train resume={folder}"
    with pytest.raises((KeyboardInterrupt, Stopped), match=message) as caught:
        train(broken)
    assert number == signal.SIGINT or caught.value.code == 128 + number  # type: ignore[attr-defined]
    stopped = load_run(folder)  # what was learned can be used
    assert (stopped.chosen.thresholds is not None) == broken.data.multi_label
    assert signal.getsignal(number) is handler
    resumed = train(replace(broken, resume=str(folder)))
    assert resumed.facts_of_training == whole.facts_of_training
    assert weights_of(folder) == weights_of(whole.folder)
    assert load_run(folder).chosen == load_run(whole.folder).chosen


def test_a_second_ctrl_c_ends_at_once(
    small_config: Maker, interrupt_at: Callable[..., None]
) -> None:
    config = small_config()
    interrupt_at(2, signal.SIGTERM, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="stopped by Ctrl-C at step 1; resume it"):
        train(config)
    assert not list((Path(config.outputs_dir) / "run").rglob("*.ckpt"))


FIXED_KEYS = [
    ("model.num_heads", 2),
    ("tokenizer.vocab_size", 400),
    ("data.text_column", "other"),
    ("seed", 1),
    ("name", "other"),
    ("data.tokens_per_batch", 512),
    ("trainer.accumulate", 7),
]
FREE_KEYS = [
    ("model.num_heads", 3),  # the same again
    ("model.dropout", 0.3),
    ("data.path", "moved.csv"),  # its texts are compared
    ("optimizer.learning_rate", 0.5),
    ("trainer.max_epochs", 9),
    ("baseline", True),
]


def test_settings_that_the_weights_need_are_fixed(plain: Trained) -> None:
    last = load_last(plain.folder)
    assert last is not None
    before = replace(last.setup.config, resume="outputs/mine")
    for key, value in FIXED_KEYS:
        words = f"^{key}.*: expected .*, as resume=outputs/mine was trained with, got .*; leave it"
        with pytest.raises(ConfigError, match=words):
            check_resumed(changed(before, key, value), last)
    for key, value in FREE_KEYS:
        check_resumed(changed(before, key, value), last)


def test_a_refused_run_is_left_as_it_was(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    config, steps = load_run(folder).config, plain.report.facts_of_training["steps"]
    again, before = replace(config, resume=str(folder)), contents(folder)
    for key, value, words in (
        ("model.num_heads", 2, r"model\.num_heads: expected 3, as .* got 2"),
        (
            "trainer.max_steps",
            5,
            rf"trainer\.max_steps: expected at least {steps}, which resume={folder} has done, got 5",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            train(changed(again, key, value))
    texts = Path(config.data.path)
    texts.write_text(texts.read_text().replace(",good", ",splendid"))
    with pytest.raises(
        RunError, match="trained on the labels bad, good, and its data now have bad, splendid"
    ):
        train(again)
    texts.write_text(texts.read_text().replace(",splendid", ",good").replace(" film ", " movie "))
    with pytest.raises(
        RunError,
        match=r"its data have changed: .*test \(texts\).* had, or train a new run on these",
    ):
        train(again)
    assert contents(folder) == before


def test_no_command_writes_through_a_link_of_a_run_folder(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    run = str(folder)
    again = replace(load_run(folder).config, resume=run)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    for name, target, use in (
        ("labels.json", outside / "file", lambda: train(again)),
        ("log.txt", outside / "file", lambda: logged(folder).__enter__()),
        ("inspect", outside, lambda: inspect(InspectConfig(run=run, text="a film"))),
        ("evaluations", outside, lambda: evaluate(EvaluateConfig(run=run, accelerator="cpu"))),
    ):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        with pytest.raises(RunError, match=f"{name} is a link that leads outside"):
            use()
        (folder / name).unlink()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "mine"}


def test_a_run_ends_by_its_patience_however_often_it_is_resumed(small_config: Maker) -> None:
    config = small_config(max_epochs=9, patience=1)
    config = override(
        config,
        {
            "inspection.enabled": False,
            "optimizer.learning_rate": 1e-12,
            "optimizer.evidence_rate": 1e-12,
        },
    )
    whole = train(config).facts_of_training
    assert whole["epochs"] == 2
    again = replace(config, resume=str(Path(config.outputs_dir) / "run"))
    assert train(changed(again, "trainer.max_epochs", 12)).facts_of_training == whole
    assert train(changed(again, "trainer.patience", 2)).facts_of_training["epochs"] == 3


def test_a_run_is_trained_by_one_process_at_a_time(
    plain: Trained, small_config: Maker, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path)
    new = small_config()
    old = replace(load_run(folder).config, resume=str(folder))
    for config, path in ((old, folder), (new, Path(new.outputs_dir) / "run")):
        with locked(path):
            before = contents(path)
            with pytest.raises(RunError, match="another process trains this run; wait for its"):
                train(config)
            assert contents(path) == before
        assert not (path / ".lock").exists()


def test_a_finished_run_is_scored_anew_without_another_step_even_if_that_is_interrupted(
    mistaken: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = mistaken.copy(tmp_path)
    again = replace(load_run(folder).config, resume=str(folder))
    names = (LAST, METRICS, WEIGHTS)
    before, loader = [(folder / name).read_bytes() for name in names], TextDataModule.loader

    def interrupted(data: TextDataModule, role: str) -> object:
        if role == "test":
            raise KeyboardInterrupt
        return loader(data, role)

    with monkeypatch.context() as patch:
        patch.setattr(TextDataModule, "loader", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(again)
    assert [(folder / name).read_bytes() for name in names] == before
    console = Console(file=io.StringIO(), width=500)
    report = train(again, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"tensorboard --logdir {folder.parent}\n" in printed  # where the run is now
    assert report.facts_of_training == mistaken.report.facts_of_training
    assert report.facts_of_training["steps"] == 2
    assert report.test == mistaken.report.test
    assert (folder / LAST).read_bytes() == before[0]


def test_a_resumed_run_keeps_its_precision_whatever_is_timed_now(
    small_config: Maker, interrupt_at: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = override(small_config(), {"inspection.enabled": False, "model.num_heads": 2})
    config = override(config, {"model.d_model": 128, "trainer.precision": "auto"})
    folder = Path(config.outputs_dir) / "run"
    monkeypatch.setattr(module, "measured_bfloat16", lambda: True)
    interrupt_at(2, signal.SIGTERM)
    with pytest.raises(Stopped):
        train(config)
    last = load_last(folder)
    assert last is not None
    assert last.fast_bfloat16
    monkeypatch.setattr(module, "measured_bfloat16", lambda: False)
    report = train(replace(config, resume=str(folder)))
    assert report.facts_of_training["precision"] == "bf16-mixed"
    assert train(override(config, {"name": "other"})).facts_of_training["precision"] == "32-true"
