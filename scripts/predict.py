"""Label texts with a finished run: `python scripts/predict.py run=outputs/<name> input=texts.csv output=labels.csv`."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import PredictConfig
from headscope.commands.entry import start


def main(config: PredictConfig) -> None:
    """Label texts with a finished run, in order, whatever the file's size."""
    from headscope.commands.predict import predict  # torch: only once the configuration is known to be good

    predict(config)


if __name__ == "__main__":
    start(main, PredictConfig, "predict", Path(__file__).parents[1] / "configs")
