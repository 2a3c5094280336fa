"""train(config): from a configuration to a run folder with a trained, tested and inspected model."""

import logging
import time
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
from headscope.model.pretrained import Architecture, Checkpoint, find_checkpoint
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

# Where a run starts from that takes its encoder from a checkpoint.

SIZES = ("d_model", "num_heads", "num_layers", "feedforward_size")


def starting_point(config: TrainConfig, last: Path) -> Checkpoint | None:
    """Return the checkpoint that a run begins with, whose sizes are put into the configuration.

    Args:
        config: of the run; changed, so that its config.yaml says what is trained.
        last: the run's own last checkpoint. A resumed run that has one needs no other.

    Returns:
        None where there is nothing to take over.

    Raises:
        ConfigError: if the checkpoint cannot be used, or a key says otherwise than it does.
    """
    if config.model.path is None or (config.resume is not None and last.exists()):
        return None
    checkpoint = find_checkpoint(config.model.path, config.model.revision)
    _adopt(config.model, checkpoint.architecture)
    config.data.max_length = min(config.data.max_length, checkpoint.architecture.max_positions)
    return checkpoint


def _adopt(config: ModelConfig, architecture: Architecture) -> None:
    """Take the sizes over. A key that has its default may not have been given, so it contradicts nothing."""
    for key in SIZES:
        given, found = getattr(config, key), getattr(architecture, key)
        if given not in (found, getattr(ModelConfig, key)):
            raise ConfigError(f"model.{key}: got {given}, and the checkpoint of model.path has {found}; leave it out")
        setattr(config, key, found)
    config.positions = "learned"
    if config.frozen_layers is not None and config.frozen_layers > config.num_layers:
        raise ConfigError(
            f"model.frozen_layers: got {config.frozen_layers}, and the checkpoint has {config.num_layers} layers"
        )


FEW_STEPS = 200  # below which a network from scratch has hardly begun to learn


def train(config: TrainConfig, console: Console | None = None) -> Report:
    """Train, keep the best weights by validation macro-F1, score them on the test split, and write the run folder.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what a user can mend.
        KeyboardInterrupt: after Ctrl-C, once what was learned is saved.
    """
    started = time.perf_counter()
    console = console or Console()
    folder = claim_folder(config)
    if config.resume is not None:
        before = load_config(folder)
        check_kept(config, before)
        check_length(config, folder / LAST)
        check_batches(config, before, folder / LAST)
    best_device(config.trainer.accelerator, "trainer.accelerator")  # before the long work of loading
    pl.seed_everything(config.seed, verbose=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # which devices there are not, and tips
    torch.set_float32_matmul_precision("high")  # lets a GPU use TensorFloat-32 where it is asked for float32
    checkpoint = starting_point(config, folder / LAST)
    data = _load_data(config, folder, checkpoint)
    facts = data.facts()
    show_facts(console, folder, facts)
    session = Session(config, folder, data, console, checkpoint)
    if session.total_steps < FEW_STEPS:
        console.print(
            f"note: only {session.total_steps} optimizer steps; for so few texts raise trainer.max_epochs "
            "or lower data.tokens_per_batch"
        )
    preparing = time.perf_counter() - started
    training = session.fit()
    if session.stop.interrupted:
        raise KeyboardInterrupt(f"stopped at step {session.trainer.global_step}; go on with resume={folder}")
    report = _scored(session)
    report.facts_of_data = facts
    report.seconds = {"preparing": preparing, "training": training, **report.seconds}
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


def _begin(folder: Path, config: TrainConfig) -> None:
    """Begin a run's folder, unless another run has begun it while this one was loading its texts."""
    try:
        save_config(folder, config, create_whole)
    except FileExistsError:
        raise _taken(folder) from None


def _load_data(config: TrainConfig, folder: Path, checkpoint: Checkpoint | None) -> TextDataModule:
    """Load the texts, and only then begin the run folder: a mistake in the data must not take the run's name.

    A resumed run keeps the tokenizer and the n-grams that its weights were trained with; what it was given anew is
    written down.
    """
    kept = folder / "tokenizer.json"
    tokenizer = (
        load_tokenizer(kept, config.tokenizer.segmenter) if config.resume is not None and kept.exists() else None
    )
    if tokenizer is None and checkpoint is not None:
        size = checkpoint.architecture.vocab_size
        tokenizer = pretrained_tokenizer(checkpoint.folder, config.data.max_length, size, config.model.path)
    resumes = config.resume is not None and (folder / EVIDENCE).exists()
    evidence = kept_evidence(folder, config) if resumes else config.model.evidence
    data = TextDataModule(config.data, config.tokenizer, config.seed, tokenizer, evidence or False)
    if config.resume is not None:
        check_labels(folder, data.corpus.labels)
        save_config(folder, replace(config, resume=None))
    else:
        _begin(folder, config)
    save_vocabulary(folder, data.tokenizer, data.corpus.labels, data.evidence)
    if checkpoint is not None:
        save_architecture(folder, checkpoint.architecture)
    return data


def _scored(session: Session) -> Report:
    """Score the best weights, and the baseline, on the test split."""
    start, data, labels = time.perf_counter(), session.data, session.data.corpus.labels
    logits, targets = split_logits(session.module.model, data.loader("test"), session.device)
    found = scores(logits, targets, session.objective)
    report = Report(session.folder, session.config, labels, found, logits, targets, session.objective)
    report.facts_of_training = session.facts()
    report.seconds = {"testing": time.perf_counter() - start}
    _calibrate(session, report)
    if session.head_logger is not None:
        report.seconds["inspection (within training)"] = session.head_logger.seconds
    report.seconds["causes (after training)"] = session.study()
    report.facts_of_training |= session.studied
    start = time.perf_counter()
    report.facts_of_training |= session.put()
    report.seconds["nats"] = time.perf_counter() - start
    start = time.perf_counter()
    report.most_wrong = write_most_wrong(session, report)
    report.seconds["most wrong"] = time.perf_counter() - start
    if session.config.baseline:
        report.baseline, report.baseline_name, report.seconds["baseline"] = baseline_scores(data.corpus.splits)
    return report


def _calibrate(session: Session, report: Report) -> None:
    """Fit the temperature on the validation split, keep it, and see what it does to the test split."""
    if isinstance(session.objective, AnyClasses):  # thresholds were chosen for it instead
        return
    start = time.perf_counter()
    validation = split_logits(session.module.model, session.data.loader("validation"), session.device)
    found = calibrate(session.folder, *validation)
    report.calibration = found.with_split("test", report.logits, report.targets)
    report.seconds["calibration"] = time.perf_counter() - start
