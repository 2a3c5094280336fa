"""The views of one head: its weights, weight x value, lines from token to token, and what is predicted without it."""

import re
from pathlib import Path

import numpy as np
import pytest
from answered import answered_run, as_stored
from heads_browser import Opener, Tab, pixels_of
from heads_server import Step, maps_of, write_run

from headscope.record.reader import read_members
from headscope.record.schema import Text, weights_from
from headscope.tab.pictures import colors

TOKENS, SINK = 12, (0, 0)  # head 0 of layer 0 of a made-up record gives all to the first token
HOSTILE = "<img src=x onerror=alert(1)>"
CLASSES = ["bad", "good", HOSTILE, *(f"class {number}" for number in range(9))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a logdir with a finished run of twelve classes."""
    logdir = tmp_path_factory.mktemp("views")
    answered_run(logdir / "mine", tokens=TOKENS, classes=CLASSES, texts=1)
    return logdir


def of_record(logdir: Path) -> dict[str, np.ndarray]:
    """Return what the record has of the first text at the step whose weights were kept."""
    path = logdir / "mine" / "heads" / "step_000000000200.npz"
    arrays = read_members(
        path, lambda sizes: [name for name in sizes if name.startswith("text_0/")]
    )
    return {name.removeprefix("text_0/"): array for name, array in arrays.items()}


def weights_of(arrays: dict[str, np.ndarray], layer: int, head: int) -> np.ndarray:
    return weights_from(
        arrays[f"layer_{layer}/levels"][head], arrays[f"layer_{layer}/scales"][head]
    )


def show(tab: Tab, view: str) -> None:
    tab.find(f".head .views [data-value={view}]").click()


def column_of_lines(tab: Tab, place: int) -> np.ndarray:
    """Return how strong the lines are along one column of pixels, 0 to 255; of a negative place, from the right."""
    script = """(canvas, place) => Array.from(
        canvas.getContext('2d').getImageData(place < 0 ? canvas.width + place : place, 0, 1, canvas.height).data)"""
    return np.array(tab.find(".head .lines canvas").evaluate(script, place)).reshape(-1, 4)[:, 3]


def left_and_right(tab: Tab) -> tuple[np.ndarray, np.ndarray]:
    """Return how strong the lines begin at each query and end at each key, 0 to 255."""
    left, right = (column_of_lines(tab, place).reshape(TOKENS, -1).max(axis=1) for place in (2, -3))
    return left, right


@pytest.mark.slow
def test_weight_times_value_is_drawn_and_a_cell_says_both(open_tab: Opener, runs: Path) -> None:
    arrays = of_record(runs)
    weights, norms = weights_of(arrays, 1, 1), arrays["layer_1/value_norms"][1]
    valued = weights * norms
    tab = open_tab(runs)
    tab.drawn(200)
    before = pixels_of(tab, ".head .large")
    show(tab, "value")
    expected = colors()[np.floor(255 * valued / valued.max() + 0.5).astype(int)]
    shown = pixels_of(tab, ".head .large")
    assert (
        np.abs(shown.astype(int) - expected).max() <= 6
    )  # of a neighbouring colour, where it was rounded
    assert np.abs(before.astype(int) - expected).max() > 50
    query, key = np.unravel_index(valued.argmax(), valued.shape)
    tab.hover_cell(int(query), int(key))
    said = re.search(r"([\d.]+) × value ([\d.]+) = ([\d.]+)", tab.text(".head .readout"))
    assert said is not None
    wanted = [weights[query, key], norms[key], valued[query, key]]
    assert [float(number) for number in said.groups()] == pytest.approx(wanted, rel=0.01)
    tab.open_saved_page()
    show(tab, "value")
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), shown)


@pytest.mark.slow
@pytest.mark.parametrize("norms", [None, np.nan])
def test_where_no_lengths_are_known_weights_are_shown(
    open_tab: Opener, tmp_path: Path, norms: float | None
) -> None:
    extra = (
        {} if norms is None else as_stored({"text_0/layer_0/value_norms": np.full((2, 5), norms)})
    )
    maps = maps_of(0, 1, 2, 5)
    write_run(
        tmp_path,
        "mine",
        [Text("t", list("abcde"), "a")],
        [Step(step, [maps], extra=extra) for step in (0, 9)],
    )
    tab = open_tab(tmp_path, "#p.heads.view=value")
    tab.drawn(9)
    assert tab.find(".head .views [data-value=value]").is_hidden()
    assert tab.find(".head .views [aria-checked=true]").inner_text() == "weight"
    assert "value" not in tab.text(".head .readout")
    assert tab.find(".head .switch").is_hidden()
    tab.find(".head .views [data-value=weight]").press("ArrowRight")  # past what is not offered
    assert tab.find(".head .lines canvas").is_visible()
    tab.find(".choose-other").select_option("=mine")
    tab.find("[data-value=difference]").click()
    assert tab.find(".head .views").is_hidden()
    assert tab.find(".head .large").is_visible()


@pytest.mark.slow
def test_lines_go_from_queries_to_keys_and_a_token_keeps_its_own(
    open_tab: Opener, runs: Path
) -> None:
    weights = weights_of(of_record(runs), 1, 1)
    tab = open_tab(runs, "#p.heads.view=lines&p.heads.layer=0&p.heads.head=0")
    tab.drawn(200)
    assert tab.find(".head .map-scroll").is_hidden()
    queries, keys = left_and_right(tab)
    assert (queries > 150).all()  # a thin line between two rows of pixels
    assert keys[0] > 150
    assert not keys[1:].any()  # a sink
    assert tab.text(".head .about").endswith("100 % on special tokens")
    tab.find(".head .to [data-index='3']").hover()
    assert not left_and_right(tab)[0].any()  # nobody looks there
    tab.choose(1, 1)
    tab.find(".head .from [data-index='4']").hover()
    queries, keys = left_and_right(tab)
    assert [place for place, strength in enumerate(queries) if strength > 8] == [4]
    np.testing.assert_allclose(
        keys, 255 * weights[4] / weights.max(), atol=40
    )  # two lines' ends touch, edges are soft
    tab.find(".head h2").hover()
    assert (left_and_right(tab)[0] > 8).all()
    canvas = tab.find(".head .lines canvas")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        canvas.press(key)
    assert tab.text(".head .readout").startswith("query 5 word5 → key 1 word1")
    tab.find("button >> text=Unlock").wait_for()
    assert [place for place, strength in enumerate(left_and_right(tab)[0]) if strength > 8] == [5]
    tab.open_saved_page()
    show(tab, "lines")
    assert (left_and_right(tab)[0] > 8).all()


@pytest.mark.slow
def test_of_many_lines_the_strongest_are_drawn_and_it_is_said(
    open_tab: Opener, tmp_path: Path
) -> None:
    count = 80
    maps = [
        np.concatenate([maps_of(0, 1, 1, count, 1.0)[0], np.full((1, count, count), 1 / count)])
    ]
    words = [f"w{place}" for place in range(count)]
    write_run(tmp_path, "a_short", [Text("t", words, "w")], [Step(0, [maps])], exact=True)
    write_run(tmp_path, "b_long", [Text("t", words, "w")], [Step(0, [maps])], max_tokens=70)
    tab = open_tab(tmp_path, "#p.heads.view=lines&p.heads.run=a_short")
    tab.drawn(0)
    drawn, mass = map(int, re.findall(r"(\d+) (?:strongest of 6400|%)", tab.text(".lines-note")))
    assert 1900 <= drawn <= 2000
    assert mass == pytest.approx(100 * np.sort(maps[0][0], axis=None)[-drawn:].sum() / count, abs=1)
    tab.choose(0, 1)
    even = int(re.findall(r"(\d+) strongest of 6400", tab.text(".lines-note"))[0])
    assert 1000 <= even <= 2000  # of equal ones some of every token
    assert (column_of_lines(tab, 5) > 0).mean() > 0.3
    tab.find(".choose-run").select_option("b_long")
    tab.says(".lines-note", "A row is a stretch of tokens")
    assert tab.find(".head .from .token-name").count() == 64


@pytest.mark.slow
def test_a_head_is_ablated_by_a_click_and_by_a_key(open_tab: Opener, runs: Path) -> None:
    arrays = of_record(runs)
    before, without = arrays["probabilities"], arrays["without/heads"][1, 1]
    layer = arrays["without/layers"][1]
    tab = open_tab(runs)
    tab.drawn(200)
    assert tab.find(".without").is_hidden()
    tab.find(".head .switch").click()
    first = int(before.argmax())
    lines = tab.find(".without p").all_inner_texts()
    change = np.maximum(abs(without - before), abs(layer - before))
    others = [place for place in np.argsort(-change, kind="stable") if place != first]
    shown = [first, *others[:4]]
    assert tab.find(".without th[scope=row]").all_inner_texts() == [
        CLASSES[place] for place in shown
    ]
    numbers = [float(number) for number in tab.find(".without td .number").all_inner_texts()]
    assert numbers == pytest.approx(
        [all_[place] for place in shown for all_ in (before, without, layer)], abs=6e-4
    )
    assert lines == [f"The other 7 classes change by at most {change[others[4]]:.3f}."]
    assert tab.find("img").count() == 0
    tab.choose(0, 2)
    assert f" {arrays['without/heads'][0, 2][first]:.3f}" in tab.text(".without")
    tab.press(".")
    tab.drawn(300)
    tab.says(".without", "Heads were ablated at step 200")
    tab.press("o")
    assert tab.find(".without, .head .switch").first.is_hidden()
    tab.press(",")
    tab.drawn(200)
    tab.open_saved_page()
    tab.page.keyboard.press("o")
    assert lines == tab.find(".without p").all_inner_texts()


@pytest.mark.slow
def test_special_tokens_and_the_read_out_are_marked_beside_the_map(
    open_tab: Opener, runs: Path
) -> None:
    tab = open_tab(runs, "#p.heads.layer=0&p.heads.head=0")
    tab.drawn(200)
    show(tab, "lines")
    show(tab, "weight")
    for axis in (".axis.keys", ".axis.queries", ".column.from", ".column.to"):
        assert tab.find(f".head {axis} .special").all_text_contents() == ["[CLS]", "[SEP]"], axis
        assert tab.find(f".head {axis} .reads").all_text_contents() == ["[CLS]"], axis
    assert tab.find(".text .token.special").all_text_contents() == ["[CLS]", "[SEP]"]
    tab.hover_cell(3, 0)
    assert tab.text(".head .readout").endswith("1.000 · a special token")
