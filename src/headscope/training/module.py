"""The LightningModule of a classifier: loss, metrics, and what a checkpoint keeps of a run."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from headscope.data.batching import Batch
from headscope.model.objective import ONE_CLASS, AnyClasses, Objective
from headscope.training.config import OptimizerConfig
from headscope.training.optimizer_state import take_up
from headscope.training.optimizing import OptimizedModule
from headscope.training.thresholds import AtBestThresholds


class ClassifierModule(OptimizedModule):
    """Train a classifier.

    Args:
        model: maps token ids to logits.
        config: optimizer and loss.
        num_classes: C.
        total_steps: optimizer steps of the whole run, which the learning rate's course is laid out over.
        class_weights: weight of each class in the loss, or None.
        fused: let one kernel step all weights. In float16 that would unscale the gradients after they are clipped.
        objective: what the labels are, which decides about the loss and the metrics.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizerConfig,
        num_classes: int,
        total_steps: int,
        class_weights: Float[Tensor, " C"] | None = None,
        fused: bool = True,
        objective: Objective = ONE_CLASS,
    ) -> None:
        super().__init__(model, config, total_steps, fused)
        self.objective = objective
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.validation_metrics = validation_metrics(objective, num_classes)
        self.validation_loss = MeanMetric(nan_strategy="disable")  # one that is no number is to be seen

    def forward(self, batch: Batch) -> Float[Tensor, "B C"]:
        """Return the logits of a batch."""
        return self.model(*batch.inputs)  # type: ignore[no-any-return]

    def training_step(self, batch: Batch, batch_index: int) -> Float[Tensor, ""]:
        """Return the loss, smoothed and weighted as configured."""
        loss = self.objective.loss(self(batch), batch.labels, self.class_weights, self.config.label_smoothing)
        self.log("train/loss", loss, batch_size=len(batch.labels))
        return loss

    def validation_step(self, batch: Batch, batch_index: int) -> Float[Tensor, "B C"]:
        """Count the batch in; return its logits, which callbacks may want."""
        logits = self(batch)
        self.validation_metrics.update(logits, batch.labels)
        loss = self.objective.loss(logits.float(), batch.labels)
        self.validation_loss.update(loss.expand(len(batch.labels)))  # once for each text: it would not mind a weight
        return logits  # type: ignore[no-any-return]

    def on_validation_epoch_end(self) -> None:
        """Report the numbers over the whole validation split."""
        self.log("validation/loss", self.validation_loss.compute())
        self.log_dict(self.validation_metrics.compute())
        self.validation_loss.reset()
        self.validation_metrics.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the state of the random numbers, so that a resumed run draws what an unbroken one would have drawn."""
        checkpoint["random_state"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up the random numbers again when training does, and the optimizer with the settings of today."""
        self.random_state = checkpoint.get("random_state")
        take_up(checkpoint, self.model, self._adamw(), self.learning_rate_share)

    def on_train_start(self) -> None:
        """Set the random numbers to where the checkpoint left them."""
        if (state := getattr(self, "random_state", None)) is not None:
            torch.set_rng_state(state.cpu())


def validation_metrics(objective: Objective, num_classes: int) -> MetricCollection:
    """Return what gives validation/accuracy and validation/macro_f1."""
    if isinstance(objective, AnyClasses):
        return MetricCollection([AtBestThresholds()], prefix="validation/")
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(num_classes, average="micro"),
            "macro_f1": MulticlassF1Score(num_classes, average="macro"),
        },
        prefix="validation/",
    )
