"""Results of single runs, kept on disk: a suite that was stopped goes on where it was; rows can be run one by one."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from headscope.benchmark.accuracy.plan import NOT_OF_THE_SPLIT, Run
from headscope.benchmark.accuracy.result import Result
from headscope.data.cache import content_key
from headscope.data.config import EMBEDDED, is_local

SOURCE = Path(__file__).parents[2]
NO_MATTER = ("name", "outputs_dir", "resume", "seed", "baseline", "inspection")  # the seed is named apart
OF_ALL = ("benchmark/accuracy/one_run.py", "benchmark/accuracy/result.py")
OF_THE_SPLIT = (
    *OF_ALL, "data", "model/objective.py", "training/baseline.py", "training/scoring.py", "training/thresholds.py",
    "benchmark/accuracy/choosing.py",
)  # fmt: skip
CODE = {  # what a result depends on, below the source folder
    "tfidf": OF_THE_SPLIT,
    "fasttext": (*OF_THE_SPLIT, "benchmark/accuracy/fast_text.py"),
    "training": (*OF_ALL, "attention", "model", "data", "training"),
}


@dataclass(frozen=True)
class Record:
    """A result, and where it comes from.

    Attributes:
        key: of what was run: kind, seed, settings and the data's content.
        code: digest of the code that it depends on.
        data, row, seed: for a reader; the key stands for them.
        wall: seconds of the process, from its start to its end.
        commit, device, date: which code, on what, when.
        result: what came of it.
        jobs, threads: how many ran at a time, and what each had; 0 where an older version did not keep it.
    """

    key: str
    code: str
    data: str
    row: str
    seed: int
    wall: float
    commit: str
    device: str
    date: str
    result: Result
    jobs: int = 0
    threads: int = 0

    @property
    def again(self) -> float:
        """Seconds of the process if it had nothing to choose."""
        choosing = self.result.choosing_seconds
        return self.wall - choosing + (self.result.seconds if choosing else 0.0)


class Kept:
    """The records in a folder: results.jsonl, a line for each, of which a later one counts more.

    Args:
        folder: made if it is not there.
        same_code: whether a result of other code is of no use.
    """

    def __init__(self, folder: Path, same_code: bool = True) -> None:
        self.folder, self.same_code = folder, same_code
        self.path = folder / "results.jsonl"
        self.records = {self._name(record.key, record.code): record for record in self._read()}

    def find(self, run: Run) -> Record | None:
        """Return what is kept of a run, if anything."""
        return self.records.get(self._name(key_of(run), code_of(run.row.kind)))

    def add(self, record: Record) -> None:
        """Keep a record. A line is written at once, so that other processes can add theirs to the same file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(asdict(record)))  # a line before that was cut off stays a line of its own
        self.records[self._name(record.key, record.code)] = record

    def _name(self, key: str, code: str) -> str:
        return f"{key} {code}" if self.same_code else key

    def _read(self) -> Iterator[Record]:
        """Yield what can be read: a line may have been cut off, or be of an earlier form."""
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            try:
                fields = json.loads(line)
                yield Record(**fields | {"result": Result(**fields["result"])})
            except (ValueError, TypeError, KeyError):
                continue


def key_of(run: Run) -> str:
    """Return a name that changes with whatever is run: wherever the same data lie, it is the same."""
    return content_key([run.row.kind, str(run.seed), json.dumps(_settings(run), sort_keys=True)])


def _settings(run: Run) -> dict[str, Any]:
    whole = asdict(run.config)
    data = {key: fingerprint(value) if key.endswith("path") else value for key, value in whole["data"].items()}
    del data["cache_dir"]
    if run.row.kind != "training":
        return {key: value for key, value in data.items() if key not in NOT_OF_THE_SPLIT}
    model = whole["model"] | {"path": fingerprint(whole["model"]["path"])}
    return {key: value for key, value in whole.items() if key not in NO_MATTER} | {"data": data, "model": model}


@lru_cache
def fingerprint(path: str | None) -> str | None:
    """Return a digest of a file, or of all files in a folder with their names; a Hub id stands for itself."""
    if path is None or path == EMBEDDED or not is_local(path):
        return path
    place = Path(path).expanduser()
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    return content_key(part for file in files for part in (str(file.relative_to(place)), _digest(file)))


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()


@lru_cache
def code_of(kind: str) -> str:
    """Return a digest of the code that a kind's results depend on."""
    places = [SOURCE / name for name in CODE[kind]]
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    return content_key(file.read_text(encoding="utf-8") for file in files)
