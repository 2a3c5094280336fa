"""train(config): from settings to a run folder with a trained, tested and inspected model."""

import logging
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from torch import Tensor, nn

from headscope.data.datamodule import Phase, TextDataModule
from headscope.data.features import StatesOf
from headscope.ground.errors import ConfigError, RunError, warn
from headscope.ground.files import new_folder, remove_empty
from headscope.ground.signals import Stopped, signals_taken
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.model.classifier import TextClassifier
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.model.pretrained import Checkpoint, Pretrained, PretrainedClassifier
from headscope.model.running import eval_mode
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.runs.abstaining import accuracy_curve, most_unknown
from headscope.runs.folder import save_copies, save_model
from headscope.runs.prediction import best_device, split_logits
from headscope.runs.run import Run
from headscope.runs.setup import Chosen, Classifier, Setup
from headscope.runs.texts import check_data
from headscope.settings.checks import check, flatten, override
from headscope.settings.config import ROLES, TrainConfig, is_run
from headscope.training.baseline import Compared, averages_in_place_of_attention, baseline_scores
from headscope.training.callbacks import Best, RunCheckpoint, without_needless_warnings
from headscope.training.console import show_facts, show_report
from headscope.training.distributed import (
    all_reduce_max,
    broadcast,
    is_rank_zero,
    is_shared,
    joined,
    rank_zero_first,
)
from headscope.training.module import ClassifierModule, build_module, starting_point
from headscope.training.recording import (
    add_contributions,
    add_words,
    build_head_logger,
    study_heads,
)
from headscope.training.report import Report, write_summaries
from headscope.training.resume import (
    Resumed,
    check_resumed,
    load_last,
    locked,
)
from headscope.training.scores import best_thresholds, chosen_temperature, scores
from headscope.training.trainer import build_trainer


def train(
    config: TrainConfig, console: Console | None = None, callbacks: Sequence[Callback] = ()
) -> Report | None:
    """Train, keep the best epoch by tempered validation loss, test it, and write the run folder.

    A closed standard output, such as that of `| head`, does not end it. Of several processes that
    torchrun has started, rank 0 returns the report and the others None.

    Raises:
        ConfigError, DataError, RunError, TrainingError: for what you can fix.
        KeyboardInterrupt, Stopped: after Ctrl-C or another signal, once the run is saved.
    """
    with joined(config.trainer.accelerator):
        if config.control is not None and is_shared():
            raise ConfigError("control: expected null under torchrun; run it again in one process")
        if not is_rank_zero():
            console = Console(quiet=True)
            warnings.simplefilter("ignore")  # rank 0 shows them
        folder = Path(broadcast(str(create_run_folder(config) if is_rank_zero() else "")))
        config.name = broadcast(config.name)
        try:
            with locked(folder) if is_rank_zero() else nullcontext():
                return _train(config, folder, terminal(console), callbacks)
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
    config: TrainConfig,
    folder: Path,
    console: Console,
    callbacks: Sequence[Callback],
) -> Report | None:
    start = time.perf_counter()
    phase = partial(Bar, console, is_hidden=not config.trainer.progress)
    resumed = _resume(config, folder)
    checkpoint = starting_point(config, resumed)
    with rank_zero_first():
        data, setup = _prepare(config, folder, checkpoint, resumed, phase)
        if is_rank_zero():
            save_copies(folder, setup)  # not before the texts are read, which may be wrong
    facts = data.facts()
    show_facts(console, folder, facts)
    with phase("preparing the network"):
        module = build_module(setup, data, checkpoint, resumed)
        if config.control is not None:
            averages_in_place_of_attention(module.model)  # raises where it cannot
    _add_features(config, module.model, data, phase)
    head_logger = None
    if config.inspection.enabled and is_rank_zero():
        head_logger = build_head_logger(setup, folder, data, module)
    trainer = build_trainer(setup, folder, module.total_steps, console, head_logger, callbacks)
    all_reduce_max(0)  # rank 0 waits for the others to prepare
    seconds = {"preparing": time.perf_counter() - start}
    with _timed(seconds, "training"):
        best = _fit(trainer, module, data, folder, resumed)
    if best is None:  # in a process that writes nothing
        return None
    if isinstance(module.model, PretrainedClassifier):  # heads of its frozen layers are studied too
        data.drop_features()
    with _timed(seconds, "testing"), phase("scoring the best checkpoint"):
        report = _evaluate(setup, folder, trainer, module, data)
    report.facts_of_training |= best
    report.facts_of_data = facts
    report.seconds = seconds
    save_model(folder, setup, module.model, report.chosen())
    if head_logger is not None:
        seconds["inspection"] = head_logger.seconds
        with _timed(seconds, "ablation"), phase("ablating heads") as bar:
            study_heads(module, data, head_logger, report, bar)
    with _timed(seconds, "contributions"), phase("contributions of heads"):
        add_contributions(module, data, report)
    if config.baseline:
        with _timed(seconds, "baseline"), phase("baseline: TF-IDF and logistic regression"):
            report.compare("baseline", baseline_scores(data.corpus.splits))
    if config.control is not None:
        with _timed(seconds, "control"):
            report.compare("control", _control(setup, data, console))
    seconds["everything"] = time.perf_counter() - start
    with phase("pictures for TensorBoard"):
        write_summaries(trainer.loggers, report)
    report.save()  # last: metrics.json tells that the run has finished
    if config.inspection.enabled:
        with _timed(seconds, "words"), phase("words of each class"):
            model = cast(Classifier, module.model)
            add_words(Run(folder, setup, model, report.chosen()), data, report)
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
        stem = f"{Path(config.data.path).stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
        config.name = new_folder(Path(config.outputs_dir) / stem).name
    folder = Path(config.outputs_dir) / config.name
    if is_run(folder):
        raise RunError(
            f"name={config.name}: {folder} has a run already; choose another name, or resume it: "
            f"resume={folder}"
        )
    if os.path.lexists(folder) and not folder.is_dir():
        raise RunError(f"name={config.name}: {folder} is not a directory; choose another name")
    return folder


def _resume(config: TrainConfig, folder: Path) -> Resumed | None:
    """Return the checkpoint to resume from, if its settings fit; set what the process needs."""
    resumed = None
    if config.resume is not None:
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


def _prepare(
    config: TrainConfig,
    folder: Path,
    checkpoint: Checkpoint | None,
    resumed: Resumed | None,
    phase: Phase,
) -> tuple[TextDataModule, Setup]:
    """Return the texts, and what the weights depend on, which a resumed run keeps.

    RunError if the data are not those of a resumed run.
    """
    before = None if resumed is None else resumed.setup
    known = before or checkpoint
    tokenizer = None if known is None else known.tokenizer
    encoder = None if known is None else known.encoder
    evidence = config.model.evidence if before is None else before.evidence or False
    data = TextDataModule(config.data, config.tokenizer, config.seed, tokenizer, evidence, phase)
    steps_of_pass = -(-len(data.sampler("train")) // config.trainer.accumulate)
    data.passes = -(-config.trainer.epoch_steps // steps_of_pass)
    labels = data.corpus.labels
    digests = data.corpus.digests()
    if before is not None:
        check_data(folder, before, labels, digests)
    return data, Setup(config, labels, data.tokenizer, digests, encoder, data.evidence)


def _add_features(
    config: TrainConfig, model: nn.Module, data: TextDataModule, phase: Phase
) -> None:
    """Compute the hidden states of frozen layers, once for all epochs, seeds and sweeps."""
    roles: Sequence[str] = ROLES
    if isinstance(model, TextClassifier) and model.features is not None:
        frozen: Pretrained = model.features
        encoder: StatesOf = model.features
    elif isinstance(model, PretrainedClassifier) and model.can_skip():
        frozen, encoder = model, model.frozen_states
        roles = ("train", "validation")
    else:
        return
    settings = f"{frozen.digest()} {config.model.features_layer} {config.model.frozen_layers}"
    device = best_device(config.trainer.accelerator, "trainer.accelerator")
    frozen.to(device)
    with rank_zero_first(), eval_mode(model), phase("hidden states of frozen layers") as bar:
        data.add_features(encoder, frozen.width, settings, device, bar.update, roles)


# Training, and the best checkpoint.


def _fit(
    trainer: pl.Trainer,
    module: ClassifierModule,
    data: TextDataModule,
    folder: Path,
    resumed: Resumed | None,
) -> dict[str, Any] | None:
    """Train, and load the best weights; return their step, epoch and loss, in rank 0 alone.

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
    is_writer = is_rank_zero()
    if dist.is_initialized():
        dist.destroy_process_group()
    if last.best is None or not is_writer:
        return None
    _load_best(trainer, module, data, last.best)
    return {
        "best_step": last.best["step"],
        "best_epoch": last.best["epoch"],
        "best_validation_loss": last.best["loss"],
    }


def _load_best(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, best: Best
) -> None:
    """Load the best weights, and choose the thresholds of classes for them."""
    module.load_state_dict(best["weights"], strict=False)
    if isinstance(module.objective, MultiLabel):
        validation = _logits_of(trainer, module, data, "validation")
        module.objective = MultiLabel(best_thresholds(*validation))


def _logits_of(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, role: str
) -> tuple[Tensor, Tensor]:
    """Return logits and labels of a split."""
    return split_logits(module.model, data.loader(role), trainer.strategy.root_device)


def _evaluate(
    setup: Setup,
    folder: Path,
    trainer: pl.Trainer,
    module: ClassifierModule,
    data: TextDataModule,
) -> Report:
    """Score the best checkpoint, and calibrate its probabilities."""
    objective = module.objective
    logits, targets = _logits_of(trainer, module, data, "test")
    validation = _logits_of(trainer, module, data, "validation")
    report = Report(
        folder=folder,
        config=setup.config,
        labels=setup.labels,
        test=scores(logits, targets, objective),
        validation=scores(*validation, objective),
        logits=logits,
        targets=targets,
        objective=objective,
        most_unknown=most_unknown(data.tokenizer, data.encoded["validation"]),
        facts_of_training={
            "steps": trainer.global_step,
            # Those started: current_epoch is one less where a resumed run found nothing left to do.
            "epochs": trainer.fit_loop.epoch_progress.current.ready,
            "parameters": sum(weight.numel() for weight in module.model.parameters()),
            "precision": str(trainer.precision),
            "device": str(trainer.strategy.root_device),
            "processes": trainer.world_size,
        },
    )
    if not isinstance(objective, MultiLabel):  # which has thresholds instead of a temperature
        report.temperature = chosen_temperature(*validation)
        tempered = validation[0].double() / report.temperature
        report.tempered = {
            "validation": scores(tempered, validation[1]),
            "test": scores(logits.double() / report.temperature, targets),
        }
        shares = tempered.softmax(dim=-1)
        confidence, prediction = shares.max(dim=-1)
        report.curve = accuracy_curve(confidence.numpy(), (prediction == validation[1]).numpy())
    return report


def _control(setup: Setup, data: TextDataModule, console: Console) -> Compared:
    """Train the network once more, with averages in place of attention, and score it on test."""
    name = "averages in place of attention"
    show_line(console, f"control=uniform: the same network, with {name}")
    pl.seed_everything(setup.config.seed, verbose=False)
    module = build_module(setup, data, starting_point(setup.config))
    alone = replace(setup.config, trainer=replace(setup.config.trainer, logger="tensorboard"))
    with (
        averages_in_place_of_attention(module.model),
        tempfile.TemporaryDirectory(prefix="headscope-") as gone,
    ):
        folder = Path(gone)
        trainer = build_trainer(replace(setup, config=alone), folder, module.total_steps, console)
        _fit(trainer, module, data, folder, None)
        trainer.logger.experiment.close()  # type: ignore[union-attr]
        logits, targets = _logits_of(trainer, module, data, "test")
    return Compared.of(name, logits, targets, module.objective)


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
    report = train(config)
    assert report is not None, "rank 0 alone has a report"
    return load_shown(report.folder, allow_code=True)
