"""How long a training is, and what follows from it: where texts are few, so are steps, and each has more to do.

Each rule is a function of the number of optimizer steps S: three fill in what a configuration leaves open, one bounds
the average that it asks for. Where three epochs are 1,000 steps or more, the defaults come to 3, 1e-3, 20 and 0.99.
"""

import math

from headscope.model.config import ModelConfig
from headscope.training.config import OptimizerConfig, TrainConfig, TrainerConfig

EPOCHS = 3
FEW_STEPS = 200  # below which a network from scratch has hardly begun to learn
LONG = 1000  # steps from which on a training's length changes nothing
ENOUGH = 500  # steps in which an encoder learns more than its texts by heart
LEARNING_RATE = 1e-3
SLOWEST = 0.1  # of it, for an encoder beside n-grams whose training is of few steps
CHECKPOINT_RATE = 5e-5  # for weights that were trained before: the largest of Devlin et al. 2019, appendix A.3
NGRAM_RATE = 20.0
AVERAGED = 0.1  # of a training at the most: before that the weights are of another network


def steps_of(epochs: int, batches: int, accumulate: int) -> int:
    """Return the optimizer steps of so many epochs: ceil(batches / accumulate) in each of them."""
    return epochs * -(-batches // accumulate)


def epochs_of(settings: TrainerConfig, batches: int) -> int:
    """Return how often the texts are gone through: as often as is asked for, else 3 times, or until 200 steps are made.

    Args:
        settings: with `max_epochs` None where nothing is asked for.
        batches: of an epoch.
    """
    if settings.max_epochs is not None:
        return settings.max_epochs
    return max(EPOCHS, math.ceil(FEW_STEPS / steps_of(1, batches, settings.accumulate)))


def total_steps(settings: TrainerConfig, batches: int) -> int:
    """Return the optimizer steps of the whole run, at most `max_steps`."""
    steps = steps_of(epochs_of(settings, batches), batches, settings.accumulate)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def settle(config: TrainConfig, batches: int) -> None:
    """Fill in what a configuration leaves open, so that the run's config.yaml says what was done.

    A run that goes on has this behind it, and keeps what it has; asked for anew, `null` is filled in anew.

    Args:
        config: changed: trainer.max_epochs, optimizer.learning_rate, optimizer.ngram_rate and, in a new run,
            trainer.ema_decay.
        batches: of an epoch.
    """
    config.trainer.max_epochs = epochs_of(config.trainer, batches)
    steps = total_steps(config.trainer, batches)
    _settle_rates(config.optimizer, config.model, steps)
    if config.resume is None:
        config.trainer.ema_decay = ema_decay(config.trainer.ema_decay, steps)


def _settle_rates(optimizer: OptimizerConfig, model: ModelConfig, steps: int) -> None:
    """Fill in both rates: n-grams follow an encoder's rate that was asked for, not one that is filled in here."""
    share = 1.0
    if optimizer.learning_rate is None:
        optimizer.learning_rate = learning_rate(model, steps)
        share = optimizer.learning_rate / LEARNING_RATE
    if optimizer.ngram_rate is None:
        optimizer.ngram_rate = ngram_rate(steps) / share


def learning_rate(model: ModelConfig, steps: int) -> float:
    """Return the encoder's peak learning rate: 1e-3 where it begins from nothing, 5e-5 with a checkpoint's weights.

    Beside n-grams it is less in fewer than 500 steps: a tenth in 200 and fewer, and between them straight in the
    logarithms. Few texts are learned by heart by an encoder within some epochs, and what n-grams say of other texts is
    drowned (docs/few-texts.md). Without n-grams nothing else learns, so that it may not be slow.

    Args:
        model: whether it has n-grams, and a checkpoint.
        steps: S.
    """
    if model.path:
        return CHECKPOINT_RATE
    if not model.ngrams:
        return LEARNING_RATE
    progress = math.log(max(steps, FEW_STEPS) / FEW_STEPS) / math.log(ENOUGH / FEW_STEPS)  # 0 at 200 steps, 1 at 500
    return LEARNING_RATE * math.pow(SLOWEST, max(0.0, 1 - progress))


def ngram_rate(steps: int) -> float:
    """Return the n-grams' learning rate as a multiple of 1e-3: 20 max(1, sqrt(1000 / S)).

    Adam moves a weight by about its learning rate in a step, whatever the gradient's size (Kingma and Ba 2015, section
    2.1), so that in few steps the n-grams' weights, which begin at 0, stay near it. The root, not the whole ratio:
    chosen on validation (docs/few-texts.md).
    """
    return NGRAM_RATE * max(1.0, math.sqrt(LONG / steps))


def ema_decay(wanted: float | None, steps: int) -> float | None:
    """Return the decay d of the weights' moving average: min(wanted, 1 - 10 / S), None for no average.

    An average with decay d reaches back over 1 / (1 - d) steps, here over a tenth of the training at the most. Without
    this bound a short training would keep, for what it learned, the mean of all that it went through.
    """
    if wanted is None:
        return None
    decay = min(wanted, 1 - 1 / (AVERAGED * steps))
    return decay if decay > 0 else None
