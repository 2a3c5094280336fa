"""What a figure was measured on: hardware, versions, commit, and how fast the machine multiplies matrices."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

from headscope.benchmark.process import ROOT
from headscope.benchmark.timing import timed

PACKAGES = ("torch", "lightning", "tokenizers", "datasets", "transformers", "scikit-learn", "fasttext-wheel", "numpy")
SIDE = 2048  # of the matrices of the ceiling
PRODUCTS = 9


def describe(device: torch.device) -> dict[str, str]:
    """Return what stands at the head of a page."""
    return {
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
        "Python": platform.python_version(),
        **{name: version for name in PACKAGES if (version := _version(name))},
        "commit": commit(),
        "load when it began": f"{os.getloadavg()[0]:.1f}",
    }


def ceiling(dtype: torch.dtype, device: torch.device) -> float:
    """Return floating-point operations per second of a 2048 x 2048 x 2048 product: 2 n^3 / the fastest of nine."""
    left, right = (torch.randn(SIDE, SIDE, device=device).to(dtype) for _ in range(2))
    seconds = min(timed(lambda: left @ right, device) for _ in range(PRODUCTS))
    return 2 * SIDE**3 / seconds


def device_name(device: torch.device) -> str:
    """Return what computes: the GPU, or the CPU and how many cores this process may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = [line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    return f"{model[0] if model else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit(folder: Path = ROOT) -> str:
    """Return the commit that the code in a folder is of, and whether anything was changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=folder).stdout.strip()

    changed = " and changes not committed" if git("status", "--porcelain", "--", "src", "scripts", "configs") else ""
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + changed


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for products in bfloat16, instead of emulating them."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    abilities = torch.cpu.get_capabilities()
    return device.type == "cpu" and bool(abilities.get("avx512_bf16") or abilities.get("amx_bf16"))
