"""train(config): from settings to a run folder with a trained, tested and inspected model."""

import signal
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from headscope.ground.files import missing, remove_empty
from headscope.ground.signals import Stopped
from headscope.ground.terminal import Bar, terminal
from headscope.results.console import show_facts, show_results
from headscope.results.metrics import Results
from headscope.settings.checks import resume_command
from headscope.settings.config import TrainConfig, is_run
from headscope.training.distributed import broadcast, is_rank_zero, joined
from headscope.training.evaluate import evaluate
from headscope.training.finish import finish
from headscope.training.fit import fit
from headscope.training.prepare import prepare, run_folder
from headscope.training.resume import locked
from headscope.training.trainer import build_trainer


def train(config: TrainConfig, console: Console | None = None) -> Results | None:
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
        made = missing(Path(config.outputs_dir, config.name or ""))
        is_ours = config.name is None and config.resume is None  # the folder, for lack of a name
        folder = Path(broadcast(str(run_folder(config)) if is_rank_zero() else ""))
        named = replace(config, name=config.name or folder.name)
        try:
            with locked(folder) if is_rank_zero() else nullcontext():
                return _train(named, folder, terminal(console))
        except Stopped as stopped:
            if not is_rank_zero():
                raise SystemExit(stopped.code) from None
            is_own = console is None or not console.quiet  # a fold of `labels` is not resumed
            if is_run(folder) and is_own:
                stopped.said += f"; resume it: {resume_command(folder)}"
            if stopped.number == signal.SIGINT:
                raise KeyboardInterrupt(str(stopped)) from None
            raise
        finally:
            remove_empty([folder] * is_ours + made)


def _train(config: TrainConfig, folder: Path, console: Console) -> Results | None:
    phase = partial(Bar, console, is_hidden=not config.trainer.progress)
    prepared = prepare(config, folder, phase, partial(show_facts, console, folder))
    trainer = build_trainer(prepared, folder, console)
    best = fit(trainer, prepared, folder)
    if best is None:  # in a process that writes nothing
        return None
    results = evaluate(trainer, prepared, folder, best, phase)
    finish(trainer, prepared, results, console, phase)
    show_results(console, results)
    return results
