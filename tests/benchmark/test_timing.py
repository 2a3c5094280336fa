"""How benchmarks are timed, written and described; no test asserts a time."""

import io
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from headscope.benchmark.machine import ceiling, commit, describe
from headscope.benchmark.page import Table, portable, write_page
from headscope.benchmark.process import finished
from headscope.benchmark.timing import Timing, in_turn
from headscope.benchmark.workload import Sizes, bucketed, lognormal_lengths, shuffled, texts_of
from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig


def test_variants_run_in_turn_after_a_round_that_is_not_counted() -> None:
    seen: list[str] = []
    found = in_turn({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, rounds=3)
    assert seen == ["a", "b"] * 4
    assert {name: len(timing.seconds) for name, timing in found.items()} == {"a": 3, "b": 3}


def test_ratios_are_taken_round_by_round() -> None:
    slow, fast = Timing((2.0, 20.0, 6.0)), Timing((1.0, 10.0, 2.0))
    assert slow.ratio_to(fast) == 2
    assert (slow.median, fast.spread) == (6, 4.5)


def test_operations_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    sizes, length = Sizes(d_model=16, num_heads=2, num_layers=3, feedforward_size=48), 11
    config = ModelConfig(d_model=16, num_heads=2, num_layers=3, feedforward_size=48, pooling="mean", evidence=False)
    model = TextClassifier(config, sizes.vocab_size, sizes.num_classes, 32)
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        model.encoder(torch.randn(2, length, 16))
    products = sum(
        count for operator, count in counted.get_flop_counts()["Global"].items() if "attention" not in str(operator)
    )
    attention = counted.get_total_flops() - products
    ours = sizes.operations(np.array([length, length]), training=False)
    pairs = 2 * sizes.num_layers * 2 * length**2 * 2 * 16
    assert products == ours - pairs
    assert attention in (0, pairs)  # the fused kernel of a CPU is not counted by torch


def test_training_takes_three_times_the_operations() -> None:
    lengths = lognormal_lengths(17)
    assert Sizes().operations(lengths, training=True) == 3 * Sizes().operations(lengths, training=False)


def test_both_ways_of_batching_hold_every_text_once() -> None:
    sizes, lengths = Sizes(), lognormal_lengths(101, longest=64)
    assert lengths.max() == 64
    texts = texts_of(lengths, sizes)
    for batches in (bucketed(texts, 512), shuffled(texts, 8)):
        rows = np.concatenate([batch.rows.numpy() for batch in batches])
        assert sorted(rows) == [*range(101)]
        assert sum(int((batch.token_ids > 0).sum()) for batch in batches) == lengths.sum()


def test_a_page_holds_tables_machine_and_command_but_no_folder_of_the_machine(tmp_path: Path) -> None:
    table = Table("speed", ("name", "seconds"), [("a|b", "1")], ("a note",))
    path = tmp_path / "page.md"
    write_page(path, "speed, today", ["python", "scripts/x.py", "path=/home/me/my texts"], {"commit": "abc"}, [table])
    text = path.read_text(encoding="utf-8")
    for part in ("# speed, today", "commit abc", "| name | seconds |", "| --- | ---: |", "| a\\|b | 1 |", "a note"):
        assert part in text
    assert "`python scripts/x.py " in text
    assert "/home" not in text


def test_a_path_is_named_by_its_last_part_alone() -> None:
    assert portable("scripts/x.py kept=/a/b.c/d-e data=[/f/g,h/i] https://j.k/l 1 / 2 /") == (
        "scripts/x.py kept=.../d-e data=[.../g,h/i] https://j.k/l 1 / 2 /"
    )


def test_brackets_are_shown_on_the_screen_as_they_are() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(Table("[a]", ("[b]",), [("[c]",)], ("pip install -e .[d]",)).on_screen())
    assert all(part in console.file.getvalue() for part in ("[a]", "[b]", "[c]", ".[d]"))


def test_the_machine_is_described() -> None:
    facts = describe(torch.device("cpu"))
    assert {"device", "threads", "torch", "commit"} <= {*facts}
    assert ceiling(torch.float32, torch.device("cpu")) > 1e9


def test_a_commit_tells_of_changes_to_code_alone(tmp_path: Path) -> None:
    for name in ("src/x.py", "docs/x.md"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    (tmp_path / "docs/x.md").write_text("2")
    assert re.fullmatch("[0-9a-f]{10}", commit(tmp_path))
    (tmp_path / "src/x.py").write_text("2")
    assert re.fullmatch("[0-9a-f]{10} and changes not committed", commit(tmp_path))


def test_a_command_is_run_as_a_process() -> None:
    done = finished(["-c", "print('hello')"])
    assert done.output == "hello\n"
    assert done.peak_mib > 1
    assert done.seconds > 0
    with pytest.raises(RuntimeError, match=r"ended with 3.*why"):
        finished(["-c", "print('why'); raise SystemExit(3)"])
