"""Training, until the best weights are loaded."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError, first_line
from headscope.ground.signals import Stopped, signals_taken
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.results.scores import best_thresholds
from headscope.runs.folder import save_model
from headscope.runs.prediction import split_logits
from headscope.runs.setup import Chosen
from headscope.training.callbacks import Best, RunCheckpoint, without_needless_warnings
from headscope.training.distributed import is_rank_zero
from headscope.training.module import ClassifierModule
from headscope.training.prepare import Prepared


def fit(trainer: pl.Trainer, prepared: Prepared, folder: Path) -> dict[str, Any] | None:
    """Train, and load the best weights; return their step, epoch and loss, in rank 0 alone.

    Raises:
        Stopped: by a signal; unless it was a second Ctrl-C, the run can be resumed and used.
    """
    module = prepared.module
    data = prepared.data
    (last,) = (each for each in trainer.checkpoint_callbacks if isinstance(each, RunCheckpoint))
    if prepared.setup.config.trainer.compile:
        module.compile_steps()
    path = None if prepared.resumed is None else prepared.resumed.path
    with (
        prepared.timed("training"),
        signals_taken(last.on_signal),
        without_needless_warnings(),
    ):
        try:
            trainer.fit(module, datamodule=data, ckpt_path=path, weights_only=True)
        except TorchDynamoException as error:
            raise ConfigError(f"trainer.compile: {first_line(error)}; leave it out") from error
        except Stopped as stopped:
            stopped.said = f" at step {trainer.global_step}"
            if last.has_stopped and is_rank_zero() and last.best is not None:
                _load_best(trainer, module, data, last.best)
                chosen = Chosen(last.best["step"], thresholds=thresholds_of(module.objective))
                save_model(folder, last.run_setup, module.model, chosen)
            raise
    if last.is_asked_to_stop():  # while no step was left to take
        raise Stopped(int(last.received or 0))
    is_writer = is_rank_zero()
    if dist.is_initialized():
        dist.destroy_process_group()
    if last.best is None or not is_writer:
        return None
    _load_best(trainer, module, data, last.best)
    return {
        "best_step": last.best["step"],
        "best_epoch": last.best["epoch"],
        "best_validation_loss": last.best["loss"],
    }


def _load_best(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, best: Best
) -> None:
    """Load the best weights, and choose the thresholds of classes for them."""
    module.load_state_dict(best["weights"], strict=False)
    if isinstance(module.objective, MultiLabel):
        validation = logits_of(trainer, module, data, "validation")
        module.objective = MultiLabel(best_thresholds(*validation))


def logits_of(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, role: str
) -> tuple[Tensor, Tensor]:
    """Return logits and labels of a split."""
    return split_logits(module.model, data.loader(role), trainer.strategy.root_device)
