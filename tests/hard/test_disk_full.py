"""A disk that is full: one message, and a run that goes on once there is room again."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hard.forked import Judge, Server
from hard.interrupted import Whole, training

# A whole training takes about 900.
KIB = [8, 24, 40, 60, 80, 120, 160, 200, 250, 300, 400, 500, 600, 700]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system in memory, whose size is set by `mount -o remount`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("takes the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


@pytest.mark.parametrize("kib", KIB)
def test_a_disk_that_becomes_full(
    server: Server, whole: Whole, judge: Judge, disk: Path, kib: int
) -> None:
    case = training(disk / "here")
    used = subprocess.run(["du", "-sk", disk], capture_output=True, text=True).stdout.split()[0]
    resize(disk, f"{int(used) + kib}k")
    found = server.run(case).mistakes([1, 2])
    resize(disk, "64m")
    judge("disk full", f"{kib} KiB left", found + whole.mistakes_of(server, case))


@pytest.mark.parametrize("number", [1, 4, 9, 15, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120])
def test_no_room_from_an_operation_on(
    server: Server, whole: Whole, judge: Judge, tmp_path: Path, number: int
) -> None:
    """As above without a file system of its own: whatever needs room raises ENOSPC from some operation on."""
    case = training(tmp_path / "here", do="full", at=number)
    found = server.run(case).mistakes([1, 2])
    found += whole.mistakes_of(server, case)
    judge("no room for a new file", f"from operation {number} on", found)
