"""train(config): from a configuration to a run folder with a trained, tested and inspected model."""

import logging
import time
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console

from headscope.data.datamodule import TextDataModule
from headscope.data.tokenizer import load_tokenizer
from headscope.errors import RunError
from headscope.training.averaging import AveragedWeights
from headscope.training.baseline import baseline_scores
from headscope.training.checkpoint import RunCheckpoint, SaveLast
from headscope.training.closing import write_probes, write_scores
from headscope.training.config import TrainConfig, TrainerConfig
from headscope.training.folder import build_model, save_config, save_vocabulary, save_weights
from headscope.training.heads import HeadLogger
from headscope.training.logits import split_logits
from headscope.training.module import ClassifierModule, balanced_weights
from headscope.training.probes import choose_probes
from headscope.training.progress import RunProgress
from headscope.training.recording import new_recorder
from headscope.training.report import Report
from headscope.training.scoring import scores
from headscope.training.screen import show_facts, show_report
from headscope.training.stopping import StopAtNonFiniteLoss, StopCleanly


def train(config: TrainConfig, console: Console | None = None) -> Report:
    """Train, keep the best weights by validation macro-F1, score them on the test split, and write the run folder.

    Raises:
        DataError, RunError, TrainingError: for what a user can mend.
        KeyboardInterrupt: after Ctrl-C, once what was learned is saved.
    """
    started = time.perf_counter()
    console = console or Console()
    folder = claim_folder(config)
    pl.seed_everything(config.seed, verbose=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # which devices there are not, and tips
    torch.set_float32_matmul_precision("high")  # lets a GPU use TensorFloat-32 where it is asked for float32
    data = _load_data(config, folder)
    facts = data.facts()
    show_facts(console, folder, facts)
    session = Session(config, folder, data, console)
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
    """Return the run folder, made now; refuse one that another run has written to."""
    if config.resume is not None:
        return Path(config.resume)
    if config.name is None:
        config.name = f"{Path(config.data.path).stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    folder = Path(config.outputs_dir) / config.name
    if (folder / "config.yaml").exists():
        raise RunError(
            f"name={config.name}: {folder} holds a run already; choose another name, or go on with it: resume={folder}"
        )
    save_config(folder, config)
    return folder


def _load_data(config: TrainConfig, folder: Path) -> TextDataModule:
    """Load the texts; a resumed run keeps the tokenizer that its weights were trained with."""
    kept = folder / "tokenizer.json"
    tokenizer = load_tokenizer(kept) if config.resume is not None and kept.exists() else None
    data = TextDataModule(config.data, config.tokenizer, config.seed, tokenizer)
    save_vocabulary(folder, data.tokenizer, data.corpus.labels)
    return data


class Session:
    """The objects of one training: trainer, module, callbacks and their ends."""

    def __init__(self, config: TrainConfig, folder: Path, data: TextDataModule, console: Console) -> None:
        self.config, self.folder, self.data = config, folder, data
        self.last = folder / "checkpoints" / "last.ckpt"
        self.total_steps = total_steps(config.trainer, len(data.sampler("train")))
        self.module = self._module()
        self.head_logger = self._head_logger()
        self.stop = StopCleanly(self.total_steps)
        self.logger = TensorBoardLogger(folder, name="", version="", default_hp_metric=False)
        self.writer = self.logger.experiment
        self.trainer = self._trainer(console)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.trainer.strategy.root_device

    def _module(self) -> ClassifierModule:
        labels = self.data.corpus.labels
        weights = None
        if self.config.optimizer.class_weights == "balanced":
            counts = torch.bincount(torch.from_numpy(self.data.labels("train")), minlength=len(labels))
            weights = balanced_weights(counts.float())
        model = build_model(self.config, self.data.tokenizer, labels)
        return ClassifierModule(model, self.config.optimizer, len(labels), self.total_steps, weights)

    def _head_logger(self) -> HeadLogger | None:
        if not self.config.inspection.enabled:
            return None
        probes = choose_probes(self.data, self.config.inspection)
        notes = {"precision": chosen_precision(self.config.trainer), "dropout": "off"}
        recorder = new_recorder(self.folder, probes, self.data.corpus.labels, self.config.inspection, notes)
        return HeadLogger(probes, self.data.corpus.labels, self.config.inspection, recorder)

    def _callbacks(self, console: Console) -> list[Callback]:
        settings = self.config.trainer
        self.checkpoint = RunCheckpoint(self.folder)
        callbacks: list[Callback] = [StopAtNonFiniteLoss(self.last)]
        if self.head_logger is not None:
            callbacks.append(self.head_logger)
        if settings.ema_decay is not None:
            callbacks.append(AveragedWeights(decay=settings.ema_decay))
        if settings.patience is not None:
            callbacks.append(EarlyStopping("validation/macro_f1", mode="max", patience=settings.patience))
        return [
            *callbacks,
            self.stop,
            RunProgress(self.total_steps, console, settings.progress),
            self.checkpoint,
            SaveLast(self.last),
        ]

    def _trainer(self, console: Console) -> pl.Trainer:
        settings = self.config.trainer
        return pl.Trainer(
            accelerator=settings.accelerator,
            devices=settings.devices,
            precision=chosen_precision(settings),  # type: ignore[arg-type]
            max_epochs=settings.max_epochs,
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=self.config.optimizer.gradient_clip or None,
            logger=self.logger,
            callbacks=self._callbacks(console),
            # All of validation before the first step: that is the record at step 0.
            num_sanity_val_steps=-1 if self.head_logger is not None else 0,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,  # our sampler shares its batches itself
            log_every_n_steps=20,
            default_root_dir=self.folder,
        )

    def fit(self) -> float:
        """Train, keep the best weights in the module and in model.safetensors, and return the seconds it took."""
        start = time.perf_counter()
        with warnings.catch_warnings():
            # Texts are batched by array work in this process: more workers would only copy them to and fro.
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            # A resumed run finds its own checkpoints.
            warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
            # Lightning calls a part of torch that torch calls deprecated, and counts few batches as too few to log.
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            warnings.filterwarnings("ignore", message="The number of training batches")
            self.trainer.fit(
                self.module,
                datamodule=self.data,
                ckpt_path=self.last if self.config.resume is not None and self.last.exists() else None,
                weights_only=True,
            )
        if best := self.checkpoint.best_model_path:
            kept = torch.load(best, map_location="cpu", weights_only=True)
            self.module.load_state_dict(kept["state_dict"], strict=False)
            save_weights(self.folder, self.module.model)  # type: ignore[arg-type]
        return time.perf_counter() - start

    def write_closing(self, report: Report) -> None:
        """Write TensorBoard's closing entries."""
        write_scores(self.writer, report)
        if self.head_logger is not None:
            model, device, font = self.module.model, self.device, self.config.inspection.font
            steps = self.trainer.global_step
            write_probes(self.writer, self.head_logger.probes, model, report.labels, device, steps, font)
        self.writer.close()

    def facts(self) -> dict[str, object]:
        """Return what a reader of the results should know about the training."""
        best = self.checkpoint.best_model_score
        return {
            "steps": self.trainer.global_step,
            "epochs": self.trainer.current_epoch,
            "parameters": sum(weight.numel() for weight in self.module.model.parameters()),
            "precision": str(self.trainer.precision),
            "device": str(self.device),
            "best validation macro-F1": None if best is None else float(best),
        }


def _scored(session: Session) -> Report:
    """Score the best weights, and the baseline, on the test split."""
    start, data, labels = time.perf_counter(), session.data, session.data.corpus.labels
    bf16 = session.trainer.precision == "bf16-mixed"
    logits, targets = split_logits(session.module.model, data.loader("test"), session.device, bf16)
    report = Report(session.folder, session.config, labels, scores(logits, targets), logits, targets)
    report.facts_of_training = session.facts()
    report.seconds = {"testing": time.perf_counter() - start}
    if session.head_logger is not None:
        report.seconds["inspection (within training)"] = session.head_logger.seconds
    if session.config.baseline:
        report.baseline, report.baseline_name, report.seconds["baseline"] = baseline_scores(data.corpus.splits)
    return report


def total_steps(settings: TrainerConfig, batches: int) -> int:
    """Return the optimizer steps of the run: ceil(batches / accumulate) in each epoch, at most max_steps."""
    steps = settings.max_epochs * -(-batches // settings.accumulate)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def chosen_precision(settings: TrainerConfig) -> str:
    """Return the precision that `auto` stands for: bf16-mixed on a GPU that has it, 32-true else."""
    if settings.precision != "auto":
        return settings.precision
    has_gpu = settings.accelerator in ("auto", "gpu") and torch.cuda.is_available()
    return "bf16-mixed" if has_gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
