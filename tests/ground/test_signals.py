"""A signal ends the command with one line and the exit code of a shell, from its first moments on."""

import os
import signal
import subprocess
import sys

import pytest

from headscope.ground.signals import Stopped, signals_taken, stop, take_signals

# A signal that comes in an import, which catches what is raised within it, as some do.
AT_IMPORT = """
import os, signal, sys
from headscope.__main__ import main
class Early:
    def find_spec(self, name, *_):
        if name == "{module}":
            try:
                os.kill(os.getpid(), {number})
            except BaseException:
                pass
sys.meta_path.insert(0, Early())
sys.argv = ["headscope", "train"]
main()
"""


@pytest.mark.parametrize(
    ("name", "number", "module"),
    [
        ("Ctrl-C", 2, "hydra"),
        ("SIGTERM", 15, "hydra"),
        ("SIGHUP", 1, "hydra"),
        ("Ctrl-C", 2, "headscope.training.train"),
    ],
)
def test_a_signal_during_imports_is_one_line(name: str, number: int, module: str) -> None:
    script = AT_IMPORT.format(number=number, module=module)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (
        128 + number,
        "",
        f"\nstopped by {name}\n",
    )


def test_nohup_is_respected_and_handlers_are_given_back() -> None:
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    with signals_taken(stop):
        with pytest.raises(Stopped, match="stopped by SIGHUP"):
            os.kill(os.getpid(), signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert signal.SIGHUP not in take_signals(stop)
        os.kill(os.getpid(), signal.SIGHUP)
        signal.signal(signal.SIGHUP, stop)
    assert {number: signal.getsignal(number) for number in before} == before
