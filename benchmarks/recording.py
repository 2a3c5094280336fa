"""What recording the heads costs: the same training with it and without, as a user runs it.

    python benchmarks/recording.py                            # about 10 minutes on one core
    python benchmarks/recording.py --rounds 1 trainer.max_epochs=2

Prints a table of seconds: the whole run and its training with and without recording, one record, and what is measured
after training. Further arguments are overrides of scripts/train.py.
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from headscope.record.reader import read_index
from headscope.record.schema import FOLDER
from side_by_side import count, parser_of, print_page, ratio, run_folder, table

SETTINGS = {"recorded": "inspection.enabled=true", "not": "inspection.enabled=false"}
Run = dict[str, Any]  # metrics.json, with how many records there are and the bytes of one


def main() -> None:
    """Train in turn with recording and without, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--rounds", type=count, default=3, help="how often each is trained: %(default)s by default"
    )
    parser.add_argument(
        "overrides", nargs="*", default=["trainer.max_epochs=1"], help="%(default)s by default"
    )
    options = parser.parse_args()
    runs: dict[str, list[Run]] = {name: [] for name in SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        # Unseen: texts are read, cut into tokens and cached.
        run_folder(
            Path(folder) / "first", *options.overrides, SETTINGS["not"], "trainer.max_steps=2"
        )
        for number in range(options.rounds):
            for name, setting in SETTINGS.items():
                runs[name].append(
                    read(run_folder(Path(folder) / f"{name}_{number}", *options.overrides, setting))
                )
    recorded = runs["recorded"]
    print_page(
        "Recording heads",
        torch.device("cpu"),
        f"{recorded[0]['training']['steps']} steps ({' '.join(options.overrides)}), {recorded[0]['records']} records "
        f"of {recorded[0]['bytes'] / 1024:.0f} KiB; median of {options.rounds} rounds in turn, by the run's own "
        "clocks: without starting Python, and without the TF-IDF baseline.",
        table(("seconds", *SETTINGS, "ratio"), rows(recorded, runs["not"])),
    )


def read(folder: Path) -> Run:
    """Return the metrics of a run, and the size of its record."""
    metrics: Run = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    record = folder / FOLDER
    steps = read_index(record).steps if record.exists() else []
    return metrics | {
        "records": len(steps),
        "bytes": statistics.fmean((record / step.file).stat().st_size for step in steps)
        if steps
        else 0,
    }


def rows(recorded: list[Run], plain: list[Run]) -> list[tuple[str, ...]]:
    """Return the rows of the table: medians over rounds, and the medians of a round's ratios."""
    found = []
    for title, clock in (("whole run", "everything"), ("its training", "training")):
        ours, others = ([run["seconds"][clock] for run in runs] for runs in (recorded, plain))
        found.append(
            (
                title,
                f"{statistics.median(ours):.1f}",
                f"{statistics.median(others):.1f}",
                ratio(ours, others),
            )
        )
    recording = statistics.median(run["seconds"]["inspection"] for run in recorded)
    ablation = statistics.median(run["seconds"]["ablation"] for run in recorded)
    return [
        *found,
        ("all records", f"{recording:.2f}", "", ""),
        ("one record", f"{recording / recorded[0]['records']:.2f}", "", ""),
        ("what depends on each head, after training", f"{ablation:.2f}", "", ""),
    ]


if __name__ == "__main__":
    main()
