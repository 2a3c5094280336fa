"""What the benchmarks share: two pieces of work timed in turn, networks of equal size, and a page in markdown."""

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer, timer

from headscope.settings.config import ModelConfig

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "lightning", "tokenizers", "transformers", "scikit-learn", "fasttext-wheel")
DROPOUT = 0.1
# Every token's vector is made and averaged, so that both networks do the same work.
SMALL = ModelConfig(
    d_model=256,
    num_heads=8,
    num_layers=4,
    feedforward_size=1024,
    dropout=DROPOUT,
    pooling="mean",
    evidence=False,
)
SIZES = {
    "tiny": replace(SMALL, d_model=32, num_heads=2, num_layers=1, feedforward_size=64),
    "small": SMALL,
    "base": replace(SMALL, d_model=768, num_heads=12, num_layers=12, feedforward_size=3072),
}


def parser_of(purpose: str | None) -> ArgumentParser:
    """Return a parser whose help is a benchmark's own first words, line by line."""
    return ArgumentParser(description=purpose, formatter_class=RawDescriptionHelpFormatter)


def arguments(purpose: str | None) -> ArgumentParser:
    """Return a parser of the options that benchmarks of networks share."""
    parser = parser_of(purpose)
    parser.add_argument(
        "--size", choices=SIZES, default="small", help="of both networks: %(default)s by default"
    )
    parser.add_argument(
        "--rounds", type=count, default=7, help="how often each is timed: %(default)s by default"
    )
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    parser.add_argument(
        "--device", choices=devices, default="cpu", help="where: %(default)s by default"
    )
    return parser


def count(text: str) -> int:
    """Return the number that an option was given, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"got {text!r}, takes a whole number from 1 on")
    return int(text)


def transformers() -> Any:
    """Return the package transformers, which takes seconds to import: not before --help is answered.

    Raises:
        SystemExit: if it is not installed.
    """
    try:
        import transformers as installed
    except ImportError:
        raise SystemExit(
            "error: transformers is not installed: pip install -c constraints.txt -e .[benchmark]"
        ) from None
    return installed


def bert_config(sizes: ModelConfig, vocab_size: int, num_classes: int, max_length: int) -> Any:
    """Return the configuration of a Hugging Face BERT of these sizes, with torch's fused attention (sdpa)."""
    return transformers().BertConfig(
        vocab_size=vocab_size,
        hidden_size=sizes.d_model,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        intermediate_size=sizes.feedforward_size,
        max_position_embeddings=max_length,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.attention_dropout,
        num_labels=num_classes,
        pad_token_id=0,
        attn_implementation="sdpa",
    )


def precisions(device: torch.device) -> list[torch.dtype]:
    """Return float32, and bfloat16 where the device has instructions for it."""
    found = torch.cpu.get_capabilities() if device.type == "cpu" else {"avx512_bf16": True}
    has_bfloat16 = found.get("avx512_bf16") or found.get("amx_bf16")
    return [torch.float32, torch.bfloat16] if has_bfloat16 else [torch.float32]


def run_folder(folder: Path, *overrides: str) -> Path:
    """Train in a process of its own, as scripts/train.py does, and return the run's folder.

    Raises:
        SystemExit: if training fails, which has said why.
    """
    place = [
        f"outputs_dir={folder.parent}",
        f"name={folder.name}",
        "baseline=false",
        "trainer.progress=false",
    ]
    print(f"training: {' '.join(overrides)}", file=sys.stderr)
    command = [sys.executable, "scripts/train.py", *place, *overrides]
    if code := subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode:
        raise SystemExit(code)
    return folder


def in_turn(
    works: Mapping[str, Callable[[], object]], rounds: int, device: torch.device, passes: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of each round; the works alternate, so that a busy machine is as unkind to all.

    On a CPU it is the processor's time on one thread, which other jobs lengthen least; on a GPU the time on the wall,
    waiting for the GPU. The timer runs each work twice unseen before it counts.

    Args:
        works: what to time, by name.
        rounds: how often each is timed.
        device: where they compute.
        passes: runs of a work in each round; seconds are those of one.
    """
    clock = time.process_time if device.type == "cpu" else timer
    timers = {
        name: Timer("work()", timer=clock, globals={"work": work}) for name, work in works.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}: {', '.join(works)}", file=sys.stderr)
        for name, each in timers.items():
            taken[name].append(each.timeit(passes).mean)
    return taken


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the median of the rounds' ratios ours / theirs and, in brackets, the smallest and the largest."""
    found = [one / other for one, other in zip(ours, theirs, strict=True)]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def milliseconds(seconds: Sequence[float]) -> str:
    """Return the median of some seconds, in ms."""
    return f"{1e3 * statistics.median(seconds):.3g}"


def short(precision: torch.dtype) -> str:
    """Return a type's name without torch's."""
    return str(precision).removeprefix("torch.")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in markdown: the first column to the left, the others to the right."""
    lines = [columns, ("---", *("---:" for _ in columns[1:])), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def print_page(title: str, device: torch.device, *parts: str) -> None:
    """Print a heading with the date, machine and versions, and the parts below it."""
    date = datetime.datetime.now(datetime.UTC).date()
    print("\n\n".join([f"# {title}, {date}", f"Measured on: {machine(device)}.", *parts]))


def machine(device: torch.device) -> str:
    """Return the processor, its cores, the versions of what computes, and the commit."""
    versions = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    facts = [
        _processor(device),
        f"Python {platform.python_version()}",
        *versions,
        f"commit {_commit()}",
    ]
    return "; ".join(facts)


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, cwd=ROOT
    )
    return done.stdout.strip() or "unknown"
