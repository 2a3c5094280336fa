"""Train a text classifier: `python scripts/train.py [key=value ...]`; `--help` lists every key."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.entry import start
from headscope.training.config import TrainConfig


def main(config: TrainConfig) -> None:
    """Train a Transformer text classifier and record what every attention head does."""
    from headscope.training.run import (
        train,  # torch and lightning: only once the configuration is known to be good
    )

    train(config)


if __name__ == "__main__":
    start(main, TrainConfig, "train", Path(__file__).parents[1] / "configs")
