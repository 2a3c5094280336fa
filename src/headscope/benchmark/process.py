"""Running a command as a user would, and reading off its seconds and its largest memory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]  # where scripts/ and configs/ are


@dataclass(frozen=True)
class Finished:
    """A command that has ended.

    Attributes:
        seconds: from start to end.
        peak_mib: most resident memory, in MiB, as the kernel counted it.
        output: what it wrote to standard output.
    """

    seconds: float
    peak_mib: float
    output: str


def finished(arguments: Sequence[str], env: Mapping[str, str] | None = None, exit_code: int = 0) -> Finished:
    """Run this Python with these arguments from the repository's root, and wait for it.

    Raises:
        RuntimeError: with the end of what it wrote, if it ends with another exit code.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        written = output.read()
    if process.returncode != exit_code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}: {written[-2000:]}")
    return Finished(seconds, usage.ru_maxrss / 1024, written)
