"""The page of a pair of texts: its data in plain Python, its behaviour in a real browser."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chromium import colours_of, contrast
from headscope.inspection.page import HeadReport, LayerReport, Report, page
from headscope.inspection.pairs import numbers_of_pair, quadrants

WORDS = ["[CLS]", "猫", "sat", "[SEP]", "the", "cat", "sat", "🐈", "[SEP]"]
SEGMENTS = [None, 0, 0, None, 1, 1, 1, 1, None]
BORDER = 4  # the first token of the second text
HOSTILE = ["[CLS]", "</script><img src=x onerror=alert(1)>", "[SEP]", '"><svg onload=alert(1)>', "${x}", "[SEP]"]
Opener = Callable[..., Any]


def make_report(words: list[str] = WORDS, segments: list[int | None] | None = SEGMENTS, heads: int = 3) -> Report:
    random = np.random.default_rng(0)
    layers = []
    for layer in range(2):
        scores = np.exp(2 * random.standard_normal((heads, len(words), len(words))))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        reports = [HeadReport(head, {"entropy": 1.0} | numbers_of_pair(head, segments)) for head in weights]
        layers.append(LayerReport(f"layer {layer}", reports))
    return Report("A pair", " ".join(words), words, layers, {"same": 0.7}, "same", {}, segments=segments)


def heads_of(report: Report) -> list[HeadReport]:
    return [head for layer in report.layers for head in layer.heads]


def shown_cells(part: str) -> np.ndarray:
    return np.array([[None not in (a, b) and (a == b) == (part == "within") for b in SEGMENTS] for a in SEGMENTS])


def shown_shares(tab: Any) -> list[list[float]]:
    rows = tab.locator(".quadrants tr").all()[1:]
    return [[float(share) for share in row.locator("td").all_text_contents()] for row in rows]


def test_segments_and_shares_are_in_the_page() -> None:
    report = make_report()
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', page(report), re.DOTALL)[1])  # type: ignore[index]
    assert data["segments"] == SEGMENTS
    head = data["layers"][1]["heads"][2]
    np.testing.assert_allclose(head["quadrants"], quadrants(heads_of(report)[5].weights, SEGMENTS).ravel())
    assert data["columns"] == ["entropy", "between"]


def test_of_a_map_that_is_cut_the_shares_are_those_of_the_whole(open_page: Opener) -> None:
    report = make_report()
    whole = np.array([[0.5, 0.25], [0.125, 0.75]])
    heads = [
        replace(head, quadrants=whole, numbers={**head.numbers, "between": 0.1875}) for head in report.layers[0].heads
    ]
    tab = open_page(replace(report, layers=[replace(report.layers[0], heads=heads)]))
    assert shown_shares(tab) == [[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]]
    assert tab.locator(".quadrants caption").text_content().endswith("between 0.188")


def test_a_text_without_tokens_has_null_for_its_shares() -> None:
    segments = [None, 0, None, None]
    data = page(make_report(["[CLS]", "a", "[SEP]", "[SEP]"], segments))
    assert re.search(r'"quadrants":\[[0-9.]+,0.0,null,null\]', data)


def test_segments_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="page: segments has to be 0, 1 or None for each of the 9 tokens"):
        page(replace(make_report(), segments=SEGMENTS[:-1]))


def test_a_single_text_has_nothing_of_pairs(open_page: Opener) -> None:
    tab = open_page(make_report(segments=None))
    assert tab.locator(".block, .parts, .border-line, .quadrants, .pair").count() == 0
    assert tab.locator("#tokens > .token").count() == len(WORDS)


def test_the_two_texts_stand_apart(open_page: Opener) -> None:
    tab = open_page(replace(make_report(), pooling=np.full(len(WORDS), 0.1)))
    for root in ("#tokens", "#pooling-tokens"):
        blocks = tab.locator(f"{root} .block").all()
        assert [block.get_attribute("aria-label") for block in blocks] == ["Text A", "Text B"]
        assert [block.locator(".token").all_text_contents() for block in blocks] == [WORDS[:BORDER], WORDS[BORDER:]]
    style = "all => all.map(node => getComputedStyle(node).borderInlineStartStyle)"
    assert tab.locator("#tokens .block").evaluate_all(style) == ["solid", "double"]
    large, line = tab.locator("#large").bounding_box(), tab.locator(".border-line.down").bounding_box()
    assert line["x"] + 1 - large["x"] == pytest.approx(BORDER / len(WORDS) * large["width"], abs=0.6)
    assert tab.locator("#grid").get_attribute("class") == "pair"


@pytest.mark.parametrize("part", ["within", "between"])
def test_a_part_is_all_that_shows(open_page: Opener, part: str) -> None:
    report = make_report()
    tab = open_page(report)
    everything = colours_of(tab.locator("#large"))
    tab.locator(f".parts [data-value={part}]").click()
    shown = shown_cells(part)
    for canvas in (tab.locator("#large"), *tab.locator(".map canvas").all()):
        np.testing.assert_array_equal(colours_of(canvas)[..., 3], 255 * shown)
    np.testing.assert_array_equal(colours_of(tab.locator("#large"))[shown], everything[shown])
    tab.locator(".token").nth(5).hover()
    weights = heads_of(report)[0].weights[5]
    keys = [key for key in range(len(WORDS)) if shown[5, key]]
    ranked = sorted(keys, key=lambda key: -weights[key])
    assert tab.locator("#ranked .name").all_text_contents() == [WORDS[key] for key in ranked]
    left_out = tab.locator(".token").evaluate_all("all => all.map(token => token.classList.contains('left-out'))")
    assert left_out == [key not in keys for key in range(len(WORDS))]
    strength = tab.locator(".token").nth(ranked[0]).evaluate("node => node.style.getPropertyValue('--strength')")
    assert float(strength) == 1
    tab.locator(".token").nth(3).hover()
    assert tab.locator("#ranking-heading").text_content() == "[SEP] is of neither text"
    tab.locator(".parts [data-value=all]").click()
    np.testing.assert_array_equal(colours_of(tab.locator("#large")), everything)


def test_the_shares_follow_the_head_and_heads_are_sorted_by_what_goes_between(open_page: Opener) -> None:
    report = make_report()
    tab = open_page(report)
    tab.locator(".map").nth(4).click()
    shares = quadrants(heads_of(report)[4].weights, SEGMENTS)
    np.testing.assert_allclose(shown_shares(tab), [[*row, 1 - row.sum()] for row in shares], atol=6e-4)
    tab.locator("thead th button >> text=between").click()
    order = sorted(range(6), key=lambda index: -heads_of(report)[index].numbers["between"])
    assert tab.locator("#numbers tbody th").all_text_contents() == [f"layer {at // 3} · {at % 3}" for at in order]
    best = heads_of(report)[order[0]].numbers["between"]
    tab.locator("#numbers tbody tr").first.click()
    assert float(tab.locator(".quadrants caption").text_content().split()[-1]) == pytest.approx(best, abs=6e-4)


def test_without_special_tokens_they_have_no_column(open_page: Opener) -> None:
    tab = open_page(make_report(["a", "b", "c"], [0, 0, 1]))
    assert tab.locator(".quadrants tr").first.locator("th").all_text_contents() == ["to A", "to B"]
    np.testing.assert_allclose(np.sum(shown_shares(tab), axis=1), 1, atol=1.1e-3)


def test_the_keyboard_chooses_a_part_and_goes_from_text_to_text(open_page: Opener) -> None:
    tab = open_page(make_report())
    press, chosen = tab.keyboard.press, tab.locator(".parts [aria-checked=true]")
    for key in ["Tab", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"]:
        press(key)
    assert tab.locator(".token.query").text_content() == "the"  # over the border
    for key, part in [("Tab", "all"), ("ArrowRight", "within"), ("ArrowRight", "between"), ("ArrowUp", "within")]:
        press(key)
        assert chosen.get_attribute("data-value") == part
        assert tab.evaluate("document.activeElement.dataset.value") == part
    press("Tab")
    press("Tab")  # over the scale to the grid
    assert tab.evaluate("document.activeElement.className") == "map"


def test_hostile_pairs_are_shown_as_they_are(open_page: Opener) -> None:
    tab = open_page(make_report(HOSTILE, [None, 0, None, 1, 1, None]))
    tab.locator(".parts [data-value=between]").click()
    assert tab.locator(".token > bdi").all_text_contents() == HOSTILE
    assert tab.locator("img, svg").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_texts_are_readable_in_either_scheme(open_page: Opener, scheme: str, width: int) -> None:
    tab = open_page(make_report(), color_scheme=scheme, viewport={"width": width, "height": 720})
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    read = "(node, name) => getComputedStyle(name === 'color' ? node : node.closest('main > section'))[name]"
    for selector in (
        ".label.of-a:not(.active)",
        ".label.of-b:not(.active)",
        ".quadrants th.of-a",
        ".quadrants th.of-b",
    ):
        colours = [tab.locator(selector).first.evaluate(read, name) for name in ("color", "backgroundColor")]
        assert contrast(*([int(part) for part in re.findall(r"\d+", colour)[:3]] for colour in colours)) >= 4.5


def test_special_tokens_are_written_as_darkly_as_others(open_page: Opener) -> None:
    tab = open_page(make_report())
    colours = tab.locator("#tokens .token").evaluate_all("all => all.map(node => getComputedStyle(node).color)")
    assert len(set(colours)) == 1  # so that they are readable on the strongest shade, as tests of the pooling see to


def test_each_text_runs_in_its_own_direction(open_page: Opener) -> None:
    words = ["[CLS]", "the", "cat", "[SEP]", "كان", "القط", "[SEP]"]
    tab = open_page(make_report(words, [None, 0, 0, None, 1, 1, None]))
    boxes = [token.bounding_box()["x"] for token in tab.locator("#tokens .token").all()]
    assert boxes[:4] == sorted(boxes[:4])
    assert boxes[4:] == sorted(boxes[4:], reverse=True)
    tab.locator("#tokens .token").nth(4).focus()
    tab.keyboard.press("ArrowLeft")  # on, in a text that runs to the left
    assert tab.locator(".token.query").text_content() == "القط"
