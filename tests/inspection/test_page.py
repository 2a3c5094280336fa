"""The page of all heads: its data in plain Python, its behaviour in a real browser."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chromium import colours_of, contrast
from headscope.inspection import page as page_module
from headscope.inspection.page import (
    HeadReport,
    LayerReport,
    Report,
    page,
    page_of_texts,
    write_page,
)
from headscope.inspection.record import levels_of

LAYERS, HEADS, TOKENS = 2, 3, 7  # all different, so that a swapped axis cannot pass
WORDS = ["[CLS]", "猫", "は", "the", "cat", "🐈", "<0xE3>"]
POOLING = np.array([0, 17, 255, 51, 102, 5, 80]) / 510  # whole levels of the maximum 0.5: stored without an error
POOLING_SHOWN = ["0.000", "0.033", "0.500", "0.100", "0.200", "0.010", "0.157"]
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "<!--<script>",
    "a\0b",
    "\u202egnp.exe",
    "x" * 10_000,
    "{{x}}",
    "${x}",
    "$data",
    "&lt;\u2028\u2029",
]


def random_weights(seed: int, count: int, sharpness: float = 2.0) -> np.ndarray:
    scores = np.exp(sharpness * np.random.default_rng(seed).standard_normal((count, count)))
    weights: np.ndarray = scores / scores.sum(axis=1, keepdims=True)
    return weights


def make_head(seed: int, count: int) -> HeadReport:
    weights = random_weights(seed, count)
    return HeadReport(weights, {"entropy": float(seed * 5 % 7), "self": float(np.diag(weights).mean())})


def make_report(tokens: list[str] = WORDS, layers: int = LAYERS, heads: int = HEADS, **changes: Any) -> Report:
    seeds = iter(range(layers * heads))
    stack = [
        LayerReport(f"layer {layer}", [make_head(next(seeds), len(tokens)) for _ in range(heads)])
        for layer in range(layers)
    ]
    report = Report(
        title="Every head",
        text=" ".join(tokens),
        tokens=tokens,
        layers=stack,
        probabilities={"7": 0.25, "cats": 0.7, "1": 0.05},
        label="cats",
        notes={"run": "outputs/example"},
    )
    return replace(report, **changes)


def data_of(content: str) -> dict[str, Any]:
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', content, re.DOTALL)
    assert match
    data: dict[str, Any] = json.loads(match[1])
    return data


# --- the data ---


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sharpness", [0.01, 1.0, 9.0])
def test_weights_come_back_within_half_a_level(dtype: Any, sharpness: float) -> None:
    weights = random_weights(0, 31, sharpness).astype(dtype)
    levels, scales = levels_of(weights)
    error = np.abs(levels / 255 * scales[:, None].astype(np.float64) - weights.astype(np.float64))
    assert (error <= scales[:, None] / 510 * (1 + 1e-5)).all()


def test_a_row_of_zeros_stays_zeros() -> None:
    weights = np.zeros((3, 3))
    weights[1, 2] = 1
    levels, scales = levels_of(weights)
    assert scales.tolist() == [0, 1, 0]
    assert levels.tolist() == [[0, 0, 0], [0, 0, 255], [0, 0, 0]]


def test_a_map_of_another_size_is_refused() -> None:
    report = make_report()
    report.layers[1].heads[2] = HeadReport(np.full((TOKENS, TOKENS - 1), 0.1), {})
    with pytest.raises(ValueError, match=r"layer 1, head 2: map of shape \(7, 6\) for 7 tokens"):
        page(report)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1])
def test_what_is_no_weight_is_refused(value: float) -> None:
    report = make_report()
    report.layers[0].heads[1].weights[2, 3] = value
    with pytest.raises(ValueError, match="layer 0, head 1: a weight is negative or not finite"):
        page(report)


@pytest.mark.parametrize("shape", [(TOKENS - 1,), (1, TOKENS), ()])
def test_a_pooling_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"pooling: vector of shape {shape} for 7 tokens")):
        page(make_report(pooling=np.full(shape, 0.1)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1])
def test_a_pooling_of_what_is_no_weight_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="pooling: a weight is negative or not finite"):
        page(make_report(pooling=np.array([*POOLING[1:], value])))


def test_a_pooling_is_stored_as_a_map_of_one_row() -> None:
    pooling = data_of(page(make_report(pooling=POOLING)))["pooling"]
    assert list(base64.b64decode(pooling["levels"])) == [0, 17, 255, 51, 102, 5, 80]
    assert np.frombuffer(base64.b64decode(pooling["scales"]), "<f4").tolist() == [0.5]
    assert data_of(page(make_report()))["pooling"] is None


@pytest.mark.parametrize("empty", [{"tokens": []}, {"layers": []}, {"layers": [LayerReport("layer 0", [])]}])
def test_a_page_of_nothing_is_refused(empty: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one token and one head"):
        page(replace(make_report(), **empty))


def test_a_page_of_32_heads_and_128_tokens_is_under_a_megabyte(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", make_report([f"token{n}" for n in range(128)], layers=4, heads=8))
    assert (tmp_path / "page.html").stat().st_size < 1_000_000


def test_text_comes_back_as_it_was_and_holds_no_markup() -> None:
    tokens = [*HOSTILE, "\ud83d"]
    content = page(make_report(tokens, layers=1, heads=1, title="\ud83d</title><script>"))
    content.encode("utf-8")
    assert data_of(content)["tokens"] == tokens
    assert "<title>?&lt;/title&gt;&lt;script&gt;</title>" in content
    assert content.count("<script") == 2
    assert not set("<>&\u2028\u2029") & set(re.findall(r'json">(.*?)</script>', content, re.DOTALL)[0])


def test_a_number_that_is_missing_or_not_finite_becomes_null() -> None:
    report = make_report()
    report.layers[0].heads[0].numbers.update({"entropy": float("nan"), "first": 0.5})
    data = data_of(page(report))
    assert data["columns"] == ["entropy", "self", "first"]
    assert [head["numbers"][::2] for head in data["layers"][0]["heads"]] == [
        [None, 0.5],
        [5.0, None],
        [3.0, None],
    ]


def test_every_script_is_put_in_and_none_writes_markup() -> None:
    paths = page_module.STATIC.rglob("*.js")
    sources = {path.relative_to(page_module.STATIC).as_posix(): path.read_text("utf-8") for path in paths}
    assert set(sources) == set(page_module.SCRIPTS)
    for source in sources.values():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|</script|<!--", source)


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_write_that_fails_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(self: Path, *_: object) -> None:
        self.write_text("half")
        raise OSError("no space left")

    monkeypatch.setattr(Path, step, fail)
    with pytest.raises(OSError, match="no space left"):
        write_page(path, make_report())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# --- the browser ---

Opener = Callable[..., Any]


def head_of(report: Report, index: int) -> HeadReport:
    return [head for layer in report.layers for head in layer.heads][index]


def assert_close(shown: str, weights: np.ndarray, query: int, key: int) -> None:
    assert abs(float(shown) - weights[query, key]) <= weights[query].max() / 255


def hover_cell(tab: Any, query: int, key: int) -> None:
    box = tab.locator("#large").bounding_box()
    cell = box["width"] / TOKENS
    tab.locator("#large").hover(position={"x": (key + 0.5) * cell, "y": (query + 0.5) * cell})


def pixels_of(tab: Any, selector: str, index: int = 0) -> np.ndarray:
    return colours_of(tab.locator(selector).nth(index))[..., :3]


def expected_pixels(weights: np.ndarray, top: float = 1.0) -> np.ndarray:
    levels, scales = levels_of(weights)
    steps = np.floor(levels * (scales[:, None].astype(np.float64) / top) + 0.5)
    colors: np.ndarray = page_module.color_table()[np.minimum(steps, 255).astype(int)]
    return colors


PAINT_TOKEN = """node => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  paint(getComputedStyle(node.closest("main > section")).backgroundColor);
  return [paint(getComputedStyle(node).backgroundColor), paint(getComputedStyle(node).color)];
}"""


def test_every_head_has_a_map_in_the_shared_colours(open_page: Opener) -> None:
    report = make_report()
    tab = open_page(report)
    captions = [map_.get_attribute("aria-label") for map_ in tab.locator(".map").all()]
    assert captions == [f"layer {layer}, head {head}" for layer in range(LAYERS) for head in range(HEADS)]
    for index in range(LAYERS * HEADS):
        expected = expected_pixels(head_of(report, index).weights)
        np.testing.assert_array_equal(pixels_of(tab, ".map canvas", index), expected)
    np.testing.assert_array_equal(pixels_of(tab, "#legend")[0], page_module.color_table())


def test_the_top_of_the_scale_is_one_for_all_maps(open_page: Opener) -> None:
    report = make_report()
    tab = open_page(report)
    tab.locator("#top").select_option("0.2")
    for selector, index in [("#large", 0), (".map canvas", 0), (".map canvas", 5)]:
        expected = expected_pixels(head_of(report, index).weights, 0.2)
        shown = pixels_of(tab, selector, index if "map" in selector else 0)
        np.testing.assert_array_equal(shown, expected)


def test_a_click_on_a_map_shows_that_head_everywhere(open_page: Opener) -> None:
    report = make_report()
    tab = open_page(report)
    tab.locator(".map").nth(4).click()
    assert set(tab.locator(".caption").all_text_contents()) == {"layer 1, head 1"}
    assert tab.locator(".map[aria-checked=true]").get_attribute("aria-label") == "layer 1, head 1"
    assert tab.locator("tbody tr[aria-current] th").text_content() == "layer 1 · 1"
    np.testing.assert_array_equal(pixels_of(tab, "#large"), expected_pixels(head_of(report, 4).weights))


def test_what_the_chosen_head_put_is_said(open_page: Opener) -> None:
    report = make_report()
    said = replace(report.layers[1].heads[1], spoken=f'put +3.1 nats for cats: "{HOSTILE[0]}" +2.0')
    report.layers[1].heads[1] = said
    tab = open_page(report)
    assert tab.locator("#spoken").is_hidden()
    tab.locator(".map").nth(4).click()
    assert tab.locator("#spoken").text_content() == said.spoken
    tab.locator(".map").nth(3).click()
    assert tab.locator("#spoken").is_hidden()


def test_a_token_under_the_pointer_shows_its_weights(open_page: Opener) -> None:
    report = make_report()
    tab = open_page(report)
    tab.locator("tbody tr").nth(5).click()
    tab.locator(".token").nth(2).hover()
    weights = head_of(report, 5).weights
    for key, token in enumerate(tab.locator(".token").all()):
        assert_close(token.get_attribute("data-weight"), weights, 2, key)
        strength = float(token.evaluate("node => node.style.getPropertyValue('--strength')"))
        assert strength == pytest.approx(weights[2, key] / weights[2].max(), abs=1 / 255)
    strongest = np.argsort(-weights[2])[:6]
    assert tab.locator("#ranked .name").all_text_contents() == [WORDS[key] for key in strongest]
    for key, number in zip(strongest, tab.locator("#ranked .number").all_text_contents(), strict=True):
        assert_close(number, weights, 2, key)


def test_a_cell_under_the_pointer_shows_its_weight(open_page: Opener) -> None:
    report = make_report()
    tab = open_page(report)
    hover_cell(tab, 5, 1)
    assert tab.locator("#readout").text_content().startswith("query 5🐈→key 1猫")
    assert_close(tab.locator("#readout strong").text_content(), head_of(report, 0).weights, 5, 1)
    assert tab.locator(".queries .active").all_text_contents() == ["🐈"]
    assert tab.locator(".keys .active").all_text_contents() == ["猫"]


def test_a_lock_holds_the_query_until_escape(open_page: Opener) -> None:
    tab = open_page(make_report())
    query = tab.locator(".token.query")
    tab.locator(".token").nth(3).click()
    tab.locator(".token").nth(4).hover()
    assert (query.text_content(), tab.locator(".token.key").text_content()) == ("the", "cat")
    tab.keyboard.press("Escape")
    tab.locator(".token").nth(1).hover()
    assert query.text_content() == "猫"
    hover_cell(tab, 2, 6)
    tab.mouse.down()
    tab.mouse.up()
    hover_cell(tab, 4, 0)
    assert tab.locator("#readout").text_content().startswith("query 2は→key 0[CLS]")
    tab.locator("h1").hover()
    assert tab.locator("#readout").text_content().startswith("query 2は→key 6<0xE3>")
    tab.locator("#release").click()
    assert tab.locator("#release").is_hidden()


def test_the_table_sorts_by_a_column_both_ways_and_back(open_page: Opener) -> None:
    report = make_report()
    report.layers[0].heads[2].numbers.pop("entropy")
    tab = open_page(report)
    heads, column = tab.locator("tbody th"), tab.locator("thead th")
    model = ["layer 0 · 0", "layer 0 · 1", "layer 0 · 2", "layer 1 · 0", "layer 1 · 1", "layer 1 · 2"]
    column.nth(1).locator("button").click()  # entropies 0 5 none 1 6 4: the head without one comes last
    assert heads.all_text_contents() == [model[index] for index in (4, 1, 5, 3, 0, 2)]
    assert column.nth(1).get_attribute("aria-sort") == "descending"
    column.nth(1).locator("button").click()
    assert heads.all_text_contents() == [model[index] for index in (0, 3, 5, 1, 4, 2)]
    tab.locator("tbody tr").nth(1).click()
    assert tab.locator("#head-caption").text_content() == "layer 1, head 0"
    column.nth(0).locator("button").click()
    assert heads.all_text_contents() == model


def test_the_keyboard_reaches_everything(open_page: Opener) -> None:
    tab = open_page(make_report())
    caption, press = tab.locator("#head-caption"), tab.keyboard.press
    for key in ["Tab", "ArrowRight", "ArrowLeft", "ArrowRight"]:
        press(key)
    assert tab.locator(".token.query").text_content() == "猫"
    press("Enter")
    assert tab.locator(".token[aria-pressed=true]").text_content() == "猫"
    press("Escape")
    for key in ["Tab", "Tab", "ArrowDown", "ArrowRight", "ArrowDown", "Enter"]:
        press(key)  # over the scale to the grid, whose lower border holds
    assert caption.text_content() == "layer 1, head 1"
    for key in ["Tab", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"]:
        press(key)
    assert tab.locator("#readout").text_content().startswith("query 2は→key 1猫")
    assert tab.locator("#release").is_visible()
    tab.locator("tbody button").nth(2).focus()
    press("Enter")
    assert caption.text_content() == "layer 0, head 2"


def test_hostile_text_is_shown_as_it_is(open_page: Opener) -> None:
    name = HOSTILE[0]
    report = make_report(HOSTILE, layers=1, heads=1, title=name, text=HOSTILE[1], label=name, notes={name: name})
    layer = LayerReport(name, [HeadReport(report.layers[0].heads[0].weights, {name: 1.0})])
    tab = open_page(replace(report, layers=[layer], probabilities={name: 0.9, "\u202eb": 0.1}))
    tab.locator(".token").nth(5).hover()
    assert tab.locator(".token > bdi").all_text_contents() == HOSTILE
    assert tab.locator(".queries bdi").all_text_contents() == HOSTILE
    assert tab.locator("h1").text_content() == tab.title() == tab.locator("dd").text_content() == name
    assert tab.locator("#text").text_content() == HOSTILE[1]
    assert tab.locator("#classes .name").all_text_contents() == [name, "\u202eb"]
    assert tab.locator("img, svg").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_markup_that_got_in_all_the_same_would_not_run(browser: Any, tmp_path: Path) -> None:
    markup = '<img src="http://127.0.0.1:9/" onerror="ran = 1"><script>ran = 1</script><h1'
    path = tmp_path / "page.html"
    path.write_text(page(make_report()).replace("<h1", markup), "utf-8")
    with browser.new_context() as context:
        note = "event => refused.push(event.effectiveDirective)"
        listen = f"document.addEventListener('securitypolicyviolation', {note})"
        context.add_init_script(f"window.refused = []; {listen}")
        tab = context.new_page()
        tab.goto(path.as_uri())
        assert tab.evaluate("refused.sort()") == ["img-src", "script-src-attr", "script-src-elem"]
        assert tab.evaluate("typeof ran") == "undefined"
        assert tab.locator(".map").count() == LAYERS * HEADS


def test_the_pooling_shows_how_much_each_token_counts(open_page: Opener) -> None:
    tab = open_page(make_report(pooling=POOLING))
    tab.locator(".map").nth(4).click()  # a head changes nothing here
    tokens = tab.locator("#pooling-tokens .token")
    assert tokens.all_text_contents() == WORDS
    for index, token in enumerate(tokens.all()):
        assert token.get_attribute("title") == f"token {index}, weight {POOLING_SHOWN[index]}"
        strength = float(token.evaluate("node => node.style.getPropertyValue('--strength')"))
        assert strength == pytest.approx(POOLING[index] / 0.5)
        token.hover()
        name = f"token {index}{WORDS[index]}"
        assert tab.locator("#pooling-readout").text_content() == name + POOLING_SHOWN[index]
    strongest = [2, 4, 6, 3, 1, 5]
    assert tab.locator("#pooling-ranked .name").all_text_contents() == [WORDS[index] for index in strongest]
    assert tab.locator("#pooling-ranked .number").all_text_contents() == [POOLING_SHOWN[index] for index in strongest]
    shares = tab.locator("#pooling-ranked .bar").evaluate_all(
        "all => all.map(bar => Number(bar.style.getPropertyValue('--share')))"
    )
    assert shares == pytest.approx(POOLING[strongest] / 0.5)


def test_small_pooling_weights_get_the_decimals_that_tell_them_apart(open_page: Opener) -> None:
    pooling = random_weights(0, 512)[0]
    tab = open_page(make_report([f"token{n}" for n in range(512)], layers=1, heads=1, pooling=pooling))
    for index in [0, int(pooling.argmax()), int(pooling.argmin())]:
        shown = tab.locator("#pooling-tokens .token").nth(index).get_attribute("data-weight")
        assert_close(shown, pooling[None], 0, index)


def test_without_a_pooling_nothing_of_it_shows(open_page: Opener) -> None:
    tab = open_page(make_report())
    assert tab.locator("#pooling").is_hidden()
    assert tab.locator(".token").count() == TOKENS
    tab = open_page(make_report(pooling=POOLING))
    assert tab.locator("#pooling").is_visible()


def test_a_token_of_the_pooling_is_followed_into_the_heads(open_page: Opener) -> None:
    tab = open_page(make_report(pooling=POOLING))
    tokens, press = tab.locator("#pooling-tokens .token"), tab.keyboard.press
    tokens.nth(4).hover()
    assert tab.locator("#tokens .query").text_content() == "cat"
    tokens.nth(4).click()
    tokens.nth(2).hover()
    assert tab.locator(".token.query").all_text_contents() == ["cat", "cat"]
    assert tab.locator(".token.key").all_text_contents() == ["は", "は"]
    assert tab.locator("#pooling-readout").text_content() == "token 2は0.500"
    press("Escape")
    tab.locator("h1").hover()
    tokens.nth(4).focus()
    press("ArrowRight")
    assert tab.locator("#pooling-readout").text_content() == "token 5🐈0.010"


def test_hostile_tokens_of_a_pooling_are_shown_as_they_are(open_page: Opener) -> None:
    tokens = ["<img src=x onerror=alert(1)>", *HOSTILE]
    pooling = np.arange(len(tokens), 0, -1) / len(tokens)
    tab = open_page(make_report(tokens, layers=1, heads=1, pooling=pooling), viewport={"width": 400, "height": 720})
    assert tab.locator("#pooling-tokens bdi").all_text_contents() == tokens
    assert tab.locator("#pooling-ranked .name").all_text_contents() == tokens[:6]
    for index in [6, 0]:  # the long one, which must not widen the page, and markup
        tab.locator("#pooling-tokens .token").nth(index).hover()
        assert tab.locator("#pooling-readout bdi").text_content() == tokens[index]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator("img, svg").count() == 0


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pooling_of_256_tokens_stays_readable(open_page: Opener, scheme: str, width: int) -> None:
    pooling = random_weights(0, 256)[0]
    report = make_report([f"token{n}" for n in range(256)], layers=1, pooling=pooling)
    tab = open_page(report, color_scheme=scheme, viewport={"width": width, "height": 720})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("#pooling").evaluate("node => node.scrollWidth <= node.clientWidth")
    for token in [pooling.argmax(), pooling.argmin()]:
        colors = tab.locator("#pooling-tokens .token").nth(int(token)).evaluate(PAINT_TOKEN)
        assert contrast(*colors) >= 4.5  # what WCAG 2 asks of text


@pytest.mark.parametrize(
    ("label", "verdict"),
    [("cats", "cats✓ true label cats"), ("7", "cats✗ true label 7"), (None, "cats")],
)
def test_the_header_says_what_was_predicted(open_page: Opener, label: str | None, verdict: str) -> None:
    tab = open_page(make_report(label=label))
    assert tab.locator("#verdict").text_content() == verdict
    assert tab.locator("#classes li").all_text_contents() == ["cats0.700", "70.250", "10.050"]


@pytest.mark.parametrize(
    ("prediction", "verdict"),
    [("cats, 7", "cats, 7✓ true label cats, 7"), ("none", "none✗ true label cats, 7")],
)
def test_the_header_says_all_that_a_text_is_given(open_page: Opener, prediction: str, verdict: str) -> None:
    tab = open_page(make_report(label="cats, 7", prediction=prediction))
    assert tab.locator("#verdict").text_content() == verdict


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_the_page_follows_the_colour_scheme(open_page: Opener, scheme: str, dark: bool) -> None:
    tab = open_page(make_report(), color_scheme=scheme)
    for selector in ["body", "main > section", ".label", "thead th"]:
        color = tab.locator(selector).first.evaluate("node => getComputedStyle(node).backgroundColor")
        lightness = np.mean([int(part) for part in re.findall(r"\d+", color)[:3]])
        assert lightness < 100 if dark else lightness > 200


@pytest.mark.parametrize("width", [400, 1280])
def test_256_tokens_stay_readable(open_page: Opener, width: int) -> None:
    report = make_report([f"token{n}" for n in range(256)], layers=1)
    tab = open_page(report, viewport={"width": width, "height": 720})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("#large").bounding_box()["width"] >= 2 * 256
    labels = tab.locator(".queries .label:not(.thin)")
    tops = labels.evaluate_all("all => all.map(label => label.getBoundingClientRect().y)")
    assert len(tops) > 20
    assert min(np.diff(tops)) >= 12


def test_arabic_runs_from_the_right_and_each_token_is_isolated(open_page: Opener) -> None:
    tab = open_page(make_report(["[CLS]", "كان", "القط", "cat"], text="كان القط cat"))
    boxes = [token.bounding_box()["x"] for token in tab.locator(".token").all()]
    assert boxes == sorted(boxes, reverse=True)
    assert tab.locator(".token > bdi").count() == tab.locator(".keys bdi").count() == 4


# --- several texts ---


def make_reports(count: int = 3, **changes: Any) -> list[Report]:
    """Return texts of different lengths, labels and weights, each of which was taken for cats."""
    names = ["7", "1", "cats"]
    return [
        make_report(WORDS[: 5 + number % 3], title=f"Text {number}", label=names[number % 3], **changes)
        for number in range(count)
    ]


def test_a_page_of_texts_needs_one_and_refuses_what_a_page_does() -> None:
    with pytest.raises(ValueError, match="at least one"):
        page_of_texts("none", [])
    with pytest.raises(ValueError, match="pooling: vector of shape"):
        page_of_texts("two", [make_report(), make_report(pooling=POOLING[1:])])
    content = page_of_texts("</title><script>", make_reports())
    assert "<title>&lt;/title&gt;&lt;script&gt;</title>" in content
    assert data_of(content)["reports"] == [data_of(page(report)) for report in make_reports()]


def test_one_text_has_no_list(open_page: Opener) -> None:
    assert open_page(make_report()).locator("#chooser").is_hidden()


def test_the_list_says_what_each_text_is_and_was_taken_for(open_page: Opener) -> None:
    tab = open_page([*make_reports(), make_report(label=None), make_report(label="none of them")])
    assert tab.title() == tab.locator("#chooser-title").text_content() == "Several texts"
    lines = tab.locator("#choices .choice")
    shown = [[part.text_content() for part in line.locator("> *").all()] for line in lines.all()]
    assert shown[0] == ["1", "7", "0.250", "cats", "0.700", "[CLS] 猫 は the cat"]
    assert shown[1][:5] == ["2", "1", "0.050", "cats", "0.700"]
    assert shown[2][:3] == ["3", "cats", "0.700"]
    assert shown[3][:3] == ["4", "–", "–"]
    assert shown[4][:3] == ["5", "none of them", "–"]


def test_the_list_says_what_is_given_where_that_may_be_any_number(open_page: Opener) -> None:
    reports = [make_report(label="cats", prediction=given) for given in ("none", "cats, 7", "7")]
    lines = open_page(reports).locator("#choices .choice")
    shown = [[part.text_content() for part in line.locator("> *").all()][1:5] for line in lines.all()]
    assert shown == [["cats", "0.700", "none", "–"], ["cats", "0.700", "cats, 7", "–"], ["cats", "0.700", "7", "0.250"]]


def test_the_chosen_text_is_shown_as_on_a_page_of_its_own(open_page: Opener) -> None:
    reports = make_reports()
    reports[2] = replace(reports[2], pooling=POOLING)
    tab = open_page(reports)
    assert tab.locator("#pooling").is_hidden()
    for number in (2, 1, 0, 2):
        tab.locator(".choice[role=radio]").nth(number).click()
        assert tab.locator("h1").text_content() == f"Text {number}"
        assert tab.locator("#tokens .token").all_text_contents() == reports[number].tokens
        assert tab.locator("#pooling").is_visible() == (number == 2)
        assert tab.locator(".map").count() == LAYERS * HEADS
        assert tab.locator("tbody tr").count() == LAYERS * HEADS
        assert tab.locator("#verdict").text_content().startswith("cats")
        chosen = tab.locator(".choice[aria-checked=true]")
        assert chosen.count() == 1
        assert chosen.locator(".place").text_content() == str(number + 1)
        tab.locator("#tokens .token").nth(3).hover()
        weights = head_of(reports[number], 0).weights
        assert_close(tab.locator("#tokens .token").nth(1).get_attribute("data-weight"), weights, 3, 1)


def test_the_head_and_the_scale_stay_when_another_text_is_chosen(open_page: Opener) -> None:
    reports = make_reports()
    tab = open_page(reports)
    tab.locator(".map").nth(4).click()
    tab.locator("#top").select_option("0.2")
    tab.locator("#tokens .token").nth(2).click()
    tab.locator(".choice[role=radio]").nth(1).click()
    assert tab.locator("#head-caption").text_content() == "layer 1, head 1"
    assert tab.locator("#top").input_value() == "0.2"
    assert tab.locator("#release").is_hidden()
    tab.locator("h1").hover()
    tab.set_viewport_size({"width": 900, "height": 720})  # the map of the text before must not write into this one's
    tab.wait_for_timeout(100)
    assert tab.locator("#readout").text_content() == "query 0[CLS]"
    size = tab.locator("#large").evaluate("canvas => [canvas.width, canvas.height]")
    assert size == [len(reports[1].tokens)] * 2
    tab.locator("#tokens .token").nth(1).click()
    tab.keyboard.press("Escape")
    assert tab.locator("#release").is_hidden()


def test_the_list_is_walked_with_the_keyboard(open_page: Opener) -> None:
    tab = open_page(make_reports(30))
    for key in ["Tab", "ArrowUp", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft"]:
        tab.keyboard.press(key)
    assert tab.locator("h1").text_content() == "Text 2"
    assert tab.evaluate("document.activeElement.getAttribute('aria-checked')") == "true"
    for _ in range(40):
        tab.keyboard.press("ArrowDown")
    assert tab.locator("h1").text_content() == "Text 29"
    inside = "line => { const [one, all] = [line, line.parentElement].map(node => node.getBoundingClientRect());"
    assert tab.locator(".choice[aria-checked=true]").evaluate(
        inside + "return one.top >= all.top && one.bottom <= all.bottom; }"
    )
    assert tab.evaluate("scrollY") == 0


def test_hostile_texts_are_listed_as_they_are(open_page: Opener) -> None:
    reports = [make_report(text=text, label=text, probabilities={text: 0.1, "b": 0.9}) for text in HOSTILE]
    tab = open_page(reports, viewport={"width": 400, "height": 720})
    lines = tab.locator(".choice[role=radio]")
    for line, text in zip(lines.all(), HOSTILE, strict=True):
        assert line.locator(".name").first.text_content() == text
        assert line.locator(".beginning").text_content() == text[:200]
        line.click()
        assert tab.locator("#text").text_content() == text
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator("img, svg").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1280)])
def test_the_list_stays_readable(open_page: Opener, scheme: str, width: int) -> None:
    tab = open_page(make_reports(20), color_scheme=scheme, viewport={"width": width, "height": 720})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("#chooser").bounding_box()["height"] < 360
    line = tab.locator(".choice[role=radio]").first
    assert line.locator(".beginning").bounding_box()["width"] > 150
    assert line.locator(".name").first.bounding_box()["width"] > 60
