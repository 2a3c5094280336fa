"""Trains in float64 for test_processes, in each of two processes that torchrun starts: `joined_run.py FOLDER PORTS`.

In one process (the test's) each step takes the joined batch of a round of two.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from headscope.config import TrainConfig
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


CASES = {"evidence": (True, "balanced"), "plain": (False, "none")}


def configuration(folder: Path, name: str, devices: int) -> TrainConfig:
    """Return the configuration of a case; one class is rarer than the other."""
    evidence, class_weights = CASES[name]
    rows = [row for number, row in enumerate(reviews()) if number % 4]
    config = configured(
        folder,
        rows,
        f"{name}-{devices}",
        max_steps=20,
        max_epochs=9,
        devices=devices,
        progress=False,
    )
    config.data.tokens_per_batch = 128
    config.model = replace(config.model, dropout=0.0, evidence_dropout=0.0, evidence=evidence)
    config.optimizer.class_weights = class_weights
    config.inspection.enabled = False
    return config


def main() -> None:
    module.chosen_precision = train_module.chosen_precision = lambda settings: "64-true"  # type: ignore[assignment]
    folder, *ports = sys.argv[1:]
    for name, port in zip(CASES, ports, strict=True):
        # The store of torchrun has the addresses of the case before.
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": port}
        config = configuration(Path(folder), name, devices=2)
        trained = get_context("fork").Process(target=train, args=(config,))  # imports nothing anew
        trained.start()
        trained.join()
        if trained.exitcode:
            sys.exit(trained.exitcode)


if __name__ == "__main__":
    main()
