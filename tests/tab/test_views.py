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
VIEW = ".head .choose-view"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a logdir with a finished run of twelve classes."""
    logdir = tmp_path_factory.mktemp("views")
    answered_run(logdir / "mine", tokens=TOKENS, classes=CLASSES, texts=1)
    return logdir


def of_record(logdir: Path) -> dict[str, np.ndarray]:
    """Return what the record has of the first text at the best step."""
    path = logdir / "mine" / "heads" / "step_000000000200.npz"
    names = "text_0/"
    arrays = read_members(path, lambda sizes: [name for name in sizes if name.startswith(names)])
    return {name.removeprefix(names): array for name, array in arrays.items()}


def weights_of(arrays: dict[str, np.ndarray], layer: int, head: int) -> np.ndarray:
    levels, scales = (arrays[f"layer_{layer}/{name}"][head] for name in ("levels", "scales"))
    return weights_from(levels, scales)


def column_of_lines(tab: Tab, place: int) -> np.ndarray:
    """Return how strong the lines are along one column of pixels, 0 to 255; of a negative place, from the right."""
    script = """(canvas, place) => {
      const left = place < 0 ? canvas.width + place : place;
      return Array.from(canvas.getContext('2d').getImageData(left, 0, 1, canvas.height).data);
    }"""
    return np.array(tab.find(".head .lines canvas").evaluate(script, place)).reshape(-1, 4)[:, 3]


def left_and_right(tab: Tab) -> tuple[np.ndarray, np.ndarray]:
    """Return how strong the lines begin at each query and end at each key, 0 to 255."""
    left, right = (column_of_lines(tab, place).reshape(TOKENS, -1).max(axis=1) for place in (2, -3))
    return left, right


def queries_with_lines(tab: Tab) -> list[int]:
    return [place for place, strength in enumerate(left_and_right(tab)[0]) if strength > 8]


@pytest.mark.slow
def test_weight_times_value_is_drawn_and_a_cell_says_both(open_tab: Opener, runs: Path) -> None:
    arrays = of_record(runs)
    weights = weights_of(arrays, 1, 1)
    norms = arrays["layer_1/value_norms"][1]
    valued = weights * norms
    tab = open_tab(runs)
    tab.drawn(200)
    tab.says(".head h2", "layer 1, head 1")
    tab.find(VIEW).select_option("value")
    top = f"{valued.max():.{2 if valued.max() >= 1 else 3}f}"
    tab.shows(".head .scale span >> nth=-1", top)  # of the colour bar
    expected = colors()[np.floor(255 * valued / valued.max() + 0.5).astype(int)]
    shown = pixels_of(tab, ".head .large")
    assert np.abs(shown.astype(int) - expected).max() <= 6  # a colour away, where it was rounded
    query, key = np.unravel_index(valued.argmax(), valued.shape)
    tab.hover_cell(int(query), int(key))
    tab.says(".head .readout", "× value")
    said = re.search(r"(\d\.\d+) × value ([\d.]+) = ([\d.]+)", tab.text(".head .readout"))
    assert said is not None
    wanted = [weights[query, key], norms[key], valued[query, key]]
    assert [float(number) for number in said.groups()] == pytest.approx(wanted, rel=0.01)
    tab.find(VIEW).select_option("row-value")  # of the row that is read, over the words
    titles = "all => all.map(token => Number(token.title.split('weight ')[1]))"
    row = tab.find(".head .read-row .token").evaluate_all(titles)
    assert row == pytest.approx(weights[0] * norms, abs=0.006)
    tab.says(".head .about", "weight × value: 0 to")
    tab.open_saved_page()
    tab.find(VIEW).select_option("value")
    tab.looks(".head .large", shown)


@pytest.mark.slow
@pytest.mark.parametrize("norms", [None, np.nan])
def test_where_no_lengths_are_known_weights_are_shown(
    open_tab: Opener, tmp_path: Path, norms: float | None
) -> None:
    lengths = {"text_0/layer_0/value_norms": np.full((2, 5), norms or 0)}
    extra = {} if norms is None else as_stored(lengths)
    text = Text("t", list("abcde"), "a")
    steps = [Step(step, [maps_of(0, 1, 2, 5)], extra=extra) for step in (0, 9)]
    write_run(tmp_path, "mine", [text], steps)
    tab = open_tab(tmp_path, "#p.heads.view=value")
    tab.drawn(9)
    tab.expect(f"{VIEW} option[value=value]").to_be_disabled()
    tab.expect(VIEW).to_have_value("weight")
    tab.expect(".head .switch").to_be_hidden()
    tab.find(VIEW).select_option("lines")
    tab.expect(".head .lines canvas").to_be_visible()
    tab.compare("mine")
    tab.find(".choose-compare-view").select_option("difference")
    tab.expect(VIEW).to_be_hidden()
    tab.expect(".head .large").to_be_visible()


@pytest.mark.slow
def test_lines_go_from_queries_to_keys_and_a_token_keeps_its_own(
    open_tab: Opener, runs: Path
) -> None:
    weights = weights_of(of_record(runs), 1, 1)
    tab = open_tab(runs, "#p.heads.view=lines&p.heads.layer=0&p.heads.head=0")
    tab.drawn(200)
    tab.expect(".head .map-scroll").to_be_hidden()
    for column in ("from", "to"):
        tab.shows(f".head .{column} .special", ["[CLS]", "[SEP]"])
        tab.shows(f".head .{column} .reads", ["[CLS]"])  # where the classifier reads
    queries, keys = left_and_right(tab)
    assert (queries > 150).all()  # a thin line between two rows of pixels
    assert keys[0] > 150
    assert not keys[1:].any()  # a sink
    tab.find(".head .to [data-index='3']").hover()
    tab.has(lambda: queries_with_lines(tab), [])  # nobody looks there
    tab.choose(1, 1)
    tab.find(".head .from [data-index='4']").hover()
    tab.has(lambda: queries_with_lines(tab), [4])
    keys = left_and_right(tab)[1]
    expected = 255 * weights[4] / weights.max()
    np.testing.assert_allclose(keys, expected, atol=40)  # two lines' ends touch, edges are soft
    tab.find(".head h2").hover()
    tab.has(lambda: queries_with_lines(tab), range(TOKENS))
    canvas = tab.find(".head .lines canvas")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        canvas.press(key)
    tab.says(".head .readout", "query 5 word5 → key 1 word1")
    tab.find("button >> text=Unlock").wait_for()
    tab.has(lambda: queries_with_lines(tab), [5])
    tab.open_saved_page()
    tab.find(VIEW).select_option("lines")
    tab.has(lambda: queries_with_lines(tab), range(TOKENS))


@pytest.mark.slow
def test_of_many_tokens_each_has_its_strongest_line_and_it_is_said(
    open_tab: Opener, tmp_path: Path
) -> None:
    count = 80
    maps = maps_of(0, 1, 1, count, 1.0)
    words = [f"w{place}" for place in range(count)]
    write_run(tmp_path, "a_short", [Text("t", words, "w")], [Step(0, [maps])], exact=True)
    write_run(tmp_path, "b_long", [Text("t", words, "w")], [Step(0, [maps])], max_tokens=70)
    tab = open_tab(tmp_path, "#p.heads.view=lines&p.heads.run=a_short")
    tab.drawn(0)
    share = 100 * maps[0][0].max(axis=1).mean()
    tab.says(".lines-note", f"The strongest line of each query: {share:.0f} % of all weight")
    tab.find(".choose-run").select_option("b_long")
    tab.says(".lines-note", "A row is a stretch of tokens")
    tab.expect(".head .from .token-name").to_have_count(64)


@pytest.mark.slow
def test_a_head_is_ablated_by_a_click_and_by_a_key(open_tab: Opener, runs: Path) -> None:
    arrays = of_record(runs)
    before = arrays["probabilities"]
    without = arrays["without/heads"][1, 1]
    layer = arrays["without/layers"][1]
    tab = open_tab(runs)
    tab.drawn(200)
    tab.says(".head h2", "layer 1, head 1")
    tab.expect(".without").to_be_hidden()
    tab.find(".head .switch").click()
    first = int(before.argmax())
    others = [place for place in np.argsort(-abs(without - before)) if place != first]
    shown = [first, *others[:4]]
    tab.shows(".without th[scope=row]", [CLASSES[place] for place in shown])
    numbers = [float(number) for number in tab.find(".without td .number").all_inner_texts()]
    wanted = [probabilities[place] for place in shown for probabilities in (before, without, layer)]
    assert numbers == pytest.approx(wanted, abs=6e-4)
    assert tab.find("img").count() == 0
    tab.choose(0, 2)
    tab.says(".without", f"{arrays['without/heads'][0, 2][first]:.3f}")
    tab.press(".")
    tab.drawn(300)
    tab.says(".without", "Heads were ablated at step 200")
    tab.press("o")
    tab.expect(".without").to_be_hidden()
    tab.press(",")
    tab.drawn(200)
    tab.open_saved_page()
    tab.page.keyboard.press("o")
    tab.shows(".without th[scope=row]", [CLASSES[place] for place in shown])
