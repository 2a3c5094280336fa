"""What a run that goes on must keep: told in one line, before anything in its folder is written."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headscope.errors import ConfigError, RunError
from headscope.settings import described
from headscope.training.config import TrainConfig
from headscope.training.resuming import FREE, KEPT, PATHS, check_kept
from headscope.training.run import train
from headscope.training.session import Session
from interrupting import InterruptAt

Maker = Callable[..., TrainConfig]


def changed(config: TrainConfig, key: str, value: object) -> TrainConfig:
    group, _, name = key.rpartition(".")
    if not group:
        return replace(config, **{name: value})  # type: ignore[arg-type]
    return replace(config, **{group: replace(getattr(config, group), **{name: value})})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.num_heads", 2),
        ("model.causal", True),
        ("model.d_model", 24),
        ("tokenizer.vocab_size", 400),
        ("data.text_column", "other"),
        ("data.max_length", 16),
        ("data.multi_label", True),
        ("data.split_seed", 1),
        ("seed", 1),
        ("name", "other"),
    ],
)
def test_what_the_weights_were_trained_with_is_kept(small_config: Maker, key: str, value: object) -> None:
    before = small_config()
    old = next(old for name, old, _ in described(before) if name == key)
    given = changed(replace(before, resume="outputs/mine"), key, value)
    with pytest.raises(ConfigError) as caught:
        check_kept(given, before)
    assert str(caught.value) == (
        f"{key}: got {value!r}, but resume=outputs/mine was trained with {old!r}; leave it out, or start a new run"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.num_heads", 3),
        ("model.dropout", 0.3),
        ("model.frozen_layers", 1),
        ("data.tokens_per_batch", 512),
        ("data.cache_dir", None),
        ("optimizer.learning_rate", 0.5),
        ("trainer.max_epochs", 9),
        ("inspection.enabled", False),
        ("baseline", True),
    ],
)
def test_the_same_again_and_what_does_no_harm_may_be_given(small_config: Maker, key: str, value: object) -> None:
    check_kept(changed(replace(small_config(), resume="outputs/mine"), key, value), small_config())


def test_a_file_that_was_moved_may_be_given_anew(small_config: Maker, tmp_path: Path) -> None:
    before, moved = small_config(), tmp_path / "moved.csv"
    given = changed(replace(before, resume="outputs/mine"), "data.path", str(moved))
    with pytest.raises(ConfigError, match=r"data\.path: got"):
        check_kept(given, before)
    Path(before.data.path).rename(moved)
    check_kept(given, before)


def test_the_rules_are_about_keys_that_there_are() -> None:
    keys = [key for key, _, _ in described(TrainConfig())]
    assert {*FREE, *PATHS} <= {*keys}
    assert [kept for kept in KEPT if not any(key == kept or key.startswith(kept) for key in keys)] == []


def test_a_refused_run_is_left_as_it_was(small_config: Maker) -> None:
    config = small_config(max_epochs=1)
    folder = train(config).folder
    before = contents(folder)
    with pytest.raises(ConfigError, match=r"model\.num_heads: got 2"):
        train(changed(replace(config, resume=str(folder)), "model.num_heads", 2))
    texts = Path(config.data.path)
    texts.write_text(texts.read_text().replace(",good", ",splendid"))
    with pytest.raises(RunError, match="trained on the labels bad, good, and its data now have bad, splendid"):
        train(replace(config, resume=str(folder)))
    assert contents(folder) == before


def test_less_than_is_done_is_refused_and_nothing_is_written(small_config: Maker) -> None:
    config = small_config(max_epochs=3)
    report = train(config)
    before, steps = contents(report.folder), report.facts_of_training["steps"]
    again = replace(config, resume=str(report.folder))
    for key, value, done in (
        ("max_epochs", 2, "3 epochs"),
        ("max_epochs", 1, "3 epochs"),
        ("max_steps", 5, f"{steps} steps"),
    ):
        with pytest.raises(ConfigError) as caught:
            train(changed(again, f"trainer.{key}", value))
        assert str(caught.value) == f"trainer.{key}: got {value}, but resume={report.folder} has done {done}; take more"
    assert contents(report.folder) == before


def test_batches_of_another_size_wait_for_the_end_of_an_epoch(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(max_epochs=1)
    again = replace(config, resume=str(train(config).folder))
    wider = changed(changed(again, "data.tokens_per_batch", 64), "trainer.max_epochs", 2)
    report = train(wider)  # between epochs it may change
    assert report.facts_of_training["epochs"] == 2
    assert (report.folder / "checkpoints/last.ckpt").is_file()
    stopped, callbacks = small_config("stopped"), Session._callbacks
    monkeypatch.setattr(Session, "_callbacks", lambda *args: [*callbacks(*args), InterruptAt(2)])
    with pytest.raises(KeyboardInterrupt):
        train(stopped)
    stopped.resume = str(Path(stopped.outputs_dir) / "stopped")
    with pytest.raises(
        ConfigError, match=r"tokens_per_batch: got 64, but .* stopped within an epoch of batches of 256"
    ):
        train(changed(stopped, "data.tokens_per_batch", 64))


@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_steps": 7}])
def test_a_finished_run_is_scored_anew_without_another_step(small_config: Maker, length: dict[str, int]) -> None:
    config = small_config(**length)
    report = train(config)
    before = (report.folder / "checkpoints/last.ckpt").read_bytes()
    again = train(replace(config, resume=str(report.folder)))
    assert again.facts_of_training["steps"] == report.facts_of_training["steps"]
    assert again.test == report.test
    assert (report.folder / "checkpoints/last.ckpt").read_bytes() == before
