"""Kills, signals, a full disk and no reader: a message, a code that tells, and a run that goes on to the same bits."""

import json
import random
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hard.forked import TRAIN, Case, Server, some
from headscope.ground.files import PARTIAL
from training_runs import reviews, weights_of, write

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


def training(folder: Path, **fault: Any) -> Case:
    """Return a small training in an empty folder, which has the temporary files too."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    write(folder / "reviews.csv", reviews(80))
    return Case(TRAIN, str(folder), {"TMPDIR": str(folder / "tmp")}, **fault)


@dataclass
class Whole:
    """A training that nobody disturbed: what the others must end as."""

    weights: dict[str, bytes]
    metrics: Any
    seconds: float

    @classmethod
    def trained(cls, server: Server, folder: Path) -> "Whole":
        outcome = server.run(training(folder / "whole"))
        assert outcome.mistakes([0]) == [], outcome.stderr
        run = folder / "whole/outputs/run"
        return cls(weights_of(run), _metrics(run), outcome.seconds)

    def mistakes_of(self, server: Server, broken: Case) -> list[str]:
        """Go on with a training that was broken off, and say in what it differs; an empty list if in nothing."""
        folder = Path(broken.folder)
        run = folder / "outputs/run"
        can_resume = (run / "config.yaml").exists()
        arguments = ["train", "resume=outputs/run"] if can_resume else broken.arguments
        case = replace(broken, arguments=arguments, do="", kill_after=None, largest_file=None)
        if found := server.run(case).mistakes([0]):
            return [f"then {' '.join(arguments[:2])}: {mistake}" for mistake in found]
        if weights_of(run) != self.weights:
            found.append("other weights than without the break")
        metrics = _metrics(run)
        other = [key for key in self.metrics | metrics if self.metrics.get(key) != metrics.get(key)]
        if other:
            found.append(f"other metrics than without the break: {', '.join(other)}")
        left = [path.name for path in folder.rglob("*") if path.name.startswith((".", "tmp_"))]
        partial = [name for name in left if name.startswith(PARTIAL)]
        if left != partial[:1]:  # a killed writer leaves one temporary file
            found.append(f"left behind: {', '.join(left)}")
        return found


def _metrics(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    others = {"seconds", "versions", "model"}  # the model's digest covers the path of its data
    return {key: value for key, value in found.items() if key not in others}


@pytest.fixture(scope="module")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return a training that nobody disturbed."""
    return Whole.trained(server, tmp_path_factory.mktemp("whole"))


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


def test_killed_at_random_moments(server: Server, whole: Whole, tmp_path: Path) -> None:
    draw = random.Random(0)
    for _ in range(3):
        seconds = draw.uniform(0.02, whole.seconds)
        case = training(tmp_path / "here", kill_after=seconds)
        found = server.run(case).mistakes([-9, 0]) or whole.mistakes_of(server, case)
        assert found == [], f"killed after {seconds:.3f} s"
