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
READOUT = ".head .readout"
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で泣いていた。"


@pytest.mark.slow
def test_a_row_of_tokens_is_one_stop_and_arrows_go_on_from_there(
    open_tab: Opener, tmp_path: Path
) -> None:
    words = [f"t{place}" for place in range(30)]
    step = Step(0, [maps_of(0, 1, 2, 30)], pooling=[softmax(np.arange(30.0))])
    write_run(tmp_path, "mine", [Text("t", words, " ".join(words))], [step])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    for row in (TOKENS, ".pooling .tokens"):
        assert tab.find(row).locator(".token[tabindex='0']").count() == 1
        assert tab.find(row).locator(".token[tabindex='-1']").count() == 29
    press = tab.page.keyboard.press
    tab.find(TOKENS).locator(".token").first.focus()
    moves = [("End", "t29"), ("ArrowRight", "t29"), ("ArrowLeft", "t28"), ("Home", "t0")]
    for key, name in [*moves, ("ArrowRight", "t1")]:
        press(key)
        tab.shows(".token:focus", name)
    tab.shows(READOUT, "query 1 t1")
    press("Enter")
    tab.expect("button >> text=Unlock").to_be_visible()
    press("ArrowRight")
    press("ArrowRight")
    tab.says(READOUT, "query 1 t1 → key 3 t3")
    tab.shows(f"{TOKENS} >> .token[tabindex='0']", ["t3"])  # where the focus is
    press("Escape")
    tab.expect("button >> text=Unlock").to_be_hidden()
    tab.shows(".token:focus", "t3")
    press("Tab")  # to the one stop of the pooling
    tab.expect(".pooling .token:focus").to_have_count(1)
    press("Shift+Tab")
    tab.expect(f"{TOKENS} >> .token:focus").to_have_count(1)
    press("Shift+Tab")
    tab.expect(".token:focus").to_have_count(0)


def boxes(tab: Tab, axis: str) -> list[Any]:
    """Return where the labels that show begin and end along an axis."""
    start, end = ("left", "right") if axis == "keys" else ("top", "bottom")
    script = f"""all => all.filter(label => getComputedStyle(label).visibility === 'visible')
        .map(label => label.getBoundingClientRect()).map(box => [box.{start}, box.{end}])"""
    found: list[Any] = tab.find(f".head .{axis} .label").evaluate_all(script)
    return found


def point(tab: Tab, axis: str, share: float) -> None:
    """Point at a place along an axis, near the map."""
    tab.find(".head .map-scroll").evaluate("node => node.scrollIntoView({ block: 'end' })")
    box = tab.find(f".head .{axis}").bounding_box()
    x = share * box["width"] if axis == "keys" else box["width"] - 4
    y = box["height"] - 4 if axis == "keys" else share * box["height"]
    tab.page.mouse.move(box["x"] + x, box["y"] + y)


@pytest.mark.slow
def test_labels_do_not_overlap_and_every_token_of_an_axis_can_be_pointed_at(
    open_tab: Opener, tmp_path: Path
) -> None:
    texts = {f"n{count}": [f"word{n}" for n in range(count)] for count in (12, 60, 128, 300)}
    texts["japanese"] = ["[CLS]", *JAPANESE, "[SEP]"]
    for name, words in texts.items():
        step = Step(0, [maps_of(0, 1, 1, len(words))])
        write_run(tmp_path, name, [Text("t", words, "t")], [step])
    tab = open_tab(tmp_path, width=1280, height=1200)
    for name, words in texts.items():
        tab.find(".choose-run").select_option(name)
        tab.wait(f"() => document.querySelectorAll('.text .token').length === {len(words)}")
        tab.expect(".table tbody tr").to_have_count(1)  # all is here: nothing moves any more
        count = len(words)
        for axis, role in (("keys", "key"), ("queries", "query")):
            tab.find(".head h2").hover()
            tab.expect(f".head .{axis} .label").to_have_count(count)
            shown = boxes(tab, axis)
            is_sparse = tab.find(".head h2 ~ .about >> text=has room").count() == 1
            assert is_sparse == (len(shown) < count)  # no label is left out silently
            assert len(shown) >= min(count, 20) - 1
            assert all(a[1] <= b[0] + 0.1 for a, b in pairwise(shown)), (name, axis)
            for token in {1, count // 3, count - 2}:
                point(tab, axis, (token + 0.5) / count)
                tab.says(READOUT, f"{role} {token} {words[token]}")
                active = tab.find(f".head .{axis} .label.active")
                assert active.text_content().endswith(words[token])
                assert active.evaluate("node => getComputedStyle(node).visibility") == "visible"
