"""The LightningModule of a classifier: loss, metrics, AdamW and its learning rates.

Shape letters: B texts, C classes, N processes.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torchmetrics import MeanMetric

from headscope.data.batching import Batch
from headscope.data.columns import class_counts
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import warn
from headscope.model.checkpoint import Checkpoint
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.model.embedding import TokenEvidence
from headscope.model.frozen import FrozenLayers
from headscope.model.objective import ONE_CLASS, Objective
from headscope.model.opened import load_weights
from headscope.model.others import others
from headscope.model.running import eval_mode
from headscope.results.scores import ValidationScores
from headscope.runs.abstaining import unknown_share
from headscope.runs.prediction import best_device, split_logits
from headscope.runs.setup import Chosen, Classifier, Setup
from headscope.settings.config import OptimizerConfig, TrainConfig, TrainerConfig
from headscope.training.contrastive import contrastive_loss, fit_head
from headscope.training.distributed import all_gather, all_reduce_max
from headscope.training.resume import Resumed

MOST_UNKNOWN = 0.1  # of the tokens of a checkpoint's tokenizer; beyond it is said
STEPS_BETWEEN_LOGS = 20
WIDE = 128  # from this width on bfloat16 pays on a CPU, if its products are so much faster
MUCH_FASTER = 1.5
ROUNDS = 10  # the quickest of them counts, whatever else the machine does


class ClassifierModule(LightningModule):
    """Train a classifier by AdamW with a linear warm-up and a cosine decay.

    (Loshchilov and Hutter 2019, Decoupled Weight Decay Regularization.)

    Args:
        model: maps token ids to logits; its parts are named as in `TextClassifier`.
        config: learning rates, decays and the loss.
        total_steps: optimizer steps over which the learning rate rises and falls.
        class_weights: of each class in the loss; None: all weigh the same.
        fused: step all weights in one kernel, which is three times as fast on a CPU. In float16 it
            would unscale the gradients after they are clipped.
        objective: what the labels are, which decides loss and metrics.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizerConfig,
        total_steps: int,
        class_weights: Float[Tensor, " C"] | None = None,
        fused: bool = True,
        objective: Objective = ONE_CLASS,
    ) -> None:
        super().__init__()
        self.model: nn.Module = model
        self.config = config
        self.total_steps = total_steps
        self.fused = fused
        self.objective = objective
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.validation_metrics = ValidationScores(objective)
        self.validation_loss = MeanMetric(nan_strategy="disable")  # NaN is to be seen
        self.random_state: Tensor | None = None
        self.compiled: Callable[..., Tensor] | None = None

    def compile_steps(self) -> None:
        """Let torch.compile translate what a training step computes, for texts of any length.

        Validation and the record call the network as it is: its heads are observed.
        """
        call = self._learning
        self.compiled = torch.compile(lambda *inputs: call(*inputs), dynamic=True)

    def forward(self, batch: Batch) -> Float[Tensor, "B C"]:
        """Return the logits of a batch."""
        return self.model(*batch.inputs)  # type: ignore[no-any-return]

    def training_step(self, batch: Batch, batch_index: int) -> Float[Tensor, ""]:
        """Return the loss, weighted as configured."""
        found = (self.compiled or self._learning)(*batch.inputs)
        labels = batch.labels
        if self.config.contrastive:
            loss = contrastive_loss(found, labels)
        else:
            if isinstance(self.model, Ensemble):
                found, labels = self.model.learned(found, labels, batch.rows)
            loss = self.objective.loss(found, labels, self.class_weights)
        step = self.global_step + 1
        is_last = step == self.total_steps
        # At other steps Lightning would spend 2 ms, and write nothing.
        if is_last or step % STEPS_BETWEEN_LOGS == 0:
            rate = self.learning_rate_share(self.global_step) * self.config.learning_rate
            self.log("train/loss", loss, batch_size=len(batch.labels))
            self.log("train/learning_rate", rate, batch_size=1)
        return loss

    @property
    def _learning(self) -> Callable[..., Tensor]:
        """What a training step computes: logits, or the vectors that they are read from."""
        if not self.config.contrastive:
            return self.model
        assert isinstance(self.model, TextClassifier), "checked where it was chosen"
        return self.model.text_vectors

    def on_validation_start(self) -> None:
        """Read the classes off the vectors, which alone have learned until now."""
        if not self.config.contrastive:
            return
        batches = self.trainer.datamodule.loader("train")  # type: ignore[attr-defined]
        with eval_mode(self.model):
            vectors, labels = split_logits(self.model, batches, self.device, self._learning)
        fit_head(self.model.head, vectors, labels)  # type: ignore[arg-type]

    def validation_step(self, batch: Batch, batch_index: int) -> Float[Tensor, "B C"]:
        """Count the batch in; return its logits, which callbacks may want."""
        logits = self(batch)
        self.validation_metrics.update(logits, batch.labels)
        loss = self.objective.loss(logits.float(), batch.labels)
        self.validation_loss.update(loss.expand(len(batch.labels)))  # one value for each text
        return logits  # type: ignore[no-any-return]

    def on_validation_epoch_end(self) -> None:
        """Log the metrics over the whole validation split."""
        self.log("validation/loss", self.validation_loss.compute())
        self.log_dict(self.validation_metrics.compute())
        self.validation_loss.reset()
        self.validation_metrics.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save each process's random state, and what was timed, for a run that resumes."""
        checkpoint["random_state"] = torch.stack(all_gather(torch.get_rng_state()))  # [N, bytes]
        checkpoint["fast_bfloat16"] = has_fast_bfloat16()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore AdamW's moments with this run's learning rates, decays and betas.

        torch would silently restore those of the checkpoint too.
        """
        self.random_state = checkpoint["random_state"]
        (saved,) = checkpoint["optimizer_states"]
        (schedule,) = checkpoint["lr_schedulers"]
        share = self.learning_rate_share(schedule["last_epoch"])
        settings = self._adamw().state_dict()["param_groups"]
        rates = [group["lr"] for group in settings]
        for group, new, rate in zip(saved["param_groups"], settings, rates, strict=True):
            group.update(new, initial_lr=rate, lr=rate * share)
        schedule.update(base_lrs=rates, lr_lambdas=[None] * len(rates))

    def on_train_start(self) -> None:
        """Restore the random state of the checkpoint; each process has its own dropout."""
        rank = self.trainer.global_rank
        if self.random_state is not None:  # a part of a larger tensor crashes torch: a clone
            torch.set_rng_state(self.random_state[rank].cpu().clone())
        elif rank > 0:
            torch.manual_seed(torch.initial_seed() + (rank << 32))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW, which decays matrices alone, and the schedule of the learning rates."""
        optimizer = self._adamw()
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.learning_rate_share(step)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _adamw(self) -> torch.optim.AdamW:
        betas = (self.config.beta1, self.config.beta2)
        groups = parameter_groups(self.model, self.config)
        return torch.optim.AdamW(groups, betas=betas, fused=self.fused)

    def configure_gradient_clipping(
        self,
        optimizer: object,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm of all gradients; Lightning refuses to with fused AdamW, for float16."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def learning_rate_share(self, step: int) -> float:
        """Return the share of the peak learning rate at a step.

        A linear warm-up, then (1 + cos(pi p)) / 2, with p the share of the remaining steps that are
        done (Loshchilov and Hutter 2017, SGDR, without restarts).
        """
        warmup = round(self.config.warmup_share * self.total_steps)
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, self.total_steps - warmup))
        return (1 + math.cos(math.pi * progress)) / 2


def chosen_precision(config: TrainConfig) -> str:
    """Return the precision that `auto` stands for: bf16-mixed where that is faster, else 32-true.

    On a GPU with instructions for it. On a CPU that `has_fast_bfloat16` a network from scratch of
    width 128 or more; a narrower one loses more by casts than it gains.
    """
    settings = config.trainer
    if settings.precision != "auto":
        return settings.precision
    device = best_device(settings.accelerator, "trainer.accelerator")
    _, checkpoint = config.model.checkpoint
    is_slower = config.model.d_model < WIDE or checkpoint is not None
    is_faster = (device.type == "cuda" or not is_slower) and has_bfloat16(device)
    return "bf16-mixed" if is_faster else "32-true"


def has_bfloat16(device: torch.device) -> bool:
    """Return whether large products are faster in bfloat16 on a device."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and has_fast_bfloat16()


def keep_measured(resumed: Resumed | None) -> None:
    """Have `has_fast_bfloat16` return what a resumed run has measured: its numbers depend on it."""
    _kept[:] = [] if resumed is None or resumed.fast_bfloat16 is None else [resumed.fast_bfloat16]


_kept: list[bool] = []  # of the run that is trained


def has_fast_bfloat16() -> bool:
    """Return whether the CPU of every process multiplies matrices much faster in bfloat16."""
    return _kept[0] if _kept else measured_bfloat16()


@cache
def measured_bfloat16() -> bool:
    """Measure it once, since some CPUs with instructions for bfloat16 are slower with them."""
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(ROUNDS):
        for dtype, taken in seconds.items():
            matrix = torch.ones(WIDE, WIDE, dtype=dtype)
            tokens = torch.ones(512, WIDE, dtype=dtype)
            start = time.perf_counter()
            torch.mm(tokens, matrix)
            taken.append(time.perf_counter() - start)
    ratio = min(seconds[torch.float32]) / min(seconds[torch.bfloat16])
    return not all_reduce_max(ratio < MUCH_FASTER)


def build_module(
    setup: Setup,
    data: TextDataModule,
    checkpoint: Checkpoint | None,
    resumed: Resumed | None = None,
) -> ClassifierModule:
    """Return the module to train, with the weights of a pretrained checkpoint if there is one."""
    config = setup.config
    labels = setup.labels
    objective = Chosen().objective(config)
    classes = torch.from_numpy(data.labels("train"))
    weights = None
    if config.optimizer.class_weights == "balanced":
        counts = torch.from_numpy(class_counts(data.labels("train"), len(labels)))
        weights = objective.balanced_weights(counts.float(), len(classes))
    if checkpoint is not None:
        unknown = unknown_share(data.tokenizer, data.encoded["train"]).mean()
        if unknown > MOST_UNKNOWN:
            warn(f"{unknown:.0%} of the training tokens are unknown to the checkpoint's tokenizer")
    model = _starting_model(setup, checkpoint, resumed)
    if evidence := [part for part in model.modules() if isinstance(part, TokenEvidence)]:
        ratios = data.ratios(objective.has(classes, len(labels)).numpy())
        for part in evidence:
            part.set_ratios(torch.from_numpy(ratios))
    steps = total_steps(config.trainer, len(data.sampler("train")))
    # Several passes over few texts would teach the weights of n-grams those texts by heart.
    rate = config.optimizer.evidence_rate / data.passes
    optimizer = replace(config.optimizer, evidence_rate=rate)
    # Fused AdamW would, in float16, unscale the gradients after they are clipped.
    is_fused = chosen_precision(config) != "16-mixed"
    return ClassifierModule(model, optimizer, steps, weights, is_fused, objective)


def total_steps(settings: TrainerConfig, num_batches: int) -> int:
    """Return the optimizer steps of the run: ceil(batches / accumulate) per epoch, or max_steps.

    `num_batches` are those of one process in an epoch.
    """
    steps = settings.max_epochs * -(-num_batches // settings.accumulate)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def _starting_model(
    setup: Setup, checkpoint: Checkpoint | None, resumed: Resumed | None
) -> Classifier:
    """Return the network as training starts it: with a checkpoint's weights, if there is one.

    Frozen layers of a resumed run have their weights at once, since their states are asked for
    before the rest is restored.
    """
    if checkpoint is not None and setup.is_foreign:
        settings = (checkpoint.encoder, setup.config.model, setup.labels, checkpoint.folder)
        adapted: Classifier = others().pretrained.build_pretrained(*settings)
        return adapted
    model = setup.build()
    if checkpoint is not None:
        opened = model if setup.config.model.path is not None else model.features
        assert isinstance(opened, TextClassifier | FrozenLayers)
        load_weights(opened, checkpoint.encoder, checkpoint.folder)
    elif resumed is not None and getattr(model, "frozen", None) is not None:
        content = torch.load(resumed.path, "cpu", weights_only=True, mmap=True)["state_dict"]
        weights = {name.removeprefix("model."): weight for name, weight in content.items()}
        model.load_state_dict(weights, strict=False)
    return model


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Return AdamW's groups of parameters; matrices alone are decayed, tables among them.

    BERT's own optimizer leaves out norms and biases and nothing else (Devlin et al. 2019;
    exclude_from_weight_decay in optimization.py of their code). The weights of n-grams are a group
    of their own, with evidence_rate and no decay. Frozen parameters are in the groups and get no
    gradient, so a run may be resumed with others frozen.
    """
    ngram_weights = [part.weight for part in model.modules() if isinstance(part, TokenEvidence)]
    known = {*map(id, ngram_weights)}
    others = [weight for weight in model.parameters() if id(weight) not in known]
    matrices = [weight for weight in others if weight.dim() > 1]
    vectors = [weight for weight in others if weight.dim() < 2]
    rate = config.learning_rate
    groups = [
        {"params": matrices, "lr": rate, "weight_decay": config.weight_decay},
        {"params": vectors, "lr": rate, "weight_decay": 0.0},
    ]
    if ngram_weights:
        group = {"params": ngram_weights, "lr": config.evidence_rate, "weight_decay": 0.0}
        groups.insert(0, group)
    return groups
