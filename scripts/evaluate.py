"""Score a finished run: `python scripts/evaluate.py run=outputs/<name> [data=...]`; `--help` lists every key."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import EvaluateConfig
from headscope.commands.entry import start


def main(config: EvaluateConfig) -> None:
    """Score a finished run on its test split, or on other data with the same labels."""
    from headscope.commands.evaluate import evaluate  # torch: only once the configuration is known to be good

    evaluate(config)


if __name__ == "__main__":
    start(main, EvaluateConfig, "evaluate", Path(__file__).parents[1] / "configs")
