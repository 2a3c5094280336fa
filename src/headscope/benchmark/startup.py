"""How long a user waits for an answer that needs no model: help, and a mistake in the configuration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
from headscope.benchmark.process import ROOT, Finished, finished
from headscope.benchmark.timing import Timing

WANTED = 0.6  # seconds, for help and for a mistake
MISTAKE = 2  # the exit code
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Start:
    """A command whose seconds are of starting up alone.

    Attributes:
        name: as the table has it.
        arguments: what Python is started with.
        exit_code: what it ends with.
        is_ours: an answer of ours, which the target is about.
        is_peer: a package that we are set beside.
    """

    name: str
    arguments: tuple[str, ...]
    exit_code: int = 0
    is_ours: bool = False
    is_peer: bool = False


def starts() -> list[Start]:
    """Return what is timed: the help of every script, two mistakes, what scripts import first, and yardsticks."""
    scripts = sorted(path.name for path in (ROOT / "scripts").glob("*.py"))
    return [
        Start("python -c pass", ("-c", "pass")),
        Start("import headscope.commands.entry", ("-c", "import headscope.commands.entry")),
        *(Start(f"{script} --help", (f"scripts/{script}", "--help"), is_ours=True) for script in scripts),
        *(
            Start(f"train.py {wrong}", ("scripts/train.py", wrong), MISTAKE, is_ours=True)
            for wrong in ("model.num_heads=3", "model.depth=3")  # a value that cannot be, a key that is none
        ),
        *(Start(f"import {name}", ("-c", f"import {name}"), is_peer=True) for name in ("torch", "lightning")),
    ]


def measure(config: BenchmarkConfig, device: torch.device, tell: Tell) -> list[Table]:
    """Time starting up, each command in a process of its own, in turn; the device is of no matter."""
    chosen = [start for start in starts() if config.peers or not start.is_peer]
    return [_table(chosen, _in_turn(chosen, config.rounds, tell))]


def _in_turn(chosen: Sequence[Start], rounds: int, tell: Tell) -> list[list[Finished]]:
    """Run every command once unseen, which fills the system's cache of files, then all of them in turn."""
    taken: list[list[Finished]] = [[] for _ in chosen]
    for number in range(rounds + 1):
        for start, done in zip(chosen, taken, strict=True):
            tell(f"{start.name}, " + (f"round {number} of {rounds}" if number else "warming up"))
            one = finished(start.arguments, exit_code=start.exit_code)
            if number:
                done.append(one)
    return taken


def _table(chosen: Sequence[Start], taken: Sequence[Sequence[Finished]]) -> Table:
    timings = [Timing(tuple(one.seconds for one in done)) for done in taken]
    rows = [
        (
            start.name,
            f"{timing.median:.3f}",
            f"{max(timing.seconds):.3f}",
            f"{min(timing.seconds):.3f}",
            f"{median(one.peak_mib for one in done):,.0f}",
        )
        for start, timing, done in zip(chosen, timings, taken, strict=True)
    ]
    ours = {start.name: timing.median for start, timing in zip(chosen, timings, strict=True) if start.is_ours}
    columns = ("command", "median, seconds", "slowest", "fastest", "peak MiB")
    return Table("Starting up", columns, rows, _notes(ours, len(taken[0])))


def _notes(ours: dict[str, float], rounds: int) -> tuple[str, ...]:
    missed = {name: seconds for name, seconds in ours.items() if seconds >= WANTED}
    slowest = max(ours, key=ours.__getitem__)
    verdict = f"the slowest median of help and mistakes is {ours[slowest]:.2f} s ({slowest})"
    others = f" {len(missed)} of {len(ours)} commands are over it: {', '.join(missed)}." if missed else ""
    return (
        f"From the start of a process to its end, {rounds} rounds in turn, after one that is not counted. A mistake "
        f"ends with one message and exit code {MISTAKE}.",
        f"Target {'MISSED' if missed else 'met'}: {verdict}, wanted under {WANTED:g} s.{others}",
    )
