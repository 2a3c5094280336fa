"""How tokens are reached in the Heads tab: by the keyboard in a row of tokens, and by pointing along the axes of a map."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heads_browser import Opener, Tab
from heads_server import Step, maps_of, softmax, write_run

from headscope.record.schema import Text

TOKENS = ".text .tokens >> nth=0"
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で泣いていた。"


def focused(tab: Tab) -> str:
    name: str = tab.frame.evaluate("document.activeElement.textContent")
    return name


@pytest.mark.slow
def test_a_row_of_tokens_is_one_stop_and_arrows_go_on_from_there(
    open_tab: Opener, tmp_path: Path
) -> None:
    words = [f"t{place}" for place in range(30)]
    text = Text("t", words, " ".join(words))
    step = Step(0, [maps_of(0, 1, 2, 30)], pooling=[softmax(np.arange(30.0))])
    write_run(tmp_path, "mine", [text], [step])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    for row in (TOKENS, ".pooling .tokens"):
        assert tab.find(row).locator(".token[tabindex='0']").count() == 1
        assert tab.find(row).locator(".token[tabindex='-1']").count() == 29
    press = tab.page.keyboard.press
    tab.find(TOKENS).locator(".token").first.focus()
    for key, name in [
        ("End", "t29"),
        ("ArrowRight", "t29"),
        ("ArrowLeft", "t28"),
        ("Home", "t0"),
        ("ArrowRight", "t1"),
    ]:
        press(key)
        assert focused(tab) == name
    assert tab.text(".head .readout") == "query 1 t1"
    press("Enter")
    assert tab.find("button >> text=Unlock").is_visible()
    press("ArrowRight")
    press("ArrowRight")
    assert tab.text(".head .readout").startswith("query 1 t1 → key 3 t3")
    assert tab.find(TOKENS).locator(".token[tabindex='0']").all_text_contents() == [
        "t3"
    ]  # where the focus is
    press("Escape")
    assert tab.find("button >> text=Unlock").is_hidden()
    assert focused(tab) == "t3"
    press("Tab")  # to the one stop of the pooling
    assert tab.find(".pooling .token:focus").count() == 1
    press("Shift+Tab")
    assert tab.find(TOKENS).locator(".token:focus").count() == 1
    press("Shift+Tab")
    assert tab.find(".token:focus").count() == 0


def boxes(tab: Tab, axis: str) -> list[Any]:
    """Return where the labels that show begin and end along an axis, and the axis itself."""
    start, end = ("left", "right") if axis == "keys" else ("top", "bottom")
    script = f"""all => all.filter(label => getComputedStyle(label).visibility === 'visible')
        .map(label => label.getBoundingClientRect()).map(box => [box.{start}, box.{end}])"""
    found: list[Any] = tab.find(f".head .{axis} .label").evaluate_all(script)
    return found


def point(tab: Tab, axis: str, share: float) -> None:
    """Point at a place along an axis, near the map."""
    box = tab.find(f".head .{axis}").bounding_box()
    along = {
        "keys": (share * box["width"], box["height"] - 4),
        "queries": (box["width"] - 4, share * box["height"]),
    }
    tab.page.mouse.move(box["x"] + along[axis][0], box["y"] + along[axis][1])


@pytest.mark.slow
def test_labels_do_not_overlap_and_every_token_of_an_axis_can_be_pointed_at(
    open_tab: Opener, tmp_path: Path
) -> None:
    texts = {
        f"n{count}": [f"word{place}" for place in range(count)] for count in (12, 60, 128, 300)
    }
    texts["japanese"] = ["[CLS]", *JAPANESE, "[SEP]"]
    for name, words in texts.items():
        write_run(
            tmp_path, name, [Text("t", words, "t")], [Step(0, [maps_of(0, 1, 1, len(words))])]
        )
    tab = open_tab(tmp_path, width=1280, height=1200)
    for name, words in texts.items():
        tab.find(".choose-run").select_option(name)
        tab.wait(
            f"() => document.querySelector('.grid .caption')?.textContent.startsWith('{name} ')"
        )
        tab.drawn(0)
        stretches = min(len(words), 64) if len(words) > 256 else len(words)
        for axis in ("keys", "queries"):
            tab.find(".head h2").hover()
            shown = boxes(tab, axis)
            assert len(shown) >= min(stretches, 20)
            assert all(before[1] <= after[0] + 0.1 for before, after in pairwise(shown)), (
                name,
                axis,
            )
            for place in {1, stretches // 3, stretches - 2}:
                point(tab, axis, (place + 0.5) / stretches)
                token = place * len(words) // stretches
                label = tab.find(f".head .{axis} .label.pointed")
                assert label.text_content().endswith(words[token])
                assert label.evaluate("node => getComputedStyle(node).visibility") == "visible"
                role = axis.removesuffix("s").replace("querie", "query")
                assert tab.text(".head .readout").startswith(f"{role} {token} {words[token]}")
    tab.find(".head h2").hover()
    assert tab.find(".head .label.pointed").count() == 0
