"""A sweep's table: one row for each job, kept as csv and printed at the end.

Hydra calls this beside the jobs (`hydra.callbacks` in configs/train.yaml). Rows are read from the jobs' folders, so it
makes no difference which process ran a job.
"""

import csv
import json
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from headscope.files import write_whole

FAILURE = "failure.json"


class SweepTable(Callback):
    """Write sweep.csv after each job, and print it at the end."""

    def on_job_end(self, config: DictConfig, job_return: Any, **kwargs: Any) -> None:
        """Write the rows of all jobs that have ended."""
        if config.hydra.mode is not None and config.hydra.mode.name == "MULTIRUN":
            write_table(Path(config.hydra.sweep.dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table."""
        from headscope.training.screen import show_sweep  # heavy, and this module is read before `--help`

        folder = Path(config.hydra.sweep.dir)
        show_sweep(Console(), folder, write_table(folder))


def job_row(folder: Path) -> dict[str, str]:
    """Return the row of a job: what was overridden, and its scores or why it failed."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    row = {"job": folder.name, **job["overrides"]}
    if (folder / "metrics.json").exists():
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        scores = {name: f"{value:.4f}" for name, value in metrics["test"].items() if isinstance(value, float)}
        return row | {"status": "done", **scores, "seconds": f"{metrics['seconds']['everything']:.0f}"}
    if (folder / FAILURE).exists():
        return row | {"status": "failed: " + json.loads((folder / FAILURE).read_text(encoding="utf-8"))["message"]}
    return row | {"status": "not finished"}


def write_table(folder: Path) -> list[dict[str, str]]:
    """Write sweep.csv, one row for each job in order, and return the rows."""
    jobs = sorted((path.parent for path in folder.glob("*/job.json")), key=lambda job: int(job.name.split("-")[0]))
    rows = [job_row(job) for job in jobs]
    columns = list(dict.fromkeys(column for row in rows for column in row))

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    write_whole(folder / "sweep.csv", write)
    return rows
