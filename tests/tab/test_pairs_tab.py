"""Pairs of texts in the Heads tab, in a real browser: two texts, and where they meet."""

from pathlib import Path

import numpy as np
import pytest
from heads_browser import Opener
from heads_server import Step, maps_of, write_run

from headscope.record.schema import Text

LAYERS, HEADS = 2, 3
WORDS = ["[CLS]", "猫", "sat", "[SEP]", "the", "cat", "sat", "🐈", "[SEP]"]
SEGMENTS = [None, 0, 0, None, 1, 1, 1, 1, None]
BORDER = 4  # the first token of the second text
PAIR = Text("pair", WORDS, "猫 sat ⏐ the cat sat 🐈", "same", SEGMENTS)
SINGLE = Text("single", ["[CLS]", "a", "film", "[SEP]"], "a film")
ROW = ".text .tokens"
TOKENS = f"{ROW} >> nth=0"


def maps(step: int) -> list[np.ndarray]:
    return maps_of(step, LAYERS, HEADS, len(WORDS))


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    steps = [Step(step, [maps(step), maps_of(step, LAYERS, HEADS, 4)]) for step in (0, 100)]
    write_run(folder, "mine", [PAIR, SINGLE], steps, classes=["same", "other"])
    return folder


@pytest.mark.slow
def test_the_two_texts_stand_apart(open_tab: Opener, logdir: Path) -> None:
    tab = open_tab(logdir)
    tab.drawn(100)
    blocks = tab.find(TOKENS).locator(".block")
    assert [block.get_attribute("aria-label") for block in blocks.all()] == ["Text A", "Text B"]
    tab.shows(".block-name", ["A", "B"])
    tokens = [block.locator(".token").all_text_contents() for block in blocks.all()]
    assert tokens == [WORDS[:BORDER], WORDS[BORDER:]]
    tab.shows(f"{TOKENS} >> .token.of-neither", ["[CLS]", "[SEP]", "[SEP]"])
    style = "all => all.map(node => getComputedStyle(node).borderInlineStartStyle)"
    assert blocks.evaluate_all(style) == ["solid", "double"]  # told without colour
    first, second = tab.boxes(f"{ROW} .block.of-a", f"{ROW} .block.of-b")
    assert second["y"] >= first["y"] + first["height"]
    tab.find(TOKENS).locator(".token").nth(3).focus()
    tab.page.keyboard.press("ArrowRight")  # over the border
    tab.shows(".head .readout", "query 4 the")
    tab.find(".choose-text").select_option("1")
    tab.shows(f"{TOKENS} >> .token", SINGLE.tokens)
    tab.drawn(100)  # its tokens stand there before its maps do
    tab.expect(".block").to_have_count(0)


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
    tab.says(".head .readout", "query 5")
