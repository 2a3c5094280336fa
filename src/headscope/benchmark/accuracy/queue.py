"""Running what is not kept yet, several at a time, and saying how long it will take."""

import datetime
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from threading import Lock

import torch

from headscope.benchmark.accuracy.kept import Kept, Record, code_of, key_of
from headscope.benchmark.accuracy.plan import Run
from headscope.benchmark.accuracy.result import Result
from headscope.benchmark.machine import commit, device_name
from headscope.benchmark.process import finished
from headscope.errors import ConfigError

Found = dict[Run, Record]


@dataclass
class Queue:
    """Runs that are worked off.

    Attributes:
        kept: where results are taken from and put.
        jobs: runs at a time, each with its share of the threads.
        device: where they compute.
        tell: called with what is running and how long it will take.
    """

    kept: Kept
    jobs: int
    device: torch.device
    tell: Callable[[str], object]

    def results(self, runs: Sequence[Run]) -> Found:
        """Return the record of every run: first seeds first, since the others take what they have chosen.

        Raises:
            ConfigError: with a run's own message, if it cannot be done; what was found until then is kept.
        """
        found = {run: record for run in runs if (record := self.kept.find(run))}
        for phase in ([run for run in runs if run.seed == 0], [run for run in runs if run.seed]):
            self._work_off([run for run in phase if run not in found], runs, found)
        return {run: found[run] for run in runs}  # in their own order, whichever was ready first

    def _work_off(self, pending: Sequence[Run], runs: Sequence[Run], found: Found) -> None:
        chosen = {run.place: record.result.chosen for run, record in found.items() if run.row.kind == "fasttext"}
        lock = Lock()

        def work(run: Run) -> None:
            left = [each for each in runs if each not in found]
            self.tell(f"{run.words}; {len(found)} of {len(runs)} runs done, {time_left(left, found, self.jobs)}")
            record = self._run(run, chosen.get(run.place))
            with lock:
                self.kept.add(record)
                found[run] = record

        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for future in as_completed([pool.submit(work, run) for run in pending]):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(self, run: Run, chosen: str | None) -> Record:
        """Run it in a process of its own, into a new folder below `kept` if it is a training."""
        key = key_of(run)
        folder = self.kept.folder / "runs" / f"{run.data}-{run.row.name}-{run.seed}-{key[:8]}"
        shutil.rmtree(folder, ignore_errors=True)  # one that was stopped, or of other code
        settings = asdict(replace(run.config, name=folder.name, outputs_dir=str(folder.parent.resolve())))
        asked = json.dumps({"kind": run.row.kind, "config": settings, "chosen": chosen})
        threads, code_is_of = max(1, torch.get_num_threads() // self.jobs), commit()
        share = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        done = finished(["-m", "headscope.benchmark.accuracy.one_run", asked], share)
        answer = json.loads(done.output.strip().splitlines()[-1])
        if "error" in answer:
            raise ConfigError(f"{run.words}: {answer['error']}")
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        return Record(
            key=key, code=code_of(run.row.kind), data=run.data, row=run.row.name, seed=run.seed, wall=done.seconds,
            commit=code_is_of, device=device_name(self.device), date=today, result=Result(**answer),
            jobs=self.jobs, threads=threads,
        )  # fmt: skip


def time_left(left: Sequence[Run], found: Found, jobs: int) -> str:
    """Say how long the runs will take that are left: like those of the same data and row, or row, or all."""
    expected = [seconds for run in left if (seconds := _expected(run, found)) is not None]
    if len(expected) < len(left):
        return "time left not known yet"
    minutes = sum(expected) / jobs / 60
    return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


def _expected(run: Run, found: Found) -> float | None:
    known = list(found.items())  # another thread may add to it
    alike = [record for other, record in known if other.place == run.place]
    alike = alike or [record for other, record in known if other.row.name == run.row.name]
    alike = alike or [record for _, record in known]
    return fmean(record.wall if run.seed == 0 else record.again for record in alike) if alike else None
