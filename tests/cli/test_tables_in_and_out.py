"""xlsx in, csv for a spreadsheet out: predict, evaluate; what a sheet holds is text."""

import codecs
import csv
from pathlib import Path

import openpyxl
import pytest
from rich.console import Console

from headscope.cli.evaluate import evaluate
from headscope.cli.predict import predict
from headscope.data.rows import read_rows
from headscope.ground.plain_rows import from_csv_cell
from headscope.runs.run import load_run
from headscope.settings.commands import EvaluateConfig, OtherDataConfig, PredictConfig
from headscope.settings.config import DataConfig
from training_runs import write
from untrained import LABELS, untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
TEXTS = ['=HYPERLINK("http://a.example", 1)', "the cat", "+1", "42", "日本", "http://a.example"]


def sheet(path: Path) -> str:
    """Write the texts, a label of each and a number to a sheet, every cell but that as text."""
    book = openpyxl.Workbook()
    for row in [
        ("text", "label", "id"),
        *((text, LABELS[at % 3], at) for at, text in enumerate(TEXTS)),
    ]:
        book.active.append(row)
    for (cell,) in book.active.iter_rows(max_col=1):
        cell.data_type = "s"
    book.save(path)
    return str(path)


def test_a_sheet_is_labelled_and_its_answers_are_scored(tmp_path: Path) -> None:
    run = untrained(tmp_path / "run", TEXTS, DataConfig(max_length=16))
    source = sheet(tmp_path / "in.xlsx")
    out = str(tmp_path / "out.csv")
    assert predict(PredictConfig(str(run), source, out, accelerator="cpu")) == 6
    rows = [*read_rows(out)]
    assert [(from_csv_cell(row["text"]), row["id"]) for row in rows] == [
        (text, str(at)) for at, text in enumerate(TEXTS)
    ]
    expected = load_run(run).predict(TEXTS)
    assert [row["prediction"] for row in rows] == [each.label for each in expected]
    shares = [float(row["probability_good"]) for row in rows]
    assert shares == pytest.approx([each.probabilities["good"] for each in expected], abs=2e-6)
    console = Console(record=True, width=200)
    config = EvaluateConfig(
        str(run),
        accelerator="cpu",
        data=OtherDataConfig(path=source, cache_dir=str(tmp_path)),
        against=out,
    )
    found = evaluate(config, console)
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert found.accuracy == pytest.approx(right / 6)
    assert "accuracy 0.0 (95 % interval −39.0 to +39.0)" in console.export_text()
    evaluations = [path.name for path in (run / "evaluations").iterdir()]
    assert evaluations == ["in.json"]


def test_a_csv_file_that_answers_a_sheet_has_a_bom_and_no_other(tmp_path: Path) -> None:
    """Excel takes one without for the text encoding of its region; other programs would read it."""
    data = DataConfig(max_length=16, multi_label=True)
    run = untrained(tmp_path / "run", TEXTS, data)
    expected = [";".join(each.labels) for each in load_run(run).predict(TEXTS)]
    sources = {
        sheet(tmp_path / "in.xlsx"): True,
        write(tmp_path / "in.csv", [{"text": text} for text in TEXTS]): False,
    }
    for number, (source, has_bom) in enumerate(sources.items()):
        out = tmp_path / f"{number}.csv"
        predict(PredictConfig(str(run), source, str(out), accelerator="cpu"))
        assert out.read_bytes().startswith(codecs.BOM_UTF8) == has_bom
        with out.open(encoding="utf-8-sig", newline="") as file:
            assert [row["prediction"] for row in csv.DictReader(file)] == expected
