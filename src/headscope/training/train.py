"""train(config): from a configuration to a run folder with a trained, tested and inspected model."""

import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import lightning.pytorch as pl
import torch
from rich.console import Console
from tokenizers import Tokenizer

from headscope.config import ModelConfig, TrainConfig
from headscope.data.datamodule import TextDataModule
from headscope.data.evidence import EvidenceVocabulary
from headscope.data.tokenizer import pretrained_tokenizer
from headscope.errors import ConfigError, RunError
from headscope.model.objective import MultiLabel
from headscope.model.pretrained import Checkpoint, find_checkpoint
from headscope.run import (
    CONFIG,
    DERIVED_FILES,
    WEIGHTS,
    check_memory,
    load_config,
    load_vocabulary,
    save_architecture,
    save_config,
    save_json,
    save_vocabulary,
    split_logits,
)
from headscope.signals import Stopped
from headscope.terminal import terminal
from headscope.training.baseline import baseline_scores
from headscope.training.console import ignore_broken_pipe, show_facts, show_report
from headscope.training.distributed import (
    all_reduce_max,
    broadcast,
    check_devices,
    is_rank_zero,
    is_worker,
    joined,
    launch,
    leave,
    process_count,
    rank_zero_first,
)
from headscope.training.most_wrong import write_most_wrong
from headscope.training.report import Report
from headscope.training.resume import (
    DATA,
    RunLock,
    check_data,
    check_kept,
    check_labels,
    check_places,
    check_progress,
    resume_point,
)
from headscope.training.scores import calibrate, scores
from headscope.training.session import Session, errors_told_once

FEW_STEPS = 200  # below which a network from scratch has hardly begun to learn
SIZES = ("d_model", "num_heads", "num_layers", "feedforward_size")  # that a checkpoint decides


def train(config: TrainConfig, console: Console | None = None) -> Report | None:
    """Train, keep the best weights by validation macro-F1, score them on the test split, and write the run folder.

    Standard output that is closed meanwhile, such as that of `| head`, does not end it. With several devices this
    starts a process for each and waits for them; the report is then in the folder alone, and None is returned.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what a user can mend.
        KeyboardInterrupt, Stopped: after Ctrl-C or another signal, once what was learned is saved.
    """
    check_devices(config.trainer)
    if is_worker(config.trainer):
        with joined(config.trainer):
            return _train_here(config, console)
    if process_count(config.trainer) > 1:
        create_run_folder(config)
        launch(config)
        return None
    return _train_here(config, console)


def _train_here(config: TrainConfig, console: Console | None) -> Report | None:
    """Train in this process. Of several processes the first writes and prints; the others return None."""
    if not is_rank_zero():
        console = Console(quiet=True)
        warnings.simplefilter("ignore")  # the first says them
    folder = Path(broadcast(str(create_run_folder(config) if is_rank_zero() else "")))
    config.name = broadcast(config.name)
    lock = RunLock(folder)
    try:
        with ignore_broken_pipe(), errors_told_once():
            return _trained(config, folder, lock, terminal(console))
    except Stopped as stopped:
        if not is_rank_zero():
            raise SystemExit(stopped.code) from None
        if (folder / CONFIG).exists():
            stopped.said += f"; go on with: headscope train resume={folder}"
        if stopped.number == signal.SIGINT:
            raise KeyboardInterrupt(str(stopped)) from None
        raise
    finally:
        lock.release()


def _trained(config: TrainConfig, folder: Path, lock: RunLock, console: Console) -> Report | None:
    started = time.perf_counter()
    resumed = None
    if config.resume is not None:
        if is_rank_zero():
            lock.take()
        resumed = broadcast(resume_point(folder) if is_rank_zero() else None)
    _check_and_seed(config, folder, resumed)
    checkpoint = starting_point(config, resumed)
    with rank_zero_first():
        data = _load_data(config, folder, checkpoint, resumed)
        if resumed is None and is_rank_zero():
            _begin_folder(config, folder, data, checkpoint, lock)
    facts = data.facts()
    show_facts(console, folder, facts)
    session = Session(config, folder, data, console, checkpoint, resumed)
    if config.resume is not None and is_rank_zero():  # now that it fits the run's weights
        save_config(folder, replace(config, resume=None))
    if session.total_steps < FEW_STEPS:
        console.print(
            f"note: optimizer steps in all: {session.total_steps}; for so few texts raise trainer.max_epochs "
            "or lower data.tokens_per_batch"
        )
    all_reduce_max(0)  # to begin: the others prepare after the first
    preparing = time.perf_counter() - started
    seconds = {"preparing": preparing, "training": session.fit()}
    if not leave():
        return None
    report = _scored(session, seconds)
    report.facts_of_data = facts
    report.seconds["everything"] = time.perf_counter() - started
    report.save()
    session.write_closing(report)
    show_report(console, report)
    return report


def create_run_folder(config: TrainConfig) -> Path:
    """Return the run folder; refuse one that another run has written to."""
    if config.resume is not None:
        return Path(config.resume)
    if config.name is None:
        config.name = f"{Path(config.data.path).stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    folder = Path(config.outputs_dir) / config.name
    if (folder / CONFIG).exists():
        raise _taken(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise RunError(
            f"name={config.name}: {folder} is there and is no folder; choose another name"
        )
    return folder


def _taken(folder: Path) -> RunError:
    return RunError(
        f"name={folder.name}: {folder} holds a run already; choose another name, or go on with it: resume={folder}"
    )


def _check_and_seed(config: TrainConfig, folder: Path, resumed: Path | None) -> None:
    """Refuse what cannot work before the long work of loading, and set what holds for the whole process."""
    if config.resume is not None:
        before = load_config(folder)
        check_kept(config, before)
        check_places(folder, (DATA, WEIGHTS, *DERIVED_FILES))
        if resumed is not None:
            check_progress(config, before, resumed)
    pl.seed_everything(config.seed, verbose=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # which devices there are not, and tips
    torch.set_float32_matmul_precision(
        "high"
    )  # lets a GPU use TensorFloat-32 where it is asked for float32


def starting_point(config: TrainConfig, resumed: Path | None = None) -> Checkpoint | None:
    """Return the checkpoint that a run begins with; None without one, or if it goes on from its own, `resumed`.

    Its sizes are put into the configuration, so that config.yaml says what is trained; ConfigError for a checkpoint
    that cannot be used, or a key that contradicts it.
    """
    if config.model.path is None or resumed is not None:
        return None
    checkpoint = find_checkpoint(config.model.path, config.model.revision)
    model, architecture = config.model, checkpoint.architecture
    for key in SIZES:
        given, found = getattr(model, key), getattr(architecture, key)
        # A key that has its default may not have been given, so it contradicts nothing.
        if given not in (found, getattr(ModelConfig, key)):
            raise ConfigError(
                f"model.{key}: got {given}, and the checkpoint of model.path has {found}; leave it out"
            )
        setattr(model, key, found)
    model.positions = "learned"
    if model.frozen_layers is not None and model.frozen_layers > model.num_layers:
        raise ConfigError(
            f"model.frozen_layers: got {model.frozen_layers}, and the checkpoint has {model.num_layers} layers"
        )
    config.data.max_length = min(config.data.max_length, architecture.max_positions)
    return checkpoint


def _load_data(
    config: TrainConfig, folder: Path, checkpoint: Checkpoint | None, resumed: Path | None
) -> TextDataModule:
    """Load the texts. A run that goes on keeps the tokenizer and the n-grams that its weights were trained with."""
    architecture = None if checkpoint is None else checkpoint.architecture
    tokenizer: Tokenizer | None = None
    evidence: EvidenceVocabulary | bool | None = config.model.evidence
    if resumed is not None:
        tokenizer, architecture, evidence = load_vocabulary(folder, config)
    elif checkpoint is not None:
        size = checkpoint.architecture.vocab_size
        tokenizer = pretrained_tokenizer(
            checkpoint.folder, config.data.max_length, size, config.model.path
        )
    data = TextDataModule(config.data, config.tokenizer, config.seed, tokenizer, evidence or False)
    check_memory(config, data.tokenizer, data.corpus.labels, architecture, data.evidence)
    if resumed is not None:
        check_labels(folder, data.corpus.labels)
        check_data(folder, data.corpus.digests())
    return data


def _begin_folder(
    config: TrainConfig,
    folder: Path,
    data: TextDataModule,
    checkpoint: Checkpoint | None,
    lock: RunLock,
) -> None:
    """Write what the weights depend on. Not before the texts are read: a mistake in them must not take the name."""
    if config.resume is None:
        lock.take()
        if (folder / CONFIG).exists():  # another run has taken the name in the meantime
            lock.release()
            raise _taken(folder)
        save_config(folder, config)
    save_json(folder / DATA, data.corpus.digests())
    save_vocabulary(folder, data.tokenizer, data.corpus.labels, data.evidence)
    if checkpoint is not None:
        save_architecture(folder, checkpoint.architecture)


def _scored(session: Session, seconds: dict[str, float]) -> Report:
    """Score the best weights on the test split, say what their heads do, and score the baseline."""
    data, model, objective = session.data, session.module.model, session.objective
    with _timed(seconds, "testing"):
        logits, targets = split_logits(model, data.loader("test"), session.device)
        validation = split_logits(model, data.loader("validation"), session.device)
        found = scores(logits, targets, objective), scores(*validation, objective)
        report = Report(
            session.folder, session.config, data.corpus.labels, *found, logits, targets, objective
        )
        report.facts_of_training, report.seconds = session.facts(), seconds
    if not isinstance(
        objective, MultiLabel
    ):  # for which thresholds were chosen instead of a temperature
        with _timed(seconds, "calibration"):
            report.calibration = calibrate(session.folder, *validation).with_split(
                "test", logits, targets
            )
    if session.head_logger is not None:
        seconds["inspection (within training)"] = session.head_logger.seconds
    with _timed(seconds, "causes (after training)"):
        report.facts_of_training |= session.study()
    with _timed(seconds, "nats"):
        report.facts_of_training |= session.put()
    with _timed(seconds, "most wrong"):
        report.most_wrong = write_most_wrong(report, model, data, session.writer)
    if session.config.baseline:
        report.baseline, report.baseline_name, seconds["baseline"] = baseline_scores(
            data.corpus.splits
        )
    return report


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
