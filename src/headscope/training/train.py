"""train(config): from settings to a run folder with a trained, tested and inspected model."""

import signal
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from rich.console import Console

from headscope.ground.files import remove_empty
from headscope.ground.signals import Stopped
from headscope.ground.terminal import Bar, terminal
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.results.console import show_facts, show_results
from headscope.results.metrics import Results
from headscope.settings.checks import check, flatten, override
from headscope.settings.config import TrainConfig, is_run
from headscope.training.distributed import broadcast, is_rank_zero, joined
from headscope.training.finish import finish
from headscope.training.fit import evaluate, fit
from headscope.training.prepare import prepare, run_folder
from headscope.training.resume import locked
from headscope.training.trainer import build_trainer


def train(
    config: TrainConfig, console: Console | None = None, callbacks: Sequence[Callback] = ()
) -> Results | None:
    """Train, keep the best epoch by tempered validation loss, test it, and write the run folder.

    A closed standard output, such as that of `| head`, does not end it. Of several processes that
    torchrun has started, rank 0 returns the results and the others None.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what you can fix.
        KeyboardInterrupt, Stopped: after Ctrl-C or another signal, once the run is saved.
    """
    with joined(config.trainer.accelerator):
        if not is_rank_zero():
            console = Console(quiet=True)
            warnings.simplefilter("ignore")  # rank 0 shows them
        folder = Path(broadcast(str(run_folder(config)) if is_rank_zero() else ""))
        named = replace(config, name=config.name or folder.name)
        try:
            with locked(folder) if is_rank_zero() else nullcontext():
                return _train(named, folder, terminal(console), callbacks)
        except Stopped as stopped:
            if not is_rank_zero():
                raise SystemExit(stopped.code) from None
            is_own = console is None or not console.quiet  # a fold of `labels` is not resumed
            if is_run(folder) and is_own:
                stopped.said += f"; resume it: headscope train resume={folder}"
            if stopped.number == signal.SIGINT:
                raise KeyboardInterrupt(str(stopped)) from None
            raise
        finally:
            remove_empty(folder)


def _train(
    config: TrainConfig, folder: Path, console: Console, callbacks: Sequence[Callback]
) -> Results | None:
    phase = partial(Bar, console, is_hidden=not config.trainer.progress)
    prepared = prepare(config, folder, phase, partial(show_facts, console, folder))
    trainer = build_trainer(prepared, folder, console, callbacks)
    best = fit(trainer, prepared, folder)
    if best is None:  # in a process that writes nothing
        return None
    results = evaluate(trainer, prepared, folder, best, phase)
    finish(trainer, prepared, results, console, phase)
    show_results(console, results)
    return results


def train_with(settings: Mapping[str, Any] | None = None, /, **keys: Any) -> ShownRun:
    """Train by keys of `headscope train`, and return the run.

        headscope.train({"data.path": "reviews.csv", "trainer.max_epochs": 4})
        headscope.train(data={"path": "reviews.csv"}, seed=1)

    Args:
        settings: keys with their values, written with dots or as dictionaries in one another.
        keys: the same; a key given twice has the value that stands here.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what you can fix.
    """
    config = override(TrainConfig(), flatten(settings or {}) | flatten(keys))
    check(config)
    results = train(config)
    assert results is not None, "rank 0 alone has them"
    return load_shown(results.folder, allow_code=True)
