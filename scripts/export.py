"""Hand a run to `transformers`: `python scripts/export.py run=outputs/<name> output=folder`; `--help` says more."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import ExportConfig
from headscope.commands.entry import start


def main(config: ExportConfig) -> None:
    """Write a finished run, which began with a checkpoint, as a folder that `transformers` loads as BERT."""
    from headscope.commands.export import export  # torch: only once the configuration is known to be good

    export(config)


if __name__ == "__main__":
    start(main, ExportConfig, "export", Path(__file__).parents[1] / "configs")
