"""Trains in float64 for test_processes, in each of two processes that torchrun starts: `joined_run.py FOLDER`.

In one process (the test's) each step takes the joined batch of a round of two.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from headscope.data.batching import TokenBudgetSampler
from headscope.settings.config import TrainConfig
from headscope.training import module
from headscope.training import trainer as train_module
from headscope.training.train import train
from training_runs import configured, reviews


class Joined(TokenBudgetSampler):
    """The training batches of each round of two processes as one batch."""

    def __init__(self, lengths: np.ndarray, tokens: int, seed: int | None = None, *_: int) -> None:
        super().__init__(lengths, tokens, seed)
        self.shared = None if seed is None else TokenBudgetSampler(lengths, tokens, seed, 0, 2)

    def __len__(self) -> int:
        return super().__len__() if self.shared is None else len(self.shared)

    def rounds(self) -> Iterator[list[list[int]]]:
        if self.shared is None:
            yield from super().rounds()
            return
        self.shared.set_epoch(self.epoch)
        for batches in self.shared.rounds():
            yield [[row for batch in batches for row in batch]]


def configuration(folder: Path, name: str) -> TrainConfig:
    """Return a configuration with n-grams and class weights; one class is rarer than the other."""
    rows = [row for number, row in enumerate(reviews()) if number % 4]
    config = configured(folder, rows, name, max_steps=20, max_epochs=9, progress=False)
    config.data.tokens_per_batch = 128
    config.model = replace(config.model, dropout=0.0, evidence_dropout=0.0)
    config.optimizer.class_weights = "balanced"
    config.inspection.enabled = False
    return config


if __name__ == "__main__":
    module.chosen_precision = train_module.chosen_precision = lambda settings: "64-true"  # type: ignore[assignment]
    train(configuration(Path(sys.argv[1]), "two"))
