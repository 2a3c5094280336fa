"""Print attention step by step: `python scripts/trace.py [seq_len=100] [grow=true]`; `--help` lists every key."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import TraceConfig
from headscope.commands.entry import start


def main(config: TraceConfig) -> None:
    """Print the computation of multi-head attention, step by step, or how each step grows with the text."""
    from headscope.proof.trace import trace_attention  # torch: only once the configuration is known to be good

    trace_attention(config)


if __name__ == "__main__":
    start(main, TraceConfig, "trace", Path(__file__).parents[1] / "configs")
