"""Kills, signals, a full disk and no reader: a message, a code that tells, and a run that goes on to the same bits."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from hard.forked import Server, some
from hard.interrupted import Whole, training

pytestmark = pytest.mark.slow
KILLED, FULL, TOO_LARGE = [-9], [1, 2], [-25]
FAULTS: dict[str, tuple[dict[str, Any], list[int]]] = {  # and the exit codes
    **{f"killed at change {n} of files": ({"do": "kill", "at": n}, KILLED) for n in range(1, 130, 9)},
    **{f"no room from change {n} on": ({"do": "full", "at": n}, FULL) for n in (2, 30, 90)},
    **{f"killed writing byte {n}": ({"largest_file": n}, TOO_LARGE) for n in (0, 4_000, 50_000)},
    **{
        f"{name} at {at}": ({"do": "signal", "at": at, "signals": signals}, [code])
        for at in ("reviews.csv", "step_000000000005")
        for name, signals, code in (
            ("SIGTERM", [signal.SIGTERM], 143), ("SIGHUP", [signal.SIGHUP], 129),
            ("SIGINT", [signal.SIGINT], 130), ("SIGINT twice", [signal.SIGINT] * 2, 130),
        )
    },
    "no reader of stdout": ({"do": "close", "at": "step_000000000005"}, [0]),
}  # fmt: skip


@pytest.mark.parametrize("name", some(FAULTS))
def test_a_training_that_is_stopped_says_so_and_goes_on(
    server: Server, whole: Whole, tmp_path: Path, name: str
) -> None:
    fault, codes = FAULTS[name]
    case = training(tmp_path / "here", **fault)
    outcome = server.run(case)
    if outcome.code == 0 and fault.get("do") == "kill":
        return  # it has fewer operations
    assert (outcome.mistakes(codes) or whole.mistakes_of(server, case)) == []


@pytest.mark.parametrize("words", some([("trainer.accumulate=3",), ()]))
def test_killed_at_random_moments(server: Server, tmp_path: Path, words: tuple[str, ...]) -> None:
    whole = Whole.trained(server, tmp_path, words)
    draw = random.Random(0)
    for _ in range(3):
        seconds = draw.uniform(0.02, whole.seconds)
        case = training(tmp_path / "here", words, kill_after=seconds)
        found = server.run(case).mistakes([-9, 0]) or whole.mistakes_of(server, case)
        assert found == [], f"killed after {seconds:.3f} s"
