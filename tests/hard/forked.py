"""Commands in forked processes: torch is imported once, so that a case costs what it does and not 10 s of imports.

A server (this file as a program) imports all that a command needs, and forks a child for each case that it is sent.
The child is a session of its own, with stdin, stdout and stderr of its own; it runs the package as `python -m` does,
and ends as Python would. `real` starts `python -m headscope` instead, to show that both answer the same.

A fault is put into a child by an audit hook, which Python calls before each file operation of its own: it may kill the
process there, send it signals, close its standard output, or say that the disk is full.
"""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# The fixture `judge`: kind, name, and what is wrong.
Judge = Callable[[str, str, Sequence[str]], None]
LIMIT = 60.0  # seconds; what takes longer hangs
MEMORY = 12 << 30  # bytes of address space; what asks for more must not take the machine along
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "200",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEEDS_SPACE = {"open", "os.mkdir", "os.link", "os.symlink", "os.fsync"}
CHANGES = (NEEDS_SPACE - {"open"}) | {"os.rename", "os.remove", "os.rmdir", "os.truncate"}


# A training of a second on reviews.csv; on one thread and in float32 it gives the same weights to the bit.
TRAIN = [
    "train", "name=run", "outputs_dir=outputs", "data=files", "data.path=reviews.csv", "data.cache_dir=cache",
    "data.max_length=32", "data.tokens_per_batch=256", "tokenizer.vocab_size=300", "model.d_model=12",
    "model.num_heads=3", "model.feedforward_size=24", "trainer.max_epochs=3", "trainer.precision=32-true",
    "trainer.accelerator=cpu", "baseline=false", "inspection.num_probes=2", "inspection.max_tokens=16",
]  # fmt: skip


@dataclass
class Case:
    """A command, where it runs, and what happens to it.

    `at` names the moment of the fault: the number of the operation that changes files below `folder` or $TMPDIR,
    counted from 1 (the same again, such as appending to a log, counts once), or a part of a path that is opened or
    changed.
    """

    arguments: Sequence[str]
    folder: str
    stdin: str = os.devnull
    environment: dict[str, str] = field(default_factory=dict)
    limit: float = LIMIT
    do: str = (
        ""  # kill, full, signal, close: what happens at that moment; or read-only: `at`, always
    )
    at: int | str = 0
    signals: Sequence[int] = ()
    kill_after: float | None = None  # seconds after its start
    largest_file: int | None = None  # bytes; the process is killed as it writes a longer one
    memory: int = MEMORY


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
        if self.code is None:
            found.append("hangs")
        elif self.code not in codes:
            found.append(f"exit code {self.code}, not {' or '.join(map(str, codes))}")
        if "Traceback (most recent call last)" in self.stderr:
            last = [line for line in self.stderr.splitlines() if line.strip()][-1]
            found.append(f"a traceback: {last[:300]}")
        elif self.code in (1, 2):
            said = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
            if len(said) != 1:
                found.append(f"{len(said)} lines begin with 'error: ': {self.stderr[-500:]!r}")
            if len(self.stderr) > 5000:
                found.append(f"a message of {len(self.stderr):,} characters")
        return found


class Server:
    """The process that forks; one for each worker of pytest."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment_with(Case([], "")),
        )  # fmt: skip
        assert self._line() == "ready\n"

    def run(self, case: Case) -> Outcome:
        """Run a case to its end, or to its limit."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(case)) + "\n")
        self.process.stdin.flush()
        return Outcome(**json.loads(self._line()))

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the fork server has ended"
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def is_reached(moment: float | Path, started: float) -> bool:
    if isinstance(moment, Path):
        return moment.exists()
    return time.perf_counter() - started > moment


def real(case: Case, signals: Sequence[tuple[float | Path, int]] = ()) -> Outcome:
    """Run a case by the real command, and send it signals so many seconds after its start, or once a path is there."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        Path(case.stdin).open() as stdin,
    ):
        started = time.perf_counter()
        reader, writer = os.pipe()
        os.close(reader)  # what is written to `writer` meets nobody
        process = subprocess.Popen(
            [sys.executable, "-m", "headscope", *case.arguments],
            cwd=case.folder, env=environment_with(case), stdin=stdin, stdout=writer if case.do == "close" else out,
            stderr=err, start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        try:
            for moment, number in signals:
                while process.poll() is None and not is_reached(moment, started):
                    time.sleep(0.01)
                process.send_signal(number)
            code: int | None = process.wait(case.limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = time.perf_counter() - started
        out.seek(0)
        err.seek(0)
        return Outcome(code, out.read(), err.read(), seconds)


def environment_with(case: Case) -> dict[str, str]:
    """Return the environment of a process of its own: one thread, no network, what `sys.path` has."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = os.environ | ENVIRONMENT | case.environment | paths
    found.pop("PYTHONWARNINGS", None)
    return found


# What follows runs in the server and its children alone.


def serve() -> None:
    """Import what commands need, and answer cases until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what imports print
    _import_all()
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(asdict(_fork(Case(**json.loads(line))))) + "\n")
        answers.flush()


def _import_all() -> None:
    import gc
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in (
        "headscope.cli.main", "headscope.training.train", "headscope.cli.evaluate", "headscope.cli.predict",
        "headscope.cli.inspect", "headscope.cli.export", "headscope.proof.verify", "headscope.proof.trace",
        "onnxscript", "torch.onnx._internal.exporter._core", "datasets", "pyarrow.parquet", "sklearn.linear_model", "sklearn.feature_extraction.text",
    ):  # fmt: skip
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _fork(case: Case) -> Outcome:
    kept = tempfile.mkdtemp()  # no TemporaryDirectory: the child's exit would remove it
    names = [Path(kept, name) for name in ("stdout", "stderr")]
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _child(case, *names)
    code = _waited(child, case)
    seconds = time.perf_counter() - started
    out, err = (
        name.read_text(encoding="utf-8", errors="replace")[:200_000] if name.exists() else ""
        for name in names
    )
    shutil.rmtree(kept)
    return Outcome(code, out, err, seconds)


def _waited(child: int, case: Case) -> int | None:
    """Wait for the end, and return the exit code; None past the limit. Whatever it has started ends with it."""
    started, was_killed = time.perf_counter(), False
    try:
        while True:
            passed = time.perf_counter() - started
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return None if was_killed else os.waitstatus_to_exitcode(status)
            if passed > case.limit and not was_killed:
                was_killed = True
                os.kill(child, signal.SIGKILL)
            elif case.kill_after is not None and passed > case.kill_after:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.003)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def _child(case: Case, out: Path, err: Path) -> None:
    """Become the command; never returns."""
    code = 1
    try:
        os.setsid()
        reader = _set_up(case, out, err)
        _put_fault(case, reader)
        with _ends_as_python():
            runpy.run_module("headscope", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        code = _flushed(code)
        os._exit(code)


def _set_up(case: Case, out: Path, err: Path) -> int | None:
    """Give the child its files, folder and limits; return the end of standard output that a reader would hold."""
    import resource

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    file = os.O_WRONLY | os.O_CREAT
    reader, writer = os.pipe() if case.do == "close" else (None, os.open(out, file))
    for number, handle in enumerate((os.open(case.stdin, os.O_RDONLY), writer, os.open(err, file))):
        os.dup2(handle, number)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(case.folder)
    os.environ.update(case.environment)
    tempfile.tempdir = None
    sys.argv = ["headscope", *case.arguments]
    resource.setrlimit(resource.RLIMIT_AS, (case.memory, case.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if case.largest_file is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.largest_file, case.largest_file))
    return reader


@contextmanager
def _ends_as_python() -> Iterator[None]:
    """Do what the interpreter does at its end, whatever the end is: threads, exit handlers."""
    import atexit
    import threading

    try:
        yield
    except (SystemExit, BaseException) as end:
        if not isinstance(end, SystemExit):
            import traceback

            traceback.print_exc()
            end = SystemExit(-signal.SIGINT if isinstance(end, KeyboardInterrupt) else 1)
        raise end from None
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def _flushed(code: int) -> int:
    """Flush as the interpreter does: what cannot be written is said, and gives the code 120."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):
            said = f"{type(error).__name__}: {error}"
            print(f"Exception ignored in: {sys.stdout!r}\n{said}", file=sys.stderr)
        code = 120
    with suppress(OSError):
        sys.stderr.flush()
    return code if code >= 0 else 128 - code


def _put_fault(case: Case, reader: int | None) -> None:
    """Let the fault happen at its moment."""
    if not case.do:
        return
    roots = tuple(
        map(os.path.realpath, filter(None, (case.folder, case.environment.get("TMPDIR"))))
    )
    counted, before = 0, ""

    def at(event: str, path: str, is_change: bool) -> None:
        nonlocal counted, before
        if is_change := is_change and before != (before := f"{event} {path}"):
            counted += 1
        is_here = is_change and counted == case.at
        is_at = case.at in path if isinstance(case.at, str) else is_here
        if case.do == "full" and is_change and event in NEEDS_SPACE and counted >= int(case.at):
            raise OSError(28, "No space left on device", str(path))
        if not is_at or case.do == "full":
            return
        if isinstance(case.at, str):
            case.at = -1  # once
        if case.do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif case.do == "close":
            os.close(reader)  # type: ignore[arg-type]
        else:
            for number in case.signals:
                os.kill(os.getpid(), number)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" and event not in CHANGES:
            return
        named = [path for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike)]
        paths = [os.fsdecode(path) for path in named]
        if case.do == "read-only" and (event != "open" or arguments[2] & WRITES):
            here = os.path.realpath(f"{case.folder}/{case.at}")
            if any(os.path.realpath(path).startswith(here) for path in paths):
                raise OSError(30, "Read-only file system", paths[0])
        if paths and any(os.path.realpath(path).startswith(roots) for path in paths):
            flags = arguments[2] if event == "open" else WRITES
            at(event, " ".join(paths[: 1 if event == "open" else 2]), bool(flags & WRITES))

    fsync = os.fsync

    def fsync_with_event(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        hook("os.fsync", (Path(f"/proc/self/fd/{number}").readlink(),))
        fsync(handle)

    os.fsync = fsync_with_event
    sys.addaudithook(hook)


if __name__ == "__main__":
    serve()
