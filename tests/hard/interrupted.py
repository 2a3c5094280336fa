"""Trainings that are broken off and go on: where they run, and whether they end as one that nobody disturbed."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hard.forked import TRAIN, Case, Outcome, Server
from headscope.files import PARTIAL
from training_runs import reviews, weights_of, write


def training(
    folder: Path, temporary: Path | None = None, words: Sequence[str] = (), **fault: Any
) -> Case:
    """Return a small training in an empty folder; temporary files lie in `temporary`, or in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    temporary = temporary or folder / "tmp"
    for path in (folder, temporary):
        path.mkdir(parents=True, exist_ok=True)
    write(folder / "reviews.csv", reviews(80))
    return Case([*TRAIN, *words], str(folder), environment={"TMPDIR": str(temporary)}, **fault)


@dataclass
class Whole:
    """A training that nobody disturbed: what the others must end as."""

    run: Path
    weights: dict[str, bytes]
    metrics: Any
    seconds: float

    @classmethod
    def trained(cls, server: Server, folder: Path, words: Sequence[str] = ()) -> "Whole":
        outcome = server.run(training(folder, words=words))
        assert outcome.mistakes([0]) == [], outcome.stderr
        run = folder / "outputs/run"
        return cls(run, weights_of(run), _metrics(folder), outcome.seconds)

    def mistakes_of(self, server: Server, broken: Case) -> list[str]:
        """Go on with a training that was broken off, and say in what it differs; an empty list if in nothing."""
        folder = Path(broken.folder)
        can_resume = (folder / "outputs/run/config.yaml").exists()
        arguments = ["train", "resume=outputs/run"] if can_resume else broken.arguments
        outcome: Outcome = server.run(
            replace(broken, arguments=arguments, do="", kill_after=None, largest_file=None)
        )
        found = [f"then {' '.join(arguments[:2])}: {mistake}" for mistake in outcome.mistakes([0])]
        if found:
            return found
        if weights_of(folder / "outputs/run") != self.weights:
            found.append("other weights than without the break")
        metrics = _metrics(folder)
        other = [key for key in self.metrics | metrics if self.metrics.get(key) != metrics.get(key)]
        if other:
            found.append(f"other metrics than without the break: {', '.join(other)}")
        places = [folder / "outputs", folder / "cache", Path(broken.environment["TMPDIR"])]
        left = sorted(path.name for place in places for path in place.rglob("*"))
        partial = [name for name in left if name.startswith(PARTIAL)]
        left = [name for name in left if name.startswith((".", "tmp")) and name not in partial[:1]]
        if left:  # a killed writer leaves one temporary file
            found.append(f"left behind: {', '.join(left)}")
        return found


def _metrics(folder: Path) -> dict[str, Any]:
    text = (folder / "outputs/run/metrics.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    for key in ("seconds", "peak_memory_gib", "versions"):
        found.pop(key, None)
    return found
