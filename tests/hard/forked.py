"""Commands in forked processes: torch is imported once, so that a case costs what it does and not 10 s of imports.

multiprocessing's fork server imports all that a command needs, and forks a child for each case, which runs the package
as `python -m` does. A fault is put into a child by an audit hook, which Python calls before each file operation of its
own: it may kill the process there, send it signals, close its standard output, or say that the disk is full.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 300.0  # seconds; what takes longer hangs
MEMORY = 12 << 30  # bytes of address space; what asks for more must not take the machine along
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "200",
}
WRITE = os.O_WRONLY | os.O_CREAT
WRITES = WRITE | os.O_RDWR  # any of these
NEEDS_SPACE = {"open", "os.mkdir", "os.link", "os.symlink"}
CHANGES = (NEEDS_SPACE - {"open"}) | {"os.rename", "os.remove", "os.rmdir", "os.truncate"}
# A training of a second on reviews.csv; on one thread and in float32 it gives the same weights to the bit.
TRAIN = [
    "train", "name=run", "outputs_dir=outputs", "data=files", "data.path=reviews.csv", "data.cache_dir=cache",
    "data.max_length=32", "data.tokens_per_batch=256", "tokenizer.vocab_size=300", "model.d_model=12",
    "model.num_heads=3", "model.feedforward_size=24", "trainer.max_epochs=3", "trainer.epoch_steps=1", "trainer.precision=32-true",
    "trainer.accelerator=cpu", "baseline=false", "inspection.num_probes=2", "inspection.max_tokens=16",
]  # fmt: skip


def some(cases: Iterable[Any]) -> list[Any]:
    """Return the first case alone, unless `make test-hard` asks for all."""
    return list(cases) if os.environ.get("HARD") == "full" else [next(iter(cases))]


@dataclass
class Case:
    """A command, where it runs, and what happens to it: `do` at the moment `at`.

    `at` is the number of the operation that changes files below `folder` or $TMPDIR, counted from 1, or a part of a
    path that is opened or changed.
    """

    arguments: Sequence[str]
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    do: str = ""  # kill, full, signal or close
    at: int | str = 0
    signals: Sequence[int] = ()
    kill_after: float | None = None  # seconds after its start
    largest_file: int | None = None  # bytes; the process is killed as it writes a longer one


@dataclass
class Outcome:
    """How a command ended: code is negative for a signal that ended it, and None if it went on past the limit."""

    code: int | None
    stdout: str
    stderr: str
    seconds: float

    def mistakes(self, codes: Sequence[int | None] = (0, 2)) -> list[str]:
        """Say what is wrong with this end, as a user would see it."""
        found = []
        if self.code not in codes:
            found.append(f"exit code {self.code}, not {' or '.join(map(str, codes))}")
        if "Traceback (most recent call last)" in self.stderr:
            found.append(f"a traceback: {self.stderr.strip().splitlines()[-1][:300]}")
        elif self.code in (1, 2):
            said = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
            if len(said) != 1 or len(self.stderr) > 5000:
                found.append(f"{len(said)} lines begin with 'error: ': {self.stderr[-500:]!r}")
        return found


class Server:
    """The process that forks; one for each worker of pytest."""

    def __init__(self) -> None:
        os.environ.update(ENVIRONMENT)
        self.context = multiprocessing.get_context("forkserver")
        names = (
            "cli.main",
            "training.train",
            "cli.evaluate",
            "cli.predict",
            "cli.inspect",
            "proof.verify",
        )
        self.context.set_forkserver_preload([f"headscope.{name}" for name in names])  # fmt: skip
        first = self.context.Process(target=os.getpid)  # the server imports before it forks
        first.start()
        first.join()

    def run(self, case: Case) -> Outcome:
        """Run a case to its end, or to its limit."""
        with tempfile.TemporaryDirectory() as kept:
            out = Path(kept, "stdout")
            err = Path(kept, "stderr")
            started = time.perf_counter()
            process = self.context.Process(target=_child, args=(case, out, err))
            process.start()
            process.join(case.kill_after or LIMIT)
            hangs = process.is_alive() and case.kill_after is None
            process.kill()
            process.join()
            said = [
                path.read_text("utf-8", "replace") if path.exists() else "" for path in (out, err)
            ]
            code = None if hangs else process.exitcode
            return Outcome(code, *said, time.perf_counter() - started)


def _child(case: Case, out: Path, err: Path) -> None:
    """Become the command."""
    import resource

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reader, writer = os.pipe()
    if case.do != "close":
        writer = os.open(out, WRITE)
    for number, handle in enumerate(
        (os.open(os.devnull, os.O_RDONLY), writer, os.open(err, WRITE))
    ):
        os.dup2(handle, number)  # fmt: skip
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(case.folder)
    os.environ.update(case.environment)
    tempfile.tempdir = None
    sys.argv = ["headscope", *case.arguments]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if case.largest_file is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.largest_file, case.largest_file))
    if case.do:
        _put_fault(case, reader)
    with suppress(BrokenPipeError):
        runpy.run_module("headscope", run_name="__main__")


def _put_fault(case: Case, reader: int) -> None:
    """Let the fault happen at its moment."""
    places = filter(None, (case.folder, case.environment.get("TMPDIR")))
    roots = tuple(map(os.path.realpath, places))
    counted = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal counted
        if event != "open" and event not in CHANGES:
            return
        named = [each for each in arguments[:2] if isinstance(each, str | bytes | os.PathLike)]
        paths = [os.fsdecode(path) for path in named]
        if not any(os.path.realpath(path).startswith(roots) for path in paths):
            return
        is_change = event != "open" or bool(arguments[2] & WRITES)
        counted += is_change
        if case.do == "full":
            if is_change and event in NEEDS_SPACE and counted >= int(case.at):
                raise OSError(28, "No space left on device", paths[0])
        elif (is_change and counted == case.at) or (
            isinstance(case.at, str) and any(case.at in path for path in paths)
        ):
            case.at = -1  # once
            if case.do == "close":
                os.close(reader)
            for number in [signal.SIGKILL] if case.do == "kill" else case.signals:
                os.kill(os.getpid(), number)

    sys.addaudithook(hook)
