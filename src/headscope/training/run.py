"""train(config): from a configuration to a run folder with a trained, tested and inspected model."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import lightning.pytorch as pl
import torch
from rich.console import Console

from headscope.config import ModelConfig, TrainConfig
from headscope.data.datamodule import TextDataModule
from headscope.data.tokenizer import load_tokenizer, pretrained_tokenizer
from headscope.errors import ConfigError, RunError
from headscope.files import create_whole
from headscope.model.objective import AnyClasses
from headscope.model.pretrained import Checkpoint, find_checkpoint
from headscope.training.baseline import baseline_scores
from headscope.training.folder import (
    CONFIG,
    EVIDENCE,
    best_device,
    kept_evidence,
    load_config,
    save_architecture,
    save_config,
    save_vocabulary,
)
from headscope.training.most_wrong import write_most_wrong
from headscope.training.predict import split_logits
from headscope.training.report import Report
from headscope.training.resume import LAST, check_batches, check_kept, check_labels, check_length
from headscope.training.scores import calibrate, scores
from headscope.training.screen import show_facts, show_report
from headscope.training.session import Session

FEW_STEPS = 200  # below which a network from scratch has hardly begun to learn
SIZES = ("d_model", "num_heads", "num_layers", "feedforward_size")  # that a checkpoint decides


def train(config: TrainConfig, console: Console | None = None) -> Report:
    """Train, keep the best weights by validation macro-F1, score them on the test split, and write the run folder.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what a user can mend.
        KeyboardInterrupt: after Ctrl-C, once what was learned is saved.
    """
    started = time.perf_counter()
    console = console or Console()
    folder = claim_folder(config)
    _check_and_seed(config, folder)
    checkpoint = starting_point(config, folder / LAST)
    data = _load_data(config, folder, checkpoint)
    facts = data.facts()
    show_facts(console, folder, facts)
    session = Session(config, folder, data, console, checkpoint)
    if session.total_steps < FEW_STEPS:
        console.print(
            f"note: optimizer steps in all: {session.total_steps}; for so few texts raise trainer.max_epochs "
            "or lower data.tokens_per_batch"
        )
    preparing = time.perf_counter() - started
    training = session.fit()
    if session.stop.interrupted:
        raise KeyboardInterrupt(f"stopped at step {session.trainer.global_step}; go on with resume={folder}")
    report = _scored(session, {"preparing": preparing, "training": training})
    report.facts_of_data = facts
    report.seconds["everything"] = time.perf_counter() - started
    report.save()
    session.write_closing(report)
    show_report(console, report)
    return report


def claim_folder(config: TrainConfig) -> Path:
    """Return the run folder; refuse one that another run has written to."""
    if config.resume is not None:
        return Path(config.resume)
    if config.name is None:
        config.name = f"{Path(config.data.path).stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    folder = Path(config.outputs_dir) / config.name
    if (folder / CONFIG).exists():
        raise _taken(folder)
    return folder


def _taken(folder: Path) -> RunError:
    return RunError(
        f"name={folder.name}: {folder} holds a run already; choose another name, or go on with it: resume={folder}"
    )


def _check_and_seed(config: TrainConfig, folder: Path) -> None:
    """Refuse what cannot work before the long work of loading, and set what holds for the whole process."""
    if config.resume is not None:
        before = load_config(folder)
        check_kept(config, before)
        check_length(config, folder / LAST)
        check_batches(config, before, folder / LAST)
    best_device(config.trainer.accelerator, "trainer.accelerator")
    pl.seed_everything(config.seed, verbose=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # which devices there are not, and tips
    torch.set_float32_matmul_precision("high")  # lets a GPU use TensorFloat-32 where it is asked for float32


def starting_point(config: TrainConfig, last: Path) -> Checkpoint | None:
    """Return the checkpoint that a run begins with; None without one, or if a resumed run has its own `last`.

    Its sizes are put into the configuration, so that config.yaml says what is trained; ConfigError for a checkpoint
    that cannot be used, or a key that contradicts it.
    """
    if config.model.path is None or (config.resume is not None and last.exists()):
        return None
    checkpoint = find_checkpoint(config.model.path, config.model.revision)
    model, architecture = config.model, checkpoint.architecture
    for key in SIZES:
        given, found = getattr(model, key), getattr(architecture, key)
        # A key that has its default may not have been given, so it contradicts nothing.
        if given not in (found, getattr(ModelConfig, key)):
            raise ConfigError(f"model.{key}: got {given}, and the checkpoint of model.path has {found}; leave it out")
        setattr(model, key, found)
    model.positions = "learned"
    if model.frozen_layers is not None and model.frozen_layers > model.num_layers:
        raise ConfigError(
            f"model.frozen_layers: got {model.frozen_layers}, and the checkpoint has {model.num_layers} layers"
        )
    config.data.max_length = min(config.data.max_length, architecture.max_positions)
    return checkpoint


def _load_data(config: TrainConfig, folder: Path, checkpoint: Checkpoint | None) -> TextDataModule:
    """Load the texts, and only then begin the run folder: a mistake in the data must not take the run's name.

    A resumed run keeps the tokenizer and the n-grams that its weights were trained with; its new settings are written.
    """
    resumes, kept = config.resume is not None, folder / "tokenizer.json"
    tokenizer = load_tokenizer(kept, config.tokenizer.segmenter) if resumes and kept.exists() else None
    if tokenizer is None and checkpoint is not None:
        size = checkpoint.architecture.vocab_size
        tokenizer = pretrained_tokenizer(checkpoint.folder, config.data.max_length, size, config.model.path)
    has_evidence = resumes and (folder / EVIDENCE).exists()
    evidence = kept_evidence(folder, config) if has_evidence else config.model.evidence
    data = TextDataModule(config.data, config.tokenizer, config.seed, tokenizer, evidence or False)
    if resumes:
        check_labels(folder, data.corpus.labels)
        save_config(folder, replace(config, resume=None))
    else:
        try:
            save_config(folder, config, create_whole)
        except FileExistsError:  # another run has begun it while this one was loading its texts
            raise _taken(folder) from None
    save_vocabulary(folder, data.tokenizer, data.corpus.labels, data.evidence)
    if checkpoint is not None:
        save_architecture(folder, checkpoint.architecture)
    return data


def _scored(session: Session, seconds: dict[str, float]) -> Report:
    """Score the best weights on the test split, say what their heads do, and score the baseline."""
    data, model, objective = session.data, session.module.model, session.objective
    with _timed(seconds, "testing"):
        logits, targets = split_logits(model, data.loader("test"), session.device)
        found = scores(logits, targets, objective)
        report = Report(session.folder, session.config, data.corpus.labels, found, logits, targets, objective)
        report.facts_of_training, report.seconds = session.facts(), seconds
    if not isinstance(objective, AnyClasses):  # for which thresholds were chosen instead of a temperature
        with _timed(seconds, "calibration"):
            validation = split_logits(model, data.loader("validation"), session.device)
            report.calibration = calibrate(session.folder, *validation).with_split("test", logits, targets)
    if session.head_logger is not None:
        seconds["inspection (within training)"] = session.head_logger.seconds
    with _timed(seconds, "causes (after training)"):
        report.facts_of_training |= session.study()
    with _timed(seconds, "nats"):
        report.facts_of_training |= session.put()
    with _timed(seconds, "most wrong"):
        report.most_wrong = write_most_wrong(session, report)
    if session.config.baseline:
        report.baseline, report.baseline_name, seconds["baseline"] = baseline_scores(data.corpus.splits)
    return report


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
