"""The Heads tab in a real browser: each assertion is about what the page shows."""

import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from heads_browser import Opener, Tab, assert_close, expected_pixels, pixels_of, stored
from heads_server import Server, Step, maps_of, softmax, write_run
from hostile_records import BAD_INDEX, BAD_STEP, write_hostile

from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from headscope.tab.pictures import colors
from headscope.tab.summaries import write_marker

LAYERS, HEADS = 2, 3  # all different from the number of tokens, so that a swapped axis cannot pass
WORDS = ["[CLS]", "猫", "は", "the", "cat", "🐈", "<0xE3>"]
SHORT = ["[CLS]", "a", "film", "[SEP]"]
STEPS = [0, 100, 200]
# Heads of `second` are those of `first` in this order, with a little noise: head 0 of first is head 1 of second.
PLANTED = [[2, 0, 1], [1, 2, 0]]
HOSTILE = [
    "</script><img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "<!--<script>", "'\"`", "a\0b", "\u202egnp.exe",
    "x" * 10_000, "{{x}}", "${x}", "&lt;\u2028\u2029", " ", "", "\n", "javascript:alert(1)", "__proto__",
]  # fmt: skip


def first_maps(step: int) -> list[np.ndarray]:
    return maps_of(step, LAYERS, HEADS, len(WORDS))


def second_maps(step: int) -> list[np.ndarray]:
    noise = maps_of(step + 7, LAYERS, HEADS, len(WORDS), 0.1)
    return [
        0.95 * layer[order] + 0.05 * other
        for layer, order, other in zip(first_maps(step), PLANTED, noise, strict=True)
    ]


def numbers_of(step: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(step)
    entropy = random.permutation(LAYERS * HEADS).reshape(LAYERS, HEADS) / 3 + 0.13
    previous = np.array([[0.75, 0.1, 0.2], [0.3, 0.41, np.nan]])
    share = np.array([[0.2, 0.95, 0.5], [0.5, 0.5, 0.5]])
    return {
        name: (values, np.abs(values) / 50)
        for name, values in {
            "entropy": entropy,
            "previous": previous,
            "entropy_share": share,
            "odd": -entropy,
        }.items()
    }


def two_texts() -> list[Text]:
    return [Text("probe_0", WORDS, " ".join(WORDS), "cats"), Text("probe_1", SHORT, "a film")]


def recorded(step: int, maps: list[np.ndarray]) -> Step:
    pooling = softmax(np.arange(len(WORDS)) / 3 + step / 100)
    probabilities = [np.array([0.25, 0.75]), np.array([0.5, 0.5])]
    return Step(step, [maps, maps_of(step + 1, LAYERS, HEADS, len(SHORT))], numbers_of(step), [pooling, None], probabilities, [3e-8, 2e-8])  # fmt: skip


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logdir = tmp_path_factory.mktemp("two_runs")
    options: dict[str, Any] = {
        "classes": ["dogs", "cats"],
        "notes": {"precision": "bf16-mixed", "dropout": "off"},
    }
    write_run(
        logdir,
        "second",
        two_texts(),
        [recorded(step, second_maps(step)) for step in [0, 90, 210]],
        **options,
    )
    write_run(
        logdir,
        "first",
        two_texts(),
        [recorded(step, first_maps(step)) for step in STEPS],
        **options,
    )
    broken = logdir / "unreadable" / "heads"
    broken.mkdir(parents=True)
    (broken / "index.json").write_text("{")
    return logdir


# --- the maps ---


def test_one_way_through_the_tab(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    check_every_head_is_drawn_as_it_was_recorded(tab)
    check_the_colours_can_be_chosen(tab)
    check_the_text_is_shaded_by_what_the_pointed_token_attends_to(tab)
    check_a_key_shows_who_attends_to_it(tab)
    check_a_lock_holds_the_query_until_escape(tab)
    check_the_pooling_and_the_prediction_are_shown(tab)


def check_every_head_is_drawn_as_it_was_recorded(tab: Tab) -> None:
    names = [f"layer {layer}, head {head}" for layer in range(LAYERS) for head in range(HEADS)]
    assert [map_.get_attribute("aria-label") for map_ in tab.find(".grid .map").all()] == names
    maps = first_maps(200)
    for index in range(LAYERS * HEADS):
        shown = pixels_of(tab, ".grid .map canvas", index)
        np.testing.assert_array_equal(shown, expected_pixels(maps[index // HEADS][index % HEADS]))
    tab.choose(1, 2)
    assert tab.text(".head h2") == "layer 1, head 2"
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), expected_pixels(maps[1][2]))
    tab.hover_cell(5, 1)
    assert tab.text(".head .readout").startswith("query 5 🐈 → key 1 猫")
    assert_close(tab.find(".head .readout strong").text_content(), maps[1][2], 5, 1)


@pytest.mark.slow
def test_small_maps_of_many_tokens_sum_keys_and_average_queries(
    open_tab: Opener, tmp_path: Path
) -> None:
    count = 100
    maps = maps_of(0, 1, 2, count)
    write_run(tmp_path, "mine", [Text("t", ["t"] * count, "t")], [Step(0, [maps])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    edges = np.linspace(0, count, 48, endpoint=False).astype(int)
    sums = np.add.reduceat(
        np.add.reduceat(stored(maps[0][1]).astype(np.float64), edges, axis=0), edges, axis=1
    )
    means = sums / np.diff([*edges, count])[:, None]
    expected = colors()[np.floor(255 * means / means.max() + 0.5).astype(int)]
    assert (
        np.abs(pixels_of(tab, ".grid .map canvas", 1) - expected.astype(int)).max() <= 4
    )  # a colour away at most
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), expected_pixels(maps[0][0]))


def check_the_colours_can_be_chosen(tab: Tab) -> None:
    tab.choose(0, 0)
    weights = first_maps(200)[0][0]
    for value, top, root in [
        ("linear:1", 1, False),
        ("linear:0.2", 0.2, False),
        ("sqrt:0.25", 0.25, True),
    ]:
        tab.fixed(value)
        np.testing.assert_array_equal(
            pixels_of(tab, ".head .large"), expected_pixels(weights, top, root)
        )
        np.testing.assert_array_equal(
            pixels_of(tab, ".grid .map canvas"), expected_pixels(weights, top, root)
        )
        assert tab.text(".scale .end >> nth=1") == str(top)
    tab.find("[data-value=map]").click()
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), expected_pixels(weights))
    assert tab.text(".scale .end >> nth=1") == "largest"
    assert tab.find(".choose-scale").is_hidden()


def check_the_text_is_shaded_by_what_the_pointed_token_attends_to(tab: Tab) -> None:
    tab.choose(0, 1)
    tab.find(".text .tokens >> nth=0").locator(".token").nth(2).hover()
    weights = stored(first_maps(200)[0][1])
    tokens = tab.find(".text .tokens >> nth=0").locator(".token")
    assert tokens.all_text_contents() == WORDS
    for key, token in enumerate(tokens.all()):
        assert_close(token.get_attribute("title").split()[-1], weights, 2, key)
        strength = float(token.evaluate("node => node.style.getPropertyValue('--strength')"))
        assert strength == pytest.approx(weights[2, key] / weights[2].max(), abs=1 / 250)
    strongest = np.argsort(-weights[2], kind="stable")
    assert tab.find(".ranking ol .name").all_text_contents() == [WORDS[key] for key in strongest]
    for key, number in zip(
        strongest, tab.find(".ranking ol .number").all_text_contents(), strict=True
    ):
        assert_close(number, weights, 2, key)


def check_a_key_shows_who_attends_to_it(tab: Tab) -> None:
    tab.choose(0, 0)
    tab.find(".head .keys .label").nth(4).hover()
    weights = stored(first_maps(200)[0][0])
    assert tab.text(".ranking h3").replace(" ", "") == "catisattendedtomostby"
    strongest = np.argsort(-weights[:, 4], kind="stable")
    assert tab.find(".ranking ol .name").all_text_contents() == [
        WORDS[query] for query in strongest
    ]
    assert float(tab.text(".head .readout strong")) == pytest.approx(weights[:, 4].mean(), abs=2e-3)


def check_a_lock_holds_the_query_until_escape(tab: Tab) -> None:
    query = tab.find(".text .tokens >> nth=0").locator(".token.query")
    tokens = tab.find(".text .tokens >> nth=0").locator(".token")
    tokens.nth(3).click()
    tokens.nth(4).hover()
    assert query.text_content() == "the"
    assert tab.text(".head .readout").startswith("query 3 the → key 4 cat")
    tab.page.keyboard.press("Escape")
    tokens.nth(1).hover()
    assert query.text_content() == "猫"
    tab.hover_cell(2, 6)
    tab.page.mouse.down()
    tab.page.mouse.up()
    tab.hover_cell(4, 0)
    assert tab.text(".head .readout").startswith("query 2 は → key 0 [CLS]")
    tab.find(".head h2").hover()
    assert tab.text(".head .readout").startswith("query 2 は → key 6 <0xE3>")
    tab.find("button >> text=Unlock").click()
    assert tab.find("button >> text=Unlock").is_hidden()


def check_the_pooling_and_the_prediction_are_shown(tab: Tab) -> None:
    pooling = softmax(np.arange(len(WORDS)) / 3 + 2)
    titles = [token.get_attribute("title") for token in tab.find(".pooling .token").all()]
    assert [float(title.split()[-1]) for title in titles] == pytest.approx(
        pooling.tolist(), abs=1e-3
    )
    assert tab.find(".prediction li").all_text_contents() == ["cats0.750", "dogs0.250"]
    assert tab.text(".prediction h3").endswith("✓ true label cats")
    tab.find(".choose-text").select_option("1")
    tab.wait(
        "() => document.querySelectorAll('.text .token').length >= 4 && document.querySelector('.pooling').hidden"
    )
    assert tab.find(".text .tokens >> nth=0").locator(".token").all_text_contents() == SHORT


# --- steps ---


def test_the_slider_changes_maps_and_numbers(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    assert tab.text(".kept") == "3 of 3 recorded steps"
    tab.find("input[type=range]").focus()
    for key, step in [("Home", 0), ("ArrowRight", 100), ("End", 200), (",", 100), (".", 200)]:
        tab.page.keyboard.press(key)  # whatever is in sight
        tab.drawn(step)
        np.testing.assert_array_equal(
            pixels_of(tab, ".head .large"), expected_pixels(first_maps(step)[0][0])
        )
        entropy, error = (values[0, 0] for values in numbers_of(step)["entropy"])
        tab.find(".table tbody").scroll_into_view_if_needed()  # numbers that nobody sees wait
        cell = ".table tbody td[data-column=entropy]"
        tab.wait(
            f"() => document.querySelector('{cell}')?.textContent === '{entropy:.{2 if entropy >= 1 else 3}f}'"
        )
        assert float(tab.find(cell).first.get_attribute("title")[1:]) == pytest.approx(
            error, abs=1e-3
        )


@pytest.mark.slow
def test_the_steps_can_be_played(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    seen = "() => { window.seen = []; new MutationObserver(() => { const n = document.querySelector('.now'); if (!n.classList.contains('pending') && seen.at(-1) !== n.textContent) seen.push(n.textContent); }).observe(document.querySelector('.now'), {attributes: true, childList: true}); }"  # fmt: skip
    tab.frame.evaluate(seen)
    tab.find(".play").click()
    tab.wait(
        "() => document.querySelector('.play').getAttribute('aria-pressed') === 'false' && seen.at(-1) === 'step 200'"
    )
    assert tab.frame.evaluate("seen") == ["step 0", "step 100", "step 200"]


@pytest.mark.slow
def test_new_steps_and_runs_appear_by_themselves(open_tab: Opener, tmp_path: Path) -> None:
    text = Text("t", SHORT, "a film")
    write_run(tmp_path, "mine", [text], [Step(0, [maps_of(0, 1, 2, 4)])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    write_run(tmp_path, "mine", [text], [Step(10, [maps_of(1, 1, 2, 4)])])
    write_run(tmp_path, "other", [text], [Step(5, [maps_of(2, 1, 2, 4)])])
    tab.frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.drawn(10)
    assert tab.text(".kept") == "2 of 2 recorded steps"
    assert tab.find(".choose-run option").all_text_contents() == ["mine", "other"]


@pytest.mark.slow
def test_a_hidden_tab_asks_for_nothing(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.page.wait_for_load_state("networkidle")  # numbers and series may be under way still
    tab.page.evaluate("document.getElementById('tab').style.display = 'none'")
    tab.page.wait_for_timeout(300)
    tab.server.asked.clear()
    tab.frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.page.wait_for_timeout(300)
    assert [path for path in tab.server.asked if "/plugin/" in path] == []
    tab.page.evaluate("document.getElementById('tab').style.display = ''")
    for _ in range(100):
        if any("/runs" in path for path in tab.server.asked):
            break
        tab.page.wait_for_timeout(100)
    assert any("/runs" in path for path in tab.server.asked)


# --- comparing ---


@pytest.mark.slow
def test_another_run_stands_beside_it(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.find(".choose-other").select_option("=second")
    tab.find(".other-grid .map canvas").first.wait_for()
    assert "second · step 210" in tab.text(".other-grid h2")  # the nearest to 200
    np.testing.assert_array_equal(
        pixels_of(tab, ".other-head .large"), expected_pixels(second_maps(210)[0][0])
    )
    tab.hover_cell(3, 5)
    assert_close(tab.text(".head .readout strong"), first_maps(200)[0][0], 3, 5)
    assert_close(tab.text(".other-head .readout strong"), second_maps(210)[0][0], 3, 5)
    tab.press(",")
    tab.drawn(100)
    tab.wait(
        "() => document.querySelector('.other-grid h2').textContent.includes('second · step 90')"
    )
    np.testing.assert_array_equal(
        pixels_of(tab, ".other-head .large"), expected_pixels(second_maps(90)[0][0])
    )


@pytest.mark.slow
def test_heads_are_matched_by_similarity(open_tab: Opener, tmp_path: Path) -> None:
    write_run(tmp_path, "second", two_texts(), [recorded(0, second_maps(0))])
    write_run(tmp_path, "first", two_texts(), [recorded(0, first_maps(0))])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    tab.find(".choose-other").select_option("=second")
    tab.find("[data-value=matched]").click()
    tab.wait("() => document.querySelector('.other-grid .place')?.textContent")
    shown = [int(number) for number in tab.find(".other-grid .place").all_text_contents()]
    planted = [order.index(head) for order in PLANTED for head in range(HEADS)]
    assert shown == planted
    for index, there in enumerate(planted):
        expected = expected_pixels(second_maps(0)[index // HEADS][there])
        np.testing.assert_array_equal(pixels_of(tab, ".other-grid .map canvas", index), expected)
    near = float(tab.text(".other-head h2").split()[-1])
    tab.find("[data-value=own]").click()
    tab.wait("() => document.querySelector('.other-head h2').textContent.includes('head 0')")
    assert near < 0.2 < float(tab.text(".other-head h2").split()[-1])


def test_the_distance_is_jensen_and_shannons(open_tab: Opener, two_runs: Path) -> None:
    from scipy.spatial.distance import jensenshannon

    tab = open_tab(two_runs)
    left, right = maps_of(0, 1, 2, 9)[0]
    run = """async (pair) => {
        const { distance, stepped } = await import(new URL('static/compare.js', document.baseURI));
        return distance(...pair.map((values) => stepped(values, 9)));
    }"""
    expected = np.mean([jensenshannon(p, q, base=2) for p, q in zip(left, right, strict=True)])
    assert tab.frame.evaluate(
        run, [left.ravel().tolist(), right.ravel().tolist()]
    ) == pytest.approx(expected, abs=1e-4)
    assert tab.frame.evaluate(run, [left.ravel().tolist()] * 2) == pytest.approx(0, abs=1e-4)


def test_a_difference_is_this_minus_that(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs, "#p.heads.step=200&p.heads.compare=first%2C0%2Cdifference%2Cown")
    tab.drawn(200)
    heading = "Differences first · step 200 − first · step 0"
    tab.wait(f"() => document.querySelector('.grid h2').textContent === '{heading}'")
    assert tab.find(".other-grid").is_hidden()
    now, before = first_maps(200)[0][0], first_maps(0)[0][0]
    difference = now - before
    pixels = pixels_of(tab, ".head .large").astype(int)
    clear = np.abs(difference) > 0.05
    redder = pixels[..., 0] > pixels[..., 2]
    np.testing.assert_array_equal(redder[clear], (difference > 0)[clear])
    query, key = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    tab.hover_cell(int(query), int(key))
    readout = tab.text(".head .readout strong")
    assert float(readout.replace("−", "-")) == pytest.approx(difference[query, key], abs=0.01)
    assert [tab.text(f".scale .end >> nth={end}") for end in (0, 1)] == ["−1", "+1"]
    strongest = np.argsort(-np.abs(difference[query]))[0]
    assert tab.find(".ranking ol .name").first.text_content() == WORDS[strongest]


@pytest.mark.slow
def test_a_run_without_the_text_cannot_be_compared(open_tab: Opener, tmp_path: Path) -> None:
    write_run(tmp_path, "b", [Text("t", SHORT[:3], "x")], [Step(0, [maps_of(0, 1, 2, 3)])])
    write_run(tmp_path, "a", [Text("t", SHORT, "x")], [Step(0, [maps_of(0, 1, 2, 4)])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    tab.find(".choose-other").select_option("=b")
    tab.find(".other-grid .error").wait_for()
    assert tab.text(".other-grid .error") == "b has recorded no text of the same tokens"
    np.testing.assert_array_equal(
        pixels_of(tab, ".head .large"), expected_pixels(maps_of(0, 1, 2, 4)[0][0])
    )


# --- numbers ---


def heads_in_table(tab: Tab) -> list[str]:
    names: list[str] = tab.find(".table tbody th").all_text_contents()
    return names


MODEL = [f"layer {layer} · {head}" for layer in range(LAYERS) for head in range(HEADS)]


def test_the_table_sorts_by_a_number_both_ways_and_back(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.find(".table tbody tr").first.wait_for()
    values = numbers_of(200)["previous"][0].ravel()
    column = tab.find(".table thead th button >> text='previous'")
    column.click()
    falling = sorted(range(5), key=lambda head: -values[head])
    assert heads_in_table(tab) == [
        MODEL[head] for head in [*falling, 5]
    ]  # the head without the number comes last
    column.click()
    assert heads_in_table(tab) == [MODEL[head] for head in [*falling[::-1], 5]]
    tab.find(".table thead th button >> text='head'").click()
    assert heads_in_table(tab) == MODEL
    tab.find(".table tbody tr").nth(4).click()
    assert tab.text(".head h2") == "layer 1, head 1"


@pytest.mark.slow
def test_the_check_and_the_numbers_of_an_old_record_are_shown(
    open_tab: Opener, tmp_path: Path
) -> None:
    steps = [recorded(step, first_maps(step)) for step in (100, 200)]
    steps[1].extra = {"text_0/rounding": np.array(0.0015, dtype=np.float32)}
    notes = {"precision": "bf16-mixed", "dropout": "off"}
    write_run(tmp_path, "mine", two_texts(), steps, notes=notes)
    tab = open_tab(tmp_path)
    tab.drawn(200)
    check = tab.text(".trust")
    assert "the softmax recomputed: 1.5e-3; between" in check
    assert "times the values: 3.0e-8 (dropout off, precision bf16-mixed)." in check
    tab.says(".trust", "Faithfulness was not measured at this step")
    assert tab.find(".badge").is_hidden()
    tab.find(".table .spark circle").first.wait_for()
    columns = [cell.get_attribute("data-column") for cell in tab.find(".table thead th").all()]
    assert columns == ["head", "entropy_share", "entropy", "previous", "odd", "line"]
    sixth = tab.find(".table tbody tr >> nth=5").locator("td").all_text_contents()
    assert "–" in sixth  # what has no value


@pytest.mark.slow
def test_it_is_said_whether_the_prediction_depends_on_what_the_heads_point_at(
    open_tab: Opener, two_runs: Path
) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    depends = "The prediction depends on the tokens that the heads point at"
    does_not = "The prediction does not depend"
    inconclusive = "It is inconclusive whether the prediction depends"
    cases: list[tuple[Any, list[float] | None, str, bool]] = [
        ([0.1, 0.3], None, does_not, True),
        ([0.6, 0.1], None, "it falls by 0.600, without random ones by 0.150 (difference", False),
        ([[0.2, 0.1], [0.1, 0.02]], None, inconclusive, False),
        ([[0.2, 0.1], [0.1, 0.02]], [0.05, 0.02], f"{depends}: without them", False),
        ([[0.2, 0.1], [0.1, 0.02]], [0.05, 0.03], inconclusive, False),
        ([[0.2, 0.1], [0.1, 0.02]], [-0.05, 0.02], does_not, True),
    ]
    run = "async (extra) => (await import(new URL('static/trust.js', document.baseURI))).faithfulness(extra)"  # noqa: E501
    for rollout, paired, words, warns in cases:
        extra = {"faithfulness/chance": [0.15, 0.2], "faithfulness/rollout": rollout}
        if paired is not None:
            extra["faithfulness/rollout_less_chance"] = paired
        verdict = tab.frame.evaluate(run, extra)
        assert words in verdict["text"]
        assert verdict["warns"] is warns
        is_advised = "not as why the model decides" in verdict["text"]
        assert is_advised is not verdict["text"].startswith(depends)
    tab.page.route(
        "**/numbers?*step=100*",
        lambda route: route.fulfill(json={**route.fetch().json(), "extra": extra}),
    )
    tab.press(",")
    tab.drawn(100)
    tab.says(".trust", does_not)
    assert tab.find(".badge").is_visible()


@pytest.mark.slow
def test_the_texts_where_a_head_stands_out_are_listed(open_tab: Opener, tmp_path: Path) -> None:
    write_run(
        tmp_path, "mine", two_texts(), [recorded(step, first_maps(step)) for step in (0, 100)]
    )
    rows = np.full((LAYERS, HEADS, 2), -1, dtype=np.int32)
    rows[0, 0], rows[1, 2, 0] = [7, 3], 3
    extra = {
        "examples/focused/rows": rows,
        "examples/focused/scores": np.where(rows < 0, np.nan, rows / 10).astype(np.float32),
        "examples/rows": np.array([3, 7], dtype=np.int32),
        "examples/texts": np.array([HOSTILE[0], "a sharp text"]),
    }
    assert HeadRecorder(tmp_path / "mine", two_texts()).amend(100, {}, extra)
    tab = open_tab(tmp_path)
    tab.drawn(100)
    tab.wait("() => document.querySelectorAll('.examples li').length === 2")
    assert tab.find(".examples li").all_text_contents() == [
        "a sharp text0.700",
        f"{HOSTILE[0]}0.300",
    ]
    assert "layer 0, head 0" in tab.text(".examples h2")
    assert "changed most" not in tab.text(".examples")
    tab.press(",")
    tab.drawn(0)
    tab.wait("() => document.querySelector('.examples').hidden")


# --- files and links ---


def download(tab: Tab) -> tuple[str, bytes]:
    """Return the name and the content of the page that is downloaded."""
    with tab.page.expect_download() as waiting:
        tab.find("button >> text=Save page").click()
    name: str = waiting.value.suggested_filename
    return name, Path(waiting.value.path()).read_bytes()


def test_the_page_that_needs_nothing_else_is_downloaded(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    name, content = download(tab)
    assert name == "first_probe-0_step-200.html"
    assert content.startswith(b"<!DOCTYPE html>")
    assert b"probe_0, step 200" in content


@pytest.mark.slow
def test_a_link_opens_the_same_view(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.find(".choose-run").select_option("second")
    tab.drawn(210)
    tab.find(".choose-text").select_option("1")
    tab.press(",")
    tab.drawn(90)
    tab.choose(1, 2)
    tab.find(".choose-other").select_option("=first")
    tab.find("[data-value=matched]").click()
    tab.find("[data-value=difference]").click()
    differences = "() => document.querySelector('.grid h2')?.textContent.startsWith('Differences')"
    tab.wait(differences)  # what it is compared with is here
    tab.page.wait_for_url(re.compile("compare="))
    tab.page.wait_for_timeout(300)
    for part in ("run=second", "text=probe_1", "step=90", "layer=1", "head=2", "compare=" + quote("first,nearest,difference,matched", safe="")):  # fmt: skip
        assert f"p.heads.{part}" in tab.page.url
    shown = pixels_of(tab, ".head .large")
    tab.page.reload()
    tab.frame = tab.page.frames[1]
    tab.wait(differences)
    tab.drawn(90)
    assert tab.text(".head h2").startswith("layer 1, head 2 −")
    assert tab.text(".grid h2") == "Differences second · step 90 − first · step 100"
    np.testing.assert_array_equal(pixels_of(tab, ".head .large"), shown)


@pytest.mark.slow
def test_a_link_to_a_run_that_is_gone_says_so(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs, "#heads&p.heads.run=%3Cimg%20src%3Dx%3E")
    tab.drawn(200)
    assert tab.text(".toolbar .error") == "There is no run <img src=x> here: this is first."


# --- what goes wrong, and what is hostile ---


def test_a_broken_step_shows_what_is_wrong_and_the_rest_works(
    open_tab: Opener, tmp_path: Path
) -> None:
    folder = write_run(
        tmp_path, "mine", two_texts(), [recorded(step, first_maps(step)) for step in STEPS]
    )
    (folder / "step_000000000100.npz").write_bytes(b"PK no archive")
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.press(",")
    tab.find(".grid .error").wait_for()
    assert "Step 100: run 'mine': step_000000000100.npz: cannot be read" in tab.text(".grid .error")
    tab.says(
        ".table .error", "The numbers of this step cannot be read."
    )  # and not the same message twice
    assert tab.find(".head .map-scroll").is_hidden()
    tab.press(",")
    tab.drawn(0)
    assert tab.find(".grid .error").is_hidden()
    np.testing.assert_array_equal(
        pixels_of(tab, ".head .large"), expected_pixels(first_maps(0)[0][0])
    )


@pytest.mark.slow
def test_one_page_goes_through_hostile_runs_and_shows_a_good_one_rightly(
    open_tab: Opener, tmp_path: Path
) -> None:
    runs = write_hostile(tmp_path)
    tab = open_tab(tmp_path, f"#p.heads.run={quote(runs[0])}")
    tab.drawn(10)
    expected = pixels_of(tab, ".grid canvas", 4)
    listed = tab.find(".choose-run option").evaluate_all("all => all.map((option) => option.value)")
    assert set(runs) - set(listed) == {
        f"an index that is {what}" for what in ("missing", "a pipe", "a folder")
    }
    for run in filter(listed.__contains__, runs[1:]):
        tab.find(".choose-run").select_option(value=run)
        tab.wait(
            "() => !document.querySelector('.now.pending') || [...document.querySelectorAll('.error')].some(it => !it.hidden)"
        )
        said = tab.find(".error:visible").all_inner_texts()
        assert bool(said) >= (run in BAD_INDEX or run in BAD_STEP), run
        assert len(said) == len(set(said)), run
    tab.drawn(10)
    assert tab.text(".grid .caption") == "the last good one · step 10"
    assert tab.find(".error:visible").count() == 0
    assert tab.find(".table tbody tr").count() == 6
    np.testing.assert_array_equal(pixels_of(tab, ".grid canvas", 4), expected)


@pytest.mark.parametrize("width", [400, 1280])
def test_hostile_text_is_shown_and_does_nothing(
    open_tab: Opener, tmp_path: Path, width: int
) -> None:
    name = HOSTILE[0]
    maps = maps_of(0, 1, 2, len(HOSTILE))
    means = np.array([[0.1, 0.2]])
    step = Step(
        0,
        [maps],
        {name.replace("/", "_"): (means, means), "__proto__": (means, means)},
        [maps[0][0][0]],
        [np.array([0.6, 0.4])],
    )
    options: dict[str, Any] = {
        "classes": [name, "\u202eb"],
        "notes": {name: name * 50, "precision": name},
    }
    write_run(
        tmp_path,
        "evil <b>&amp;",
        [Text(name, HOSTILE, "\n".join(HOSTILE), name)],
        [step],
        **options,
    )
    tab = open_tab(tmp_path, width=width)
    tab.drawn(0)
    shown = tab.find(".text .tokens >> nth=0").locator(".token").all_text_contents()
    assert shown[:2] == HOSTILE[:2]
    assert shown[3:6] == ["'\"`", "a␀b", "<U+202E>gnp.exe"]
    assert shown[6] == "x" * 80 + "…"
    assert shown[9:14] == ["&lt;<U+2028><U+2029>", "␣", "∅", "⏎", "javascript:alert(1)"]
    tab.find(".text .tokens >> nth=0").locator(".token").nth(6).hover()
    assert tab.find("img, svg, b").count() == 0
    assert tab.fits()
    assert not set("<>&/\\\0") & set(download(tab)[0])


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_the_tab_is_dark_or_light_as_tensorboard_is(
    open_tab: Opener, two_runs: Path, dark: bool
) -> None:
    tab = open_tab(two_runs, "?dark" if dark else "", color_scheme="light" if dark else "dark")
    tab.drawn(200)

    def lightness(selector: str) -> float:
        color = tab.find(selector).first.evaluate("node => getComputedStyle(node).backgroundColor")
        return float(np.mean([int(part) for part in re.findall(r"\d+", color)[:3]]))

    for selector in ["body", ".panel", ".toolbar", "thead th", ".head .label"]:
        assert lightness(selector) < 100 if dark else lightness(selector) > 200
    tab.page.evaluate("document.body.classList.toggle('dark-mode')")
    tab.page.wait_for_timeout(500)
    assert lightness("body") > 200 if dark else lightness("body") < 100


@pytest.mark.slow
@pytest.mark.parametrize(("width", "count"), [(400, 200), (1280, 7)])
def test_the_page_does_not_scroll_sideways(
    open_tab: Opener, tmp_path: Path, width: int, count: int
) -> None:
    text = Text("t", [f"token{n}" for n in range(count)], "t")
    means = np.zeros((3, 12))
    numbers = {f"measure_{n}": (means, means) for n in range(17)}
    steps = [Step(step, [maps_of(step, 3, 12, count)], numbers) for step in (0, 1)]
    for run in ("a", "a_run_with_quite_a_long_name_that_goes_on_and_on/version_0"):
        write_run(tmp_path, run.replace("/", "_"), [text], steps)
    tab = open_tab(tmp_path, width=width)
    tab.drawn(1)
    assert tab.fits()
    tab.find(".choose-other").select_option(index=2)
    tab.find(".other-grid .map canvas").first.wait_for()
    assert tab.fits()


@pytest.mark.slow
def test_a_long_text_shows_its_overview_and_top_keys(open_tab: Opener, tmp_path: Path) -> None:
    count = 300
    maps = maps_of(3, 2, 2, count, 3.0)
    text = Text("long", [f"t{n}" for n in range(count)], " ".join(f"t{n}" for n in range(count)))
    write_run(tmp_path, "mine", [text], [Step(0, [maps])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    assert pixels_of(tab, ".head .large").shape == (64, 64, 3)
    assert pixels_of(tab, ".grid .map canvas", 3).shape == (64, 64, 3)
    tab.choose(1, 1)
    tab.find(".text .tokens >> nth=0").locator(".token").nth(5).hover()
    row = maps[1][1][5].astype(np.float64)
    top = np.argsort(-row)[:16]
    assert set(tab.find(".ranking ol .name").all_text_contents()) == {f"t{key}" for key in top}
    numbers = [float(number) for number in tab.find(".ranking ol .number").all_text_contents()]
    assert numbers == pytest.approx(row[top].tolist(), abs=row.max() / 255)
    assert tab.text(".rest") == f"the other {count - 16} keys together: {1 - row[top].sum():.3f}"
    tab.hover_cell(10, 20)
    assert tab.text(".head .readout").endswith("queries 46–50, mean, to keys 93–97, together")
    edges = [int(count * place / 64) for place in range(65)]
    mean = maps[1][1][edges[10] : edges[11], edges[20] : edges[21]].sum(axis=1).mean()
    assert float(tab.text(".head .readout strong")) == pytest.approx(mean, abs=2e-3)


@pytest.mark.slow
def test_the_keyboard_reaches_heads_and_cells(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.find(".grid .map[aria-checked=true]").focus()
    for key in ["ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowDown"]:  # the borders hold
        tab.page.keyboard.press(key)
    assert tab.text(".head h2") == "layer 1, head 1"
    tab.find(".head .large").focus()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"]:
        tab.page.keyboard.press(key)
    assert tab.text(".head .readout").startswith("query 1 猫 → key 1 猫")
    assert tab.find("button >> text=Unlock").is_visible()
    tab.find(".help summary").click()
    assert "one step back and forward" in tab.text(".help")


def plugin_frame(page: Any) -> Any:
    """Return the frame of the tab, once the page has it."""
    for _ in range(200):
        frames = [frame for frame in page.frames if "plugin_entry" in frame.url]
        if frames:
            return frames[0]
        page.wait_for_timeout(100)
    raise AssertionError("TensorBoard shows no Heads tab")


@pytest.mark.slow
def test_the_tab_opens_in_tensorboard_itself(browser: Any, tmp_path: Path) -> None:
    write_marker(tmp_path / "mine")
    write_run(tmp_path, "mine", two_texts(), [recorded(step, first_maps(step)) for step in STEPS])
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(tmp_path),
        "--port",
        "0",
        "--host",
        "127.0.0.1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        address = ""
        for line in process.stdout:
            if found := re.search(r"http://\S+", line):
                address = found[0]
                break
        assert address, "TensorBoard did not start"
        listing = ""
        for _ in range(100):
            with urllib.request.urlopen(f"{address}data/plugin/heads/runs") as response:
                listing = response.read().decode()
            if '"mine"' in listing:
                break
            time.sleep(0.1)
        assert '"mine"' in listing
        with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
            page = context.new_page()
            page.goto(f"{address}#heads&p.heads.step=100&p.heads.layer=1&p.heads.head=1")
            for _ in range(2):  # the second time by a reload
                page.wait_for_selector("iframe", timeout=20_000)
                frame = plugin_frame(page)
                frame.wait_for_function(
                    "() => document.querySelector('.now:not(.pending)')?.textContent === 'step 100'",
                    timeout=30_000,
                )
                tab = Tab(page, frame, Server(address))
                assert tab.text(".head h2") == "layer 1, head 1"
                np.testing.assert_array_equal(
                    pixels_of(tab, ".head .large"), expected_pixels(first_maps(100)[1][1])
                )
                page.wait_for_url(re.compile(r"p\.heads\.run=mine"))
                assert "p.heads.step=100" in page.url
                page.reload()
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def test_no_module_writes_markup_or_names_another_place() -> None:
    sources = sorted((Path(__file__).parents[2] / "src/headscope/tab/static").iterdir())
    assert {"index.js", "heads.css"} < {path.name for path in sources}
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?:"
    for path in sources:
        source = path.read_text("utf-8").replace('"http://www.w3.org/2000/svg"', "")  # a namespace
        assert not re.search(markup, source), path.name
        assert path.suffix == ".css" or max(map(len, source.splitlines())) <= 100, path.name
