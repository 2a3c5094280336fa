"""The command `headscope`, also as `python -m headscope`.

A signal ends it with one line and a shell's exit code, also while `headscope.cli.main` is imported.
"""

import os

from headscope.ground.signals import end, ended_by_signals, take_signals


def main() -> None:
    """Run the command line of the process, and exit."""
    # For OpenMP, which reads it as torch is imported: threads that wait by spinning take the cores
    # from other processes. Processes that a command starts inherit it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    take_signals(end)
    from headscope.cli import main as cli

    with ended_by_signals():
        cli.main()


if __name__ == "__main__":
    main()
