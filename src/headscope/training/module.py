"""The LightningModule of a classifier: loss, metrics, AdamW and its rates, and what a checkpoint keeps of a run."""

import math
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from headscope.config import OptimizerConfig, TrainerConfig
from headscope.data.batching import Batch
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.training.distributed import all_gather
from headscope.training.scores import AtBestThresholds


class ClassifierModule(LightningModule):
    """Train a classifier by AdamW (Loshchilov and Hutter 2019, Decoupled Weight Decay) with warm-up and cosine decay.

    The model maps token ids to logits of `num_classes` classes; its parts are named as in `TextClassifier`. The rate
    rises and falls over `total_steps` optimizer steps. `class_weights` weigh each class in the loss. `fused` lets one
    kernel step all weights; in float16 it would unscale the gradients after they are clipped. The objective, what the
    labels are, decides about loss and metrics.
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
        super().__init__()
        self.model: nn.Module = model
        self.config, self.total_steps, self.fused, self.objective = (
            config,
            total_steps,
            fused,
            objective,
        )
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.validation_metrics = validation_metrics(objective, num_classes)
        self.validation_loss = MeanMetric(nan_strategy="disable")  # NaN is to be seen

    def forward(self, batch: Batch) -> Float[Tensor, "B C"]:
        """Return the logits of a batch."""
        return self.model(*batch.inputs)  # type: ignore[no-any-return]

    def training_step(self, batch: Batch, batch_index: int) -> Float[Tensor, ""]:
        """Return the loss, smoothed and weighted as configured."""
        loss = self.objective.loss(
            self(batch), batch.labels, self.class_weights, self.config.label_smoothing
        )
        self.log("train/loss", loss, batch_size=len(batch.labels))
        return loss * batch.share

    def validation_step(self, batch: Batch, batch_index: int) -> Float[Tensor, "B C"]:
        """Count the batch in; return its logits, which callbacks may want."""
        logits = self(batch)
        self.validation_metrics.update(logits, batch.labels)
        loss = self.objective.loss(logits.float(), batch.labels)
        self.validation_loss.update(loss.expand(len(batch.labels)))  # one value for each text
        return logits  # type: ignore[no-any-return]

    def on_validation_epoch_end(self) -> None:
        """Report the numbers over the whole validation split."""
        self.log("validation/loss", self.validation_loss.compute())
        self.log_dict(self.validation_metrics.compute())
        self.validation_loss.reset()
        self.validation_metrics.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep each process's random numbers, so that a resumed run draws what an unbroken one would have drawn."""
        checkpoint["random_state"] = torch.stack(all_gather(torch.get_rng_state()))  # [N, bytes]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up the random numbers again when training does, and the optimizer with the settings of this run."""
        self.random_state = checkpoint.get("random_state")
        restore_optimizer(checkpoint, self.model, self._adamw(), self.learning_rate_share)

    def on_train_start(self) -> None:
        """Set the random numbers to where the checkpoint left them; each process drops out others."""
        rank, N = self.trainer.global_rank, self.trainer.world_size
        states = getattr(self, "random_state", None)
        if states is not None and len(states := torch.atleast_2d(states)) == N:
            torch.set_rng_state(states[rank].cpu().clone())  # a part of a larger tensor crashes it
        elif rank > 0:
            torch.manual_seed(torch.initial_seed() + (rank << 32))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW, decaying matrices alone, and the learning rates' course step by step."""
        optimizer = self._adamw()
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.learning_rate_share(step)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _adamw(self) -> torch.optim.AdamW:
        betas = (self.config.beta1, self.config.beta2)
        # Fused is three times as fast as the default on a CPU.
        return torch.optim.AdamW(
            parameter_groups(self.model, self.config), betas=betas, fused=self.fused
        )

    def configure_gradient_clipping(
        self,
        optimizer: object,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm of all gradients. Lightning itself refuses to beside fused AdamW, for float16's sake."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def learning_rate_share(self, step: int) -> float:
        """Return the share of the peak learning rate at a step: a straight rise, then half a cosine down.

        f + (1 - f) (1 + cos(pi p)) / 2 with p the share of the steps after the warm-up that are done, and f the
        final share (Loshchilov and Hutter 2017, SGDR, without restarts).
        """
        warmup = round(self.config.warmup_share * self.total_steps)
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, self.total_steps - warmup))
        floor = self.config.final_share
        return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


def validation_metrics(objective: Objective, num_classes: int) -> MetricCollection:
    """Return what gives validation/accuracy and validation/macro_f1."""
    if isinstance(objective, MultiLabel):
        return MetricCollection([AtBestThresholds()], prefix="validation/")
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(num_classes, average="micro"),
            "macro_f1": MulticlassF1Score(num_classes, average="macro"),
        },
        prefix="validation/",
    )


def chosen_precision(settings: TrainerConfig) -> str:
    """Return the precision that `auto` stands for: bf16-mixed on a GPU with instructions for it, 32-true elsewhere.

    On a CPU only measuring tells: some processors with instructions for bfloat16 are slower with them.
    """
    if settings.precision != "auto":
        return settings.precision
    on_gpu = settings.accelerator in ("auto", "gpu") and torch.cuda.is_available()
    return (
        "bf16-mixed"
        if on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        else "32-true"
    )


# Which layers learn, and how fast: layer-wise learning rates, and layers that stay as they are.

NGRAM_WEIGHTS, NO_LAYER = "evidence.weight", -1  # in the place of a distance
BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Return AdamW's groups of parameters; matrices alone are decayed, tables among them.

    BERT's own optimizer leaves out norms and biases and nothing else (Devlin et al. 2019; exclude_from_weight_decay in
    optimization.py of their code). A layer's learning rate is learning_rate * layer_decay ^ (L + 1 - depth), with the
    depth of `_depths`: the lowest layers, which serve all texts and tasks, change least (Clark et al. 2020, ELECTRA,
    appendix B; Howard and Ruder 2018, ULMFiT, section 3.2). With layer_decay = 1 there are two groups, of one rate.
    The weights of n-grams are a group of their own, of evidence_rate: each is learned from the few texts that have it.
    Frozen parameters are in the groups and get no gradient, so a run may be resumed with fewer or more of them.
    """
    return [
        {
            "params": weights,
            "lr": config.evidence_rate
            if distance == NO_LAYER
            else config.learning_rate * config.layer_decay**distance,
            "weight_decay": config.weight_decay if is_matrix else 0.0,
        }
        for (distance, is_matrix), weights in grouped(
            model, by_layer=config.layer_decay < 1
        ).items()
    ]


def grouped(model: nn.Module, by_layer: bool) -> dict[tuple[int, bool], list[nn.Parameter]]:
    """Return the parameters by (distance of their layer from the top, whether they are matrices), in AdamW's order.

    Without `by_layer` every distance counts as 0, which leaves two groups, and a third of the n-grams' weights.
    """
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    found = list(_depths(model))
    deepest = max((depth for _, depth in found), default=0)
    for weight, depth in found:
        distance = deepest - depth if by_layer else 0
        groups.setdefault((distance, weight.dim() >= 2), []).append(weight)
    if of_ngrams := [weight for name, weight in model.named_parameters() if name == NGRAM_WEIGHTS]:
        groups[NO_LAYER, False] = of_ngrams
    return dict(sorted(groups.items(), key=lambda entry: (entry[0][0], not entry[0][1])))


def _depths(model: nn.Module) -> Iterator[tuple[nn.Parameter, int]]:
    """Yield every parameter but those of n-grams with its depth: 0 embedding, i + 1 block i, L + 1 what follows."""
    above = 1 + len(
        {found[1] for name, _ in model.named_parameters() if (found := BLOCK.match(name))}
    )
    for name, weight in model.named_parameters():
        if block := BLOCK.match(name):
            yield weight, int(block[1]) + 1
        elif name != NGRAM_WEIGHTS:
            yield weight, 0 if name.startswith("embedding.") else above


def freeze(model: TextClassifier, layers: int | None) -> None:
    """Keep the embedding and the first `layers` blocks from learning; None lets all learn.

    Dropout goes on in them: what stands above them sees as much noise as without freezing. With trainer.ema_decay the
    kept weights are an average, which rounds: it may differ in the last digit.
    """
    if layers is not None:
        for part in (model.embedding, *list(model.encoder.blocks)[:layers]):
            part.requires_grad_(False)


def restore_optimizer(
    checkpoint: dict[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    share: Callable[[int], float],
) -> None:
    """Rewrite a checkpoint's optimizer and schedule so that this run's settings hold from here on.

    What AdamW remembers of each weight stays. Learning rates, decays and betas are those of `optimizer`, which has not
    stepped yet: torch would silently put the checkpoint's in their place, or refuse it where optimizer.layer_decay has
    made other groups. `share` is the share of the peak learning rate at a step. A checkpoint of weights alone stays.
    """
    if "optimizer_states" not in checkpoint:
        return
    (saved,), (schedule,) = checkpoint["optimizer_states"], checkpoint["lr_schedulers"]
    # Parameters are numbered group by group: first all matrices, then the rest, or so for every layer.
    by_layer = len(saved["param_groups"]) > len(grouped(model, by_layer=False))
    before = chain(*grouped(model, by_layer).values())
    memory = {
        id(weight): saved["state"][number]
        for number, weight in enumerate(before)
        if number in saved["state"]
    }
    after = chain(*(group["params"] for group in optimizer.param_groups))
    state = {
        number: memory[id(weight)] for number, weight in enumerate(after) if id(weight) in memory
    }
    groups = optimizer.state_dict()["param_groups"]
    rates = [group["lr"] for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group.update(initial_lr=rate, lr=rate * share(schedule["last_epoch"]))
    checkpoint["optimizer_states"] = [{"state": state, "param_groups": groups}]
    schedule.update(base_lrs=rates, lr_lambdas=[None] * len(groups))
