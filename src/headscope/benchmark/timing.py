"""Timing variants in turn, so that a busy machine is as unkind to one as to another."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """What several rounds took.

    Attributes:
        seconds: of each round.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median: how far the rounds lie apart."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    def ratio_to(self, other: "Timing") -> float:
        """Return the median, over rounds, of this time / the other's in the same round."""
        return statistics.median(mine / its for mine, its in zip(self.seconds, other.seconds, strict=True))


def timed(work: Callable[[], object], device: torch.device | None = None) -> float:
    """Return the seconds that work takes, what it has asked of a GPU included."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def in_turn(
    variants: Mapping[str, Callable[[], object]],
    rounds: int,
    device: torch.device | None = None,
    tell: Callable[[str], object] = lambda doing: None,
) -> dict[str, Timing]:
    """Run every variant once unseen, then all of them in turn, round by round.

    Args:
        variants: what to time.
        rounds: how often each is timed.
        device: whose queue is waited for.
        tell: called with what is running now.
    """
    for name, work in variants.items():
        tell(f"{name}, warming up")
        work()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        for name, work in variants.items():
            tell(f"{name}, round {number + 1} of {rounds}")
            seconds[name].append(timed(work, device))
    return {name: Timing(tuple(taken)) for name, taken in seconds.items()}


def _wait(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
