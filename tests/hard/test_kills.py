"""kill -9 at any moment: what was trained goes on, and ends with the weights of a training that nobody killed."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hard.forked import Judge, Server
from hard.interrupted import Whole, training

SLICES = 160  # of the operations of a training, a test each: every 160th of them, beginning with the 1st, 2nd ...
MEMORY = Path("/dev/shm")
AVERAGED = ["trainer.accumulate=3", "trainer.ema_decay=0.9"]


@pytest.fixture(params=["one file system", "two file systems"])
def temporary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return the folder of temporary files: on the file system of the outputs, or on another one."""
    if request.param == "one file system":
        yield tmp_path / "tmp"
        return
    if not MEMORY.is_dir() or MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"takes {MEMORY}, on a file system of its own")
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("first", range(1, SLICES + 1))
def test_killed_at_an_operation_on_files(
    server: Server, whole: Whole, judge: Judge, tmp_path: Path, temporary: Path, first: int
) -> None:
    for number in range(first, 10_000, SLICES):
        case = training(tmp_path / "here", temporary, do="kill", at=number)
        outcome = server.run(case)
        if outcome.code == 0:
            return  # it has fewer operations
        mistakes = outcome.mistakes([-9]) or whole.mistakes_of(server, case)
        judge("kill -9 at each operation on files", f"operation {number}, {temporary}", mistakes)


@pytest.mark.parametrize("moment", range(50))
def test_killed_at_a_random_moment(
    server: Server, whole: Whole, judge: Judge, tmp_path: Path, moment: int
) -> None:
    seconds = random.Random(moment).uniform(0.02, whole.seconds)
    case = training(tmp_path / "here", kill_after=seconds)
    outcome = server.run(case)
    mistakes = outcome.mistakes([-9, 0]) or whole.mistakes_of(server, case)
    judge("kill -9 at a random moment", f"after {seconds:.3f} s", mistakes)


@pytest.mark.parametrize(
    "size", [0, 100, 1_000, 2_000, 4_000, 10_000, 19_000, 20_500, 50_000, 80_000, 100_000, 130_000]
)
def test_killed_in_the_middle_of_writing_a_file(
    server: Server, whole: Whole, judge: Judge, tmp_path: Path, temporary: Path, size: int
) -> None:
    case = training(tmp_path / "here", temporary, largest_file=size)
    outcome = server.run(case)
    mistakes = outcome.mistakes([-25]) or whole.mistakes_of(server, case)  # SIGXFSZ
    judge("killed in the middle of writing a file", f"{size:,} bytes, {temporary}", mistakes)


@pytest.fixture(scope="session")
def averaged(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return a training of averaged weights and accumulated gradients that nobody disturbed."""
    return Whole.trained(server, tmp_path_factory.mktemp("averaged"), AVERAGED)


@pytest.mark.parametrize("moment", range(14))
def test_killed_with_averaged_weights(
    server: Server, averaged: Whole, judge: Judge, tmp_path: Path, moment: int
) -> None:
    seconds = averaged.seconds * (moment + 1) / 15
    case = training(tmp_path / "here", words=AVERAGED, kill_after=seconds)
    outcome = server.run(case)
    mistakes = outcome.mistakes([-9, 0]) or averaged.mistakes_of(server, case)
    judge("kill -9 with averaged weights", f"after {seconds:.3f} s", mistakes)
