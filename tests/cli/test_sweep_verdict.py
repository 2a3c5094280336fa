"""Whether the best of a sweep is worth taking over TF-IDF."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from headscope.cli.sweep import verdict, write_table
from headscope.settings.config import TrainConfig


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ([0.032, 0.017, 0.047], "+3.2 points of test accuracy over TF-IDF (+1.7 to +4.7); take it"),
        ([0.01, -0.01, 0.03], "(-1.0 to +3.0); TF-IDF is as good, and trains in 2 s"),
        ([-0.02, -0.03, -0.01], "(-3.0 to -1.0); take TF-IDF, which trains in 2 s"),
        (None, "with baseline=true it is compared with TF-IDF"),
    ],
)
def test_the_interval_decides_whether_the_best_is_worth_taking(
    tmp_path: Path, interval: list[float] | None, said: str
) -> None:
    for number, loss in enumerate([0.5, 0.4]):
        folder = tmp_path / f"experiment_{number}-{number:08x}"
        folder.mkdir()
        overrides = {"experiment": str(number)}
        job = {"number": number, "overrides": overrides, "metric": "loss"}
        (folder / "job.json").write_text(json.dumps(job))
        baseline = None if interval is None else {"differences": {"accuracy": interval}}
        metrics = {
            "validation": {"loss": loss},
            "test": {"accuracy": 0.8, "macro_f1": 0.8},
            "baseline": baseline,
            "seconds": {"baseline": 2.1, "everything": 10.0},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(asdict(TrainConfig())))
        (folder / "metrics.json").write_text(json.dumps(metrics))
    write_table(tmp_path)
    found = verdict(tmp_path, "experiment_1-00000001")
    assert found.startswith("best: experiment_1-00000001")
    assert found.endswith(said)
