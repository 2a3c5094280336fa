"""Labels for a file of texts: in its order, a bounded number of rows at a time."""

import csv
import io
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headscope.cli import predict as module
from headscope.cli.predict import predict
from headscope.data.batching import TextBatches, by_length, encode_texts
from headscope.ground.errors import ConfigError, DataError, RunError
from headscope.ground.plain_rows import Row
from headscope.runs.folder import load_model, save_model
from headscope.runs.run import load_run
from headscope.settings.checks import validate
from headscope.settings.commands import PredictConfig
from headscope.settings.config import DataConfig
from untrained import LABELS, untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
SENTENCE = "the cat sat on the mat and looked at a very long film about other cats"
TEXTS = [f"{SENTENCE[: 4 + 4 * (number % 13)]} {number}" for number in range(50)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(
        tmp_path_factory.mktemp("run"), TEXTS, DataConfig(max_length=16), pooling="mean"
    )


def written(path: Path, rows: list[Row]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def alone(run: Path, text: str) -> list[float]:
    """Return the probabilities of a text that no other text is batched with."""
    loaded = load_run(run)
    texts = encode_texts(loaded.tokenizer, [(text,)], loaded.evidence)
    with torch.no_grad():
        logits = loaded.model(*TextBatches(texts)[[0]].inputs)[0] / loaded.temperature
    return logits.softmax(dim=-1).tolist()


def label(run: Path, source: str | Path, out: str | Path = "-", **options: Any) -> int:
    """Label the texts of a file on the CPU, and return how many there were."""
    return predict(PredictConfig(str(run), str(source), str(out), accelerator="cpu", **options))


@pytest.mark.parametrize(("rows_at_once", "tokens_per_batch"), [(7, 40), (50, 1), (4096, 8192)])
def test_every_row_gets_its_own_probabilities(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows_at_once: int,
    tokens_per_batch: int,
) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows_at_once)
    given = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
    source = written(tmp_path / "in.jsonl", given)
    out = tmp_path / "out.jsonl"
    assert label(run, source, out, tokens_per_batch=tokens_per_batch) == 50
    rows = read(out)
    assert [(row["id"], row["text"]) for row in rows] == list(enumerate(TEXTS))
    assert len({row["prediction"] for row in rows}) > 1  # else a mix-up would not be seen
    for row in rows[::7]:
        shares = [row[f"probability_{name}"] for name in LABELS]
        assert shares == pytest.approx(alone(run, row["text"]), abs=2e-6)
        assert row["prediction"] == LABELS[int(np.argmax(shares))]


def test_a_file_without_rows_gives_a_file_without_rows(run: Path, tmp_path: Path) -> None:
    assert label(run, written(tmp_path / "in.jsonl", []), tmp_path / "out.jsonl") == 0
    assert (tmp_path / "out.jsonl").read_text() == ""


class Typed(io.TextIOWrapper):
    """Standard input of someone at a terminal, or of a pipe."""

    def __init__(self, text: str, is_terminal: bool = True) -> None:
        super().__init__(io.BytesIO(text.encode()))
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def test_at_a_terminal_it_is_said_what_is_waited_for(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unchecked_shapes: None,
) -> None:
    monkeypatch.setattr("sys.stdin", Typed("the cat\n"))
    assert label(run, "-") == 1
    shown = capsys.readouterr()
    assert shown.err == "reading standard input until Ctrl-D; for a file: input=...\n"
    assert json.loads(shown.out)["text"] == "the cat"
    for text, message in (("the cat\n", ""), ("", "0 texts\n")):
        monkeypatch.setattr("sys.stdin", Typed(text, is_terminal=False))
        label(run, "-")
        assert capsys.readouterr().err == message


def test_empty_and_missing_texts_are_counted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path / "in.jsonl", [{"text": text} for text in ("a", None, "", " \u200b")])
    assert label(run, source, tmp_path / "out.jsonl") == 4
    assert "note: 3 of 4 texts are empty" in capsys.readouterr().err
    missing, empty = read(tmp_path / "out.jsonl")[1:3]
    assert missing | {"text": ""} == empty


def test_cells_of_columns_without_a_name_are_kept(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,label,,\na,x,1,2\n")
    label(run, tmp_path / "in.csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file))[:5] == ["text", "label", "column_3", "column_4", "prediction"]
        assert next(csv.reader(file))[:4] == ["a", "x", "1", "2"]


def test_columns_of_the_input_that_are_called_like_ours_are_kept(run: Path, tmp_path: Path) -> None:
    given = {"prediction": "old", "probability_bad": 2, "text": "a", "input_prediction": "older"}
    out = tmp_path / "out.jsonl"
    label(run, written(tmp_path / "in.jsonl", [given]), out)
    (row,) = read(out)
    names = ["input_input_prediction", "input_probability_bad", "text", "input_prediction"]
    assert list(row) == [*names, "prediction", *(f"probability_{name}" for name in LABELS)]
    assert [row[name] for name in names] == ["old", 2, "a", "older"]
    assert row["prediction"] in LABELS


def test_weights_that_give_no_numbers_are_named(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    setup, model, chosen = load_model(folder)
    model.head.weight.data.fill_(3e38)  # finite, and their sums are not
    save_model(folder, setup, model, chosen)
    source = written(tmp_path / "in.jsonl", [{"text": "a"}])
    with pytest.raises(RunError, match="its weights are damaged: probabilities are NaN"):
        label(folder, source, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_what_output_may_not_be(run: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", [{"text": "a"}])
    (tmp_path / "old.csv").write_text("kept")
    (tmp_path / "link.jsonl").symlink_to("in.jsonl")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "empty.csv").touch()
    os.mkfifo(tmp_path / "pipe.csv")

    def refusal(name: str, overwrite: bool = True) -> str:
        content = {"run": str(run), "input": source, "output": str(tmp_path / name)}
        try:
            validate(PredictConfig, content | {"overwrite": overwrite})
        except ConfigError as error:
            return str(error)
        return ""

    assert "expected a file that does not exist" in refusal("old.csv", overwrite=False)
    for name in ("in.jsonl", "link.jsonl"):
        assert "expected another file than the input" in refusal(name)
    for name in ("folder.csv", "pipe.csv"):
        assert "expected the name of a file" in refusal(name)
    assert refusal("old.csv") == refusal("empty.csv", overwrite=False) == ""


def test_a_bounded_number_of_rows_is_held_whatever_the_files_size(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    given, done = 0, 0

    def endless(*_: object, **__: object) -> Iterator[Row]:
        nonlocal given
        for number in range(200):
            given += 1
            held.append(given - done)
            yield {"text": TEXTS[number % 50]}

    def counted(row: Row, answer: Row) -> Row:
        nonlocal done
        done += 1
        return row

    monkeypatch.setattr(module, "ROWS_AT_ONCE", 20)
    monkeypatch.setattr(module, "read_rows", endless)
    monkeypatch.setattr(module, "renamed", counted)
    predict(PredictConfig(str(run), "-", str(tmp_path / "out.jsonl"), accelerator="cpu"))
    assert given == done == 200
    assert max(held) <= 2 * 20  # the window that is read, and the one whose tokens are being made


def test_a_row_without_a_text_is_named_wherever_it_stands(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    source = written(tmp_path / "in.jsonl", [*({"text": text} for text in TEXTS), {"body": "a"}])
    message = r"in\.jsonl, row 50: no column 'text' for text_column; it has body"
    with pytest.raises(DataError, match=message):
        label(run, source, tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_batches_by_length_fill_the_budget_and_leave_no_row_out() -> None:
    lengths = np.random.default_rng(0).integers(2, 200, 300)
    batches = list(by_length(lengths, 512))
    assert sorted(row for rows in batches for row in rows) == list(range(300))
    assert all(len(rows) * lengths[rows].max() <= 512 for rows in batches)
    ordered = [lengths[row] for rows in batches for row in rows]
    assert ordered == sorted(ordered, reverse=True)
    assert [len(rows) for rows in by_length(np.array([900, 5, 900]), 512)] == [1, 1, 1]


def test_reasons_are_the_words_that_decided(run: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", [{"text": TEXTS[7], "reasons": "old"}])
    folder = untrained(tmp_path / "first", TEXTS, DataConfig(max_length=16))
    label(folder, source, tmp_path / "out.jsonl", reasons=True)
    (row,) = read(tmp_path / "out.jsonl")
    explanation = load_run(folder).explain(TEXTS[7])
    assert row["prediction"] == explanation.label
    assert row["reasons"] == explanation.word_line(5)
    assert row["input_reasons"] == "old"
    label(folder, source, tmp_path / "out.csv", reasons=True)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        (line,) = csv.DictReader(file)
    assert line["reasons"].lstrip("'") == row["reasons"]


def test_reasons_of_a_cut_text_name_its_rest_as_an_explanation_does(tmp_path: Path) -> None:
    folder = untrained(tmp_path / "run", TEXTS, DataConfig(max_length=4))
    text = " ".join(TEXTS)
    source = written(tmp_path / "in.jsonl", [{"text": text}])
    label(folder, source, tmp_path / "out.jsonl", reasons=True)
    (row,) = read(tmp_path / "out.jsonl")
    assert row["reasons"] == load_run(folder).explain(text).word_line(5)
    assert "the rest of the text" in row["reasons"]


def test_it_abstains_and_prints_the_share_of_unfamiliar_texts(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    setup, model, chosen = load_model(run)
    logits = torch.tensor([[3.0, 0, 0], [2, 0, 0], [0, 3, 0]])
    validation = (logits, torch.tensor([0, 1, 1]))
    save_model(folder, setup, model, replace(chosen, most_unknown=0.9), validation)
    source = written(tmp_path / "in.jsonl", [{"text": text} for text in [*TEXTS, "zzz"]])
    label(folder, source, tmp_path / "out.jsonl", min_confidence=0.5)
    rows = read(tmp_path / "out.jsonl")
    for row in rows[:-1]:
        best = max(LABELS, key=lambda name: row[f"probability_{name}"])
        is_sure = row[f"probability_{best}"] >= 0.5
        expected = (best, "") if is_sure else ("", "confidence")
        assert (row["prediction"], row["abstained"]) == expected
    assert (rows[-1]["prediction"], rows[-1]["abstained"]) == ("", "unfamiliar")
    assert {row["abstained"] for row in rows} == {"", "confidence", "unfamiliar"}
    shown = capsys.readouterr().err
    count = sum(row["abstained"] != "" for row in rows)
    assert f"abstained on {count} of 51 texts\n" in shown
    share = "1 of 51 texts are unlike those of training (2.0 %; of the validation texts at most 1 %"
    assert f"note: {share})\n" in shown
    label(folder, source, tmp_path / "sure.jsonl", target_accuracy=1)
    least = (logits[0] / chosen.temperature).softmax(0)[0]
    assert f"answers from a confidence of {least:.4f}, chosen on" in capsys.readouterr().err
    label(folder, source, tmp_path / "all.jsonl")
    assert f"note: {share}); min_confidence=... or" in capsys.readouterr().err


@pytest.mark.parametrize("multi_label", [False, True])
def test_reasons_of_many_texts_are_those_of_each(
    multi_label: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 23)
    monkeypatch.setattr(module, "SPLIT_TOKENS", 64)
    shown: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module.Bar, "update", lambda _, *done, name: shown.append(done))
    folder = untrained(tmp_path / "run", TEXTS, DataConfig(max_length=16, multi_label=multi_label))
    source = written(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS])
    label(folder, source, tmp_path / "out.jsonl", reasons=True)
    run = load_run(folder)
    for row, text in zip(read(tmp_path / "out.jsonl"), TEXTS, strict=True):
        likeliest = max(run.labels, key=lambda name: row[f"probability_{name}"])
        expected = dict(run.explain(text, likeliest).ranked_words())
        found = [word.rsplit(" ", 1) for word in row["reasons"].split("; ")]
        assert len(found) == min(5, len(expected))
        sizes = sorted(map(abs, expected.values()), reverse=True)
        for (name, value), size in zip(found, sizes, strict=False):
            assert abs(float(value) - expected[name]) <= 0.0051
            assert abs(abs(float(value)) - size) <= 0.0051
    assert [done for (done,) in shown] == sorted(done for (done,) in shown)
    assert max(shown) == (len(TEXTS),)
