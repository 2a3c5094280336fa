"""Lightning's Trainer as every stage of a run uses it, and the warnings that nobody needs of it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback
from lightning.pytorch.loggers import TensorBoardLogger

from headscope.training.config import TrainConfig, TrainerConfig
from headscope.training.precision import chosen_precision


def total_steps(settings: TrainerConfig, batches: int) -> int:
    """Return the optimizer steps of the whole run, ceil(batches / accumulate) in each epoch and at most max_steps."""
    steps = settings.max_epochs * -(-batches // settings.accumulate)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def new_trainer(
    config: TrainConfig,
    folder: Path,
    callbacks: list[Callback],
    logger: TensorBoardLogger,
) -> pl.Trainer:
    """Return a Trainer on the device, and in the precision, that the configuration says.

    Args:
        config: of the run.
        folder: of the run.
        callbacks: in their order.
        logger: what writes to TensorBoard the numbers that a module logs.
    """
    settings = config.trainer
    return pl.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        precision=chosen_precision(settings),  # type: ignore[arg-type]
        max_epochs=settings.max_epochs,
        accumulate_grad_batches=settings.accumulate,
        gradient_clip_val=config.optimizer.gradient_clip or None,
        logger=logger,
        callbacks=callbacks,
        num_sanity_val_steps=0,  # the record at step 0 makes a pass of its own
        enable_checkpointing=any(isinstance(callback, CheckpointCallback) for callback in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # our sampler shares its batches itself
        log_every_n_steps=20,
        default_root_dir=folder,
    )


@contextmanager
def without_needless_warnings() -> Iterator[None]:
    """Leave out what Lightning warns of and what is so on purpose."""
    with warnings.catch_warnings():
        # Texts are batched by array work in this process: more workers would only copy them to and fro.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        # A resumed run finds its own checkpoints.
        warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
        # Lightning calls a part of torch that torch calls deprecated, and counts few batches as too few to log.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        warnings.filterwarnings("ignore", message="The number of training batches")
        yield
