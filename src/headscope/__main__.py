"""The command `headscope`, also as `python -m headscope`.

A signal ends it with one line and a shell's exit code, also while `headscope.cli.main` is imported.
"""

from headscope.signals import end, ended_by_signals, take_signals


def main() -> None:
    """Run the command line of the process, and exit."""
    take_signals(end)
    from headscope.cli import main as cli

    with ended_by_signals():
        cli.main()


if __name__ == "__main__":
    main()
