"""What several processes gain: the default training in one and in several, one thread each, as a user runs it.

    python benchmarks/devices.py                                         # about 8 minutes on two cores
    python benchmarks/devices.py --processes 4 trainer.accelerator=gpu   # on four GPUs

Prints two tables: seconds and texts a second of the training in one process and in several, in turn; and what it costs
to add up the gradients of all processes, by their size. Further arguments are overrides of scripts/train.py.
"""

import json
import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from side_by_side import count, milliseconds, parser_of, print_page, ratio, run_folder, table

NUMBERS = (
    1,
    10**4,
    10**5,
    10**6,
    10**7,
)  # of float32 in an all-reduce; the default network has 1.6 million weights
REPEATS = 20


def main() -> None:
    """Train in turn in one process and in several, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--rounds", type=count, default=5, help="how often each is trained: %(default)s by default"
    )
    parser.add_argument(
        "--processes", type=count, default=2, help="how many train together: %(default)s by default"
    )
    parser.add_argument(
        "overrides", nargs="*", default=["trainer.max_epochs=1"], help="%(default)s by default"
    )
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    several = options.processes
    taken: dict[int, list[float]] = {1: [], several: []}
    with tempfile.TemporaryDirectory() as folder:
        overrides = [*options.overrides, "inspection.enabled=false"]
        run_folder(
            Path(folder) / "first", *overrides, "trainer.max_steps=2"
        )  # unseen: the texts are cached
        for number in range(options.rounds):
            for devices in taken:
                run = run_folder(
                    Path(folder) / f"on-{devices}-{number}",
                    *overrides,
                    f"trainer.devices={devices}",
                )
                metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
                taken[devices].append(metrics["seconds"]["training"])
        summed = all_reduces(several, Path(folder))
    texts = metrics["data"]["sizes"]["train"] * metrics["training"]["epochs"]
    print_page(
        "Several processes",
        torch.device("cpu"),
        f"{texts:,} training texts in all ({' '.join(options.overrides)}); median of {options.rounds} rounds in turn, "
        "by the run's own clocks, validation among it: without starting Python, reading the texts and the test.",
        table(
            ("processes", "seconds", "texts a second", "speed, as a multiple of one process"),
            [
                (
                    str(devices),
                    f"{statistics.median(seconds):.1f}",
                    f"{texts / statistics.median(seconds):.0f}",
                    ratio(taken[1], seconds),
                )
                for devices, seconds in taken.items()
            ],
        ),
        f"An all-reduce of float32 numbers by gloo, {several} processes, median of {REPEATS}:",
        table(
            ("numbers", "milliseconds"),
            [(f"{size:,}", milliseconds(found)) for size, found in summed.items()],
        ),
    )


def all_reduces(processes: int, folder: Path) -> dict[int, list[float]]:
    """Return the seconds that each all-reduce took, by how many numbers were added up."""
    spawn(_all_reduce, (processes, folder), nprocs=processes)
    found = json.loads((folder / "all_reduces.json").read_text(encoding="utf-8"))
    return {int(size): seconds for size, seconds in found.items()}


def _all_reduce(rank: int, processes: int, folder: Path) -> None:
    torch.set_num_threads(1)
    place = f"file://{folder}/store"
    dist.init_process_group("gloo", place, timedelta(minutes=1), rank=rank, world_size=processes)
    taken: dict[int, list[float]] = {}
    for size in NUMBERS:
        numbers = torch.ones(size)
        for _ in range(REPEATS + 2):
            dist.barrier()
            begun = time.perf_counter()
            dist.all_reduce(numbers)
            taken.setdefault(size, []).append(time.perf_counter() - begun)
        taken[size] = taken[size][2:]  # the first two warm up
    if rank == 0:
        (folder / "all_reduces.json").write_text(json.dumps(taken), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
