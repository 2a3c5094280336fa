"""The table of numbers in the Heads tab: what it says first, what is folded, how it sorts, and the file that it is saved as."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from answered import answered_run, as_stored
from heads_browser import Opener, Tab
from heads_server import maps_of

from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder

KEPT = "#p.heads.step=200"
FIRST = ["head", "verdict", "loss_zeroed", "accuracy_zeroed", "nats", "role"]
MAX_SAMPLES = [
    "entropy_share",
    "entropy",
    "mean_distance",
    "self",
    "previous",
    "next",
    "first",
    "last",
    "separator",
]
DEPENDS = [
    "gate_gradient",
    "loss_averaged",
    "accuracy_averaged",
    "comprehensiveness",
    "sufficiency",
]
HOSTILE = ['=HYPERLINK("http://x","y")', "-1+1, </script><img src=x onerror=alert(1)>"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the logdir of a run of 12 layers of 12 heads that has every number at the step whose weights were kept."""
    logdir = tmp_path_factory.mktemp("finished")
    recorder = answered_run(logdir / "mine", layers=12, heads=12)
    random = np.random.default_rng(1)
    shape = (12, 12)
    names = [*MAX_SAMPLES, *DEPENDS, "same_token", "position_only", "accuracy_zeroed", "nats"]
    numbers = {name: (random.uniform(size=shape), np.full(shape, 0.01)) for name in names}
    likeness = np.abs(np.subtract.outer(np.arange(144.0) ** 2, np.arange(144.0) ** 2)) / 1000
    assert recorder.amend(200, numbers, as_stored({"likeness": likeness}))
    return logdir


def columns(tab: Tab) -> list[str]:
    return [cell.get_attribute("data-column") for cell in tab.find(".table thead th").all()]


def cells(tab: Tab, column: str) -> list[str]:
    found: list[str] = tab.find(f".table tbody td[data-column={column}]").all_inner_texts()
    return found


def overflow(tab: Tab) -> int:
    """Return by how many pixels the table is wider than its place."""
    found: int = tab.find(".table-scroll").evaluate("node => node.scrollWidth - node.clientWidth")
    return found


def unfold(tab: Tab, group: str) -> None:
    tab.find(f".table .fold >> text='{group}'").click()


@pytest.mark.slow
def test_which_heads_matter_stands_first_and_the_table_fits(
    open_tab: Opener, tmp_path: Path
) -> None:
    answered_run(tmp_path / "mine")
    tab = open_tab(tmp_path, KEPT)
    tab.drawn(200)
    assert columns(tab) == ["head", "verdict", "loss_zeroed", "role"]
    assert tab.find(".table tbody tr").first.inner_text().split("\t") == [
        "layer 1 · 1", "matters", "0.410 ±0.030", "no clear pattern",
    ]  # fmt: skip
    assert cells(tab, "verdict") == ["matters"] * 4 + ["inconclusive"] * 3 + ["no effect"]
    row = tab.find(".table tbody tr").filter(has_text="first-token sink")
    assert row.locator("th").inner_text() == "layer 0 · 0"
    assert row.locator("td[data-column=role]").get_attribute("title").startswith("score 0.")
    assert overflow(tab) == 0
    tab.press(".")
    tab.drawn(300)
    tab.find(".table").scroll_into_view_if_needed()  # numbers that nobody sees wait
    tab.says(".table h2", "heads were ablated at step 200")
    assert columns(tab) == ["head", "role"]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "fits"), [(1280, ["attention pattern"]), (800, [])])
def test_groups_unfold_by_a_click_and_stay_so(
    open_tab: Opener, finished: Path, width: int, fits: list[str]
) -> None:
    tab = open_tab(finished, KEPT, width=width)
    tab.drawn(200)
    tab.find(".table tbody tr").first.wait_for()
    assert columns(tab) == FIRST
    assert overflow(tab) == 0
    for group in fits:
        unfold(tab, group)
        assert overflow(tab) == 0
        unfold(tab, group)
    groups = {
        "attention pattern": [*MAX_SAMPLES, "same_token", "position_only"],
        "other effects": DEPENDS,
        "over the steps": ["line"],
        "most similar": ["like"],
    }
    expected = list(FIRST)
    for group, names in groups.items():
        button = tab.find(f".table .fold >> text='{group}'")
        assert button.get_attribute("aria-expanded") == "false"
        button.click()
        assert button.get_attribute("aria-expanded") == "true"
        expected += names
        assert columns(tab) == expected
    assert tab.find(".table tbody tr").count() == 144
    nearest = (
        tab.find(".table tbody tr")
        .filter(has=tab.find("[aria-label='layer 0, head 2']"))
        .locator("[data-column=like]")
    )
    assert nearest.inner_text() == "layer 0 · 1 0.003"
    tab.find(".table thead th[data-column=first] button").click()
    assert tab.find(".table th[data-column=line]").inner_text() == "first over the steps"
    assert tab.find(".table .spark path").first.get_attribute("d").count("L") == 3
    first = [float(number) for number in cells(tab, "first")]
    assert first == sorted(first, reverse=True)
    unfold(tab, "attention pattern")
    tab.press(",")
    tab.drawn(100)
    tab.find(".table").scroll_into_view_if_needed()
    tab.wait("() => !document.querySelector('.table [data-column=loss_zeroed]')")
    assert columns(tab) == ["head", "role", "line"]  # what is left of those that are unfolded
    assert tab.fits()


def saved(tab: Tab) -> tuple[str, str]:
    """Return the name and the content of the file that the table is saved as."""
    with tab.page.expect_download() as waiting:
        tab.find("button >> text=Save CSV").click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes().decode("utf-8")


@pytest.mark.slow
def test_all_numbers_are_saved_with_their_errors(open_tab: Opener, finished: Path) -> None:
    tab = open_tab(finished, KEPT)
    tab.drawn(200)
    tab.find(".table tbody tr").first.wait_for()
    name, content = saved(tab)
    assert name == "mine_step-200_heads.csv"
    assert content.count("\r\n") == content.count("\n") == 145
    rows = list(csv.DictReader(io.StringIO(content, newline="")))
    wanted = {"same_token", "position_only", *FIRST[2:-1], *MAX_SAMPLES, *DEPENDS}
    assert wanted | {f"{measure}_error" for measure in wanted} <= rows[0].keys()
    assert [(row["layer"], row["head"]) for row in rows] == [
        (f"layer {layer}", str(head)) for layer in range(12) for head in range(12)
    ]
    most = rows[133]
    assert (most["verdict"], most["role"], most["most_like_layer"], most["most_like_head"]) == (
        "matters", "no clear pattern", "layer 11", "0",
    )  # fmt: skip
    assert float(most["loss_zeroed"]) == pytest.approx(0.41, abs=1e-6)
    assert float(most["loss_zeroed_error"]) == pytest.approx(0.03, abs=1e-6)
    assert {row["verdict"] for row in rows} == {"matters", "no effect", "inconclusive"}
    tab.open_saved_page()
    name, content = saved(tab)
    assert name == "probe-0-step-200_heads.csv"
    assert list(csv.DictReader(io.StringIO(content, newline=""))) == rows


@pytest.mark.slow
def test_names_of_a_record_are_no_formulas_in_the_file(open_tab: Opener, tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path / "mine", [Text("t", ["a", "b", "c"], "a b c")])
    maps = dict(zip(HOSTILE, maps_of(0, 2, 2, 3), strict=True))
    odd = np.array([[-0.5, np.nan], [0.25, 1e-9]])
    extra = {"roles": np.array([["@SUM(A1)", "+x"], ["previous token", "no clear pattern"]])}
    names = ["=odd,", "constructor", "__proto__"]
    recorder.record(0, [maps], dict.fromkeys(names, (odd, np.abs(odd))), extra=extra)
    tab = open_tab(tmp_path)
    tab.drawn(0)
    tab.find(".table tbody tr").first.wait_for()
    assert set(names) <= set(columns(tab))
    rows = list(csv.reader(io.StringIO(saved(tab)[1], newline="")))
    assert {"'=odd,", "'=odd,_error", "constructor", "__proto__"} <= set(rows[0])
    assert [row[0] for row in rows[1:]] == [f"'{name}" for name in HOSTILE for _ in range(2)]
    assert [row[rows[0].index("role")] for row in rows[1:3]] == ["'@SUM(A1)", "'+x"]
    assert [row[rows[0].index("'=odd,")] for row in rows[1:3]] == [
        "-0.5",
        "",
    ]  # a number is a number
    assert tab.find("img").count() == 0
