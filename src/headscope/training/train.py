"""train(config): from settings to a run folder with a trained, tested and inspected model."""

import logging
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console
from torch import nn

from headscope.abstaining import accuracy_curve, most_unknown
from headscope.config import TrainConfig, is_run
from headscope.data.datamodule import Phase, TextDataModule
from headscope.errors import ConfigError, RunError, warn
from headscope.heads.integrations.lightning_callback import HeadLogger
from headscope.model.classifier import TextClassifier
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.model.pretrained import Checkpoint
from headscope.prediction import best_device, split_logits
from headscope.run_folder import (
    Chosen,
    Setup,
    save_copies,
    save_model,
)
from headscope.signals import Stopped, signals_taken
from headscope.terminal import Bar, show_line, terminal
from headscope.training.baseline import Compared, averages_in_place_of_attention, baseline_scores
from headscope.training.callbacks import (
    AtomicCheckpointIO,
    AveragedWeights,
    Best,
    Patience,
    RunCheckpoint,
    RunProgress,
    StopAtLastStep,
    StopAtNonFiniteLoss,
    ValidationLog,
    without_needless_warnings,
)
from headscope.training.console import errors_once, ignore_broken_pipe, show_facts, show_report
from headscope.training.distributed import (
    all_reduce_max,
    broadcast,
    is_rank_zero,
    is_shared,
    joined,
    rank_zero_first,
)
from headscope.training.heads import (
    add_contributions,
    head_logger,
    study_heads,
)
from headscope.training.module import (
    ClassifierModule,
    build_module,
    chosen_by,
    chosen_precision,
    starting_point,
    validation_logits,
)
from headscope.training.report import Report, write_errors, write_summaries
from headscope.training.resume import (
    LAST,
    Resumed,
    RunLock,
    check_data,
    check_resumed,
    load_last,
)
from headscope.training.scores import best_thresholds, calibrate, scores


def train(
    config: TrainConfig, console: Console | None = None, callbacks: Sequence[Callback] = ()
) -> Report | None:
    """Train, keep the best checkpoint by validation loss, test it, and write the run folder.

    A closed standard output, such as that of `| head`, does not end it. Of several processes that
    torchrun has started, rank 0 returns the report and the others None.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what you can fix.
        KeyboardInterrupt, Stopped: after Ctrl-C or another signal, once the run is saved.
    """
    with joined(config.trainer.accelerator):
        if config.control is not None and is_shared():
            raise ConfigError("control: expected null under torchrun; run it again in one process")
        return _train_here(config, console, callbacks)


def _train_here(
    config: TrainConfig, console: Console | None, callbacks: Sequence[Callback]
) -> Report | None:
    """Train in this process. Of several, rank 0 writes and prints; the others return None."""
    if not is_rank_zero():
        console = Console(quiet=True)
        warnings.simplefilter("ignore")  # rank 0 shows them
    folder = Path(broadcast(str(create_run_folder(config) if is_rank_zero() else "")))
    config.name = broadcast(config.name)
    lock = RunLock(folder)
    try:
        with ignore_broken_pipe(), errors_once():
            return _train(config, folder, lock, terminal(console), callbacks)
    except Stopped as stopped:
        if not is_rank_zero():
            raise SystemExit(stopped.code) from None
        if is_run(folder):
            stopped.said += f"; resume it: headscope train resume={folder}"
        if stopped.number == signal.SIGINT:
            raise KeyboardInterrupt(str(stopped)) from None
        raise
    finally:
        lock.release()


def _train(
    config: TrainConfig,
    folder: Path,
    lock: RunLock,
    console: Console,
    callbacks: Sequence[Callback],
) -> Report | None:
    start = time.perf_counter()
    resumed = _resume(config, folder, lock)
    checkpoint = starting_point(config, resumed)
    phase = partial(Bar, console, is_hidden=not config.trainer.progress)
    with rank_zero_first():
        data = _load_data(config, checkpoint, resumed, phase)
        setup = _setup(config, folder, data, checkpoint, resumed)
        if is_rank_zero():
            _write_copies(folder, setup, lock)
    facts = data.facts()
    show_facts(console, folder, facts)
    with phase("preparing the network"):
        module = build_module(setup, data, checkpoint, resumed)
        if config.control is not None:
            averages_in_place_of_attention(module.model)  # raises where it cannot
    _add_features(config, module.model, data, phase)
    logger = None
    if config.inspection.enabled and is_rank_zero():
        logger = head_logger(setup, folder, data, module)
    steps = module.total_steps
    if data.chosen:
        steps = min(steps, data.chosen.steps)
    trainer = build_trainer(setup, folder, steps, console, logger, callbacks)
    origin = checkpoint or (starting_point(config) if config.control is not None else None)
    all_reduce_max(0)  # rank 0 waits for the others to prepare
    seconds = {"preparing": time.perf_counter() - start}
    with _timed(seconds, "training"):
        best = _fit(trainer, module, data, folder, resumed)
    is_writer = is_rank_zero()
    if dist.is_initialized():
        dist.destroy_process_group()
    if not is_writer:
        return None
    with phase("scoring the best checkpoint"):
        report = _evaluate(config, folder, trainer, module, data, seconds)
    report.facts_of_data = facts
    report.facts_of_training = {
        "steps": trainer.global_step,
        **best,
        # Those started: current_epoch is one less where a resumed run found nothing left to do.
        "epochs": trainer.fit_loop.epoch_progress.current.ready,
        "parameters": sum(weight.numel() for weight in module.model.parameters()),
        "precision": str(trainer.precision),
        "device": str(trainer.strategy.root_device),
        "processes": trainer.world_size,
    }
    save_model(folder, setup, module.model, report.chosen())
    if logger is not None:
        seconds["inspection (within training)"] = logger.seconds
        with _timed(seconds, "causes (after training)"), phase("ablating heads") as bar:
            study_heads(trainer, module, data, logger, report, bar)
    with _timed(seconds, "contributions"), phase("contributions of heads"):
        add_contributions(module, data, report)
    write_errors(report, data.corpus.splits["test"])
    if config.baseline:
        with phase("baseline: TF-IDF and logistic regression"):
            baseline, seconds["baseline"] = baseline_scores(data.corpus.splits)
        if baseline is not None:
            report.compare("baseline", baseline)
    if config.control is not None:
        with _timed(seconds, "control"):
            report.compare("control", _control(setup, data, origin, console))
    seconds["everything"] = time.perf_counter() - start
    report.save()  # last: metrics.json tells that the run has finished
    writer = trainer.logger.experiment  # type: ignore[union-attr]
    with phase("pictures for TensorBoard"):
        write_summaries(writer, report)
    writer.close()
    show_report(console, report)
    return report


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


# Before training: the run folder, the data, the model.


def create_run_folder(config: TrainConfig) -> Path:
    """Return the run folder; RunError for one that has a run."""
    if config.resume is not None:
        return Path(config.resume)
    if config.name is None:
        config.name = f"{Path(config.data.path).stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    folder = Path(config.outputs_dir) / config.name
    if is_run(folder):
        raise RunError(
            f"name={config.name}: {folder} has a run already; choose another name, or resume it: "
            f"resume={folder}"
        )
    if os.path.lexists(folder) and not folder.is_dir():
        raise RunError(f"name={config.name}: {folder} is not a directory; choose another name")
    return folder


def _resume(config: TrainConfig, folder: Path, lock: RunLock) -> Resumed | None:
    """Return the checkpoint to resume from, if its settings fit; set what the process needs."""
    resumed = None
    if config.resume is not None:
        if is_rank_zero():
            lock.take()
        resumed = load_last(folder)
        if resumed is None:
            warn(f"resume={folder}: has no checkpoint yet, so it starts anew")
        else:
            check_resumed(config, resumed)
    pl.seed_everything(config.seed, verbose=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices that there are not, and tips
    torch.set_float32_matmul_precision("high")  # TensorFloat-32 on a GPU
    return resumed


def _load_data(
    config: TrainConfig,
    checkpoint: Checkpoint | None,
    resumed: Resumed | None,
    phase: Phase,
) -> TextDataModule:
    """Load the texts. A resumed run keeps the tokenizer and the n-grams of its weights."""
    tokenizer = None
    evidence: Any = config.model.evidence
    if resumed is not None:
        tokenizer = resumed.setup.tokenizer
        evidence = resumed.setup.evidence
    elif checkpoint is not None:
        tokenizer = checkpoint.tokenizer
    data = TextDataModule(
        config.data, config.tokenizer, config.seed, tokenizer, evidence or False, phase
    )
    if config.final is not None:
        data.chosen = chosen_by(Path(config.final), len(data.corpus.splits["train"]))
    data.accumulate = config.trainer.accumulate
    return data


def _setup(
    config: TrainConfig,
    folder: Path,
    data: TextDataModule,
    checkpoint: Checkpoint | None,
    resumed: Resumed | None,
) -> Setup:
    """Return what the weights depend on; RunError if the data are not those of a resumed run."""
    encoder = None if checkpoint is None else checkpoint.encoder
    labels = data.corpus.labels
    digests = data.corpus.digests()
    if resumed is not None:
        check_data(folder, resumed.setup, labels, digests)
        encoder = resumed.setup.encoder
    return Setup(
        config,
        labels,
        data.tokenizer,
        digests,
        encoder,
        data.evidence,
    )


def _add_features(
    config: TrainConfig, model: nn.Module, data: TextDataModule, phase: Phase
) -> None:
    """Compute the hidden states of a frozen encoder, once for all epochs, seeds and sweeps."""
    if not isinstance(model, TextClassifier) or model.features is None:
        return
    settings = f"{model.features.digest()} {config.model.features_layer}"
    device = best_device(config.trainer.accelerator, "trainer.accelerator")
    with rank_zero_first(), phase("hidden states of model.features") as bar:
        data.add_features(model.features, settings, device, bar.update)


def _write_copies(folder: Path, setup: Setup, lock: RunLock) -> None:
    """Write what people may read; not before the texts are read, which may be wrong."""
    if setup.config.resume is None:
        lock.take()
        create_run_folder(setup.config)  # another run may have taken the name in the meantime
    save_copies(folder, setup)


def build_trainer(
    setup: Setup,
    folder: Path,
    total_steps: int,
    console: Console | None = None,
    logger: HeadLogger | None = None,
    others: Sequence[Callback] = (),
) -> pl.Trainer:
    """Return a Trainer with the device, precision and callbacks of the settings, and others."""
    config = setup.config
    settings = config.trainer
    callbacks: list[Callback] = [StopAtNonFiniteLoss(folder / LAST), *others]
    if logger is not None:  # before the averages: it reads them at a validation
        callbacks.append(logger)
    if settings.ema_decay is not None:
        averages = AveragedWeights(decay=settings.ema_decay)
        callbacks.append(averages)
        if logger is not None:
            logger.averaged = averages.in_place
    if settings.patience is not None:
        callbacks.append(Patience(settings.patience))
    if is_rank_zero():
        callbacks.append(ValidationLog(folder))
    callbacks += [
        StopAtLastStep(total_steps),
        RunProgress(total_steps, console or Console(), settings.progress),
        RunCheckpoint(folder / LAST, setup),
    ]
    strategy: Any = "auto"
    # Lightning would count on the processes of a scheduler, and requeue its jobs at a signal.
    environment: Any = LightningEnvironment()
    devices = num_nodes = 1
    if is_shared():
        environment = TorchElasticEnvironment()
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        num_nodes = dist.get_world_size() // devices
        # No buffer of ours changes.
        strategy = DDPStrategy(forward_sync_buffers=False, gradient_as_bucket_view=True)
    return pl.Trainer(
        accelerator=settings.accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=chosen_precision(settings),  # type: ignore[arg-type]
        max_epochs=settings.max_epochs,
        accumulate_grad_batches=settings.accumulate,
        gradient_clip_val=config.optimizer.gradient_clip or None,
        logger=TensorBoardLogger(folder, name="", version="", default_hp_metric=False),
        callbacks=callbacks,
        limit_val_batches=float(config.final is None),
        num_sanity_val_steps=0,  # the record at step 0 makes a pass of its own
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # our sampler shares its batches itself
        log_every_n_steps=20,
        default_root_dir=folder,
        plugins=[AtomicCheckpointIO(), environment],
    )


# Training, and the best checkpoint.


def _fit(
    trainer: pl.Trainer,
    module: ClassifierModule,
    data: TextDataModule,
    folder: Path,
    resumed: Resumed | None,
) -> dict[str, object]:
    """Train, and load the best weights; return their step, epoch and score.

    Raises:
        Stopped: by a signal; unless it was a second Ctrl-C, the run can be resumed and used.
    """
    (last,) = (each for each in trainer.checkpoint_callbacks if isinstance(each, RunCheckpoint))
    path = None if resumed is None else resumed.path
    with signals_taken(last.on_signal), without_needless_warnings():
        try:
            trainer.fit(module, datamodule=data, ckpt_path=path, weights_only=True)
        except Stopped as stopped:
            stopped.said = f" at step {trainer.global_step}"
            if last.has_stopped and is_rank_zero() and last.best is not None:
                _load_best(trainer, module, data, last.best)
                chosen = Chosen(last.best["step"], thresholds=thresholds_of(module.objective))
                save_model(folder, last.run_setup, module.model, chosen)
            raise
    if last.is_asked_to_stop():  # while no step was left to take
        raise Stopped(int(last.received or 0))
    if last.best is None or not is_rank_zero():
        return {}
    _load_best(trainer, module, data, last.best)
    return {
        "kept step": last.best["step"],
        "kept epoch": last.best["epoch"],
        "best validation loss": last.best["loss"],
    }


def _load_best(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, best: Best
) -> None:
    """Load the best weights, and choose the thresholds of classes for them."""
    module.load_state_dict(best["weights"], strict=False)
    if isinstance(module.objective, MultiLabel):
        validation = validation_logits(module, data, trainer.strategy.root_device)
        module.objective = MultiLabel(best_thresholds(*validation))


def _evaluate(
    config: TrainConfig,
    folder: Path,
    trainer: pl.Trainer,
    module: ClassifierModule,
    data: TextDataModule,
    seconds: dict[str, float],
) -> Report:
    """Score the best checkpoint, and calibrate its probabilities."""
    objective = module.objective
    device = trainer.strategy.root_device
    with _timed(seconds, "testing"):
        logits, targets = split_logits(module.model, data.loader("test"), device)
        validation = validation_logits(module, data, device)
        report = Report(
            folder=folder,
            config=config,
            labels=data.corpus.labels,
            test=scores(logits, targets, objective),
            validation=scores(*validation, objective),
            logits=logits,
            targets=targets,
            objective=objective,
            seconds=seconds,
        )
    if not isinstance(objective, MultiLabel):  # which has thresholds instead of a temperature
        with _timed(seconds, "calibration"):
            calibration = calibrate(*validation)
            report.calibration = calibration.with_split("test", logits, targets)
        shares = (validation[0].double() / report.temperature).softmax(dim=-1)
        confidence, prediction = shares.max(dim=-1)
        report.curve = accuracy_curve(confidence.numpy(), (prediction == validation[1]).numpy())
    report.most_unknown = most_unknown(data.tokenizer, data.encoded["validation"])
    if data.chosen:
        report.most_unknown = data.chosen.most_unknown
    return report


def _control(
    setup: Setup,
    data: TextDataModule,
    checkpoint: Checkpoint | None,
    console: Console,
) -> Compared:
    """Train the network once more, with averages in place of attention, and score it on test."""
    name = "averages in place of attention"
    show_line(console, f"control=uniform: the same network, with {name}")
    pl.seed_everything(setup.config.seed, verbose=False)
    module = build_module(setup, data, checkpoint, None)
    with (
        averages_in_place_of_attention(module.model),
        tempfile.TemporaryDirectory(prefix="headscope-") as gone,
    ):
        trainer = build_trainer(setup, Path(gone), module.total_steps, console)
        _fit(trainer, module, data, Path(gone), None)
        trainer.logger.experiment.close()  # type: ignore[union-attr]
        device = trainer.strategy.root_device
        logits, targets = split_logits(module.model, data.loader("test"), device)
    objective = module.objective
    predicted = objective.predicted(objective.probabilities(logits.double()))
    return Compared(name, scores(logits, targets, objective), predicted)
