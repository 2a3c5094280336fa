"""Train a text classifier: `python scripts/train.py [key=value ...]`; `--help` lists every key."""

from pathlib import Path

from headscope.commands.entry import start
from headscope.training.config import TrainConfig


def main(config: TrainConfig) -> None:
    """Train a Transformer text classifier and record what every attention head does."""
    from headscope.training.run import train  # torch and lightning: only once the configuration is known to be good

    train(config)


if __name__ == "__main__":
    start(main, TrainConfig, "train", Path(__file__).parents[1] / "configs")
