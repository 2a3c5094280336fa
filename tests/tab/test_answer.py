"""What the Heads tab opens with: which heads matter, the most important first, and what stands beneath each map."""

import re
from pathlib import Path

import numpy as np
import pytest
from answered import ANSWER, answered_run
from heads_browser import Opener, Tab, expected_pixels, pixels_of
from heads_server import Step, maps_of, write_run

from headscope.record.schema import Text

BY_PLACE = [f"layer {layer} head {head}" for layer in range(2) for head in range(4)]
MATTERS = ".answer .matters"
ELSEWHERE = "Heads were ablated at step 200"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which the newest comes second by its name."""
    logdir = tmp_path_factory.mktemp("answered")
    answered_run(logdir / "a_former", steps=(0, 300), kept=0)
    answered_run(logdir / "b_newest", layers=2, heads=4)
    return logdir


def lists(tab: Tab, names: list[str]) -> None:
    """Wait until the maps stand in this order."""
    maps = tab.find(".grid .map")
    tab.has(lambda: [each.get_attribute("aria-label") for each in maps.all()], names)


def test_the_tab_opens_with_which_heads_matter(open_tab: Opener, runs: Path) -> None:
    tab = open_tab(runs, width=1366, height=768)
    tab.drawn(200)  # the best step of the newest run, and not its last
    tab.expect(".choose-run").to_have_value("b_newest")
    tab.shows(MATTERS, ANSWER)
    tab.says(".head h2", "layer 1 head 1")
    lists(tab, BY_PLACE)
    for part in (".prediction", ".text", ".adds-up", ".heads-words", ".answer .matters"):
        box = tab.find(part).first.bounding_box()
        assert box["y"] + box["height"] <= 768, part  # in sight
    tab.find(".cells-table .head-name >> nth=1").click()
    tab.expect(".head h2").not_to_contain_text("layer 1 head 1")
    tab.press(".")
    tab.drawn(300)
    tab.says(MATTERS, ELSEWHERE)
    tab.find(".answer button >> text=Go to step 200").click()
    tab.drawn(200)
    tab.shows(MATTERS, ANSWER)


@pytest.mark.slow
def test_a_link_keeps_the_head(open_tab: Opener, runs: Path) -> None:
    tab = open_tab(runs, "#p.heads.run=a_former&p.heads.head=2&p.heads.order=%3Cb%3E")
    tab.drawn(0)
    tab.shows(".head h2", "layer 0 head 2")  # what a link says, and not the most important
    lists(tab, BY_PLACE)
    tab.page.wait_for_url(re.compile("head=2"))
    tab.reload(0)
    tab.shows(".head h2", "layer 0 head 2")


@pytest.mark.slow
def test_a_run_that_ends_shows_its_answer_unless_somebody_chose_a_step(
    open_tab: Opener, tmp_path: Path
) -> None:
    recorder = answered_run(tmp_path / "mine", steps=(0, 100, 200), kept=100)
    (tmp_path / "mine" / "model.safetensors").touch()
    recorder.index.best = None
    recorder.amend(200, {})
    tabs = [open_tab(tmp_path), open_tab(tmp_path)]
    for tab in tabs:
        tab.drawn(200)
        tab.says(MATTERS, "Heads are ablated when a run ends")
        tab.shows(".answer code", f"headscope inspect run={tmp_path}/mine")
    tabs[1].press(",")
    tabs[1].press(",")
    tabs[1].drawn(0)
    recorder.index.best = 100
    recorder.amend(100, {})
    expected = [(100, ANSWER), (0, "Heads were ablated at step 100")]
    for tab, (step, words) in zip(tabs, expected, strict=True):
        tab.refresh()
        tab.says(MATTERS, words)
        tab.drawn(step)


@pytest.mark.slow
def test_the_row_of_the_answer_is_marked(open_tab: Opener, tmp_path: Path) -> None:
    count = 12
    words = ["a"] * (count - 2) + ["[SEP]", "[CLS]"]
    text = Text("t", words, "a", None, None, [count - 2, count - 1], count - 1)
    early, late = (maps_of(seed, 2, 2, count) for seed in (0, 1))
    write_run(tmp_path, "mine", [text], [Step(0, [early]), Step(9, [late])])
    tab = open_tab(tmp_path)
    tab.drawn(9)
    for section, canvas in ((".head .cells", ".large"), (".grid .frame", "canvas")):
        map_, row = tab.boxes(f"{section} {canvas}", f"{section} .answer-row")
        assert row["y"] - map_["y"] == pytest.approx(map_["height"] * (count - 1) / count, abs=1)
        size = (map_["width"], map_["height"] / count)
        assert (row["width"], row["height"]) == pytest.approx(size, abs=1)
    # Of the last layer the other rows are read by nobody: it is this one row, small and large.
    own = late[1][0][-1]
    tab.looks(".grid .map canvas", expected_pixels(own[None]), 2)
    assert tab.find(".grid .answer-row >> visible=true").count() == 2
    tab.choose(1, 0)
    tab.says(".head h2", "where [CLS] looks")
    assert pixels_of(tab, ".grid .map canvas", 2).shape == (1, count, 3)
    tab.find(".head .choose-view").select_option("map")
    tab.expect(".head .large").to_be_visible()
    tab.says(".row-note", f"other {count - 1} rows of the full map decide nothing")


@pytest.mark.slow
def test_a_record_that_says_nothing_of_heads_opens_as_before(
    open_tab: Opener, tmp_path: Path
) -> None:
    maps = maps_of(0, 2, 3, 5)
    steps = [Step(step, [maps]) for step in (0, 9)]
    write_run(tmp_path, "mine", [Text("t", list("abcde"), "a")], steps)
    tab = open_tab(tmp_path)
    tab.drawn(9)
    tab.shows(".head h2", "layer 0 head 0")
    lists(tab, [f"layer {layer} head {head}" for layer in range(2) for head in range(3)])
    for name in (
        ".grid .answer-row",
        ".adds-up",
        ".heads-words",
    ):
        tab.expect(f"{name} >> nth=0").to_be_hidden()
    tab.expect(".answer code").to_have_count(0)  # no run that a command takes
    tab.looks(".head .large", expected_pixels(maps[0][0]))


@pytest.mark.slow
def test_roles_and_answers_are_text(open_tab: Opener, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    recorder = answered_run(tmp_path / "mine", sentences=f"layer 9 head 9 {hostile}")
    assert recorder.amend(200, {"roles": np.full((2, 4), hostile)})
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.says(MATTERS, hostile)
    tab.says(".table td[data-column=role] >> nth=0", hostile)
    assert tab.find("img").count() == 0


@pytest.mark.slow
def test_the_answer_is_shown_as_it_was_written_and_orders_the_heads(
    open_tab: Opener, tmp_path: Path
) -> None:
    recorder = answered_run(tmp_path / "mine")
    order = [[0, 3], [1, 1], [0, 0], [1, 0], [0, 1], [0, 2], [1, 2], [1, 3]]
    extra = {
        "answer": np.array("On 9 other texts layer 0 head 3 alone keeps 1 of 2 % (-1 to 2)."),
        "answer/details": np.array("256 texts: 80.1 % (75.0 to 84.4)"),
        "sets/heads": np.array(order, dtype=np.int32),
    }
    assert recorder.amend(200, extra)
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.shows(MATTERS, str(extra["answer"]).replace("-", "−"))
    tab.shows(".answer .details", str(extra["answer/details"]))
    tab.shows(".table tbody th >> nth=0", "layer 0 head 3")
