"""suite=accuracy: headscope beside TF-IDF with logistic regression, fastText and a fine-tuned checkpoint."""

from collections.abc import Callable
from pathlib import Path

import torch

from headscope.benchmark.accuracy.kept import Kept
from headscope.benchmark.accuracy.plan import planned
from headscope.benchmark.accuracy.queue import Queue
from headscope.benchmark.accuracy.result import SPLITS
from headscope.benchmark.accuracy.rows import chosen_rows, overrides_note
from headscope.benchmark.accuracy.tables import CLOCKS, MEANING, data_table, origins, overview, rows_of
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table


def measure(config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]) -> list[Table]:
    """Run every row on every data set with every seed, or take what is kept, and return the tables.

    Raises:
        ConfigError: if a row, an override or a checkpoint cannot be.
    """
    rows, left_out = chosen_rows(config)
    tell("composing the settings")
    runs = planned(config, rows, device)
    found = Queue(Kept(Path(config.kept), config.same_code), config.jobs, device, tell).results(runs)
    told = [note for row in rows_of(found) if (note := overrides_note(row, config.train))]
    tables = [data_table(data, found) for data in dict.fromkeys(run.data for run in runs)]
    if len(tables) > 1:
        tables = [*(overview(split, found) for split in reversed(SPLITS)), *tables]
    last = tables.pop()
    notes = (*last.notes, MEANING, CLOCKS, *told, *left_out, origins(found))
    return [*tables, Table(last.title, last.columns, last.rows, notes)]
