"""What recording costs, reckoned from runs whose times are made up."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from headscope.benchmark import inspecting, process
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.inspecting import measure
from headscope.inspection.record import Text
from headscope.inspection.recorder import HeadRecorder

CPU = torch.device("cpu")


class FakeTraining:
    """Stand in for scripts/train.py: 10 s of training, and with inspection 0.4 s for two records and 1 s after it.

    Args:
        record: seconds of one record.
    """

    def __init__(self, record: float = 0.2) -> None:
        self.record = record
        self.commands: list[list[str]] = []

    def __call__(self, arguments: Sequence[str]) -> process.Finished:
        """Leave a run folder behind."""
        self.commands.append(list(arguments))
        keys = dict(argument.split("=", 1) for argument in arguments[1:])
        folder, is_recorded = Path(keys["outputs_dir"]) / keys["name"], keys["inspection"] == "default"
        folder.mkdir()
        recording = 2 * self.record if is_recorded else 0.0
        seconds = {"training": 10 + recording, "causes (after training)": 0.75 if is_recorded else 0.0}
        if is_recorded:
            seconds["inspection (within training)"] = recording
            recorder = HeadRecorder(folder, [Text("probe_0", ["a", "b"], "a b")])
            for step in (0, 503):
                recorder.record(step, [{"layer 0": np.full((1, 2, 2), 0.5, dtype=np.float32)}])
        (folder / "events.out.tfevents.1").write_bytes(bytes(4096 if is_recorded else 1024))
        (folder / "metrics.json").write_text(json.dumps({"seconds": seconds, "training": {"steps": 503}}))
        return process.Finished(12 + recording + (1 if is_recorded else 0), 0.0, "")


@pytest.mark.parametrize(("record", "outcome"), [(0.01, "1.02x met"), (0.2, "1.02x missed")])
def test_the_cost_of_the_default_run_is_reckoned_by_its_records(
    monkeypatch: pytest.MonkeyPatch, record: float, outcome: str
) -> None:
    monkeypatch.setattr(process, "finished", FakeTraining(record))
    monkeypatch.setattr(inspecting.TrainerConfig, "max_epochs", 6)
    measured, reckoned = measure(BenchmarkConfig(suite="inspection", rounds=2), CPU, lambda doing: None)
    rows = {row[0]: row[1:] for row in measured.rows}
    assert rows["whole command, s"][:3] == (f"{13 + 2 * record:.1f}", "12.0", f"{1 + 2 * record:+.1f}")
    assert rows["training, s"][3] == f"{1 + 0.2 * record:.3f}x"
    assert rows["one record, s"][0] == f"{record:.2f}"
    assert rows["event files, KiB"] == ("4", "1", "+3", "-")
    assert int(rows["one record on disk, KiB"][0]) >= 1
    by_difference, by_clocks = reckoned.rows
    # 12 s and five more epochs of 10 s; seven records, and 1 s (0.75 s by the clock) once.
    assert by_difference[1:4] == ("62", f"{7 * record + 1:+.1f}", f"{1 + (7 * record + 1) / 62:.3f}x")
    assert by_clocks[2] == f"{7 * record + 0.75:+.1f}"
    assert by_difference[5] == outcome


def test_runs_take_turns_on_the_default_data_after_one_that_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    training, told = FakeTraining(), []
    monkeypatch.setattr(process, "finished", training)
    measure(BenchmarkConfig(suite="inspection", rounds=2), CPU, told.append)
    warming, *others = training.commands
    assert "trainer.max_steps=5" in warming
    assert [command[7] for command in others] == ["inspection=default", "inspection=off"] * 2
    for command in others:
        assert {"baseline=false", "trainer.max_epochs=1", "trainer.accelerator=cpu"} <= set(command)
        assert not [key for key in command if key.startswith(("data", "model", "trainer.max_steps"))]
    assert told[1:] == [f"{name}, round {number} of 2" for number in (1, 2) for name in ("recorded", "not")]
