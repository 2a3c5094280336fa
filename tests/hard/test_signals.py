"""Signals, and a reader of standard output that is gone: an exit code that tells, a message, and a run that goes on."""

import signal
from pathlib import Path

import pytest

from hard.forked import Judge, Outcome, Server, real
from hard.interrupted import Whole, training

ENDS = {  # how training is stopped: the signals, and the exit codes that a shell sees
    "SIGTERM": ([signal.SIGTERM], [143]),
    "SIGINT": ([signal.SIGINT], [130]),
    "SIGINT twice": ([signal.SIGINT, signal.SIGINT], [130]),
    "SIGHUP": ([signal.SIGHUP], [129]),
    "no reader of stdout": ([], [0, 1]),
}
MOMENTS = {  # a part of the path that is opened or changed then
    "while texts are read": "reviews.csv",
    "in training": "step_000000000005",
    "in the closing phase": "errors.csv",
}


def mistakes_of(outcome: Outcome, codes: list[int]) -> list[str]:
    found = outcome.mistakes(codes)
    if outcome.code != 0 and not outcome.stderr.strip():
        found.append("not a word on stderr")
    return found


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stopped_training_says_so_and_goes_on(
    server: Server, whole: Whole, judge: Judge, tmp_path: Path, end: str, moment: str
) -> None:
    signals, codes = ENDS[end]
    fault = "signal" if signals else "close"
    case = training(tmp_path / "here", do=fault, at=MOMENTS[moment], signals=signals)
    found = mistakes_of(server.run(case), codes)
    judge("signals and closed pipes", f"{end} {moment}", found + whole.mistakes_of(server, case))


@pytest.mark.parametrize("end", ENDS)
def test_a_command_that_is_stopped_before_it_has_begun(
    server: Server, whole: Whole, judge: Judge, tmp_path: Path, end: str
) -> None:
    """By the real command, while it imports: a signal may end it without a word there, but never with a traceback."""
    signals, codes = ENDS[end]
    for after in (0.1, 0.5, 2.0):
        case = training(tmp_path / f"{after}", do="" if signals else "close")
        sent = [(after + 0.2 * place, number) for place, number in enumerate(signals)]
        quiet = [-signals[0]] if signals else []  # a shell sees the same code
        found = real(case, sent).mistakes([*codes, *quiet])
        found += whole.mistakes_of(server, case)
        judge("signals and closed pipes", f"{end} after {after} s", found)
        if not signals:
            return


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_real_command_stops_as_the_forked_one(
    judge: Judge, tmp_path: Path, number: signal.Signals
) -> None:
    """In training: what the fork server says of a signal holds for `python -m headscope` too."""
    case = training(tmp_path / "here")
    case.arguments = [*case.arguments, "trainer.max_epochs=1000"]
    last = tmp_path / "here/outputs/run/checkpoints/last.ckpt"
    found = mistakes_of(real(case, [(last, number)]), [128 + number])
    judge("signals to the real command", number.name, found)
