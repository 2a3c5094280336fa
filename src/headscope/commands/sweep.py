"""A sweep's table: one row for each job, kept as csv and printed at the end.

Hydra calls this beside the jobs (`hydra.callbacks` in configs/train.yaml). Rows are read from the jobs' folders, so it
makes no difference which process ran a job.
"""

import csv
import re
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from headscope.errors import RunError
from headscope.files import read_json, write_whole
from headscope.terminal import terminal

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
        show_sweep(terminal(), folder, write_table(folder))


def job_row(folder: Path) -> dict[str, str]:
    """Return the row of a job: what was overridden, and its scores or why it failed."""
    row = {"job": folder.name}
    try:
        row |= read_json(folder / "job.json", dict)["overrides"]
        if (folder / "metrics.json").exists():
            metrics = read_json(folder / "metrics.json", dict)
            scores = {name: f"{value:.4f}" for name, value in metrics["test"].items() if isinstance(value, float)}
            return row | {"status": "done", **scores, "seconds": f"{metrics['seconds']['everything']:.0f}"}
        if (folder / FAILURE).exists():
            return row | {"status": "failed: " + read_json(folder / FAILURE, dict)["message"]}
    except (RunError, KeyError, TypeError, ValueError, AttributeError) as error:  # one job's files, not the whole table
        return row | {"status": f"damaged: {error}"}
    return row | {"status": "not finished"}


def write_table(folder: Path) -> list[dict[str, str]]:
    """Write sweep.csv, one row for each job in order, and return the rows."""
    jobs = [path.parent for path in folder.glob("*/job.json") if re.match(r"\d+(-|$)", path.parent.name)]
    rows = [job_row(job) for job in sorted(jobs, key=lambda job: int(job.name.split("-")[0]))]
    columns = list(dict.fromkeys(column for row in rows for column in row))

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    write_whole(folder / "sweep.csv", write)
    return rows
