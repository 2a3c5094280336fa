"""Prove the attention: `python scripts/verify.py [dtype=float32] [device=cuda]`; `--help` lists every key."""

import sys
from pathlib import Path

# This folder is taken off the path: inspect.py in it would hide the standard library's.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from headscope.commands.config import VerifyConfig
from headscope.commands.entry import start


def main(config: VerifyConfig) -> None:
    """Prove that the attention is right, and print the claims; exit with 1 if one does not hold."""
    from headscope.proof.verify import verify  # torch: only once the configuration is known to be good

    verify(config)


if __name__ == "__main__":
    start(main, VerifyConfig, "verify", Path(__file__).parents[1] / "configs")
