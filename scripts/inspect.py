"""Show what every head does with a text: `python scripts/inspect.py run=outputs/<name> text="..."`."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import InspectConfig
from headscope.commands.entry import start


def main(config: InspectConfig) -> None:
    """Show what every attention head does with one text: in TensorBoard and in one HTML file."""
    from headscope.commands.inspect import inspect  # torch: only once the configuration is known to be good

    inspect(config)


if __name__ == "__main__":
    start(main, InspectConfig, "inspect", Path(__file__).parents[1] / "configs")
