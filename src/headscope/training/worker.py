"""A run in a process of its own: `python -m headscope.training.worker FROZEN.yaml`.

The file holds every setting, checked and resolved by the process that starts it. No command line
is read here. Exit codes are those of the command.
"""

import os
import sys
from pathlib import Path

from headscope.config import read_config
from headscope.errors import UserError, print_error, refused_by_machine, warnings_as_notes
from headscope.signals import ended_by_signals


def main() -> None:
    """Train what the file says, and exit."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as in `headscope.__main__`
    warnings_as_notes()
    with ended_by_signals():
        try:
            config = read_config(Path(sys.argv[1]))
            from headscope.training.train import train

            train(config)
        except Exception as error:
            if not isinstance(error, UserError) and refused_by_machine(error) is None:
                raise
            sys.exit(print_error(error))


if __name__ == "__main__":
    main()
