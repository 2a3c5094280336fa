"""Ends of training other than the last epoch: Ctrl-C, a number of steps, a loss that is not a number."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor

from headscope.errors import TrainingError

STEPS_BETWEEN_CHECKS = 50  # on a GPU, where looking at the loss makes it wait


class StopCleanly(Callback):
    """End at the next step, with a validation and a checkpoint, on Ctrl-C or when all steps are done.

    A second Ctrl-C ends at once.

    Args:
        total_steps: optimizer steps of the run.

    Attributes:
        interrupted: whether Ctrl-C was pressed.
    """

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps
        self.interrupted = False
        self._previous: Any = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Listen for Ctrl-C; only a main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._trainer = trainer
            self._previous = signal.signal(signal.SIGINT, self._interrupt)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take no step where a resumed run has done them all, or Ctrl-C came before the first."""
        if self.interrupted:
            trainer.should_stop = True
        self._stop_when_done(trainer)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        if self._trainer.accumulate_grad_batches == 1:
            self._trainer.should_stop = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End when all steps are done. Lightning's own max_steps would leave out the last validation.

        After Ctrl-C the batches of a step that is begun are gone through: their gradients would be lost.
        """
        is_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch
        if self.interrupted and is_step:
            trainer.should_stop = True
        self._stop_when_done(trainer)

    def _stop_when_done(self, trainer: Trainer) -> None:
        if trainer.global_step >= self.total_steps:
            trainer.should_stop = True

    def _restore(self) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give Ctrl-C back."""
        self._restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give Ctrl-C back."""
        self._restore()


class Patience(EarlyStopping):
    """End when macro-F1 has not risen for some validations: so many as the settings of today say, also when resumed.

    Args:
        patience: validations without a better one.
    """

    def __init__(self, patience: int) -> None:
        super().__init__("validation/macro_f1", mode="max", patience=patience)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what was best and how long ago, but not the patience of before."""
        super().load_state_dict(state_dict | {"patience": self.patience})


class StopAtNonFiniteLoss(Callback):
    """Raise a TrainingError that names the step and the last good checkpoint if a loss is infinite or not a number.

    The step is noted on the device, so that it is exact though a GPU's loss is looked at only now and then; it is
    looked at before every validation, whose logits are looked at too: an epoch's last update may have spoilt the
    weights. Hence no checkpoint is written of weights that are spoilt.

    Args:
        last: where the last checkpoint is written; None where none is.
        rate: key of the learning rate.
    """

    def __init__(self, last: Path | None, rate: str = "optimizer.learning_rate") -> None:
        self.last, self.rate = last, rate
        self._first: Tensor | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the first step whose loss is no number."""
        loss = outputs["loss"].detach()
        if self._first is None:
            self._first = torch.full_like(loss, -1)
        is_first = (self._first < 0) & ~torch.isfinite(loss)
        self._first = torch.where(is_first, torch.full_like(loss, trainer.global_step), self._first)
        if loss.device.type == "cpu" or trainer.global_step % STEPS_BETWEEN_CHECKS == 0:
            self._check(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look before anything is saved."""
        self._check(trainer)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: int
    ) -> None:
        """Look at the logits before anything is saved."""
        if not torch.isfinite(outputs).all():
            raise self._error(f"validation gave what is no number after step {trainer.global_step}")

    def _check(self, trainer: Trainer) -> None:
        if self._first is not None and self._first >= 0:
            raise self._error(f"the loss is not a number at step {int(self._first)}")

    def _error(self, what: str) -> TrainingError:
        saved = self.last if self.last is not None and self.last.exists() else "none yet"
        return TrainingError(
            f"{what}. Last good checkpoint: {saved}. "
            f"Try a lower {self.rate}, an optimizer.gradient_clip above 0, or trainer.precision=32-true"
        )
