"""The suite that times predicting: a row for each way, equal work in each, and a verdict on the target."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value

from headscope.benchmark import predicting as module
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
from headscope.benchmark.process import Finished
from headscope.benchmark.workload import lognormal_lengths
from headscope.data.config import TokenizerConfig
from headscope.data.tokenizer import train_tokenizer
from headscope.errors import ConfigError

LABELS = ["free", "not free"]
TEXTS = [f"the licence number {number} of the cat gives no warranty at all" for number in range(60)]


@pytest.fixture(autouse=True)
def _few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=LABELS)})
    corpus = Dataset.from_dict({"text": TEXTS, "label": [number % 2 for number in range(60)]}, features)
    monkeypatch.setattr(module, "load_licenses", lambda cache: corpus)
    monkeypatch.setattr(module, "has_bfloat16", lambda device: False)


def measured(**changes: object) -> tuple[Table, list[str]]:
    tiny = {"texts": 10, "rounds": 1, "d_model": 16, "num_heads": 2, "num_layers": 1, "max_length": 32}
    config = BenchmarkConfig(suite="predict", **(tiny | changes))
    told: list[str] = []
    (table,) = module.measure(config, torch.device("cpu"), told.append)
    return table, told


def test_ours_is_run_as_a_user_runs_it() -> None:
    table, told = measured(peers=False)
    ((name, *figures),) = table.rows
    assert name == module.OURS
    assert len(table.columns) == len(table.rows[0])
    assert all(float(figure.rstrip("%").replace(",", "")) >= 0 for figure in figures)
    assert table.notes[0].startswith("50 texts")
    assert not [note for note in table.notes if note.startswith("Target")]
    assert [line for line in told if line.startswith("headscope")] == [
        "headscope, warming up",
        "headscope, round 1 of 1",
    ]


def test_bfloat16_has_a_row_where_there_are_instructions_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)
    table, _ = measured(peers=False)
    assert [row[0] for row in table.rows] == [module.OURS, module.HALF]


def test_every_way_is_run_in_turn_on_the_same_files(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    asked: list[tuple[str, str]] = []

    def at_once(arguments: list[str], env: object = None, exit_code: int = 0) -> Finished:
        (source,) = [argument for argument in arguments if argument.endswith(("single.jsonl", "all.jsonl"))]
        asked.append((arguments[-1] if arguments[0] == "-m" else "ours", Path(source).name))
        rows = len(Path(source.removeprefix("input=")).read_text().splitlines())
        return Finished(1.0 + rows * (0.01 if arguments[0] == "-m" else 0.001), 100.0, "")

    monkeypatch.setattr(module, "finished", at_once)
    table, _ = measured(rounds=2)
    assert [row[0] for row in table.rows] == [module.PIPELINE, module.SORTED, module.OURS]
    ways = ["given", "sorted", "ours"]
    one_round = [(way, name) for way in ways for name in ("single.jsonl", "all.jsonl")]
    assert asked == [(way, "single.jsonl") for way in ways] + 2 * one_round
    assert [row[3] for row in table.rows] == ["1.00", "1.00", "1.43"]  # 1.5 s / 1.05 s
    assert [row[7] for row in table.rows] == ["1.00", "1.00", "10.00"]  # without starting up: 49 texts
    assert re.match("Target MISSED: 1.43 times as fast .*, wanted at least 4", table.notes[-1])


def test_the_peer_labels_every_text_in_order(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = BenchmarkConfig(suite="predict", d_model=16, num_heads=2, num_layers=1, max_length=32)
    tokenizer = train_tokenizer(iter(TEXTS), TokenizerConfig(vocab_size=300))
    tokenizer.enable_truncation(32)
    module._save_bert(tmp_path / "bert", config, tokenizer, LABELS)
    texts = [" ".join(["cat"] * (1 + number % 40)) for number in range(45)]
    module._write(tmp_path / "in.jsonl", texts)
    from headscope.benchmark.hugging_face_predict import label_texts

    found = {}
    for is_sorted in (False, True):
        label_texts(tmp_path / "bert", tmp_path / "in.jsonl", tmp_path / "out.jsonl", "cpu", 32, is_sorted)
        found[is_sorted] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [row["text"] for row in found[is_sorted]] == texts
        assert {row["label"] for row in found[is_sorted]} <= set(LABELS)
    scores = [[row["score"] for row in found[is_sorted]] for is_sorted in (False, True)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_a_missing_transformers_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install -e \.\[benchmark\]"):
        measured()


def test_made_texts_have_about_the_lengths_that_are_asked_for() -> None:
    tokenizer = train_tokenizer(iter(TEXTS), TokenizerConfig(vocab_size=300))
    tokenizer.enable_truncation(16)
    lengths = lognormal_lengths(200)
    texts = module.made_texts(TEXTS * 20, lengths, tokenizer)
    tokenizer.no_truncation()
    made = np.array([len(encoding) for encoding in tokenizer.encode_batch_fast(texts)])
    assert np.median(made) == pytest.approx(np.median(lengths), rel=0.2)
    assert made.sum() == pytest.approx(lengths.sum(), rel=0.2)
