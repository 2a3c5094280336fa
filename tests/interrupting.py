"""Ctrl-C in the middle of a training, as a person presses it."""

import os
import signal

from lightning.pytorch import Callback, Trainer


class InterruptAt(Callback):
    """Press Ctrl-C once, after a number of batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
