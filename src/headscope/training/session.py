"""The objects of one training: trainer, module, callbacks, and what comes after the last step."""

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console

from headscope.config import TrainConfig, TrainerConfig
from headscope.data.batching import Batch, TextBatches
from headscope.data.columns import class_counts, texts_among
from headscope.data.datamodule import TextDataModule
from headscope.errors import RunError
from headscope.heads.ablation import headline
from headscope.heads.contributions import has_contributions, mean_contributions
from headscope.heads.lightning_callback import HeadLogger, ProbeSet, write_numbers
from headscope.heads.report import (
    JOIN,
    beyond_the_usual,
    choose_probes,
    new_recorder,
    record_study,
)
from headscope.heads.study import draw_samples, special_tokens, study
from headscope.model.objective import MultiLabel
from headscope.model.pretrained import Checkpoint, load_weights
from headscope.record.schema import RecordError
from headscope.run import (
    build_model,
    load_encoder,
    objective_of,
    save_thresholds,
    save_weights,
    split_logits,
)
from headscope.signals import Stopped, signals_taken
from headscope.training.callbacks import (
    AtomicCheckpointIO,
    AveragedWeights,
    Patience,
    ResumeCheckpoint,
    RunCheckpoint,
    RunProgress,
    StopAtLastStep,
    StopAtNonFiniteLoss,
    ValidationLog,
)
from headscope.training.distributed import is_rank_zero, is_shared, process_count
from headscope.training.module import ClassifierModule, chosen_precision, freeze
from headscope.training.report import (
    ABLATION,
    ANSWER,
    PUT,
    Report,
    write_calibration,
    write_scores,
)
from headscope.training.resume import LAST, check_weights, steps_done
from headscope.training.scores import best_thresholds

PUT_TEXTS = 300  # over which it is said what every head put
QUICK_SHARES = (0.2,)  # of a text's tokens, for faithfulness; inspect.py takes more


class Session:
    """The objects of one training: trainer, module, callbacks and their ends.

    The encoder begins with the weights of `checkpoint`; None for one from scratch or a run that goes on, from its own
    checkpoint `resumed`.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        data: TextDataModule,
        console: Console,
        checkpoint: Checkpoint | None = None,
        resumed: Path | None = None,
    ) -> None:
        self.config, self.folder, self.data = config, folder, data
        self.objective = objective_of(config)
        self.last = folder / LAST
        self.resumed = resumed
        done = (0, 0) if resumed is None else steps_done(resumed)
        self.total_steps = total_steps(config.trainer, len(data.sampler("train")), *done)
        self.module = self._module(checkpoint)
        decay = config.trainer.ema_decay
        self.averages = None if decay is None else AveragedWeights(decay=decay)
        self.head_logger = (
            self._head_logger() if config.inspection.enabled and is_rank_zero() else None
        )
        self.logger = TensorBoardLogger(folder, name="", version="", default_hp_metric=False)
        self.writer = self.logger.experiment
        self.trainer = new_trainer(config, folder, self._callbacks(console), self.logger)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.trainer.strategy.root_device

    def _module(self, checkpoint: Checkpoint | None) -> ClassifierModule:
        labels, settings = self.data.corpus.labels, self.config.optimizer
        weights = None
        if settings.class_weights == "balanced":
            classes = self.data.labels("train")
            counts = torch.from_numpy(class_counts(classes, len(labels)))
            weights = self.objective.balanced_weights(counts.float(), len(classes))
            if not isinstance(
                self.objective, MultiLabel
            ):  # whose loss is not divided by its weights
                self.data.text_weights = weights[torch.from_numpy(classes)].double().numpy()
        self.data.accumulate = self.config.trainer.accumulate
        architecture = load_encoder(self.folder, self.config)
        model = build_model(
            self.config, self.data.tokenizer, labels, architecture, self.data.evidence
        )
        if model.evidence is not None:
            has_class = self.objective.has(torch.from_numpy(self.data.labels("train")), len(labels))
            model.evidence.set_ratios(torch.from_numpy(self.data.ratios(has_class.numpy())))
        if checkpoint is not None:
            load_weights(model, checkpoint)
        freeze(model, self.config.model.frozen_layers)
        # One kernel that steps all weights would, in float16, unscale the gradients after they are clipped.
        fused = chosen_precision(self.config.trainer) != "16-mixed"
        module = ClassifierModule(
            model, settings, len(labels), self.total_steps, weights, fused, self.objective
        )
        if self.resumed is not None:
            check_weights(self.resumed, module.state_dict())
        return module

    def _head_logger(self) -> HeadLogger:
        data, inspection, labels = self.data, self.config.inspection, self.data.corpus.labels
        split, special = data.corpus.splits["validation"], special_tokens(data.tokenizer)
        columns = texts_among(split.column_names)
        probes = choose_probes(data, inspection, self.module.model, self.objective)
        # Maps are made outside of Lightning's context for mixed precision, in the weights' own type.
        notes = {
            "precision": "32-true",
            "dropout": "off",
            "trained in": chosen_precision(self.config.trainer),
        }

        def text_of(row: int) -> str:
            return JOIN.join(split[row][column] for column in columns)

        try:
            recorder = new_recorder(self.folder, probes, labels, inspection, notes)
        except RecordError as error:
            raise RunError(
                f"resume={self.folder}: heads/{error}; move the folder heads away, or remove it"
            ) from error
        subjects = ProbeSet(probes, labels, special, text_of, self.objective)
        averaged = nullcontext if self.averages is None else self.averages.in_place
        return HeadLogger(subjects, inspection, recorder, averaged)

    def _callbacks(self, console: Console) -> list[Callback]:
        settings = self.config.trainer
        self.checkpoint, self.save_last = RunCheckpoint(self.folder), ResumeCheckpoint(self.last)
        callbacks: list[Callback] = [StopAtNonFiniteLoss(self.last)]
        if self.head_logger is not None:
            callbacks.append(self.head_logger)
        if self.averages is not None:
            callbacks.append(self.averages)
        if settings.patience is not None:
            callbacks.append(Patience(settings.patience))
        if is_rank_zero():
            callbacks.append(ValidationLog(self.folder))
        progress = RunProgress(self.total_steps, console, settings.progress)
        return [
            *callbacks,
            StopAtLastStep(self.total_steps),
            progress,
            self.checkpoint,
            self.save_last,
        ]

    def fit(self) -> float:
        """Train, keep the best weights in the module and in model.safetensors, and return the seconds it took.

        Raises:
            Stopped: by a signal; unless it was a second Ctrl-C, all is saved that is needed to go on.
        """
        start = time.perf_counter()
        with signals_taken(self.save_last.on_signal), without_needless_warnings():
            try:
                self.trainer.fit(
                    self.module, datamodule=self.data, ckpt_path=self.resumed, weights_only=True
                )
            except Stopped as stopped:
                stopped.said = f" at step {self.trainer.global_step}"
                if self.save_last.has_stopped and is_rank_zero():
                    self._keep_best()  # what was learned can be used
                raise
        if self.save_last.is_asked_to_stop():  # while no step was left to take
            raise Stopped(int(self.save_last.received or 0))
        if is_rank_zero():
            self._keep_best()
        return time.perf_counter() - start

    def _keep_best(self) -> None:
        """Take the weights of the best validation; those of the last step where there was none yet."""
        kept = torch.load(
            self.checkpoint.best_model_path or self.last, map_location="cpu", weights_only=True
        )
        self.kept_step, self.kept_epoch = (
            kept["global_step"],
            kept["epoch"] + 1,
        )  # Lightning counts from 0
        self.module.load_state_dict(kept["state_dict"], strict=False)
        save_weights(self.folder, self.module.model)  # type: ignore[arg-type]
        if isinstance(self.objective, MultiLabel):
            validation = split_logits(
                self.module.model, self.data.loader("validation"), self.device
            )
            thresholds = best_thresholds(*validation)
            save_thresholds(self.folder, self.data.corpus.labels, thresholds)
            self.objective = MultiLabel(thresholds)

    def facts(self) -> dict[str, object]:
        """Return what a reader of the results should know about the training."""
        best = self.checkpoint.best_model_score
        return {
            "steps": self.trainer.global_step,
            "kept step": self.kept_step,
            "kept epoch": self.kept_epoch,
            # Those begun: current_epoch is one less where a resumed run found nothing left to do.
            "epochs": self.trainer.fit_loop.epoch_progress.current.ready,
            "parameters": sum(weight.numel() for weight in self.module.model.parameters()),
            "precision": str(self.trainer.precision),
            "device": str(self.device),
            "processes": process_count(self.config.trainer),
            "best validation macro-F1": None if best is None else float(best),
        }

    def study(self) -> dict[str, object]:
        """Switch every head off in turn on some validation texts, record what happens, and return it as facts."""
        inspection = self.config.inspection
        if self.head_logger is None or not inspection.causes:
            return {}
        special = self.head_logger.subjects.special
        samples = self._validation_texts(inspection.causes)
        found = study(self.module.model, samples, special, QUICK_SHARES, self.objective)
        probes = self.head_logger.subjects.probes
        recorder = self.head_logger.recorder
        model = self.module.model
        record_study(recorder, self.kept_step, found, model, probes, self.objective)
        write_numbers(self.writer, beyond_the_usual(found), self.kept_step)
        return {
            ABLATION: {"texts": found.texts, "heads": found.loss_increases()},
            ANSWER: headline(found.effects),
        }

    def put(self) -> dict[str, object]:
        """Return what every head put for the predicted class of some validation texts, where that can be said."""
        model = self.module.model
        if not has_contributions(model):
            return {}
        return {
            PUT: mean_contributions(
                model, self._validation_texts(PUT_TEXTS)[0], self.objective
            ).facts()
        }

    def _validation_texts(self, count: int) -> list[list[Batch]]:
        """Return `count` validation texts and further ones (see `draw_samples`), and put the model where it computes."""
        self.module.model.to(self.device)
        batches = TextBatches(self.data.encoded["validation"], self.data.labels("validation"))
        return draw_samples(batches, count, self.config.data.tokens_per_batch, self.config.seed)

    def write_closing(self, report: Report) -> None:
        """Write TensorBoard's closing entries."""
        write_scores(self.writer, report)
        write_calibration(self.writer, report)
        self.writer.close()


def total_steps(
    settings: TrainerConfig, batches: int, epochs_done: int = 0, steps_done: int = 0
) -> int:
    """Return the optimizer steps of the whole run, ceil(batches / accumulate) in each epoch and at most max_steps.

    `batches` are those of one process in an epoch. Epochs that are done may have had other batches.
    """
    steps = steps_done + (settings.max_epochs - epochs_done) * -(-batches // settings.accumulate)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def new_trainer(
    config: TrainConfig, folder: Path, callbacks: list[Callback], logger: TensorBoardLogger
) -> pl.Trainer:
    """Return a Trainer on the device, and in the precision, that the configuration says."""
    settings = config.trainer
    several = DDPStrategy(
        forward_sync_buffers=False, gradient_as_bucket_view=True
    )  # no buffer of ours changes
    return pl.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        strategy=several if is_shared() else "auto",
        precision=chosen_precision(settings),  # type: ignore[arg-type]
        max_epochs=settings.max_epochs,
        accumulate_grad_batches=settings.accumulate,
        gradient_clip_val=config.optimizer.gradient_clip or None,
        logger=logger,
        callbacks=callbacks,
        num_sanity_val_steps=0,  # the record at step 0 makes a pass of its own
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # our sampler shares its batches itself
        log_every_n_steps=20,
        default_root_dir=folder,
        # What a scheduler has set is read by `processes`: Lightning would count on as many processes as it has started,
        # and take its signals to queue the job again.
        plugins=[
            AtomicCheckpointIO(),
            TorchElasticEnvironment() if is_shared() else LightningEnvironment(),
        ],
    )


@contextmanager
def without_needless_warnings() -> Iterator[None]:
    """Silence Lightning's warnings about what is intended here."""
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",  # texts are batched in this process: workers would only copy them
            "Checkpoint directory .* exists and is not empty",  # a resumed run finds its own
            ".*LeafSpec.*",  # a part of torch that torch calls deprecated, and Lightning calls
            "The number of training batches",  # few batches count as too few to log
            "It is recommended to use `self.log",  # the metrics of validation are those of all processes already
        ):
            warnings.filterwarnings("ignore", message=message)
        yield


@contextmanager
def errors_told_once() -> Iterator[None]:
    """Let TensorBoard's writing thread end without a traceback where the disk is full: its error is raised here too."""
    before = threading.excepthook

    def told(arguments: threading.ExceptHookArgs) -> None:
        if not isinstance(arguments.exc_value, OSError):
            before(arguments)

    threading.excepthook = told
    try:
        yield
    finally:
        threading.excepthook = before
