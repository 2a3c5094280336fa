"""How weights move: AdamW, a warm-up, half a cosine down, and the largest gradient."""

import math

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn

from headscope.training.config import OptimizerConfig
from headscope.training.layers import parameter_groups


class OptimizedModule(LightningModule):
    """Move weights by AdamW (Loshchilov and Hutter 2019, Decoupled Weight Decay) with warm-up and cosine decay.

    Args:
        model: whose parts are named as in `TextClassifier`.
        config: rates and decays.
        total_steps: optimizer steps of the whole run, which the learning rate's course is laid out over.
        fused: let one kernel step all weights. In float16 that would unscale the gradients after they are clipped.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig, total_steps: int, fused: bool = True) -> None:
        super().__init__()
        self.model: nn.Module = model
        self.config, self.total_steps, self.fused = config, total_steps, fused

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW, decaying matrices alone, and the learning rates' course step by step."""
        optimizer = self._adamw()
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.learning_rate_share(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _adamw(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            parameter_groups(self.model, self.config),  # each with its learning rate
            betas=(self.config.beta1, self.config.beta2),
            # One kernel for all weights: three times as fast as the default on a CPU.
            fused=self.fused,
        )

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
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
