"""The Heads tab in a real browser: each assertion is about what the page shows."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heads_browser import PATIENCE, Opener, Tab, assert_close, expected_pixels, pixels_of, stored
from heads_server import Server, Step, maps_of, softmax, write_run

from headscope.record.schema import Text
from headscope.tab.summaries import write_marker

LAYERS, HEADS = 2, 3  # all different from the number of tokens, so that a swapped axis cannot pass
WORDS = ["[CLS]", "猫", "は", "the", "cat", "🐈", "<0xE3>"]
SHORT = ["[CLS]", "a", "film", "[SEP]"]
STEPS = [0, 100, 200]
TOKENS = ".text .tokens >> nth=0"
READOUT = ".head .readout"
HOSTILE = [
    "</script><img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "<!--<script>", "'\"`", "a\0b", "\u202egnp.exe",
    "x" * 10_000, "{{x}}", "${x}", "&lt;\u2028\u2029", " ", "", "\n", "javascript:alert(1)", "__proto__",
]  # fmt: skip


def first_maps(step: int) -> list[np.ndarray]:
    return maps_of(step, LAYERS, HEADS, len(WORDS))


def second_maps(step: int) -> list[np.ndarray]:
    return maps_of(step + 7, LAYERS, HEADS, len(WORDS))


def numbers_of(step: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(step)
    means = {
        "entropy": random.permutation(LAYERS * HEADS).reshape(LAYERS, HEADS) / 3 + 0.13,
        "previous": np.array([[0.75, 0.1, 0.2], [0.3, 0.41, np.nan]]),
    }
    return {name: (values, np.abs(values) / 50) for name, values in means.items()}


def two_texts() -> list[Text]:
    return [Text("probe_0", WORDS, " ".join(WORDS), "cats"), Text("probe_1", SHORT, "a film")]


def recorded(step: int, maps: list[np.ndarray]) -> Step:
    pooling = softmax(np.arange(len(WORDS)) / 3 + step / 100)
    likely = [np.array([0.25, 0.75]), np.array([0.5, 0.5])]
    both = [maps, maps_of(step + 1, LAYERS, HEADS, len(SHORT))]
    return Step(step, both, numbers_of(step), [pooling, None], likely, [3e-8, 2e-8])


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logdir = tmp_path_factory.mktemp("two_runs")
    options: dict[str, Any] = {"classes": ["dogs", "cats"], "notes": {"precision": "bf16-mixed"}}
    steps = [recorded(step, second_maps(step)) for step in [0, 90, 210]]
    write_run(logdir, "second", two_texts(), steps, **options)
    steps = [recorded(step, first_maps(step)) for step in STEPS]
    write_run(logdir, "first", two_texts(), steps, **options)
    broken = logdir / "unreadable" / "heads"
    broken.mkdir(parents=True)
    (broken / "index.json").write_text("{")
    return logdir


# --- the maps ---


def test_one_way_through_the_tab(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    check_every_head_is_drawn_as_it_was_recorded(tab)
    check_a_token_that_is_pointed_at_is_the_query_and_a_key_shows_who_attends_to_it(tab)
    check_a_lock_holds_the_query_until_escape(tab)
    check_the_pooling_and_the_prediction_are_shown(tab)


def check_every_head_is_drawn_as_it_was_recorded(tab: Tab) -> None:
    names = [f"layer {layer} head {head}" for layer in range(LAYERS) for head in range(HEADS)]
    assert [map_.get_attribute("aria-label") for map_ in tab.find(".grid .map").all()] == names
    maps = first_maps(200)
    for index in range(LAYERS * HEADS):
        expected = expected_pixels(maps[index // HEADS][index % HEADS])
        tab.looks(".grid .map canvas", expected, index)
    tab.choose(1, 2)
    tab.looks(".head .large", expected_pixels(maps[1][2]))
    tab.hover_cell(5, 1)
    tab.says(READOUT, "query 5 🐈 → key 1 猫")
    assert_close(tab.number(f"{READOUT} strong"), maps[1][2], 5, 1)


def check_a_token_that_is_pointed_at_is_the_query_and_a_key_shows_who_attends_to_it(
    tab: Tab,
) -> None:
    tab.choose(0, 1)
    tokens = tab.find(TOKENS).locator(".token")
    assert tokens.all_text_contents() == WORDS
    tokens.nth(2).hover()
    tab.says(READOUT, "query 2 は")
    tab.choose(0, 0)
    tab.find(".head .keys .label").nth(4).hover()
    tab.says(READOUT, "key 4 cat receives")
    weights = stored(first_maps(200)[0][0])
    assert tab.number(f"{READOUT} strong") == pytest.approx(weights[:, 4].mean(), abs=2e-3)


def check_a_lock_holds_the_query_until_escape(tab: Tab) -> None:
    tokens = tab.find(TOKENS).locator(".token")
    tokens.nth(3).click()
    tokens.nth(4).hover()
    tab.says(READOUT, "query 3 the → key 4 cat")
    tab.page.keyboard.press("Escape")
    tokens.nth(1).hover()
    tab.shows(f"{TOKENS} >> .token.query", "猫")
    tab.hover_cell(2, 6)
    tab.page.mouse.down()
    tab.page.mouse.up()
    tab.hover_cell(4, 0)
    tab.says(READOUT, "query 2 は → key 0 [CLS]")
    tab.find(".head h2").hover()
    tab.says(READOUT, "query 2 は → key 6 <0xE3>")
    tab.find("button >> text=Unlock").click()
    tab.expect("button >> text=Unlock").to_be_hidden()


def check_the_pooling_and_the_prediction_are_shown(tab: Tab) -> None:
    pooling = softmax(np.arange(len(WORDS)) / 3 + 2)
    titles = [token.get_attribute("title") for token in tab.find(".pooling .token").all()]
    shown = [float(title.split()[-1]) for title in titles]
    assert shown == pytest.approx(pooling.tolist(), abs=1e-3)
    tab.shows(".classes li", ["cats75.0 %", "dogs25.0 %"])
    tab.says(".facts-of-text", "Given label ✓ cats")
    tab.find(".choose-text").select_option("1")
    tab.shows(f"{TOKENS} >> .token", SHORT)
    tab.expect(".pooling").to_be_hidden()


# --- steps ---


def test_the_slider_changes_maps_and_numbers(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.shows(".kept", "3 of 3 recorded steps")
    tab.find("input[type=range]").focus()
    for key, step in [("Home", 0), ("ArrowRight", 100), ("End", 200), (",", 100), (".", 200)]:
        tab.page.keyboard.press(key)
        tab.drawn(step)
        tab.looks(".head .large", expected_pixels(first_maps(step)[0][0]))
        entropy = numbers_of(step)["entropy"][0][0, 0]
        tab.shows(".table td[data-column=entropy]", f"{entropy:.{2 if entropy >= 1 else 3}f}")
    name, content = tab.saved()
    assert name == "first_probe-0_step-200.html"
    assert content.startswith(b"<!DOCTYPE html>")
    assert b"probe_0, step 200" in content


@pytest.mark.slow
def test_new_steps_and_runs_appear_by_themselves(open_tab: Opener, tmp_path: Path) -> None:
    text = Text("t", SHORT, "a film")
    write_run(tmp_path, "mine", [text], [Step(0, [maps_of(0, 1, 2, 4)])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    write_run(tmp_path, "mine", [text], [Step(10, [maps_of(1, 1, 2, 4)])])
    write_run(tmp_path, "other", [text], [Step(5, [maps_of(2, 1, 2, 4)])])
    tab.refresh()
    tab.drawn(10)
    tab.shows(".kept", "2 of 2 recorded steps")
    tab.shows(".choose-run option", ["mine", "other"])


@pytest.mark.slow
def test_a_hidden_tab_asks_for_nothing(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.page.wait_for_load_state("networkidle")  # numbers may be under way still
    tab.page.evaluate("document.getElementById('tab').style.display = 'none'")
    tab.page.wait_for_timeout(600)  # it looks twice a second
    tab.server.asked.clear()
    tab.refresh()
    tab.page.wait_for_timeout(300)
    assert [path for path in tab.server.asked if "/plugin/" in path] == []
    tab.page.evaluate("document.getElementById('tab').style.display = ''")
    tab.has(lambda: any("/runs" in path for path in tab.server.asked), True)


# --- comparing ---


@pytest.mark.slow
def test_another_run_stands_beside_it(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.compare("second")
    tab.says(".other-head h2", "second · step 210")  # the nearest to 200
    tab.looks(".other-head .large", expected_pixels(second_maps(210)[0][0]))
    tab.hover_cell(3, 5)
    tab.says(READOUT, "key 5")
    tab.says(".other-head .readout", "key 5")
    assert_close(tab.number(f"{READOUT} strong"), first_maps(200)[0][0], 3, 5)
    assert_close(tab.number(".other-head .readout strong"), second_maps(210)[0][0], 3, 5)
    tab.press(",")
    tab.drawn(100)
    tab.says(".other-head h2", "second · step 90")
    tab.looks(".other-head .large", expected_pixels(second_maps(90)[0][0]))


@pytest.mark.slow
def test_a_run_without_the_text_cannot_be_compared(open_tab: Opener, tmp_path: Path) -> None:
    write_run(tmp_path, "b", [Text("t", SHORT[:3], "x")], [Step(0, [maps_of(0, 1, 2, 3)])])
    write_run(tmp_path, "a", [Text("t", SHORT, "x")], [Step(0, [maps_of(0, 1, 2, 4)])])
    tab = open_tab(tmp_path, "#p.heads.run=a")
    tab.drawn(0)
    tab.compare("b")
    tab.shows(".other-head .error", "b has recorded no text of the same tokens")
    tab.looks(".head .large", expected_pixels(maps_of(0, 1, 2, 4)[0][0]))


# --- what stands beside the maps ---


@pytest.mark.slow
def test_how_far_the_maps_are_from_what_the_model_computed(
    open_tab: Opener, tmp_path: Path
) -> None:
    steps = [recorded(step, first_maps(step)) for step in (0, 100)]
    write_run(tmp_path, "mine", two_texts(), steps)
    tab = open_tab(tmp_path)
    tab.drawn(100)
    tab.says(".trust", "times the values: 3.0e-8.")


# --- links ---


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
    tab.find(f"{TOKENS} >> .token >> nth=2").hover()
    tab.compare("first")
    heading = "first · step 100: layer 1 head 2"
    tab.shows(".other-head h2", heading)
    parts = ("run=second", "text=probe_1", "step=90", "layer=1", "head=2", "query=2")
    for part in (*parts, "compare=first", "at=nearest"):
        tab.page.wait_for_url(re.compile(rf"p\.heads\.{part}"))
    shown = pixels_of(tab, ".head .large")
    tab.reload(90)
    tab.shows(".other-head h2", heading)
    tab.shows(".head h2", "layer 1 head 2")
    tab.looks(".head .large", shown)
    tab.shows(READOUT, "query 2 film")


@pytest.mark.slow
def test_a_link_to_a_run_that_is_gone_says_so(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs, "#heads&p.heads.run=%3Cimg%20src%3Dx%3E")
    tab.drawn(200)
    tab.shows(".toolbar .error", "There is no run <img src=x> here: this is first.")


# --- what goes wrong, and what is hostile ---


def test_a_broken_step_shows_what_is_wrong_and_the_rest_works(
    open_tab: Opener, tmp_path: Path
) -> None:
    steps = [recorded(step, first_maps(step)) for step in STEPS]
    folder = write_run(tmp_path, "mine", two_texts(), steps)
    (folder / "step_000000000100.npz").write_bytes(b"PK no archive")
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.press(",")
    tab.says(".grid .error", "Step 100: run 'mine': step_000000000100.npz: cannot be read")
    tab.shows(".table .error", "The numbers of this step cannot be read.")  # not the same twice
    tab.expect(".head .map-scroll").to_be_hidden()
    tab.press(",")
    tab.drawn(0)
    tab.expect(".grid .error").to_be_hidden()
    tab.looks(".head .large", expected_pixels(first_maps(0)[0][0]))


@pytest.mark.parametrize("width", [400, 1280])
def test_hostile_text_is_shown_and_does_nothing(
    open_tab: Opener, tmp_path: Path, width: int
) -> None:
    name = HOSTILE[0]
    maps = maps_of(0, 1, 2, len(HOSTILE))
    means = np.array([[0.1, 0.2]])
    numbers = {name.replace("/", "_"): (means, means), "__proto__": (means, means)}
    step = Step(0, [maps], numbers, [maps[0][0][0]], [np.array([0.6, 0.4])])
    notes = {name: name * 50, "precision": name}
    segments = [0, 0, None, *[1] * (len(HOSTILE) - 3)] if width == 400 else None  # of a pair
    texts = [Text(name, HOSTILE, "\n".join(HOSTILE), name, segments)]
    write_run(tmp_path, "evil <b>&amp;", texts, [step], classes=[name, "\u202eb"], notes=notes)
    tab = open_tab(tmp_path, width=width)
    tab.drawn(0)
    shown = tab.find(f"{TOKENS} >> .token").all_text_contents()
    assert shown[:2] == HOSTILE[:2]
    assert shown[3:6] == ["'\"`", "a␀b", "<U+202E>gnp.exe"]
    assert shown[6] == "x" * 80 + "…"
    assert shown[9:14] == ["&lt;<U+2028><U+2029>", "␣", "∅", "⏎", "javascript:alert(1)"]
    tab.find(f"{TOKENS} >> .token >> nth=6").hover()
    tab.says(READOUT, "query 6")
    assert tab.find("img, svg, b").count() == 0
    assert tab.fits()
    assert not set("<>&/\\\0") & set(tab.saved()[0])


@pytest.mark.slow
def test_the_tab_is_dark_or_light_as_tensorboard_is(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs, "?dark", color_scheme="light")
    tab.drawn(200)
    for is_dark in (True, False):
        for selector in ["body", ".panel", ".toolbar", "thead th", ".head .label"]:

            def looks_dark(selector: str = selector) -> bool:
                read = "node => getComputedStyle(node).backgroundColor"
                color = tab.find(selector).first.evaluate(read)
                parts = [int(part) for part in re.findall(r"\d+", color)[:3]]
                return float(np.mean(parts)) < 128

            tab.has(looks_dark, is_dark)
        tab.page.evaluate("document.body.classList.toggle('dark-mode')")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "count"), [(400, 200), (1280, 7)])
def test_the_page_does_not_scroll_sideways(
    open_tab: Opener, tmp_path: Path, width: int, count: int
) -> None:
    text = Text("t", [f"token{n}" for n in range(count)], "t")
    means = np.zeros((3, 12))
    numbers = {f"measure_{n}": (means, means) for n in range(17)}
    steps = [Step(step, [maps_of(step, 3, 12, count)], numbers) for step in (0, 1)]
    for run in ("a", "a_run_with_quite_a_long_name_that_goes_on_and_on_version_0"):
        write_run(tmp_path, run, [text], steps)
    tab = open_tab(tmp_path, "#p.heads.run=a", width=width)
    tab.drawn(1)
    tab.find(".table tbody tr").first.wait_for()
    assert tab.fits()
    tab.find(".choose-other").select_option(index=2)
    tab.find(".other-head .large").first.wait_for()
    assert tab.fits()


@pytest.mark.slow
def test_a_long_text_is_shown_whole(open_tab: Opener, tmp_path: Path) -> None:
    count = 300
    maps = maps_of(3, 2, 2, count, 3.0)
    words = [f"t{n}" for n in range(count)]
    write_run(tmp_path, "mine", [Text("long", words, " ".join(words))], [Step(0, [maps])])
    tab = open_tab(tmp_path)
    tab.drawn(0)
    assert pixels_of(tab, ".head .large").shape == (300, 300, 3)
    assert pixels_of(tab, ".grid .map canvas", 3).shape == (300, 300, 3)
    tab.choose(1, 1)
    tab.find(f"{TOKENS} >> .token >> nth=5").hover()
    tab.says(READOUT, "query 5 t5")
    tab.find(f"{TOKENS} >> .token >> nth=5").click()
    tab.find(f"{TOKENS} >> .token >> nth=280").hover()
    tab.says(READOUT, "→ key 280 t280")


@pytest.mark.slow
def test_the_keyboard_reaches_heads_and_cells(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    tab.find(".grid .map[aria-checked=true]").focus()
    for key in ["ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowDown"]:  # the borders hold
        tab.page.keyboard.press(key)
    tab.shows(".head h2", "layer 1 head 1")
    tab.find(".head .large").focus()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"]:
        tab.page.keyboard.press(key)
    tab.says(READOUT, "query 1 猫 → key 1 猫")
    tab.expect("button >> text=Unlock").to_be_visible()
    tab.find(".help summary").click()
    tab.says(".help", "one step back and forward")


@pytest.mark.slow
def test_the_tab_opens_in_tensorboard_itself(browser: Any, tmp_path: Path) -> None:
    write_marker(tmp_path / "mine")
    write_run(tmp_path, "mine", two_texts(), [recorded(step, first_maps(step)) for step in STEPS])
    options = ["--logdir", str(tmp_path), "--port", "0", "--host", "127.0.0.1"]
    command = [sys.executable, "-m", "tensorboard.main", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        found = (re.search(r"http://\S+", line) for line in process.stdout)
        address = next(match[0] for match in found if match)
        with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            listing = f"{address}data/plugin/heads/runs"
            Tab(page, page, Server(address)).has(
                lambda: '"mine"' in context.request.get(listing).text(), True
            )
            page.goto(f"{address}#heads&p.heads.step=100&p.heads.layer=1&p.heads.head=1")
            for _ in range(2):  # the second time by a reload
                frame = page.wait_for_selector("iframe[src*=plugin_entry]").content_frame()
                tab = Tab(page, frame, Server(address))
                tab.drawn(100)
                tab.shows(".head h2", "layer 1 head 1")
                tab.looks(".head .large", expected_pixels(first_maps(100)[1][1]))
                page.wait_for_url(re.compile(r"p\.heads\.run=mine.*p\.heads\.step=100"))
                page.reload()
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


SVG = "http://www.w3.org/2000/svg"  # a namespace, which nobody fetches


def test_no_module_writes_markup_or_names_another_place() -> None:
    package = Path(__file__).parents[2] / "src/headscope"
    sources = sorted([*(package / "tab/static").iterdir(), *(package / "live/static").iterdir()])
    assert {"index.js", "heads.css"} < {path.name for path in sources}
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?:"
    for path in sources:
        source = path.read_text("utf-8").replace(SVG, "")
        assert not re.search(markup, source), path.name
        assert path.suffix == ".json" or max(map(len, source.splitlines())) <= 100, path.name
