"""Ctrl-C in the middle of a training, as a person presses it."""

import os
import signal

from lightning.pytorch import Callback, Trainer


class InterruptAt(Callback):
    """Press Ctrl-C after a number of steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGINT)
