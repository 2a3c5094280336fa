"""Show what every head does: `python scripts/inspect.py run=outputs/<name> [text="..."]`; `--help` lists every key."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import InspectConfig
from headscope.commands.entry import start


def main(config: InspectConfig) -> None:
    """Show what every attention head does with one text, or measure every head over a sample of validation texts."""
    # torch: only once the configuration is known to be good
    if config.text is None:
        from headscope.commands.measure import measure

        measure(config)
    else:
        from headscope.commands.inspect import inspect

        inspect(config)


if __name__ == "__main__":
    start(main, InspectConfig, "inspect", Path(__file__).parents[1] / "configs")
