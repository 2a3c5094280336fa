"""What a command has written, another one reads as it was: hostile class names, and files that Excel has saved since."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from headscope.cli.evaluate import evaluate
from headscope.cli.labels import labels
from headscope.cli.predict import predict
from headscope.data.corpus import load_corpus, row_keys
from headscope.ground.errors import DataError, UserWarningMessage
from headscope.ground.plain_rows import from_csv_cell
from headscope.ground.tables import write_rows
from headscope.pages.shown_run import load_shown
from headscope.runs.folder import load_model, save_model
from headscope.runs.run import load_run
from headscope.settings.commands import EvaluateConfig, LabelsConfig, OtherDataConfig, PredictConfig
from headscope.settings.config import DataConfig
from training_runs import configured
from untrained import untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
HOSTILE = [
    "@support",
    "'@support",
    "=1+1",
    "-sales",
    "R&B; =soul",
    "a,b",
    '"',
    "true",
    "日本",
    "007",
]
SETS = [*HOSTILE, '["a"]', "[1]"]
TEXTS = [
    f"{'the cat sat on the mat and =looked'[: 4 + 4 * (n % 13)]} {chr(97 + n)}" for n in range(26)
]
TEXTS[0] = "=1+1; @x"


def run_of(folder: Path, multi_label: bool) -> Path:
    data = DataConfig(max_length=16, multi_label=multi_label)
    if not multi_label:
        return untrained(folder / "run", TEXTS, data, HOSTILE)
    run = untrained(folder / "run", TEXTS, data, SETS)
    setup, model, chosen = load_model(run)
    save_model(run, setup, model, replace(chosen, thresholds=[0.2] * len(SETS)))
    return run


def scored(run: Path, path: str, against: str, **data: Any) -> Any:
    console = Console(quiet=True)
    other = OtherDataConfig(path=path, **data)
    evaluate(EvaluateConfig(str(run), against=against, accelerator="cpu", data=other), console)
    (kept,) = (run / "evaluations").iterdir()
    content = json.loads(kept.read_text())
    kept.unlink()
    return content


def excel(path: Path, encoding: str, delimiter: str) -> None:
    """Save a csv file as Excel does in another country."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.reader(file)]
    with path.open("w", encoding=encoding, errors="replace", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_predictions_are_read_by_evaluate_as_answers_and_as_labels(
    multi_label: bool, ending: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path, multi_label)
    found = load_run(run).predict(TEXTS)
    assert len({name for each in found for name in each.labels}) > 4
    truth = [each.labels if multi_label else each.label for each in found]
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, truth, strict=True)]
    write_rows(str(tmp_path / "in.jsonl"), rows, [])
    out = tmp_path / f"out{ending}"
    predict(PredictConfig(str(run), str(tmp_path / "in.jsonl"), str(out), accelerator="cpu"))
    for path, column in ((str(tmp_path / "in.jsonl"), "label"), (str(out), "prediction")):
        content = scored(run, path, str(out), label_column=column)
        assert (content["accuracy"], content["against"]["accuracy"]) == (1, 1)
    again = tmp_path / f"again{ending}"  # its columns are kept as input_..., its texts are restored
    predict(PredictConfig(str(run), str(out), str(again), accelerator="cpu"))
    assert scored(run, str(tmp_path / "in.jsonl"), str(again))["against"]["accuracy"] == 1


@pytest.mark.parametrize("saved", [("cp932", ","), ("cp932", ";"), ("utf-16", "\t")])
def test_predictions_are_read_after_a_spreadsheet_has_saved_them(
    saved: tuple[str, str], tmp_path: Path
) -> None:
    run = run_of(tmp_path, False)
    found = load_run(run).predict(TEXTS)
    rows = [{"text": text, "label": each.label} for text, each in zip(TEXTS, found, strict=True)]
    write_rows(str(tmp_path / "in.jsonl"), rows, [])
    out = tmp_path / "out.csv"
    predict(PredictConfig(str(run), str(tmp_path / "in.jsonl"), str(out), accelerator="cpu"))
    excel(out, *saved)
    assert scored(run, str(tmp_path / "in.jsonl"), str(out))["against"]["accuracy"] == 1


@pytest.mark.filterwarnings("ignore:.*its rows are taken in their order:UserWarning")
def test_a_column_of_answers_alone_may_have_empty_cells(tmp_path: Path) -> None:
    run = run_of(tmp_path, False)
    found = [each.label for each in load_run(run).predict(TEXTS)]
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, found, strict=True)]
    write_rows(str(tmp_path / "in.jsonl"), rows, [])
    given = ["" if row % 2 else name for row, name in enumerate(found)]
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        file.write("prediction\n")
        csv.writer(file).writerows([name] if name else [] for name in given)
    assert (
        scored(run, str(tmp_path / "in.jsonl"), str(tmp_path / "a.csv"))["against"]["accuracy"]
        == 0.5
    )


@pytest.mark.parametrize(
    "save",
    [
        lambda path: None,
        lambda path: excel(path, "cp1252", ";"),
        lambda path: excel(path, "cp932", ","),
        lambda path: excel(path, "utf-16", "\t"),
    ],
)
def test_a_corrected_file_of_labels_is_read(save: Callable[[Path], None], tmp_path: Path) -> None:
    names = [name for name in HOSTILE if name != "日本"] + ["ÄÖ é"]
    rows = [
        {"text": f"word{chr(97 + row % 26)}{chr(97 + row // 26)}", "label": names[row % 10]}
        for row in range(60)
    ]
    if "cp932" in save.__code__.co_consts:
        rows = [{**row, "label": row["label"].replace("ÄÖ é", "日本")} for row in rows]
    write_rows(str(tmp_path / "rows.jsonl"), rows, [])
    data = DataConfig(path=str(tmp_path / "rows.jsonl"), cache_dir=str(tmp_path / "cache"))
    whole = load_corpus(data)
    split = whole.splits["train"]
    wanted = [whole.labels[(row + 1) % 10] for row in range(len(split))]
    file = tmp_path / "labels.csv"
    keys = row_keys(split, whole.labels)
    own = [
        {"text": "=1", "corrected": name, "key": key}
        for name, key in zip(wanted, keys, strict=True)
    ]
    write_rows(str(file), own, [])
    save(file)
    found = load_corpus(replace(data, drop_rows=str(file)))
    assert [found.labels[row["label"]] for row in found.splits["train"]] == wanted


def test_a_file_that_is_none_of_ours_is_said_to_lack_the_column(tmp_path: Path) -> None:
    config = configured(tmp_path).data
    (tmp_path / "a.csv").write_text("text;label\na;b\n")
    with pytest.raises(DataError, match=r"a\.csv: expected a column 'key', got text;label"):
        load_corpus(replace(config, drop_rows=str(tmp_path / "a.csv")))


@pytest.mark.parametrize("name", ["key", "row", "split", "corrected", "suggested", "text"])
def test_a_column_of_the_data_that_is_called_like_ours_is_kept_beside_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"text": f"word{chr(97 + row % 26)}{chr(97 + row // 26)}", "label": "xy"[row % 2]}
        for row in range(60)
    ]
    rows = [{name: f"mine {row['text']}", **row} for row in rows]
    write_rows(str(tmp_path / "rows.csv"), rows, [])
    config = configured(tmp_path, rows).data
    config = replace(config, path=str(tmp_path / "rows.csv"))
    run = untrained(tmp_path / "run", [row["text"] for row in rows], config, ["x", "y"])
    monkeypatch.setattr("headscope.runs.texts.check_data", lambda *_: None)
    monkeypatch.setattr(
        "headscope.cli.labels.trained_without", lambda run, *_: load_run(run.folder)
    )
    monkeypatch.setattr("headscope.cli.labels.ODDS", 1.0)
    out = tmp_path / "labels.csv"
    found = labels(LabelsConfig(run=str(run), output=str(out), id_column=name), Console(quiet=True))
    assert found
    own = {row["text"]: row[name] for row in rows}
    assert all(row[f"input_{name}"] == own[row["text"]] for row in found)
    with pytest.warns(UserWarningMessage, match="leaves out"):
        load_corpus(replace(config, drop_rows=str(out)))


def test_the_words_of_each_class_are_read_as_they_were(tmp_path: Path) -> None:
    run = load_shown(run_of(tmp_path, False))
    found = run.report(TEXTS)
    found.save_words(tmp_path / "words.csv")
    texts = dict.fromkeys(("class", "word", "example"), str)
    table = pd.read_csv(tmp_path / "words.csv", dtype=texts, keep_default_na=False)
    for column in ("class", "word"):
        assert table[column].map(from_csv_cell).tolist() == found.words[column].tolist()


def test_a_time_and_a_number_past_a_float_are_written_as_they_were(tmp_path: Path) -> None:
    run = run_of(tmp_path, multi_label=False)
    table = pd.DataFrame({"text": ["a"], "at": [pd.Timestamp("2024-01-02 03:04:05.678901234")]})
    table.to_parquet(tmp_path / "in.parquet")
    (tmp_path / "in.jsonl").write_text('{"text": "a", "at": 12e4567, "b": 1.5}\n')
    for name, at in (("parquet", "2024-01-02 03:04:05.678901234"), ("jsonl", "12e4567")):
        out = tmp_path / f"{name}.jsonl"
        predict(PredictConfig(str(run), str(tmp_path / f"in.{name}"), str(out), accelerator="cpu"))
        assert json.loads(out.read_text())["at"] == at
    assert json.loads(out.read_text())["b"] == 1.5
