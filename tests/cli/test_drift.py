"""`headscope drift`: a page, a table and an exit code; months, two files, the run's own texts."""

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from headscope.cli.main import run as main_run
from headscope.cli.pages import drift
from headscope.data.splits import text_keys
from headscope.ground.errors import ConfigError, DataError, UserWarningMessage
from headscope.runs.run import load_run
from headscope.settings.checks import validate
from headscope.settings.commands import DriftConfig
from headscope.settings.config import DataConfig
from training_runs import Trained, reviews, write
from untrained import untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
HOSTILE = "<script>alert(1)</script> \u202e =1+1 $x$"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    known = [row["text"] for row in reviews(120)]
    labels = ["good", HOSTILE, "$bad_{"]
    return untrained(tmp_path_factory.mktemp("run"), known, DataConfig(max_length=24), labels)


def months(folder: Path) -> str:
    """Return a file of reviews of three months, in the last of which half name a new product."""
    rows = []
    for at, row in enumerate(reviews(450)):
        month = 9 + at // 150
        text = f"{row['text']} 日本 {HOSTILE}" if month == 11 and at % 4 < 2 else row["text"]
        rows.append({"text": text, "day": f"2026-{month:02}-{1 + at % 28:02}"})
    return write(folder / "months.csv", rows)


def compare(folder: Path, path: str, **settings: object) -> tuple[pd.DataFrame, int, str]:
    console = Console(record=True, width=200)
    output = Path(path).with_name("out.html")
    content = {"run": str(folder), "input": path, "output": str(output), "overwrite": True}
    found = drift(validate(DriftConfig, content | {"accelerator": "cpu"} | settings), console)
    return found.found, found.exit_code, console.export_text()


def test_the_month_in_which_texts_changed_is_found_and_what_it_was(
    folder: Path, tmp_path: Path
) -> None:
    path = months(tmp_path)
    earlier = write(tmp_path / "earlier.csv", [{"text": row["text"]} for row in reviews(300)])
    found, code, printed = compare(folder, path, against=earlier, by="day")
    assert code == 3
    assert {*found["period"]} == {"2026-11"}
    assert {"unknown words", "words"} <= {*found["measure"]}
    assert re.search("2026-11: words that came: .*日, 本.*; that went: none", printed)
    assert "beside 300 texts of" in printed
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "\u202e" not in page
    assert "style=" not in page
    assert "&lt;script&gt;" in page
    assert re.search(r'<img alt="[^"]+" src="data:image/png;base64,iVBOR[\w+/=]+">', page)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {row["period"] for row in rows} == {"2026-09", "2026-10", "2026-11"}
    assert {"word: 日", "word: 本"} <= {
        row["measure"] for row in rows if row["period"] == "2026-11"
    }


def test_where_nothing_has_changed_it_is_quiet(folder: Path, tmp_path: Path) -> None:
    rows = reviews(600)
    files = [write(tmp_path / f"{at}.csv", rows[at : at + 300]) for at in (0, 300)]
    found, code, printed = compare(folder, files[0], against=files[1])
    assert (code, len(found)) == (0, 0)
    assert "0 of 8 measures have drifted" in printed


def test_the_runs_own_texts_are_the_reference_and_the_bounds_are_keys(
    plain: Trained, tmp_path: Path
) -> None:
    given = [
        {"text": f"{row['text']} zorb" if at % 2 else row["text"]}
        for at, row in enumerate(reviews(440)[240:])
    ]
    path = write(tmp_path / "new.csv", given)
    found, code, printed = compare(plain.folder, path)
    assert code == 3
    assert "beside 48 texts of validation and test" in printed
    assert {"words", "unknown words"} <= {*found["measure"]}
    assert compare(plain.folder, path, min_change=0.6)[1] == 0
    assert compare(plain.folder, path, alpha=1e-40)[1] == 0
    both = compare(plain.folder, path, min_change=0.0, alpha=0.9)[0]
    assert len(both) > len(found)


def test_the_exit_code_is_that_of_the_command(folder: Path, tmp_path: Path) -> None:
    path = months(tmp_path)
    words = [f"run={folder}", f"input={path}", f"against={path}", f"output={tmp_path / 'a.html'}"]
    assert main_run("drift", [*words, "accelerator=cpu"]) == 0
    words[1] = f"input={write(tmp_path / 'b.csv', [{'text': '日本'}] * 80)}"
    assert main_run("drift", [*words, "accelerator=cpu", "overwrite=true"]) == 3


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"by": "week"}, ConfigError, "by: expected a column of the input, got 'week'"),
        ({"by": "text"}, DataError, r"months\.csv, row 0: expected a date such as 2026-11-27"),
        ({"by": "number"}, ConfigError, "by: expected a column of dates such as 2026-11-27"),
        ({"against": "no.csv"}, ConfigError, "against: expected a file that exists"),
        ({"output": "a.csv"}, ConfigError, "output: expected a name that ends in .html"),
    ],
)
def test_mistakes_are_one_message(
    folder: Path,
    tmp_path: Path,
    settings: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    rows = [{"text": row["text"], "number": str(at)} for at, row in enumerate(reviews(20))]
    path = write(tmp_path / "months.csv", rows)
    with pytest.raises(error, match=message):
        compare(folder, path, **settings)
    assert [each.name for each in tmp_path.iterdir()] == ["months.csv"]


def test_a_file_without_texts_is_one_message(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n")
    with pytest.raises(DataError, match="has no texts"):
        compare(folder, str(tmp_path / "a.csv"))


def test_texts_that_the_run_has_learned_are_left_out(plain: Trained, tmp_path: Path) -> None:
    learned = [{"text": row["text"]} for row in reviews(240)]
    new = [{"text": f"{row['text']} zorb"} for row in reviews(240)[:60]]
    both = write(tmp_path / "both.csv", learned + new)
    with pytest.warns(UserWarningMessage, match=r"of 300 texts of .* are left out: the run has"):
        _, code, _ = compare(plain.folder, both)
    assert code == 3
    keys = load_run(plain.folder).setup.learned
    assert keys is not None
    is_learned = np.isin(text_keys([(row["text"],) for row in learned])[:, 0], keys.numpy())
    known = [row for row, own in zip(learned, is_learned, strict=True) if own][:5]
    with pytest.raises(DataError, match=r"5 of 5 texts of .* are learned by the run"):
        compare(plain.folder, write(tmp_path / "known.csv", known))
