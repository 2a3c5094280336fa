"""The signals that end a process: Ctrl-C, SIGTERM of schedulers and docker, SIGHUP of terminals."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


class Stopped(SystemExit):
    """A signal asks the process to end; the exit code is a shell's, 128 + the signal's number.

    Not a KeyboardInterrupt: Lightning makes exit code 1 of one.
    """

    def __init__(self, number: int, said: str = "") -> None:
        super().__init__(number, said)
        self.number = number
        self.code = 128 + number
        self.said = said

    def __str__(self) -> str:
        """Return the name of the signal, and what was said of the stop."""
        is_ctrl_c = self.number == signal.SIGINT
        name = "Ctrl-C" if is_ctrl_c else signal.Signals(self.number).name
        return f"stopped by {name}{self.said}"


def stop(number: int, frame: FrameType | None = None) -> None:
    """Raise `Stopped` wherever the process is."""
    raise Stopped(number)


def continued(stopped: BaseException) -> BaseException:
    """Return a stop whose remedy is the whole command, not one run of a sweep or a search."""
    remedy = "; the same command again continues"
    if isinstance(stopped, Stopped):
        stopped.said = stopped.said.partition(";")[0] + remedy
        return stopped
    return KeyboardInterrupt((str(stopped) or "stopped by Ctrl-C").partition(";")[0] + remedy)


def end(number: int, frame: FrameType | None = None) -> None:
    """End the process at once, for while it imports: some imports catch every exception."""
    with suppress(OSError):  # of a terminal that is closed
        os.write(2, f"\n{Stopped(number)}\n".encode())
    os._exit(128 + number)


def take_signals(handler: Handler) -> dict[signal.Signals, Any]:
    """Have these signals call `handler`, and return the handlers before; only a main thread can.

    A SIGHUP that is ignored stays so: that is how `nohup` keeps a process alive.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    return {
        number: signal.signal(number, handler)
        for number in numbers
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN
    }


@contextmanager
def signals_taken(handler: Handler) -> Iterator[None]:
    """Have these signals call `handler` until the block is left."""
    before = take_signals(handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `Stopped` within the block at a signal; print its name and exit as a shell does."""
    take_signals(stop)
    try:
        yield
    except (Stopped, KeyboardInterrupt) as stopped:
        with suppress(OSError):  # of a terminal that is closed
            print(f"\n{str(stopped) or 'stopped by Ctrl-C'}", file=sys.stderr)
        sys.exit(stopped.code if isinstance(stopped, Stopped) else 130)
    finally:
        take_signals(signal.SIG_DFL)  # one that comes while Python ends has no message
