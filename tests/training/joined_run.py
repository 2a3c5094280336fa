"""Trains in float64 for test_processes, in each of two processes that torchrun starts: `joined_run.py FOLDER`.

In one process (the test's) each step takes the two batches of a round, one after the other.
"""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from headscope.data.batching import TokenBudgetSampler
from headscope.settings.checks import override
from headscope.settings.config import TrainConfig
from headscope.training import module
from headscope.training import trainer as train_module
from headscope.training.train import train
from training_runs import configured, reviews


class Joined(TokenBudgetSampler):
    """The training batches of two processes in turn."""

    def __init__(self, lengths: np.ndarray, tokens: int, seed: int | None = None, *_: int) -> None:
        super().__init__(lengths, tokens, seed)
        ranks = () if seed is None else (0, 1)
        self.shared = [TokenBudgetSampler(lengths, tokens, seed, rank, 2) for rank in ranks]

    def __len__(self) -> int:
        return sum(map(len, self.shared)) or super().__len__()

    def __iter__(self) -> Iterator[list[int]]:
        for sampler in self.shared:
            sampler.set_epoch(self.epoch)
        rounds = zip(*self.shared, strict=True)
        yield from chain.from_iterable(rounds) if self.shared else super().__iter__()


def configuration(folder: Path, name: str) -> TrainConfig:
    """Return a configuration with n-grams and class weights; one class is rarer than the other."""
    rows = [row for number, row in enumerate(reviews()) if number % 4]
    config = configured(folder, rows, name, max_steps=20, max_epochs=9, progress=False)
    return override(
        config,
        {
            "data.tokens_per_batch": 128,
            "model.dropout": 0.0,
            "model.evidence_dropout": 0.0,
            "trainer.accumulate": 2 if name == "one" else 1,
            "optimizer.class_weights": "balanced",
            "inspection.enabled": False,
        },
    )


if __name__ == "__main__":
    module.chosen_precision = train_module.chosen_precision = lambda settings: "64-true"  # type: ignore[assignment]
    train(configuration(Path(sys.argv[1]), "two"))
