"""Before any label is seen: the encoder guesses hidden tokens of the training texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import MeanMetric

from headscope.data.batching import Batch
from headscope.data.datamodule import TextDataModule
from headscope.data.hiding import hide, mask_id_of, ordinary_tokens
from headscope.model.classifier import TextClassifier
from headscope.model.masked_tokens import MaskedTokenModel
from headscope.training.config import OptimizerConfig, TrainConfig
from headscope.training.length import steps_of
from headscope.training.optimizing import OptimizedModule
from headscope.training.precision import steps_fused
from headscope.training.progress import STEPS_BETWEEN_LOSSES, RunProgress
from headscope.training.stopping import StopAtNonFiniteLoss, StopCleanly
from headscope.training.trainer import new_trainer, without_needless_warnings

RATE = "pretraining.learning_rate"


class MaskedTokenModule(OptimizedModule):
    """Train an encoder to guess hidden tokens; the loss is the mean cross-entropy over the hidden places of a batch.

    Args:
        model: what guesses.
        ordinary: of every id, whether it may be hidden.
        mask_id: of [MASK].
        share: of those tokens that are hidden.
        config: rates and decays.
        total_steps: optimizer steps of all passes.
        fused: see OptimizedModule.
    """

    def __init__(
        self,
        model: MaskedTokenModel,
        ordinary: Bool[Tensor, " V"],
        mask_id: int,
        share: float,
        config: OptimizerConfig,
        total_steps: int,
        fused: bool = True,
    ) -> None:
        super().__init__(model, config, total_steps, fused)
        self.ordinary: Tensor
        self.register_buffer("ordinary", ordinary, persistent=False)
        self.mask_id, self.share = mask_id, share
        self.validation_loss, self.validation_accuracy = MeanMetric(nan_strategy="disable"), MeanMetric()

    def _guessed(
        self, batch: Batch, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], Bool[Tensor, " N"]]:
        """Return the loss, and at each hidden place whether the token was guessed. A batch may have no such place."""
        shown, hidden = hide(batch.token_ids, self.ordinary, self.mask_id, self.share, generator)
        logits = self.model(shown, hidden, batch.key_padding_mask, batch.segment_ids).float()
        wanted = batch.token_ids[hidden]
        loss = F.cross_entropy(logits, wanted, reduction="sum") / max(1, len(wanted))
        return loss, logits.argmax(dim=-1) == wanted

    def training_step(self, batch: Batch, batch_index: int) -> Float[Tensor, ""]:
        """Return the loss; other tokens are hidden each time."""
        return self._guessed(batch)[0]

    def validation_step(self, batch: Batch, batch_index: int) -> Float[Tensor, ""]:
        """Count the batch in, with the same tokens hidden at every validation."""
        generator = torch.Generator(batch.token_ids.device).manual_seed(batch_index)
        loss, right = self._guessed(batch, generator)
        self.validation_loss.update(loss.expand(len(right)))  # once for each token: it would not mind a weight
        self.validation_accuracy.update(right.float())
        return loss

    def on_validation_epoch_end(self) -> None:
        """Report the numbers over the hidden tokens of the whole validation split."""
        for name, metric in (("loss", self.validation_loss), ("accuracy", self.validation_accuracy)):
            self.log(f"validation/{name}", metric.compute())
            metric.reset()


class WrittenNumbers(Callback):
    """Write the losses to TensorBoard, below pretraining/, at steps of their own.

    Args:
        writer: of the run, which Lightning would close behind this stage.
    """

    def __init__(self, writer: SummaryWriter) -> None:
        self.writer, self.written = writer, 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the loss now and then, once for a step of several batches: reading it makes a GPU wait."""
        if trainer.global_step >= self.written + STEPS_BETWEEN_LOSSES:
            self.written = trainer.global_step
            self.writer.add_scalar("pretraining/loss", float(outputs["loss"]), trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what validation found."""
        for name, value in trainer.callback_metrics.items():
            self.writer.add_scalar(f"pretraining/{name.replace('/', '_')}", float(value), trainer.global_step)


def pretrain(
    classifier: TextClassifier,
    data: TextDataModule,
    config: TrainConfig,
    folder: Path,
    writer: SummaryWriter,
    console: Console,
) -> dict[str, object]:
    """Let the encoder of a classifier guess hidden tokens of the training split, and return what it came to.

    No label is looked at, and no text of validation or test is learned.

    Raises:
        ConfigError: if the tokenizer has no token to hide others behind.
        TrainingError: if the loss is not a number.
        KeyboardInterrupt: after Ctrl-C. Nothing is kept then.
    """
    epochs = config.pretraining.epochs
    total = steps_of(epochs, len(data.sampler("train")), config.trainer.accumulate)
    module, stop = _module(classifier, data, config, total), StopCleanly(total)
    progress = RunProgress(total, console, config.trainer.progress, "pretraining", _told)
    trainer = new_trainer(
        config, folder, [StopAtNonFiniteLoss(None, RATE), WrittenNumbers(writer), stop, progress], epochs
    )
    with without_needless_warnings():
        trainer.fit(module, data.loader("train"), data.loader("validation"))
    if stop.interrupted:
        raise KeyboardInterrupt(f"stopped while pretraining, of which nothing is kept; begin anew: resume={folder}")
    found = {name.replace("/", " "): value for name, value in trainer.callback_metrics.items()}
    known = {name: float(value) for name, value in found.items() if value.isfinite()}  # where anything was hidden
    return {"epochs": epochs, "steps": trainer.global_step, **known}


def _module(
    classifier: TextClassifier, data: TextDataModule, config: TrainConfig, total_steps: int
) -> MaskedTokenModule:
    settings = config.pretraining
    return MaskedTokenModule(
        MaskedTokenModel(classifier),
        ordinary_tokens(data.tokenizer),
        mask_id_of(data.tokenizer),
        settings.hidden_share,
        replace(config.optimizer, learning_rate=settings.learning_rate),
        total_steps,
        fused=steps_fused(config.trainer),
    )


def _told(metrics: dict[str, float]) -> str:
    guessed = f"hidden tokens guessed {100 * metrics['validation/accuracy']:.1f} %"
    return f"validation loss {metrics['validation/loss']:.4f}  {guessed}"
