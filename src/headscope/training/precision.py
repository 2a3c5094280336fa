"""Which precision products are computed in."""

import torch

from headscope.training.config import TrainerConfig


def chosen_precision(settings: TrainerConfig) -> str:
    """Return the precision that `auto` stands for: bf16-mixed on a GPU with instructions for it, 32-true elsewhere.

    On a CPU only measuring tells: some processors with instructions for bfloat16 are slower with them.
    """
    if settings.precision != "auto":
        return settings.precision
    on_gpu = settings.accelerator in ("auto", "gpu") and torch.cuda.is_available()
    return "bf16-mixed" if on_gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"


def steps_fused(settings: TrainerConfig) -> bool:
    """Tell whether one kernel may step all weights; in float16 it would unscale gradients after they are clipped."""
    return chosen_precision(settings) != "16-mixed"
