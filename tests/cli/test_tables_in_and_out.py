"""xlsx in, xlsx out: predict, evaluate, labels' files; what a sheet holds is text."""

from pathlib import Path

import openpyxl
import pytest
from rich.console import Console

from headscope.cli.evaluate import evaluate
from headscope.cli.predict import predict
from headscope.data.rows import read_rows
from headscope.ground.tables import write_rows
from headscope.runs.run import load_run
from headscope.settings.commands import EvaluateConfig, OtherDataConfig, PredictConfig
from headscope.settings.config import DataConfig
from untrained import LABELS, untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
TEXTS = ['=HYPERLINK("http://a.example", 1)', "the cat", "+1", "42", "日本", "http://a.example"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return untrained(tmp_path / "run", TEXTS, DataConfig(max_length=16))


def test_a_sheet_is_labelled_and_its_answers_are_scored(run: Path, tmp_path: Path) -> None:
    given = [{"text": text, "label": LABELS[at % 3], "id": at} for at, text in enumerate(TEXTS)]
    source = str(tmp_path / "in.xlsx")
    write_rows(source, given, [])
    out = str(tmp_path / "out.xlsx")
    assert predict(PredictConfig(str(run), source, out, accelerator="cpu")) == 6
    rows = [*read_rows(out)]
    assert [(row["text"], row["id"]) for row in rows] == [
        (row["text"], str(row["id"])) for row in given
    ]
    expected = load_run(run).predict(TEXTS)
    assert [row["prediction"] for row in rows] == [each.label for each in expected]
    shares = [float(row["probability_good"]) for row in rows]
    assert shares == pytest.approx([each.probabilities["good"] for each in expected], abs=2e-6)
    cells = [*openpyxl.load_workbook(out).active.iter_rows(min_row=2)]
    assert {cell.data_type for row in cells for cell in row[:4]} == {"s"}
    assert {cell.data_type for row in cells for cell in row[4:]} == {"n"}
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
    assert "accuracy 0.0 (95 % interval 0.0 to 0.0)" in console.export_text()
    evaluations = [path.name for path in (run / "evaluations").iterdir()]
    assert evaluations == ["in.json"]


def test_several_labels_a_text_are_joined_in_a_sheet(tmp_path: Path) -> None:
    data = DataConfig(max_length=16, multi_label=True)
    run = untrained(tmp_path / "run", TEXTS, data)
    write_rows(str(tmp_path / "in.xlsx"), [{"text": text} for text in TEXTS], [])
    out = str(tmp_path / "out.xlsx")
    predict(PredictConfig(str(run), str(tmp_path / "in.xlsx"), out, accelerator="cpu"))
    expected = load_run(run).predict(TEXTS)
    assert [row["prediction"] for row in read_rows(out)] == [
        ";".join(each.labels) for each in expected
    ]
