"""How long a training is, and what its length decides."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from headscope.model.config import ModelConfig
from headscope.training.config import OptimizerConfig, TrainConfig, TrainerConfig
from headscope.training.folder import load_config
from headscope.training.length import ema_decay, epochs_of, learning_rate, ngram_rate, settle, steps_of, total_steps
from headscope.training.run import train

Maker = Callable[..., TrainConfig]


def test_steps_are_counted_by_us() -> None:
    assert steps_of(3, 7, 2) == 12
    assert total_steps(TrainerConfig(max_epochs=3), 7) == 21
    assert total_steps(TrainerConfig(max_epochs=3, accumulate=2), 7) == 12
    assert total_steps(TrainerConfig(max_epochs=3, max_steps=5), 7) == 5


@pytest.mark.parametrize(
    ("batches", "accumulate", "epochs"),
    [(503, 1, 3), (67, 1, 3), (66, 1, 4), (49, 1, 5), (49, 2, 8), (4, 1, 50), (1, 1, 200)],
)
def test_few_texts_are_gone_through_until_200_steps_are_made(batches: int, accumulate: int, epochs: int) -> None:
    settings = TrainerConfig(accumulate=accumulate)
    assert epochs_of(settings, batches) == epochs
    assert total_steps(settings, batches) >= 200


def test_who_asks_for_a_number_of_epochs_gets_it() -> None:
    assert epochs_of(TrainerConfig(max_epochs=1), 2) == 1


def test_a_long_training_has_the_rates_that_were_measured() -> None:
    for steps in (1000, 1062, 1509, 10**6):
        assert learning_rate(ModelConfig(ngrams=True), steps) == 1e-3
        assert ngram_rate(steps) == 20
        assert ema_decay(0.99, steps) == 0.99


def test_a_short_training_has_a_higher_rate_and_a_shorter_average() -> None:
    assert ngram_rate(250) == pytest.approx(40)
    assert ngram_rate(10) == pytest.approx(200)
    assert ema_decay(0.99, 500) == pytest.approx(0.98)  # 50 steps of 500
    assert ema_decay(0.9, 500) == 0.9
    assert ema_decay(0.99, 10) is None
    assert ema_decay(None, 5000) is None


def test_beside_ngrams_the_encoder_of_a_short_training_is_slow() -> None:
    beside, alone = ModelConfig(ngrams=True), ModelConfig(ngrams=False)
    assert [learning_rate(beside, steps) for steps in (1, 200)] == pytest.approx([1e-4, 1e-4])
    assert learning_rate(beside, 316) == pytest.approx(1e-3 * 0.1**0.5, rel=1e-2)  # midway between 200 and 500
    assert learning_rate(beside, 500) == 1e-3
    assert learning_rate(alone, 200) == 1e-3
    assert learning_rate(replace(beside, path="minilm"), 10**6) == 5e-5


def settled(
    batches: int, trainer: TrainerConfig, optimizer: OptimizerConfig, ngrams: bool = True
) -> tuple[object, object, object, object]:
    config = TrainConfig(trainer=trainer, optimizer=optimizer, model=ModelConfig(ngrams=ngrams))
    settle(config, batches)
    rates = config.optimizer.learning_rate, config.optimizer.ngram_rate
    return config.trainer.max_epochs, *rates, config.trainer.ema_decay


def test_what_is_open_is_filled_in_and_what_is_said_stays() -> None:
    root = 5**0.5
    assert settled(503, TrainerConfig(), OptimizerConfig()) == (3, 1e-3, 20, 0.99)
    assert settled(5, TrainerConfig(), OptimizerConfig()) == pytest.approx((40, 1e-4, 200 * root, 0.95))
    assert settled(5, TrainerConfig(), OptimizerConfig(), ngrams=False) == pytest.approx((40, 1e-3, 20 * root, 0.95))
    asked = OptimizerConfig(learning_rate=3e-4)
    assert settled(5, TrainerConfig(), asked) == pytest.approx((40, 3e-4, 20 * root, 0.95))
    assert settled(5, TrainerConfig(max_epochs=2), OptimizerConfig(ngram_rate=7.0)) == (2, pytest.approx(1e-4), 7, None)
    found = settled(500, TrainerConfig(max_steps=100), OptimizerConfig())
    assert found == pytest.approx((3, 1e-4, 200 * 10**0.5, 0.9))


def test_a_run_says_what_was_filled_in_and_goes_on_with_it(small_config: Maker) -> None:
    config = small_config(max_epochs=None)
    config.inspection.enabled, config.data.tokens_per_batch = False, 1024
    config.optimizer.learning_rate, config.model.ngrams = None, True
    screen = io.StringIO()
    report = train(config, Console(file=screen, width=200))
    steps = report.facts_of_training["steps"]
    kept = load_config(report.folder)
    assert 200 <= steps < 200 + steps // kept.trainer.max_epochs
    assert kept.optimizer.learning_rate == learning_rate(config.model, steps) < 1e-3
    assert kept.optimizer.ngram_rate == pytest.approx(ngram_rate(steps) * 1e-3 / kept.optimizer.learning_rate)
    assert kept.trainer.ema_decay == pytest.approx(1 - 10 / steps)
    assert "optimizer steps" not in screen.getvalue()
    longer = replace(kept.trainer, max_epochs=kept.trainer.max_epochs + 1)
    train(replace(kept, trainer=longer, resume=str(report.folder)), Console(file=io.StringIO()))
    again = load_config(report.folder)
    assert (again.trainer, again.optimizer) == (longer, kept.optimizer)
