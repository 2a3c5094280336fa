"""Which precision products are computed in."""

import torch

from headscope.training.config import TrainerConfig


def chosen_precision(settings: TrainerConfig) -> str:
    """Return the precision that `auto` stands for: bf16-mixed where there are instructions for it, 32-true else."""
    if settings.precision != "auto":
        return settings.precision
    on_gpu = settings.accelerator in ("auto", "gpu") and torch.cuda.is_available()
    if not on_gpu and settings.accelerator not in ("auto", "cpu"):
        return "32-true"
    return "bf16-mixed" if has_bfloat16(torch.device("cuda" if on_gpu else "cpu")) else "32-true"


def steps_fused(settings: TrainerConfig) -> bool:
    """Tell whether one kernel may step all weights; in float16 it would unscale gradients after they are clipped."""
    return chosen_precision(settings) != "16-mixed"


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for products in bfloat16, instead of emulating them."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    abilities = torch.cpu.get_capabilities()
    return device.type == "cpu" and bool(abilities.get("avx512_bf16") or abilities.get("amx_bf16"))
