"""Measure: `python scripts/benchmark.py suite=train [device=cuda]`; `--help` lists every suite and key."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.benchmark.config import BenchmarkConfig
from headscope.commands.entry import start


def main(config: BenchmarkConfig) -> None:
    """Measure speed, memory, growth and accuracy beside what a user would pick instead, as tables and a page."""
    from headscope.commands.benchmark import benchmark  # torch: only once the configuration is known to be good

    benchmark(config)


if __name__ == "__main__":
    start(main, BenchmarkConfig, "benchmark", Path(__file__).parents[1] / "configs")
