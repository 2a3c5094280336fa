"""Trainings that are broken off and go on: where they run, and whether they end as one that nobody disturbed."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hard.forked import TRAIN, Case, Server
from headscope.ground.files import PARTIAL
from training_runs import reviews, weights_of, write


def training(folder: Path, words: Sequence[str] = (), **fault: Any) -> Case:
    """Return a small training in an empty folder, which has the temporary files too."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    write(folder / "reviews.csv", reviews(80))
    return Case([*TRAIN, *words], str(folder), {"TMPDIR": str(folder / "tmp")}, **fault)


@dataclass
class Whole:
    """A training that nobody disturbed: what the others must end as."""

    run: Path
    weights: dict[str, bytes]
    metrics: Any
    seconds: float

    @classmethod
    def trained(cls, server: Server, folder: Path, words: Sequence[str] = ()) -> "Whole":
        outcome = server.run(training(folder / "whole", words))
        assert outcome.mistakes([0]) == [], outcome.stderr
        run = folder / "whole/outputs/run"
        return cls(run, weights_of(run), _metrics(run), outcome.seconds)

    def mistakes_of(self, server: Server, broken: Case) -> list[str]:
        """Go on with a training that was broken off, and say in what it differs; an empty list if in nothing."""
        folder = Path(broken.folder)
        run = folder / "outputs/run"
        can_resume = (run / "config.yaml").exists()
        arguments = ["train", "resume=outputs/run"] if can_resume else broken.arguments
        case = replace(broken, arguments=arguments, do="", kill_after=None, largest_file=None)
        if found := server.run(case).mistakes([0]):
            return [f"then {' '.join(arguments[:2])}: {mistake}" for mistake in found]
        if weights_of(run) != self.weights:
            found.append("other weights than without the break")
        metrics = _metrics(run)
        other = [key for key in self.metrics | metrics if self.metrics.get(key) != metrics.get(key)]
        if other:
            found.append(f"other metrics than without the break: {', '.join(other)}")
        left = [path.name for path in folder.rglob("*") if path.name.startswith((".", "tmp_"))]
        partial = [name for name in left if name.startswith(PARTIAL)]
        if left != partial[:1]:  # a killed writer leaves one temporary file
            found.append(f"left behind: {', '.join(left)}")
        return found


def _metrics(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    kept = {"seconds", "versions"}
    return {key: value for key, value in found.items() if key not in kept}
