"""The suite that times starting up: a row for each command, and a verdict on help and mistakes."""

import re

import pytest
import torch

from headscope.benchmark import startup as module
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
from headscope.benchmark.process import ROOT, Finished


def measured(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.25, **changes: object) -> tuple[Table, list[tuple]]:
    """Measure without starting anything."""
    asked: list[tuple] = []

    def at_once(arguments: tuple[str, ...], env: object = None, exit_code: int = 0) -> Finished:
        asked.append((arguments, exit_code))
        return Finished(seconds + len(asked) / 1e6, 20.0, "")

    monkeypatch.setattr(module, "finished", at_once)
    config = BenchmarkConfig(suite="startup", **({"rounds": 2} | changes))
    (table,) = module.measure(config, torch.device("cpu"), lambda doing: None)
    return table, asked


def test_every_script_and_mistake_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table, asked = measured(monkeypatch)
    names = [row[0] for row in table.rows]
    scripts = [path.name for path in (ROOT / "scripts").glob("*.py")]
    assert {f"{script} --help" for script in scripts} < set(names)
    assert {"python -c pass", "import torch", "import lightning"} < set(names)
    assert {"train.py model.num_heads=3", "train.py model.depth=3"} < set(names)
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert len(asked) == 3 * len(names)  # one round that is not counted, and two
    assert [arguments for arguments, _ in asked[: len(names)]] == [arguments for arguments, _ in asked[-len(names) :]]
    for _, median, slowest, fastest, _ in table.rows:
        assert float(fastest) <= float(median) <= float(slowest)


@pytest.mark.parametrize(("seconds", "verdict"), [(0.25, "met"), (0.75, "MISSED")])
def test_the_target_is_said_with_its_verdict(monkeypatch: pytest.MonkeyPatch, seconds: float, verdict: str) -> None:
    table, _ = measured(monkeypatch, seconds)
    assert re.match(
        rf"Target {verdict}: the slowest median .* is {seconds:.2f} s .*, wanted under 0.6 s", table.notes[-1]
    )
    assert ("commands are over it: benchmark.py --help" in table.notes[-1]) == (verdict == "MISSED")


def test_packages_beside_ours_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = measured(monkeypatch, peers=False)
    assert not [row for row in table.rows if row[0] in ("import torch", "import lightning")]


def test_mistakes_end_as_they_should(monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes = [start for start in module.starts() if start.exit_code]
    assert [start.exit_code for start in mistakes] == [2, 2]
    monkeypatch.setattr(module, "starts", lambda: mistakes)
    (table,) = module.measure(BenchmarkConfig(suite="startup", rounds=1), torch.device("cpu"), lambda doing: None)
    assert [float(row[1]) > 0 for row in table.rows] == [True, True]
