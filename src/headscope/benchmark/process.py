"""Running a command as a user would, and reading off its seconds and its largest memory."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
STATUS = Path("/proc/self/status")
# The kernel counts a process's memory from before its own program begins, when it still has its parent's, and a parent
# that has imported torch is larger than many a command. So a process of a few MiB stands between and measures.
BETWEEN = """
import os, sys, time
start = time.perf_counter()
process = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
seconds = time.perf_counter() - start
os.write(int(sys.argv[1]), b"[%r, %r, %r]" % (seconds, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)))
"""


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
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output, tempfile.TemporaryFile("w+") as measured:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", BETWEEN, str(measured.fileno()), sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[measured.fileno()],
            check=True,
        )
        measured.seek(0)
        seconds, peak_mib, code = json.load(measured)
        output.seek(0)
        written = output.read()
    if code != exit_code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {code}: {written[-2000:]}")
    return Finished(seconds, peak_mib, written)


def own_memory(field: str) -> float:
    """Return a line of the kernel's account of this process in MiB; 0 where there is no such account.

    RssAnon is its own memory now, VmRSS that with the pages of mapped files, VmHWM the most that VmRSS ever was. VmHWM
    and not getrusage, which begins with the parent's memory.
    """
    lines = STATUS.read_text(encoding="utf-8").splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), 0.0)
