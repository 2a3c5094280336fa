"""The Heads tab in a real browser: each assertion is about what the page shows."""

import csv
import hashlib
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answered import ANSWER, answered_run
from heads_browser import Opener, Tab, assert_close, expected_pixels, pixels_of
from heads_server import Server, maps_of, starting_tensorboard, write_run

from chromium import PATIENCE
from headscope.record.reader import read_step
from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from headscope.tab.summaries import write_marker
from records import step_arrays

LAYERS, HEADS = 2, 3  # all different from the number of tokens, so that a swapped axis cannot pass
WORDS = ["[CLS]", "猫", "は", "the", "cat", "🐈", "<0xE3>"]
SHORT = ["[CLS]", "a", "film", "[SEP]"]
STEPS = [0, 100, 200]
TOKENS = ".text .tokens >> nth=0"
READOUT = ".head .readout"
MATTERS = ".answer .matters"
JOB = "model.num_heads_1_model.num_layers_1_optimizer.learning_rate"  # of a sweep
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


def recorded(step: int, maps: list[np.ndarray]) -> dict[str, np.ndarray]:
    likely = [[0.25, 0.75], [0.5, 0.5]]
    both = [maps, maps_of(step + 1, LAYERS, HEADS, len(SHORT))]
    return step_arrays(both, numbers_of(step), probabilities=likely, check=[3e-8, 2e-8])


def first_steps() -> dict[int, dict[str, np.ndarray]]:
    return {step: recorded(step, first_maps(step)) for step in STEPS}


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logdir = tmp_path_factory.mktemp("two_runs")
    options: dict[str, Any] = {"classes": ["dogs", "cats"], "notes": {"precision": "bf16-mixed"}}
    steps = {step: recorded(step, second_maps(step)) for step in [0, 90, 210]}
    write_run(logdir, "second", two_texts(), steps, **options)
    write_run(logdir, "first", two_texts(), first_steps(), **options)
    broken = logdir / "unreadable" / "heads"
    broken.mkdir(parents=True)
    (broken / "index.json").write_text("{")
    return logdir


# --- the maps ---


def test_one_way_through_the_tab(open_tab: Opener, two_runs: Path) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    maps = first_maps(200)
    for layer, head in ((1, 2), (0, 1)):
        tab.choose(layer, head)
        tab.looks(".head .large", expected_pixels(maps[layer][head], *maps))
    tab.hover_cell(5, 1)
    tab.says(READOUT, "query 5 🐈 → key 1 猫")
    assert_close(tab.number(f"{READOUT} strong"), maps[0][1], 5, 1)
    tokens = tab.find(TOKENS).locator(".token")
    assert tokens.all_text_contents() == WORDS
    tokens.nth(2).hover()
    tab.shows(READOUT, "query 2 は")
    tab.find(".head .large").focus()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight"]:
        tab.page.keyboard.press(key)
    tab.says(READOUT, "query 3 the → key 1 猫")
    tab.shows(".classes li", ["cats75.0 %", "dogs25.0 %"])
    tab.says(".facts-of-text", "Given label ✓ cats")
    tab.says(".trust", "times the values: 3.0e-8.")
    tab.find(".choose-text").select_option("1")
    tab.shows(f"{TOKENS} >> .token", SHORT)
    tab.find(".help summary").click()
    tab.says(".help", "one step back and forward")

    # The table sorts by a number both ways and by head; heads without the number come last.
    heads = [f"layer {layer} head {head}" for layer in range(LAYERS) for head in range(HEADS)]
    values = numbers_of(200)["previous"][0].ravel()
    falling = sorted(range(5), key=lambda head: -values[head])
    orders = {"previous": [*falling, 5], "previous again": [*falling[::-1], 5], "head": range(6)}
    for column, order in orders.items():
        tab.find(f".table th[data-column={column.split()[0]}] button").click()
        tab.shows(".table tbody th", [heads[head] for head in order])
    # The slider changes maps and numbers.
    tab.choose(0, 0)
    tab.find(".choose-text").select_option("0")
    tab.shows(".kept", "3 of 3 recorded steps")
    tab.find("input[type=range]").focus()
    for key, step in [("Home", 0), ("ArrowRight", 100), ("End", 200), (",", 100), (".", 200)]:
        tab.page.keyboard.press(key)
        tab.drawn(step)
        tab.looks(".head .large", expected_pixels(first_maps(step)[0][0], *first_maps(step)))
        entropy = numbers_of(step)["entropy"][0][0, 0]
        shown = f"{entropy:.{2 if entropy >= 1 else 3}f} ±"
        tab.says(".table td[data-column=entropy]", shown)
    name, content = tab.saved()
    assert name == "first_probe-0_step-200.html"
    assert content.startswith(b"<!DOCTYPE html>")
    assert b"probe_0, step 200" in content


@pytest.mark.slow
def test_new_steps_and_runs_appear_by_themselves_while_somebody_looks(
    open_tab: Opener, tmp_path: Path
) -> None:
    text = Text("t", SHORT, "a film")
    write_run(tmp_path, "mine", [text], {0: step_arrays([maps_of(0, 1, 2, 4)])})
    tab = open_tab(tmp_path)
    tab.drawn(0)
    write_run(tmp_path, "mine", [text], {10: step_arrays([maps_of(1, 1, 2, 4)])})
    write_run(tmp_path, "other", [text], {5: step_arrays([maps_of(2, 1, 2, 4)])})
    tab.refresh()
    tab.drawn(10)
    tab.shows(".kept", "2 of 2 recorded steps")
    tab.shows(".choose-run option", ["mine", "other"])
    tab.page.wait_for_load_state("networkidle")
    tab.page.evaluate("document.getElementById('tab').style.display = 'none'")

    def asked() -> list[str]:
        tab.server.asked.clear()
        tab.refresh()
        tab.page.wait_for_timeout(700)  # it looks twice a second
        return [path for path in tab.server.asked if "/plugin/" in path]

    tab.has(asked, [])
    tab.page.evaluate("document.getElementById('tab').style.display = ''")
    tab.has(lambda: any("/runs" in path for path in tab.server.asked), True)


@pytest.mark.slow
def test_a_long_text_has_its_whole_map_with_labels_that_do_not_overlap(
    open_tab: Opener, tmp_path: Path
) -> None:
    count = 300
    words = [f"t{n}" for n in range(count)]
    step = step_arrays([maps_of(3, 2, 2, count)])
    write_run(tmp_path, "mine", [Text("long", words, " ".join(words))], {0: step})
    tab = open_tab(tmp_path)
    tab.drawn(0)
    tab.choose(1, 1)
    assert pixels_of(tab, ".head .large").shape == (300, 300)
    tab.find(f"{TOKENS} >> .token >> nth=280").hover()
    tab.says(READOUT, "query 280 t280")
    tab.shows(".head .queries .label.active", "t280")
    tops = tab.find(".head .queries .label").evaluate_all(
        "all => all.map(node => node.getBoundingClientRect().y)"
    )
    assert len(tops) > 15
    assert min(np.diff(tops)) >= 11.9
    assert tab.fits()


@pytest.mark.slow
def test_of_a_last_layer_the_row_that_is_read_is_the_map(open_tab: Opener, tmp_path: Path) -> None:
    count = 12
    words = ["a"] * (count - 2) + ["[SEP]", "[CLS]"]
    text = Text("t", words, "a", None, None, [count - 2, count - 1], count - 1)
    maps = maps_of(0, 2, 2, count)
    write_run(tmp_path, "mine", [text], {0: step_arrays([maps])})
    tab = open_tab(tmp_path)
    tab.drawn(0)
    tab.looks(".head .large", expected_pixels(maps[0][0], *maps))
    tab.choose(1, 0)
    tab.says(".head h2", "where [CLS] looks")
    tab.looks(".head .large", expected_pixels(maps[1][0][-1:], *maps))
    tab.says(".head .key", f"the other {count - 1} decide nothing")


# --- texts ---


@pytest.mark.slow
def test_two_texts_stand_apart_each_in_its_direction(open_tab: Opener, tmp_path: Path) -> None:
    words = ["[CLS]", "the", "cat", "[SEP]", "كان", "القط", "[SEP]"]
    text = Text("t", words, "the cat ⏐ كان القط", None, [None, 0, 0, None, 1, 1, None])
    write_run(tmp_path, "mine", [text], {0: step_arrays([maps_of(0, 1, 1, 7)])})
    tab = open_tab(tmp_path)
    tab.drawn(0)
    blocks = tab.find(TOKENS).locator(".block")
    assert [block.get_attribute("aria-label") for block in blocks.all()] == ["Text A", "Text B"]
    tokens = [block.locator(".token").all_text_contents() for block in blocks.all()]
    assert tokens == [words[:4], words[4:]]
    tab.shows(f"{TOKENS} >> .token.of-neither", ["[CLS]", "[SEP]", "[SEP]"])
    style = "all => all.map(node => getComputedStyle(node).borderInlineStartStyle)"
    assert blocks.evaluate_all(style) == ["solid", "double"]  # told without colour
    boxes = [token.bounding_box()["x"] for token in tab.find(TOKENS).locator(".token").all()]
    assert boxes[:4] == sorted(boxes[:4])
    assert boxes[4:] == sorted(boxes[4:], reverse=True)
    tab.find(TOKENS).locator(".token").nth(4).focus()
    tab.page.keyboard.press("ArrowLeft")  # on, in a text that runs to the left
    tab.says(READOUT, "query 5")


# --- comparing ---


@pytest.mark.slow
def test_arrows_move_along_a_row_another_run_stands_beside_it_and_a_link_opens_the_same_view(
    open_tab: Opener, two_runs: Path
) -> None:
    tab = open_tab(two_runs)
    tab.drawn(200)
    row = tab.find(TOKENS)
    assert row.locator(".token[tabindex='0']").count() == 1  # a row is one stop
    row.locator(".token").first.focus()
    moves = [("End", 6), ("ArrowRight", 6), ("ArrowLeft", 5), ("Home", 0), ("ArrowRight", 1)]
    for key, place in moves:
        tab.page.keyboard.press(key)
        tab.shows(".token:focus", WORDS[place])
    tab.shows(READOUT, "query 1 猫")
    tab.shows(f"{TOKENS} >> .token[tabindex='0']", ["猫"])
    tab.page.keyboard.press("Shift+Tab")
    tab.expect(".token:focus").to_have_count(0)
    tab.choose(1, 2)
    tab.compare("second")
    tab.says(".other-head h2", "second, step 210: layer 1 head 2")  # the nearest to 200
    both = [*first_maps(200), *second_maps(210)]  # on one scale
    tab.looks(".other-head .large", expected_pixels(second_maps(210)[1][2], *both))
    tab.hover_cell(3, 5)
    tab.says(".other-head .readout", "key 5")
    assert_close(tab.number(f"{READOUT} strong"), first_maps(200)[1][2], 3, 5)
    assert_close(tab.number(".other-head .readout strong"), second_maps(210)[1][2], 3, 5)
    tab.press(",")
    tab.drawn(100)
    tab.says(".other-head h2", "second, step 90")
    parts = ("run=first", "text=probe_0", "step=100", "layer=1", "head=2", "query=3")
    for part in (*parts, "compare=second", "at=nearest"):
        tab.page.wait_for_url(re.compile(rf"p\.heads\.{part}"))
    tab.reload(100)
    tab.says(".other-head h2", "second, step 90: layer 1 head 2")
    both = [*first_maps(100), *second_maps(90)]
    tab.looks(".head .large", expected_pixels(first_maps(100)[1][2], *both))
    tab.shows(READOUT, "query 3 the")


@pytest.mark.slow
def test_runs_of_other_tokens_or_classes_say_so_and_a_missing_run_too(
    open_tab: Opener, tmp_path: Path
) -> None:
    for run, words, classes in (("a", SHORT, "xy"), ("b", SHORT[:3], "xy"), ("c", SHORT, "xz")):
        step = step_arrays([maps_of(0, 1, 2, len(words))])
        write_run(tmp_path, run, [Text("t", words, "x")], {0: step}, classes=list(classes))
    tab = open_tab(tmp_path, "#heads&p.heads.run=%3Cimg%20src%3Dx%3E")
    tab.says(".toolbar .error", "There is no run <img src=x> here: this is")
    tab.find(".choose-run").select_option("a")
    tab.drawn(0)
    tab.compare("b")
    tab.shows(".text .error", "b has recorded no text of the same tokens")
    tab.compare("c")
    tab.shows(".text .error", "c has other classes")
    tab.looks(".head .large", expected_pixels(maps_of(0, 1, 2, 4)[0][0], *maps_of(0, 1, 2, 4)))


@pytest.mark.slow
def test_the_best_steps_of_two_runs_meet(open_tab: Opener, tmp_path: Path) -> None:
    answered_run(tmp_path / f"{JOB}-aaaa", heads=4, steps=(0, 30, 60, 90), kept=60)
    answered_run(tmp_path / f"{JOB}-bbbb", heads=2, steps=(0, 78, 156, 468), kept=468)
    tab = open_tab(tmp_path, f"#p.heads.run={JOB}-aaaa")
    tab.drawn(60)
    tab.compare(f"{JOB}-bbbb")
    tab.find(".head-name").first.click()
    tab.says(".other-head h2", "step 468")
    tab.says(".text .beside h3", "step 468")
    tab.choose(0, 3)
    tab.says(".other-head", "There is no head here.")
    tab.find(".choose-other").select_option("text")
    tab.says(".text .beside h3", "probe_1:")
    tab.page.wait_for_url(re.compile(r"p\.heads\.with=1"))


# --- the run's answer, numbers and words ---


@pytest.fixture
def finished(tmp_path: Path) -> HeadRecorder:
    """A run that has its answer at step 200, and words."""
    recorder = answered_run(tmp_path / "映画 評")
    (tmp_path / "映画 評" / "model.safetensors").touch()
    curve = [[1 - at / 100, at + 1, at + 1] for at in range(100)]
    known = {"accuracy_by_confidence": curve, "most_unknown": 0.1}
    (tmp_path / "映画 評" / "metrics.json").write_text(json.dumps(known))
    with (tmp_path / "映画 評" / "words.csv").open("w", encoding="utf-8", newline="") as file:
        names = ["class", "word", "mean", "interval", "n", "example", "layer 0 head 0"]
        lines = [
            ["good", "fine", 1.75, 0.25, 6, "'@ a fine day", 0.5],
            ["good", "awful", -2, 0.5, 5, "an awful day", 1],
        ]
        csv.writer(file).writerows([names, *lines, ["bad", HOSTILE[0], 1, "", 1, HOSTILE[0], 0]])
    return recorder


def test_the_tab_opens_with_the_best_step_and_what_the_run_says_of_its_heads(
    open_tab: Opener, tmp_path: Path, finished: HeadRecorder
) -> None:
    tab = open_tab(tmp_path, width=1366, height=768)
    tab.drawn(200)  # and not the last
    tab.shows(MATTERS, ANSWER)
    tab.says(".sure", "17 were right")
    tab.shows(".head-name >> nth=0", "layer 1 head 1")
    for part in (".prediction", ".text", ".card", ".answer-bar"):
        box = tab.find(part).first.bounding_box()
        assert box["y"] + box["height"] <= 768, part  # in sight
    effects = ["matters"] * 4 + ["inconclusive"] * 3 + ["no effect"]
    found = tab.find(".table td[data-column=effect]")
    tab.has(lambda: sorted(found.all_text_contents()), sorted(effects))
    cells = ["layer 1 head 1", "matters", "0.410 ±0.030", "no clear pattern"]
    shown = tab.find(".table tbody tr >> nth=0 >> th, td")
    tab.has(lambda: shown.all_inner_texts()[:4], cells)
    tab.find("summary >> text=Words that the run learned").wait_for()  # they come last
    tab.unfold()
    colours = {}
    for name in ("bad", "good"):
        tab.find(".choose-word-class").select_option(name)
        bar = tab.find(".word-lists .sum-bar:not(.less)").first
        colours[name] = bar.evaluate("node => getComputedStyle(node).backgroundColor")
    text_colour = tab.find(".predicted").evaluate("node => getComputedStyle(node).color")
    assert text_colour == colours[tab.text(".predicted .name")]  # a class has one colour
    assert len({*colours.values()}) == 2
    tab.shows(".word-lists table >> nth=0 >> tbody th", "fine")
    tab.says(".word-lists table >> nth=1", "−2.00±0.505an awful day")
    tab.says(".word-lists table >> nth=0", "6@ a fine day")  # without the quote of a csv
    tab.find(".choose-word-source").select_option("layer 0 head 0")
    tab.shows(".word-lists table >> nth=0 >> tbody th", ["awful", "fine"])
    tab.find(".choose-word-class").select_option("bad")
    tab.press(".")
    tab.drawn(300)
    tab.says(".sure", "not measured here")
    tab.says(MATTERS, "Heads were ablated at step 200")
    tab.says(".table .about", "heads were ablated at step 200")
    tab.find(".answer button >> text=Go to step 200").click()
    tab.drawn(200)
    assert tab.find("img").count() == 0


@pytest.mark.slow
def test_the_answer_is_text_and_orders_the_heads(
    open_tab: Opener, tmp_path: Path, finished: HeadRecorder
) -> None:
    order = [[0, 3], [1, 1], [0, 0], [1, 0], [0, 1], [0, 2], [1, 2], [1, 3]]
    extra = {
        "answer": np.array("On 9 other texts <b>layer 0 head 3</b> keeps 1 of 2 % (-1 to 2)."),
        "answer/details": np.array("256 texts: 80.1 % (75.0 to 84.4)"),
        "sets/heads": np.array(order, dtype=np.int32),
        "roles": np.full((2, 4), HOSTILE[0]),
    }
    finished.amend(200, extra)
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.shows(MATTERS, str(extra["answer"]).replace("-", "−"))
    tab.shows(".answer .details", str(extra["answer/details"]))
    tab.shows(".table tbody th >> nth=0", "layer 0 head 3")
    tab.says(".table td[data-column=role] >> nth=0", HOSTILE[0][:20])
    assert tab.find("img, b b").count() == 0


@pytest.mark.parametrize(
    ("size", "right", "changes", "verdict"),
    [
        (2, [20, 47, 50, 48], [[-0.7, -0.4], [-0.12, -0.009]], "2 of 8 heads alone: −6.0 points"),
        (2, [20, 47, 50, 48], [[-0.7, -0.4], [-0.12, 0.01]], "too few texts to tell what they"),
        (0, [49, 49, 50, 48], [[-0.1, -0.01], [-0.02, 0.01]], "The network without heads lose no"),
        (2, [48, 49, 50, 48], [[-0.1, 0.01], [-0.12, -0.009]], "Too few texts to tell whether"),
        (2, [50, 50, 50, 50], [[-0.01, 0.01], [-0.1, 0.1]], "Heads are not shown to help."),
        (2, [50, 49, 40, 48], [[0.1, 0.3], [0.1, 0.2]], "Heads lower the accuracy."),
    ],
)
def test_what_is_said_of_few_heads_is_what_their_intervals_show(
    open_tab: Opener,
    tmp_path: Path,
    finished: HeadRecorder,
    size: int,
    right: list[int],
    changes: list[list[float]],
    verdict: str,
) -> None:
    others = [[0.0, 0.0], [-0.1, 0.05]]
    extra = {
        "sets/heads": np.array([[at // 4, at % 4] for at in range(8)], np.int32),
        "sets/size": np.array(size, np.int32),
        "sets/texts": np.array(50, np.int32),
        "sets/accuracy": (np.array(right) / 50).astype(np.float32),
        "sets/changes": np.array([*changes, *others], np.float32),
    }
    finished.amend(200, extra)
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.says(MATTERS, verdict)
    bars = tab.find(".study li")
    shown = [f"{2 * number}.0 %".replace("100.0", "100") for number in right]
    expected = [shown[2], *([shown[1]] if size else []), shown[3], shown[0]]
    tab.has(lambda: bars.locator(".number").all_text_contents(), expected)
    low, high = (f"{100 * end:+.1f}".replace("-", "−") for end in changes[0])
    tab.says(".study li >> nth=-1", f"{low} to {high} points")


@pytest.mark.slow
def test_a_run_that_ends_shows_its_answer_unless_somebody_chose_a_step(
    open_tab: Opener, tmp_path: Path, finished: HeadRecorder
) -> None:
    finished.index.best = None
    finished.amend(300, {})
    tabs = [open_tab(tmp_path), open_tab(tmp_path)]
    for tab in tabs:
        tab.drawn(300)
        tab.says(MATTERS, "Heads were not ablated.")
        place = f"{tmp_path.name}/映画 評"  # whoever may look need not know all of the path
        command = f"headscope train 'resume=\"{place}\"' inspection.ablation_texts=800"
        tab.shows(".answer code", command)
    for step in (200, 100, 0):
        tabs[1].press(",")
        tabs[1].drawn(step)
    finished.index.best = 200
    finished.amend(200, {})
    tabs[1].says(".facts-of-text", "Nothing is learned yet: this is step 0.")
    expected = [(200, ANSWER), (0, "Heads were ablated at step 200")]
    for tab, (step, words) in zip(tabs, expected, strict=True):
        tab.refresh()
        tab.says(MATTERS, words)
        tab.drawn(step)


@pytest.mark.slow
def test_a_run_that_trains_says_so_is_followed_and_another_is_offered(
    open_tab: Opener, tmp_path: Path
) -> None:
    first = answered_run(tmp_path / "first", steps=(0, 100))
    first.index.best = None
    first.index.total = 934
    first.amend(100, {})
    tab = open_tab(tmp_path)
    tab.drawn(100)
    tab.says(".steps", "training, step 100 of 934")
    tab.says(MATTERS, "it still trains")
    assert tab.find(".answer code").count() == 0  # no command for a run that trains
    tab.press(",")
    tab.drawn(0)
    tab.find(".steps button >> text=Follow").click()
    tab.drawn(100)
    tab.expect(".steps button >> text=Follow").to_have_count(0)
    first.write(200, read_step(first.folder / first.index.steps[-1].file))
    tab.refresh()
    tab.drawn(200)
    tab.says(".steps", "training, step 200 of 934")
    second = answered_run(tmp_path / "second", steps=(0, 7), kept=7)
    second.index.best = None
    second.index.total = 50
    second.amend(7, {})
    tab.refresh()
    tab.find(".toolbar button >> text=● second is training, step 7 of 50").click()
    tab.drawn(7)
    tab.says(".steps", "training, step 7 of 50")
    (tmp_path / "second" / "model.safetensors").touch()
    tab.refresh()
    tab.expect(".training").to_have_count(0)


# --- what goes wrong, and what is hostile ---


def test_a_broken_step_shows_what_is_wrong_and_the_rest_works(
    open_tab: Opener, tmp_path: Path
) -> None:
    folder = write_run(tmp_path, "mine", two_texts(), first_steps())
    (folder / "step_000000000100.npz").write_bytes(b"PK no archive")
    tab = open_tab(tmp_path)
    tab.drawn(200)
    tab.press(",")
    tab.says(".text .error", "Step 100: run 'mine': step_000000000100.npz: cannot be read")
    tab.shows(".table .error", "The numbers of this step cannot be read.")  # not the same twice
    tab.press(",")
    tab.drawn(0)
    tab.expect(".text .error").to_have_count(0)
    tab.looks(".head .large", expected_pixels(first_maps(0)[0][0], *first_maps(0)))
    tab.page.route("**/maps?*", lambda route: route.abort())
    tab.press(".")
    tab.press(".")
    tab.says(".text .error", "Step 200: maps: TensorBoard does not answer")
    tab.page.unroute("**/maps?*")
    tab.refresh()
    tab.drawn(200)


def test_hostile_text_is_shown_and_does_nothing(open_tab: Opener, tmp_path: Path) -> None:
    name = HOSTILE[0]
    maps = maps_of(0, 1, 2, len(HOSTILE))
    means = np.array([[0.1, 0.2]])
    numbers = {name.replace("/", "_"): (means, means), "__proto__": (means, means)}
    step = step_arrays([maps], numbers, probabilities=[[0.6, 0.4]])
    notes = {name: name * 50, "precision": name}
    segments = [0, 0, None, *[1] * (len(HOSTILE) - 3)]  # of a pair
    texts = [Text(name, HOSTILE, "\n".join(HOSTILE), name, segments)]
    write_run(tmp_path, "evil <b>&amp;", texts, {0: step}, classes=[name, "\u202eb"], notes=notes)
    tab = open_tab(tmp_path, width=400)
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


LOADERS = ["false", "true"] if find_spec("tensorboard_data_server") else ["false"]


@pytest.mark.slow
@pytest.mark.parametrize("load_fast", LOADERS)
def test_the_tab_opens_in_tensorboard_itself(browser: Any, tmp_path: Path, load_fast: str) -> None:
    for run in ("mine", "deep/日本"):
        write_marker(tmp_path / run)
        write_run(tmp_path, run, two_texts(), first_steps())
    starting = starting_tensorboard(tmp_path, f"--load_fast={load_fast}")
    with starting as board, browser.new_context() as context:
        board.until("plugin/heads/runs", lambda answer: len(answer.json()["runs"]) == 2)
        assert {run["run"] for run in board.get("plugin/heads/runs").json()["runs"]} == {
            "mine",
            "deep/日本",
        }
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(
            f"{board.url}#heads&p.heads.run=mine&p.heads.step=100&p.heads.layer=1&p.heads.head=1"
        )
        for _ in range(2):  # the second time by a reload
            frame = page.wait_for_selector("iframe[src*=plugin_entry]").content_frame()
            tab = Tab(page, frame, Server(board.url))
            tab.drawn(100)
            tab.shows(".head h2", "layer 1 head 1")
            tab.looks(".head .large", expected_pixels(first_maps(100)[1][1], *first_maps(100)))
            page.wait_for_url(re.compile(r"p\.heads\.run=mine.*p\.heads\.step=100"))
            page.reload()


SVG = "http://www.w3.org/2000/svg"  # a namespace, which nobody fetches
LIBRARY = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"


def test_no_module_writes_markup_or_names_another_place_and_the_library_is_that_of_the_registry() -> (
    None
):
    package = Path(__file__).parents[2] / "src/headscope"
    sources = sorted([*(package / "tab/static").iterdir(), *(package / "pages/static").iterdir()])
    assert {"index.js", "heads.css"} < {path.name for path in sources}
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?:"
    for path in sources:
        source = path.read_text("utf-8").replace(SVG, "")
        if path.stem == "preact":
            continue
        assert not re.search(markup, source), path.name
        assert path.suffix == ".json" or max(map(len, source.splitlines())) <= 104, path.name
    _, _, library = (package / "tab/static/preact.js").read_bytes().partition(b"\n")
    assert hashlib.sha256(library).hexdigest() == LIBRARY
