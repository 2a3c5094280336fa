"""Pairs of texts in the Heads tab, in a real browser: two texts, their parts of a map, and what goes from one to the other."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from heads_browser import Opener, Tab, expected_pixels, pixels_of, stored
from heads_server import Step, maps_of, write_run

from chromium import colours_of, contrast
from headscope.record.pairs import between, quadrants
from headscope.record.schema import Text
from headscope.tab.pictures import colors

LAYERS, HEADS = 2, 3
WORDS = ["[CLS]", "猫", "sat", "[SEP]", "the", "cat", "sat", "🐈", "[SEP]"]
SEGMENTS = [None, 0, 0, None, 1, 1, 1, 1, None]
BORDER = 4  # the first token of the second text
PAIR = Text("pair", WORDS, "猫 sat ⏐ the cat sat 🐈", "same", SEGMENTS)
SINGLE = Text("single", ["[CLS]", "a", "film", "[SEP]"], "a film")
HOSTILE = [
    "[CLS]",
    "</script><img src=x onerror=alert(1)>",
    "[SEP]",
    '"><svg onload=alert(1)>',
    "x" * 10_000,
    "[SEP]",
]
STEPS = [0, 100]
TOKENS = ".text .tokens >> nth=0"
SHOWN = {
    part: np.array(
        [
            [None not in (a, b) and (a == b) == (part == "within") for b in SEGMENTS]
            for a in SEGMENTS
        ]
    )
    for part in ("within", "between")
}


def maps(step: int) -> list[np.ndarray]:
    return maps_of(step, LAYERS, HEADS, len(WORDS))


def numbers(step: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    crossing = np.array([[0.1, 0.7, 0.3], [0.2, 0.45, 0.61]]) - step / 2000
    return {"entropy": (crossing + 1, crossing / 9), "crossing": (crossing, crossing / 10)}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    steps = [
        Step(step, [maps(step), maps_of(step, LAYERS, HEADS, 4)], numbers(step)) for step in STEPS
    ]
    write_run(folder, "mine", [PAIR, SINGLE], steps, classes=["same", "other"])
    return folder


def choose(tab: Tab, part: str) -> None:
    tab.find(f".parts [data-value={part}]").click()


def shown_shares(tab: Tab, section: str = ".head") -> list[list[str]]:
    rows = tab.find(f"{section} .quadrants tr").all()[1:]
    return [row.locator("td").all_text_contents() for row in rows]


@pytest.mark.slow
def test_the_two_texts_stand_apart(open_tab: Opener, logdir: Path) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    blocks = tab.find(TOKENS).locator(".block")
    assert [block.get_attribute("aria-label") for block in blocks.all()] == ["Text A", "Text B"]
    assert blocks.locator(".block-name").all_text_contents() == ["A", "B"]
    assert [block.locator(".token").all_text_contents() for block in blocks.all()] == [
        WORDS[:BORDER],
        WORDS[BORDER:],
    ]
    assert tab.find(TOKENS).locator(".token.of-neither").all_text_contents() == [
        "[CLS]",
        "[SEP]",
        "[SEP]",
    ]
    style = "all => all.map(node => getComputedStyle(node).borderInlineStartStyle)"
    assert blocks.evaluate_all(style) == ["solid", "double"]  # told without colour
    first, second = (block.bounding_box() for block in blocks.all())
    assert second["y"] >= first["y"] + first["height"]
    tab.find(".choose-text").select_option("1")
    tab.drawn(100)  # its tokens stand there before its maps do
    assert tab.find(TOKENS).locator(".token").all_text_contents() == SINGLE.tokens
    assert tab.find(".block, .border-line, .quadrants, .pair").count() == 0
    assert tab.find(".parts").is_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_of_the_texts_are_readable(open_tab: Opener, logdir: Path, dark: bool) -> None:
    tab = open_tab(logdir, "?dark" if dark else "")
    tab.drawn(100)
    read = (
        "(node, name) => getComputedStyle(name === 'color' ? node : node.closest('.panel'))[name]"
    )
    for selector in (
        ".label.of-a:not(.active)",
        ".label.of-b:not(.active)",
        ".quadrants .of-a",
        ".quadrants .of-b",
    ):
        node = tab.find(f".head {selector}").first
        colours = [node.evaluate(read, name) for name in ("color", "backgroundColor")]
        parts = ([int(part) for part in re.findall(r"\d+", colour)[:3]] for colour in colours)
        assert contrast(*parts) >= 4.5  # what WCAG 2 asks of text


@pytest.mark.slow
def test_the_map_has_lines_where_the_texts_meet(open_tab: Opener, logdir: Path) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    large = tab.find(".head .large").bounding_box()
    cell = large["width"] / len(WORDS)
    down, across = (
        tab.find(f".head .border-line.{way}").bounding_box() for way in ("down", "across")
    )
    assert down["x"] + down["width"] / 2 - large["x"] == pytest.approx(BORDER * cell, abs=0.6)
    assert across["y"] + across["height"] / 2 - large["y"] == pytest.approx(BORDER * cell, abs=0.6)
    assert (down["height"], across["width"]) == (large["height"], large["width"])
    tab.hover_cell(BORDER, BORDER)  # what lies over the map is in nobody's way
    assert tab.text(".head .readout").startswith("query 4 the → key 4 the")
    line = tab.find(".grid .frame").first.evaluate(
        "map => [getComputedStyle(map, '::before').left, map.clientWidth]"
    )
    assert float(line[0].removesuffix("px")) == pytest.approx(
        BORDER / len(WORDS) * line[1], abs=0.1
    )


@pytest.mark.parametrize("part", ["within", "between"])
def test_a_part_is_all_that_the_maps_show(open_tab: Opener, logdir: Path, part: str) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    choose(tab, part)
    tab.fixed("sqrt:1")  # for every part the same
    for index in range(LAYERS * HEADS):
        colours = colours_of(tab.find(".grid .map canvas").nth(index))
        np.testing.assert_array_equal(colours[..., 3], 255 * SHOWN[part])
        expected = expected_pixels(maps(100)[index // HEADS][index % HEADS], 1.0, True)
        np.testing.assert_array_equal(colours[..., :3][SHOWN[part]], expected[SHOWN[part]])
    np.testing.assert_array_equal(colours_of(tab.find(".head .large"))[..., 3], 255 * SHOWN[part])
    choose(tab, "all")
    tab.find("[data-value=map]").click()
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), expected_pixels(maps(100)[0][0]))


@pytest.mark.slow
def test_a_part_is_all_that_the_text_shows(open_tab: Opener, logdir: Path) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    choose(tab, "between")
    tokens = tab.find(TOKENS).locator(".token")
    tokens.nth(5).hover()  # "cat", of the second text
    weights = stored(maps(100)[0][0])[5]
    assert tokens.evaluate_all("all => all.map(token => token.classList.contains('left-out'))") == [
        key not in (1, 2) for key in range(len(WORDS))
    ]
    strengths = tokens.evaluate_all(
        "all => all.map(token => Number(token.style.getPropertyValue('--strength')))"
    )
    expected = [
        weights[key] / max(weights[1], weights[2]) if key in (1, 2) else 0
        for key in range(len(WORDS))
    ]
    assert strengths == pytest.approx(expected, abs=1e-2)
    strongest = sorted([1, 2], key=lambda key: -weights[key])
    assert tab.find(".ranking ol .name").all_text_contents() == [WORDS[key] for key in strongest]
    tokens.nth(3).hover()
    assert tab.find(".ranking ol li").count() == 0
    assert tab.text(".rest") == "a special token is of neither text"
    choose(tab, "within")
    tab.find(".head .keys .label").nth(1).hover()  # who in the same text looks at it
    assert set(tab.find(".ranking ol .name").all_text_contents()) == {"猫", "sat"}


def test_the_shares_are_those_of_the_map(open_tab: Opener, logdir: Path) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    for layer, head in ((0, 0), (1, 2)):
        tab.choose(layer, head)
        shares = quadrants(maps(100)[layer][head].astype(np.float32), SEGMENTS)
        expected = [[*row, 1 - row.sum()] for row in shares]
        shown = [[float(share) for share in row] for row in shown_shares(tab)]
        np.testing.assert_allclose(shown, expected, atol=6e-4)
        mean = between(maps(100)[layer][head], SEGMENTS)
        assert float(tab.text(".head .quadrants caption").split()[-1]) == pytest.approx(
            mean, abs=6e-4
        )
    header = tab.find(".head .quadrants tr").first.locator("th").all_text_contents()
    assert header == ["to A", "to B", "to special"]


@pytest.mark.slow
def test_the_keyboard_chooses_a_part_and_goes_from_text_to_text(
    open_tab: Opener, logdir: Path
) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    tab.find(".parts [aria-checked=true]").focus()
    chosen = tab.find(".parts [aria-checked=true]")
    for key, part in [
        ("ArrowRight", "within"),
        ("ArrowRight", "between"),
        ("ArrowDown", "all"),
        ("ArrowLeft", "between"),
    ]:
        tab.page.keyboard.press(key)
        assert chosen.get_attribute("data-value") == part
        assert tab.frame.evaluate("document.activeElement.dataset.value") == part
    assert [button.get_attribute("tabindex") for button in tab.find(".parts button").all()] == [
        "-1",
        "-1",
        "0",
    ]
    tab.find(TOKENS).locator(".token").nth(3).focus()
    tab.page.keyboard.press("ArrowRight")  # over the border
    assert tab.text(".head .readout") == "query 4 the"
    tab.page.keyboard.press("ArrowLeft")
    assert tab.text(".head .readout") == "query 3 [SEP]"


@pytest.mark.slow
def test_a_difference_shows_how_the_shares_changed(open_tab: Opener, logdir: Path) -> None:
    tab = open_tab(
        logdir, "#p.heads.step=100&p.heads.compare=mine%2C0%2Cdifference%2Cown&p.heads.part=between"
    )
    tab.wait("() => document.querySelector('.grid h2').textContent.startsWith('Differences')")
    change = np.subtract(*(quadrants(maps(step)[0][0], SEGMENTS) for step in (100, 0)))
    shown = shown_shares(tab)
    assert all(share[0] in "+−" or share == "0.000" for row in shown for share in row)
    values = [[float(share.replace("−", "-")) for share in row] for row in shown]
    np.testing.assert_allclose(values, [[*row, -row.sum()] for row in change], atol=1.1e-3)
    np.testing.assert_array_equal(
        colours_of(tab.find(".head .large"))[..., 3], 255 * SHOWN["between"]
    )
    tab.find("[data-value=beside]").click()
    tab.find(".other-head .quadrants").wait_for()
    other = [[float(share) for share in row] for row in shown_shares(tab, ".other-head")]
    np.testing.assert_allclose(
        np.array(other)[:, :2], quadrants(maps(0)[0][0], SEGMENTS), atol=6e-4
    )


@pytest.mark.slow
def test_a_record_from_before_pairs_shows_one_text(open_tab: Opener, tmp_path: Path) -> None:
    write_run(tmp_path, "old", [replace(PAIR, segments=None)], [Step(0, [maps(0)], {})])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    assert tab.find(TOKENS).locator(":scope > .token").all_text_contents() == WORDS
    assert tab.find(".block, .border-line, .quadrants").count() == 0
    assert tab.find(".parts").is_hidden()
    # Gone on with since: the steps from before have maps, but no shares.
    write_run(tmp_path, "old", [PAIR], [Step(9, [maps(9)], {})])
    tab.frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.drawn(9)
    assert len(shown_shares(tab)) == 2
    tab.press(",")
    tab.drawn(0)
    assert tab.find(".block").count() == 2
    assert tab.find(".quadrants").count() == 0


@pytest.mark.slow
def test_a_pair_of_many_tokens_is_masked_before_it_is_made_small(
    open_tab: Opener, tmp_path: Path
) -> None:
    count, border = 100, 37
    segments = [int(place >= border) for place in range(count)]
    weights = maps_of(0, 1, 1, count)
    write_run(
        tmp_path, "mine", [Text("t", ["t"] * count, "t", None, segments)], [Step(0, [weights])]
    )
    tab = open_tab(tmp_path)
    tab.drawn(0)
    choose(tab, "between")
    edges = [int(count * place / 48) for place in range(49)]
    texts = [set(segments[first:end]) for first, end in pairwise(edges)]
    has = [[any(1 - text in keys for text in queries) for keys in texts] for queries in texts]
    np.testing.assert_array_equal(
        colours_of(tab.find(".grid .map canvas"))[..., 3], 255 * np.array(has)
    )
    across = stored(weights[0][0]) * (np.not_equal.outer(segments, segments))
    sums = np.add.reduceat(
        np.add.reduceat(across.astype(np.float64), edges[:-1], axis=0), edges[:-1], axis=1
    )
    means = np.where(has, sums / np.diff(edges)[:, None], 0)
    place = np.floor(255 * means / means.max() + 0.5).astype(int)
    shown = pixels_of(tab, ".grid .map canvas").astype(int)
    assert (
        np.abs(shown - colors()[place].astype(int))[np.array(has)].max() <= 4
    )  # a colour away at most
    assert shown_shares(tab)[0] == [
        f"{share:.3f}" for share in quadrants(weights[0][0].astype(np.float32), segments)[0]
    ]


def test_hostile_pairs_are_shown_and_do_nothing(open_tab: Opener, tmp_path: Path) -> None:
    segments = [None, 0, None, 1, 1, None]
    text = Text(HOSTILE[1], HOSTILE, " ⏐ ".join(HOSTILE), HOSTILE[3], segments)
    write_run(tmp_path, "evil", [text], [Step(0, [maps_of(0, 1, 2, 6)])])
    for width in (400, 1280):
        tab = open_tab(tmp_path, width=width)
        tab.drawn(0)
        choose(tab, "between")
        shown = tab.find(TOKENS).locator(".token").all_text_contents()
        assert shown == [*HOSTILE[:4], "x" * 80 + "…", "[SEP]"]
        assert tab.find("img, svg").count() == 0
        assert tab.fits()


@pytest.mark.slow
def test_each_text_runs_in_its_own_direction(open_tab: Opener, tmp_path: Path) -> None:
    words = ["[CLS]", "the", "cat", "[SEP]", "كان", "القط", "[SEP]"]
    text = Text("t", words, "the cat ⏐ كان القط", None, [None, 0, 0, None, 1, 1, None])
    write_run(tmp_path, "mine", [text], [Step(0, [maps_of(0, 1, 1, 7)])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    boxes = [token.bounding_box()["x"] for token in tab.find(TOKENS).locator(".token").all()]
    assert boxes[:4] == sorted(boxes[:4])
    assert boxes[4:] == sorted(boxes[4:], reverse=True)
    tab.find(TOKENS).locator(".token").nth(4).focus()
    tab.page.keyboard.press("ArrowLeft")  # on, in a text that runs to the left
    assert tab.text(".head .readout").startswith("query 5")
