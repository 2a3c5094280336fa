"""What recording attention heads costs: the same training with it and without it, run as a user would run it."""

import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from headscope.benchmark import process
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
from headscope.inspection.record import FOLDER, read_index
from headscope.training.config import TrainerConfig

TARGET = 1.02  # whole run with recording / without
VARIANTS = {"recorded": "inspection=default", "not": "inspection=off"}


@dataclass(frozen=True)
class Run:
    """What one run of scripts/train.py took, in seconds.

    Attributes:
        whole: the command from start to end.
        training: from the first step to the last, step 0's record included.
        recording: of it, by the recording's own clock.
        causes: after training, by their own clock, with the page of the texts that the model is most wrong about.
        steps: optimizer steps.
        records: how many were made.
        record_bytes: mean size of a record's file.
        event_bytes: size of the event files, which TensorBoard reads.
    """

    whole: float
    training: float
    recording: float
    causes: float
    steps: int
    records: int
    record_bytes: float
    event_bytes: int


def measure(config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]) -> list[Table]:
    """Train one epoch of the default run with recording and without, in turn, and reckon the default run from it.

    Args:
        config: `rounds` counts; the sizes of the encoders do not, since the default run is what is measured.
        device: where to train.
        tell: called with what is running now.
    """
    with tempfile.TemporaryDirectory() as folder:
        tell("warming up: texts, tokenizer and ids are made and cached")
        _train(Path(folder), "inspection=off", device, "trainer.max_steps=5")
        runs: dict[str, list[Run]] = {name: [] for name in VARIANTS}
        for number in range(config.rounds):
            for name, inspection in VARIANTS.items():
                tell(f"{name}, round {number + 1} of {config.rounds}")
                runs[name].append(_train(Path(folder), inspection, device))
    return [_measured(runs["recorded"], runs["not"]), _reckoned(runs["recorded"], runs["not"])]


def _train(outputs: Path, inspection: str, device: torch.device, *settings: str) -> Run:
    """Run one epoch of the default run, and read what it left; the folder is then taken away."""
    accelerator = "gpu" if device.type == "cuda" else "cpu"
    finished = process.finished(
        [
            "scripts/train.py", f"outputs_dir={outputs}", "name=run", "baseline=false", "trainer.max_epochs=1",
            "trainer.progress=false", f"trainer.accelerator={accelerator}", inspection, *settings,
        ]
    )  # fmt: skip
    run = _read(outputs / "run", finished.seconds)
    shutil.rmtree(outputs / "run")
    return run


def _read(folder: Path, whole: float) -> Run:
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    seconds = metrics["seconds"]
    steps = read_index(folder / FOLDER).steps if (folder / FOLDER).exists() else []
    return Run(
        whole,
        seconds["training"],
        seconds.get("inspection (within training)", 0.0),
        seconds.get("causes (after training)", 0.0) + seconds.get("most wrong", 0.0),
        metrics["training"]["steps"],
        len(steps),
        statistics.fmean(step.bytes for step in steps) if steps else 0.0,
        sum(path.stat().st_size for path in folder.glob("events.*")),
    )


def _measured(recorded: Sequence[Run], plain: Sequence[Run]) -> Table:
    """Return medians over rounds, and the medians of the differences and ratios of a round's two runs."""
    pairs = list(zip(recorded, plain, strict=True))
    rows = []
    for title, name in (("whole command, s", "whole"), ("training, s", "training")):
        both = [(getattr(one, name), getattr(other, name)) for one, other in pairs]
        cells = (_median(one for one, _ in both), _median(other for _, other in both))
        difference, ratio = _median(one - other for one, other in both), _median(one / other for one, other in both)
        rows.append((title, *(f"{cell:.1f}" for cell in cells), f"{difference:+.1f}", f"{ratio:.3f}x"))
    own = {
        "recording, its own clock, s": _median(run.recording for run in recorded),
        "causes and most wrong texts after training, their own clock, s": _median(run.causes for run in recorded),
        "one record, s": _median(run.recording / run.records for run in recorded),
    }
    rows += [(title, f"{seconds:.2f}", "-", "-", "-") for title, seconds in own.items()]
    sizes = {
        "one record on disk, KiB": (recorded[0].record_bytes, plain[0].record_bytes),
        "event files, KiB": (recorded[0].event_bytes, plain[0].event_bytes),
    }
    rows += [(title, f"{one / 1024:.0f}", f"{other / 1024:.0f}", f"{(one - other) / 1024:+.0f}", "-")
             for title, (one, other) in sizes.items()]  # fmt: skip
    steps, records = recorded[0].steps, recorded[0].records
    notes = (
        f"One epoch of the default run, {steps} steps and {records} records, once at step 0 and once at the end; "
        f"median of {len(pairs)} rounds, and medians of the differences and ratios within a round.",
        "Left out: the TF-IDF baseline, the bar on the screen, and the time to load and tokenize texts the first time.",
        "The clock of a record counts maps, numbers, pictures and files, and the pass over some texts before step 0; "
        "large pictures after training are in the whole command alone.",
    )
    return Table("Recording heads against the same run without", ("", *VARIANTS, "difference", "ratio"), rows, notes)


def _reckoned(recorded: Sequence[Run], plain: Sequence[Run]) -> Table:
    """Return what the default run would take: training for its epochs, a record after each epoch, all else once."""
    epochs = TrainerConfig.max_epochs
    more = epochs - 1  # each with one record; one more is made at step 0
    without = _median(run.whole + more * run.training for run in plain)
    costs = {
        "by the difference of whole runs": [
            (one.training - other.training) * (epochs + 1) / one.records
            + (one.whole - one.training) - (other.whole - other.training)
            for one, other in zip(recorded, plain, strict=True)
        ],
        "by the clocks of recording and causes": [
            run.recording * (epochs + 1) / run.records + run.causes for run in recorded
        ],
    }  # fmt: skip
    rows = []
    for title, found in costs.items():
        cost, ratio = _median(found), 1 + _median(found) / without
        span = f"{1 + min(found) / without:.3f} to {1 + max(found) / without:.3f}"
        met = "met" if ratio <= TARGET else "missed"
        rows.append((title, f"{without:.0f}", f"{cost:+.1f}", f"{ratio:.3f}x", span, f"{TARGET:.2f}x {met}"))
    notes = (
        f"{epochs} epochs and {epochs + 1} records, reckoned from the runs above: the cost within "
        "training by its records, what comes before and after training once.",
        "A difference is no surer than its rounds lie together; the clocks leave out pictures after training.",
    )
    columns = ("the default run", "without, s", "recording, s", "ratio", "over rounds", "target")
    return Table("Reckoned for the default run", columns, rows, notes)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
