"""The table of numbers in the Heads tab: what stands first, and how it sorts."""

from pathlib import Path

import numpy as np
import pytest
from answered import answered_run
from heads_browser import Opener, Tab
from heads_server import Step, maps_of, write_run

from headscope.record.schema import Text

BEST = "#p.heads.step=200"
FIRST = ["head", "effect", "loss_zeroed", "accuracy_zeroed", "contribution", "role"]
PATTERN = ["entropy_share", "mean_distance", "self", "previous", "next", "first", "separator"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 layers of 12 heads that has every number at its best step."""
    logdir = tmp_path_factory.mktemp("finished")
    recorder = answered_run(logdir / "mine", layers=12, heads=12)
    random = np.random.default_rng(1)
    shape = (12, 12)
    names = [*PATTERN, "accuracy_zeroed", "contribution"]
    numbers = {f"numbers/{name}/mean": random.uniform(size=shape) for name in names}
    numbers |= {f"numbers/{name}/error": np.full(shape, 0.01) for name in names}
    assert recorder.amend(200, numbers)
    return logdir


def columns(tab: Tab) -> list[str]:
    return [cell.get_attribute("data-column") for cell in tab.find(".table thead th").all()]


def overflow(tab: Tab) -> int:
    """Return by how many pixels the table is wider than its place."""
    found: int = tab.find(".table .table-scroll").evaluate(
        "node => node.scrollWidth - node.clientWidth"
    )
    return found


def sort(tab: Tab, column: str) -> None:
    tab.find(f".table thead th[data-column={column}] button").click()


def test_the_table_sorts_by_a_number_both_ways_and_back(open_tab: Opener, tmp_path: Path) -> None:
    values = [0.75, 0.1, 0.2, 0.3, 0.41, np.nan]
    means = np.array(values).reshape(2, 3)
    step = Step(0, [maps_of(0, 2, 3, 4)], {"previous": (means, means / 50)})
    write_run(tmp_path, "mine", [Text("t", list("abcd"), "a")], [step])
    heads = [f"layer {layer} head {head}" for layer in range(2) for head in range(3)]
    tab = open_tab(tmp_path)
    tab.drawn(0)
    sort(tab, "previous")
    falling = sorted(range(5), key=lambda head: -values[head])
    tab.shows(".table tbody th", [heads[head] for head in [*falling, 5]])  # no number: last
    sort(tab, "previous")
    tab.shows(".table tbody th", [heads[head] for head in [*falling[::-1], 5]])
    sort(tab, "head")
    tab.shows(".table tbody th", heads)
    assert "–" in tab.find(".table tbody tr >> nth=5").locator("td").all_text_contents()
    tab.find(".table tbody tr").nth(4).click()
    tab.shows(".head h2", "layer 1 head 1")


@pytest.mark.slow
def test_which_heads_matter_stands_first_and_the_table_fits(
    open_tab: Opener, tmp_path: Path
) -> None:
    answered_run(tmp_path / "mine")
    tab = open_tab(tmp_path, BEST)
    tab.drawn(200)
    effects = ["matters"] * 4 + ["inconclusive"] * 3 + ["no effect"]
    found = tab.find(".table td[data-column=effect]")
    tab.has(lambda: sorted(found.all_text_contents()), sorted(effects))
    assert columns(tab)[:4] == ["head", "effect", "loss_zeroed", "role"]
    cells = ["layer 1 head 1", "matters", "0.410 ±0.030", "no clear pattern"]
    shown = tab.find(".table tbody tr >> nth=0 >> th, td")
    tab.has(lambda: shown.all_inner_texts()[:4], cells)
    row = tab.find(".table tbody tr").filter(has_text="first-token sink")
    assert row.locator("th").inner_text() == "layer 0 head 0"
    assert row.locator("td[data-column=role]").get_attribute("title").startswith("score 0.")
    assert overflow(tab) == 0
    tab.press(".")
    tab.drawn(300)
    tab.says(".table h2", "heads were ablated at step 200")
    assert columns(tab)[:2] == ["head", "role"]


@pytest.mark.slow
def test_all_columns_stand_beside_and_those_that_are_left(open_tab: Opener, finished: Path) -> None:
    tab = open_tab(finished, BEST)
    tab.drawn(200)
    tab.expect(".table tbody tr").to_have_count(144)
    assert columns(tab) == [*FIRST, *PATTERN]
    sort(tab, "first")
    cells = tab.find(".table tbody td[data-column=first]").all_inner_texts()
    first = [float(number) for number in cells]
    assert first == sorted(first, reverse=True)
    tab.press(",")
    tab.drawn(100)
    tab.expect(".table [data-column=loss_zeroed]").to_have_count(0)
    assert columns(tab) == ["head", "role", "entropy_share", "first"]
    assert tab.fits()
