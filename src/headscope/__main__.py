"""The command `headscope`, also as `python -m headscope`: a signal ends it with one line and the exit code of a shell.

From the first moment on: what `headscope.cli` imports takes a second.
"""

import signal
import sys
from contextlib import suppress

from headscope.signals import Stopped, end, stop, take_signals


def main() -> None:
    """Run the command line of the process, and exit."""
    take_signals(end)
    try:
        from headscope import cli

        take_signals(stop)
        cli.main()
    except (Stopped, KeyboardInterrupt) as stopped:
        with suppress(OSError):  # of a terminal that is closed
            print(f"\n{str(stopped) or 'stopped by Ctrl-C'}", file=sys.stderr)
        sys.exit(stopped.code if isinstance(stopped, Stopped) else 130)
    finally:
        take_signals(signal.SIG_DFL)  # one that comes while Python ends is told by nobody


if __name__ == "__main__":
    main()
