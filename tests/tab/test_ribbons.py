"""The picture of the sum: ribbons from words through heads to the answer, and the card of a head."""

import re
from typing import Any

import numpy as np
import pytest
from explained import WORDS, explained, numbers, texts_in

TEXT = "a proprietary film."
LONG = [f"word{number}" for number in range(60)]
END = re.compile(r"([-.\d]+) [.\d]+H([-.\d]+)C")  # of a ribbon's path: from, height, to
READ = """all => all.map(it => [
  it.dataset.cell, it.getAttribute("d"), it.classList.contains("less"),
])"""


def widths_of(tab: Any) -> dict[str, float]:
    """Return how wide each ribbon is, in pixels, negative in the colour against the class."""
    found = {}
    for name, path, is_less in tab.locator(".ribbon").evaluate_all(READ):
        match = END.search(path)
        assert match
        width = float(match[2]) - float(match[1])
        found[name] = -width if is_less else width
    return found


@pytest.mark.parametrize("is_long", [False, True])
def test_the_ribbons_are_the_cells_and_add_up_to_the_answer(open_why: Any, is_long: bool) -> None:
    words = ["[CLS]", *LONG, "[SEP]"] if is_long else WORDS
    text, parts = explained(words, " ".join(LONG) if is_long else TEXT, layers=2, heads=3)
    tab = open_why(text)
    widths = widths_of(tab)
    outs = {name.split(":")[0]: wide for name, wide in widths.items() if name.endswith(":out")}
    total = numbers(tab.locator(".answer-bar").inner_text())[0]
    scale = sum(outs.values()) / total  # pixels of one log-odds
    assert scale > 3
    toward = {name: part[..., 0] - part[..., 1] for name, part in parts.items()}
    for layer, head in np.ndindex(2, 3):
        cells = [*toward["heads"][layer, head], toward["head_biases"][layer, head]]
        into = [wide for name, wide in widths.items() if name.startswith(f"{layer},{head}:")]
        into.remove(outs[f"{layer},{head}"])
        assert sum(into) == pytest.approx(scale * sum(cells), abs=1.5)
        assert outs[f"{layer},{head}"] == pytest.approx(scale * sum(cells), abs=0.8)
    past = scale * (toward["past"].sum() + toward["past_biases"])
    assert outs["past"] == pytest.approx(past, abs=0.8)
    # Words in the order of the text, all of them where they have room in one line.
    assert tab.locator(".flow.whole").count() == (not is_long)
    if is_long:
        shown = [int(word[4:]) for word in texts_in(tab, ".column.word bdi")]
        assert shown == sorted(shown)
        columns = numbers(" ".join(texts_in(tab, ".column b")))
        assert sum(columns) == pytest.approx(total)
    else:
        cell = toward["heads"][1, 2, 2:4].sum()  # of the word of two tokens
        assert widths["1,2:2"] == pytest.approx(scale * cell, abs=0.3)


def test_what_is_pointed_at_keeps_its_ribbons_and_a_head_is_chosen_by_keys(open_why: Any) -> None:
    tab = open_why(explained(WORDS, TEXT, layers=2, heads=3)[0])
    full = tab.locator(".ribbon.full")
    names = "all => all.map(it => it.dataset.cell)"
    tab.locator(".text .token").nth(2).hover()
    assert {name.split(":")[1] for name in full.evaluate_all(names)} == {"2"}
    assert tab.locator(".ribbon.faint").count() == 0
    nodes = tab.locator(".node")
    nodes.nth(1).hover()
    assert len({name.split(":")[0] for name in full.evaluate_all(names)}) == 1
    tab.locator(".answer-bar").hover()
    assert tab.locator(".ribbon.half").count() == tab.locator(".ribbon").count()
    tab.mouse.move(0, 0)
    assert tab.locator(".node[tabindex='0']").count() == 1  # one stop of the Tab key
    nodes.first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    name = nodes.nth(1).get_attribute("title").rsplit(" ", 1)[0]
    assert tab.locator(".card h2").inner_text() == name
    assert nodes.nth(1).get_attribute("aria-pressed") == "true"
    strip = tab.locator(".strip-of[aria-pressed='true']")
    assert strip.get_attribute("title").startswith(name)


def test_the_card_says_where_a_head_looks_what_that_adds_and_what_its_absence_changes(
    open_why: Any,
) -> None:
    text, parts = explained(WORDS, TEXT, layers=2, heads=3)
    row = np.array([0.05, 0.05, 0.4, 0.3, 0.1, 0.05, 0.05], np.float32)
    text.arrays["layer_0/weights"] = np.tile(row, (3, 7, 1))
    asked = text.arrays["contributions/classes"][0]
    share = float(text.arrays["probabilities"][asked])
    text.arrays["without/heads"] = np.full((2, 3, 3), share - 0.1, np.float32)
    tab = open_why(text)
    node = tab.locator(".node.head >> text=0·1")
    node.click()
    card = tab.locator(".card").inner_text()
    assert "It looks at proprietary: 70.0 % of its attention, 2.5 times an even share." in card
    heads = parts["heads"][0, 1].sum(0) + parts["head_biases"][0, 1]
    brought = heads[0] - heads[1]
    assert f"adds {brought:+.2f} of ".replace("-", "−") in card
    assert f"{100 * share:.1f} % → {100 * share - 10:.1f} %" in card
    assert ("others take over" in card) == (brought < 0)  # it speaks against, and is missed
    look = tab.locator(".text .token .looked").evaluate_all(
        "all => all.map(it => Number(it.style.getPropertyValue('--look')))"
    )
    assert np.argmax(look) == 2


def test_of_many_heads_the_largest_have_ribbons_and_the_rest_one(open_why: Any) -> None:
    tab = open_why(explained(WORDS, TEXT, layers=3, heads=12)[0])
    assert tab.locator(".node.head").count() == 10
    assert tab.locator(".node.heads").inner_text().startswith("26 other heads")
    rows = tab.locator(".flow .unseen tr").all()[1:]  # the table behind the picture
    sums = [numbers(row.inner_text())[-1] for row in rows]
    assert len(sums) == 10 + 1 + 1
    total = numbers(tab.locator(".answer-bar").inner_text())[0]
    assert sum(sums) == pytest.approx(total)


@pytest.mark.slow
def test_words_from_the_right_stand_above_their_ribbons_and_a_phone_has_the_picture(
    open_why: Any,
) -> None:
    from playwright.sync_api import expect

    words = ["[CLS]", "هذا", "فيلم", "رائع", "[SEP]"]
    tab = open_why(explained(words, "هذا فيلم رائع")[0])
    token = tab.locator(".text .token").nth(2).bounding_box()
    corner = tab.locator(".drawing").bounding_box()["x"]
    paths = dict(
        tab.locator(".ribbon").evaluate_all(
            "all => all.map(it => [it.dataset.cell, it.getAttribute('d')])"
        )
    )
    start = float(re.match(r"M([-.\d]+)", paths["0,0:3"])[1]) + corner  # biases come first
    assert token["x"] - 1 <= start <= token["x"] + token["width"]
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.locator(".flow").wait_for()
    assert tab.locator(".ribbon").count() > 5
    expect(tab.locator("html")).to_have_js_property("scrollWidth", 390)
    tops = [tab.locator(part).bounding_box()["y"] for part in (".prediction", ".card", ".text")]
    assert tops == sorted(tops)  # the card first


def test_a_head_and_its_words_have_one_number_everywhere_and_add_up(open_why: Any) -> None:
    text, parts = explained(WORDS, TEXT, layers=2, heads=3, seed=1)
    tab = open_why(text)
    heads = (parts["heads"].sum(2) + parts["head_biases"])[..., :2]
    moved = 0  # numbers that are not the nearest, so that all add up
    for node in tab.locator(".node.head").all():
        node.click()
        name, _, shown = node.get_attribute("title").rpartition(" ")
        layer, head = map(int, re.findall(r"\d+", name))
        assert tab.locator(".card p b.more, .card p b.less").first.inner_text() == shown
        assert tab.locator(f".strip-of[aria-pressed='true'][title='{name} {shown}']").count() == 1
        moved += numbers(shown) != [round(float(heads[layer, head] @ [1, -1]), 2)]
        said = set(re.findall(r"“(.+?)” ([+−]\d+\.\d\d)", tab.locator(".card").inner_text()))
        for table in (".cells-table", ".flow .unseen"):
            rows = [tab.locator(f"{table} tr", has_text=own) for own in ("film", name)]
            assert said <= set(zip(*(texts_in(row, "th, td") for row in rows), strict=True))
    assert moved > 0
    rows = tab.locator(".flow .unseen tr").all()[1:]
    lines = [numbers(" ".join(row.locator("td").all_text_contents())) for row in rows]
    for *cells, total in lines:
        assert sum(cells) == pytest.approx(total)
    answer = numbers(tab.locator(".answer-bar").inner_text())[0]
    assert sum(total for *_, total in lines) == pytest.approx(answer)
