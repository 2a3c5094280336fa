"""One point of a growth curve, measured in a process of its own, so that its peak of memory is its own too.

    python -m headscope.benchmark.growth_point '{"kind": "training", ...}'

It prints one line of JSON: seconds, peak_mib, rest_mib (before the work began, with all that was imported) and
resident_mib. What is asked for is imported after it is known, so that memory at rest is what that work needs.
"""

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headscope.benchmark.process import finished, own_memory

SECONDS_BETWEEN_LOOKS = 0.005
MIB = 2**20


@dataclasses.dataclass
class Measured:
    """What the work took.

    Attributes:
        seconds: of a step, or of the whole way of the data.
        peak_mib: most memory, of which a CPU's is the process's own, without files that are mapped.
        rest_mib: the same before the work began.
        resident_mib: most memory with the mapped files' pages, which the kernel takes back whenever it needs them.
    """

    seconds: float = 0.0
    peak_mib: float = 0.0
    rest_mib: float = 0.0
    resident_mib: float = 0.0

    @property
    def above_rest_mib(self) -> float:
        """Most memory that the work itself took."""
        return self.peak_mib - self.rest_mib


def in_a_process(work: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Measured:
    """Measure in a process of its own, with these environment variables beside the others.

    Raises:
        RuntimeError: with the end of what it wrote, if it fails.
    """
    output = finished(["-m", "headscope.benchmark.growth_point", json.dumps(work)], env).output
    return Measured(**json.loads(output.strip().splitlines()[-1]))


@contextmanager
def watched(measured: Measured) -> Iterator[None]:
    """Look at this process's own memory every few milliseconds, and note the most that was seen."""
    ended = threading.Event()
    measured.rest_mib = measured.peak_mib = own_memory("RssAnon")

    def look() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            measured.peak_mib = max(measured.peak_mib, own_memory("RssAnon"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        measured.peak_mib = max(measured.peak_mib, own_memory("RssAnon"))
        ended.set()
        thread.join()
        measured.resident_mib = own_memory("VmHWM")


def training_step(length: int, texts: int, sizes: dict[str, int], rounds: int, device: str) -> Measured:
    """Return the seconds of a step of training (forward, loss, backward, AdamW), the fastest of some rounds.

    Not the median: points have processes of their own, so they cannot take turns, and what a busy machine adds to one
    of them would look like growth.

    Args:
        length: tokens of each text.
        texts: of the one batch.
        sizes: of the encoder; see `headscope.benchmark.workload.Sizes`.
        rounds: steps that are timed, after one that is not.
        device: where.
    """
    import torch

    place, measured = torch.device(device), Measured()
    _timed_steps(8, 2, {**sizes, "d_model": 2 * sizes["num_heads"], "num_layers": 1}, 1, place)  # wakes the libraries
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
        measured.rest_mib = torch.cuda.memory_allocated(place) / MIB
        measured.seconds = _timed_steps(length, texts, sizes, rounds, place)
        measured.peak_mib = measured.resident_mib = torch.cuda.max_memory_allocated(place) / MIB
        return measured
    with watched(measured):
        measured.seconds = _timed_steps(length, texts, sizes, rounds, place)
    return measured


def _timed_steps(length: int, texts: int, sizes: dict[str, int], rounds: int, device: Any) -> float:
    import numpy as np
    import torch

    from headscope.benchmark.epochs import epoch
    from headscope.benchmark.peers import ours_by_default
    from headscope.benchmark.timing import timed
    from headscope.benchmark.workload import Sizes, texts_of

    of_encoder = Sizes(**sizes)
    batch = texts_of(np.full(texts, length), of_encoder)[list(range(texts))]
    step = epoch(lambda: ours_by_default(of_encoder, length), [batch], torch.float32, device)
    step()
    return min(timed(step, device) for _ in range(rounds))


def data_path(path: str, cache: str, max_length: int, tokens_per_batch: int) -> Measured:
    """Return what a file takes from disk to one pass of batches: load, check, split, tokenizer, ids, batches."""
    from datasets import disable_progress_bars

    from headscope.data.config import DataConfig, TokenizerConfig
    from headscope.data.datamodule import TextDataModule

    disable_progress_bars()
    config = DataConfig(path=path, cache_dir=cache, max_length=max_length, tokens_per_batch=tokens_per_batch)
    measured = Measured()
    with watched(measured):
        start = time.perf_counter()
        for _ in TextDataModule(config, TokenizerConfig(), seed=0).loader("train"):
            pass
        measured.seconds = time.perf_counter() - start
    return measured


KINDS: dict[str, Callable[..., Measured]] = {"training": training_step, "data": data_path}


def measure(work: Mapping[str, Any]) -> Measured:
    """Measure what is described: its kind, and that kind's arguments."""
    arguments = dict(work)
    return KINDS[arguments.pop("kind")](**arguments)


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(measure(json.loads(sys.argv[1])))))
