"""The rows of the training suite: which encoder, on which batches, in which precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.machine import has_bfloat16
from headscope.benchmark.peers import Maker, TorchClassifier, hugging_face, ours, ours_by_default

PADDED, BUCKETS = "padded to the longest", "length buckets"
TORCH, OURS = "torch.nn.TransformerEncoder", "headscope"
FLOAT, HALF = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class Variant:
    """One row: an encoder, how its batches are made, and the precision of its products."""

    encoder: str
    make: Maker
    batching: str
    precision: torch.dtype
    compiled: bool = False

    @property
    def is_peer(self) -> bool:
        """Tell whether it is somebody else's."""
        return not self.encoder.startswith(OURS)

    @property
    def name(self) -> str:
        """Return the words by which rows are told apart."""
        return f"{self.label}, {self.batching}, {short(self.precision)}"

    @property
    def label(self) -> str:
        """Return the encoder's name."""
        return self.encoder + (", compiled" if self.compiled else "")


def precisions(device: torch.device) -> Sequence[torch.dtype]:
    """Return the precisions that a device has instructions for."""
    return (FLOAT, HALF) if has_bfloat16(device) else (FLOAT,)


def variants(config: BenchmarkConfig, device: torch.device) -> list[Variant]:
    """Return all rows.

    On a GPU torch.compile is tried for each; on a CPU it needs a C++ compiler and is left out, and padded batches,
    which take minutes there, are measured in float32 alone, as a user would write them.
    """
    sdpa, eager = "Hugging Face BERT, sdpa", "Hugging Face BERT, eager"
    peers = [(TORCH, TorchClassifier), (sdpa, hugging_face("sdpa")), (eager, hugging_face("eager"))]
    rows = []
    for precision in precisions(device):
        for compiled in (False, True) if device.type == "cuda" else (False,):
            row = partial(Variant, precision=precision, compiled=compiled)
            if config.peers and (device.type == "cuda" or precision == FLOAT):
                rows += [row(name, make, PADDED) for name, make in peers[:2]]
            if config.peers:
                rows += [row(name, make, BUCKETS) for name, make in peers]
            rows += [row(OURS, ours, BUCKETS), row(f"{OURS}, no attention dropout", ours_by_default, BUCKETS)]
    return rows


def main_variants(variants: Sequence[Variant]) -> list[Variant]:
    """Return the rows that are measured on other lengths too: those in buckets."""
    return [
        variant
        for variant in variants
        if variant.batching == BUCKETS and not variant.compiled and "eager" not in variant.encoder
    ]


def short(precision: torch.dtype) -> str:
    """Return a precision's name without torch's."""
    return str(precision).removeprefix("torch.")
