"""The page that needs no server: its data, and its behaviour in a real browser."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from chromium import PageOpener
from headscope.record.schema import PageText, Text
from headscope.tab.html import LIVE, STATIC, bundled, texts_page
from page_contents import texts_of
from records import random_maps

LAYERS, HEADS = 2, 3  # all different from the number of tokens, so that a swapped axis cannot pass
WORDS = ["[CLS]", "猫", "は", "the", "cat", "🐈", "<0xE3>"]
CLASSES = ["7", "cats", "1"]
TOKENS = ".text .tokens >> nth=0"
HOSTILE = [
    "</script><img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "<!--<script>", "a\0b", "\u202egnp.exe", "x" * 10_000,
    "{{x}}", "${x}", "$data", "&lt;\u2028\u2029", "{data}", "__proto__", "\ud83d",
]  # fmt: skip


def make_text(
    words: list[str] = WORDS,
    seed: int = 0,
    label: str | None = "cats",
    arrays: Mapping[str, np.ndarray] | None = None,
    **details: Any,
) -> tuple[PageText, np.ndarray]:
    """Return a text of a page and its maps [layer, head, query, key]."""
    maps = random_maps(seed, LAYERS, HEADS, len(words))
    own: dict[str, np.ndarray] = {"probabilities": np.array([0.25, 0.7, 0.05], dtype=np.float32)}
    for layer, weights in enumerate(maps):
        own[f"layer_{layer}/weights"] = weights.astype(np.float16)
    means = [
        [float(place * 5 % 7) for place in range(HEADS * at, HEADS * (at + 1))] for at in (0, 1)
    ]
    text = Text("text", words, " ".join(words), label)
    numbers = {"measures": {"entropy": {"mean": means}}, "extra": {}}
    return PageText(text, own | dict(arrays or {}), numbers, **details), maps


def written(*texts: PageText, title: str = "Attention heads", classes: list[str] = CLASSES) -> str:
    return texts_page(title, [f"layer {layer}" for layer in range(LAYERS)], classes, texts)


def unfolded(tab: Any) -> Any:
    """Open what is folded."""
    tab.locator(".fold-view").first.wait_for()
    tab.evaluate("document.querySelectorAll('.fold-view').forEach(it => (it.open = true))")
    tab.locator(".table tbody tr").first.wait_for()
    return tab


def contributions() -> dict[str, np.ndarray]:
    """Return shares of heads: head 1 of layer 1 has 3.1 of all, 2 of it of token 4."""
    heads = np.zeros((2, 3, 7, 2), np.float32)
    heads[1, 1, :5, 0] = [0.9, -0.5, 0.7, 0, 2.0]
    return {
        "contributions/classes": np.array([1, 0], np.int32),
        "contributions/shown": np.array([1, 0], np.int32),
        "contributions/words": heads.sum(axis=(0, 1)),
        "contributions/heads": heads,
        "contributions/head_biases": np.zeros((2, 3, 2), np.float32),
        "contributions/past": np.zeros((7, 2), np.float32),
        "contributions/past_biases": np.array([0.5, 0], np.float32),
        "contributions/biases": np.array([0.5, 0], np.float32),
        "contributions/through": heads.sum(axis=2),
        "contributions/log_odds": np.array([3.6, 0], np.float32),
    }


# --- the data ---


def test_everything_comes_back_as_it_was_and_text_holds_no_markup() -> None:
    shown, maps = make_text([*HOSTILE], label=HOSTILE[0], notes={"run": HOSTILE[1]})
    shown.numbers["measures"]["entropy"]["mean"][0][1] = None  # no number
    content = written(shown, title="\ud83d</title><script>")
    content.encode("utf-8")
    (back,) = texts_of(content)
    assert back.text["tokens"][:-1] == HOSTILE[:-1]
    found = [back.text[name] for name in ("label", "notes")]
    assert found == [HOSTILE[0], {"run": HOSTILE[1]}]
    assert back.numbers["entropy"] == [[0.0, None, 3.0], [1.0, 6.0, 4.0]]
    np.testing.assert_array_equal(back.weights(1), maps[1].astype(np.float16))
    assert "<title>?&lt;/title&gt;&lt;script&gt;</title>" in content
    assert content.count("<script ") == 2
    assert not set("<>&\u2028\u2029") & set(
        re.findall(r'json">(.*?)</script>', content, re.DOTALL)[0]
    )


def test_a_page_of_nothing_is_refused() -> None:
    shown, _ = make_text()
    without_maps = PageText(shown.text, {"probabilities": np.zeros(3, dtype=np.float32)})
    for texts in ([], [shown, without_maps]):
        with pytest.raises(ValueError, match="at least one text, and the maps of each"):
            written(*texts)


def test_every_module_is_put_in_once_and_none_can_end_the_script() -> None:
    script = bundled("index.js")
    assert sorted(re.findall(r"^modules\.(\w+) =", script, re.MULTILINE)) == sorted(
        path.stem for path in STATIC.glob("*.js")
    )
    assert not re.search(r"^(import|export)\b|</script|<!--", script, re.MULTILINE)


# --- the browser ---


def test_the_page_shows_the_views_of_the_tab_without_a_server(open_page: PageOpener) -> None:
    """One way through all of it: a head, a token, a cell."""
    notes = {"contributions": "layer 1 head 1 contributes +3.1 nats to cats", "run": "outputs/mine"}
    shown, maps = make_text(arrays=contributions(), notes=notes)
    tab = unfolded(open_page(written(shown)))
    assert (tab.title(), tab.locator("h1").text_content()) == ("Attention heads", "Attention heads")
    assert tab.locator(".predicted").text_content() == "cats 70.0 %"
    assert tab.locator(".facts-of-text").text_content() == "Given label ✓ cats"
    classes = tab.locator(".classes li").all_text_contents()
    assert classes == ["cats70.0 %", "725.0 %", "15.0 %"]
    facts = tab.locator(".trust .fact").all_text_contents()
    assert facts[1:3] == [f"contributions{notes['contributions']}", "runoutputs/mine"]
    first = tab.locator(".cells-table .head-name").first
    assert first.text_content() == "layer 1 head 1"  # which brings most
    assert tab.locator("tbody tr[aria-current] th").text_content() == "layer 1 head 1"
    assert tab.locator(TOKENS).locator(".token").nth(4).get_attribute("title") == "cat +2.00"
    assert tab.locator(".sum").text_content() == (
        "+3.10 words +0.50 biases = +3.60 log-odds of cats over 7"
    )
    assert "past every head" in tab.locator(".cells-table").inner_text()
    first.click()
    weights = maps[1][1]
    large = tab.locator(".head .large")
    cell = large.bounding_box()["width"] / len(WORDS)  # all of the map is in sight
    large.hover(position={"x": 1.5 * cell, "y": 5.5 * cell})
    assert tab.locator(".head .readout").text_content().startswith("query 5 🐈 → key 1 猫")
    assert float(tab.locator(".head .readout strong").text_content()) == pytest.approx(
        weights[5, 1], abs=5.1e-4
    )
    tab.locator(".save summary").click()
    with tab.expect_download() as waiting:  # the picture has the maps as well
        tab.locator(".save button >> text=PNG").click()
    color = "node => getComputedStyle(node).backgroundColor"
    bar = tab.locator(".node.head").first
    corner = tab.locator("main").bounding_box()
    box = bar.bounding_box()
    sharp = 2  # pixels of the picture for one of the screen
    place = (sharp * (box["x"] - corner["x"] + 9), sharp * (box["y"] - corner["y"] + 5))
    with Image.open(waiting.value.path()) as picture:
        shown = picture.convert("RGB").getpixel(tuple(map(int, place)))
    assert f"rgb{shown}" == bar.evaluate(color)  # the styles are in it
    with tab.expect_download() as waiting:
        tab.locator(".save button >> text=SVG").click()
    drawn = ElementTree.parse(waiting.value.path()).getroot()
    words = " ".join("".join(drawn.itertext()).split())  # fonts are text
    said = "A number is what a word, or a head from a word, adds to the log-odds of cats over 7"
    assert f"Text: “{' '.join(WORDS)}”. {said}" in words
    assert "layer 1 head 1" in words
    with tab.expect_download() as waiting:
        tab.locator(".save button >> text=CSV").click()
    table = Path(waiting.value.path()).read_text("utf-8-sig").splitlines()
    assert table[0].endswith('"past every head"')
    numbers = [[float(cell.strip('"')) for cell in line.split(",")[1:]] for line in table[1:]]
    assert [sum(row[1:]) for row in numbers] == pytest.approx([row[0] for row in numbers])
    assert sum(row[0] for row in numbers) == pytest.approx(3.6)


def test_every_sentence_is_translated_and_no_other() -> None:
    used = {
        sentence
        for path in [*STATIC.glob("*.js"), *LIVE.glob("*.js")]
        if path.stem != "preact"
        for sentence in sentences(
            re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
        )
    }
    japanese = json.loads((STATIC / "ja.json").read_text("utf-8"))
    assert sorted(used - {*japanese}) == []
    assert sorted({*japanese} - used) == []
    for sentence, words in japanese.items():
        assert sorted(re.findall(r"{\d}", sentence)) == sorted(re.findall(r"{\d}", words)), sentence


def sentences(source: str) -> Iterator[str]:
    """Yield what stands in t`...`, parts`...` and the p`...` of told.js, each part that is put in as {0}, {1}, ..."""
    for found in re.finditer(r"(?<![\w.])(?:t|parts|p)`", source):
        sentence, depth, count = "", 0, 0
        for part in re.split(r"(\$\{|[{}`])", source[found.end() :]):
            if depth == 0 and part == "`":
                break
            if part == "${" and depth == 0:
                sentence += f"{{{count}}}"
                count += 1
            elif depth == 0:
                sentence += part
            depth += (part in ("${", "{")) - (part == "}")
        yield re.sub(r"\n\s*", " ", sentence)


@pytest.mark.slow
def test_markup_that_got_in_all_the_same_would_not_run(browser: Any, tmp_path: Path) -> None:
    markup = '<img src="http://127.0.0.1:9/" onerror="ran = 1"><script>ran = 1</script><noscript'
    path = tmp_path / "page.html"
    path.write_text(written(make_text()[0]).replace("<noscript", markup), "utf-8")
    with browser.new_context() as context:
        context.add_init_script("""
            window.refused = [];
            const listen = (event) => refused.push(event.effectiveDirective);
            document.addEventListener("securitypolicyviolation", listen);
        """)
        tab = context.new_page()
        tab.goto(path.as_uri())
        tab.locator(".fold-view").first.wait_for()
        assert tab.evaluate("refused.sort()") == ["img-src", "script-src-attr", "script-src-elem"]
        assert tab.evaluate("typeof ran") == "undefined"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["network {}", "members.{}.encoder.blocks.0.attention"])
def test_heads_of_an_ensemble_are_named_by_their_network(name: str, open_page: PageOpener) -> None:
    shown, _ = make_text(arrays=contributions())
    layers = [name.format(number) for number in range(LAYERS)]
    tab = unfolded(open_page(texts_page("Attention heads", layers, CLASSES, [shown])))
    assert tab.locator(".cells-table .head-name").first.text_content() == "network 1 head 1"


@pytest.mark.slow
def test_the_prediction_stands_beside_the_label(open_page: PageOpener) -> None:
    cases: list[tuple[list[int] | None, str | None, str]] = [
        (None, None, "cats 70.0 %"),
        ([1, 1, 0], "7, cats", "7, cats Given label ✓ 7, cats"),
        ([0, 0, 0], "7", "none Given label ✗ 7"),
    ]
    texts = []
    for given, label, _ in cases:
        arrays = {} if given is None else {"given": np.array(given, dtype=np.uint8)}
        texts.append(make_text(label=label, arrays=arrays)[0])
    tab = open_page(written(*texts))
    for number, (_, _, heading) in enumerate(cases):
        tab.locator(".choose-text").select_option(str(number))
        tab.locator(f".predicted >> text={heading.split()[0]}").wait_for()
        parts = tab.locator(".predicted, .facts-of-text").all_text_contents()
        assert "".join(parts).strip() == heading
