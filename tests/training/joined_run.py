"""Trains in float64 for test_processes: `joined_run.py FOLDER NAME DEVICES EVIDENCE CLASS_WEIGHTS`.

In one process each step takes the joined batch of a round of two processes; in two processes, started by torchrun, each
takes its own.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from headscope.data.batching import TokenBudgetSampler
from headscope.training import module
from headscope.training import train as train_module
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


def main() -> None:
    folder, name, devices, evidence, class_weights = sys.argv[1:]
    # One class is rarer than the other.
    rows = [row for number, row in enumerate(reviews()) if number % 4]
    config = configured(
        Path(folder), rows, name, max_steps=20, max_epochs=9, devices=int(devices), progress=False
    )
    config.data.tokens_per_batch = 128
    config.model = replace(
        config.model, dropout=0.0, evidence_dropout=0.0, evidence=evidence == "True"
    )
    config.optimizer.class_weights = class_weights
    config.inspection.enabled = False
    module.chosen_precision = train_module.chosen_precision = lambda settings: "64-true"  # type: ignore[assignment]
    if devices == "1":
        from headscope.data import datamodule

        datamodule.TokenBudgetSampler = Joined  # type: ignore[misc]
    train(config)


if __name__ == "__main__":
    main()
