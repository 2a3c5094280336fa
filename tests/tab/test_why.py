"""The first screen: the prediction, the words, the bar, heads and words, and that all of it adds up."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explained import CLASSES, WORDS, explained, numbers, texts_in
from heads_browser import Opener
from heads_server import write_run

from chromium import colours_of, contrast
from headscope.runs.abstaining import accuracy_curve
from headscope.tab.html import bundled
from records import step_arrays

SUM = ".text .sum"


def test_words_bar_heads_and_biases_add_up_to_the_log_odds_as_they_are_shown(open_why: Any) -> None:
    text, parts = explained(WORDS, "a proprietary film.", layers=2, heads=3)
    shares = np.sort(text.arrays["probabilities"])[::-1]
    tab = open_why(text)
    total = numbers(tab.locator(SUM).inner_text())
    assert total[-1] == pytest.approx(np.log(shares[0] / shares[1]), abs=0.006)
    assert sum(total[:-1]) == pytest.approx(total[-1], abs=1e-9)
    toward = {name: part[..., 0] - part[..., 1] for name, part in parts.items()}
    words = toward["words"]
    by_word = [*words[:2], words[2:4].sum(), *words[4:]]
    titles = tab.locator(".text .token").evaluate_all("all => all.map(it => it.title)")
    shown = {title.rsplit(" ", 1)[0]: numbers(title)[-1] for title in titles}
    assert [*shown.values()] == pytest.approx(by_word, abs=0.011)
    rows = [numbers(row) for row in texts_in(tab, ".cells-table tbody tr")]
    *columns, of_all = numbers(texts_in(tab, ".cells-table tfoot tr")[-1])
    assert [sum(row[:-1]) for row in rows] == pytest.approx([row[-1] for row in rows])
    cells = np.array([row[:-1] for row in rows])
    assert cells.sum(axis=0) == pytest.approx(columns)
    assert sum(columns) == pytest.approx(of_all) == pytest.approx(total[-1])
    heads = (toward["heads"].sum(-1) + toward["head_biases"]).ravel()  # of all layers
    sums = [*sorted(heads, key=lambda value: -abs(value)), toward["past"].sum()]
    sums[-1] += toward["past_biases"]
    assert [row[-1] for row in rows] == pytest.approx(sums, abs=0.016)
    header = texts_in(tab, ".cells-table thead th bdi")
    assert [shown[word] for word in header] == pytest.approx(columns[: len(header)])
    tab.locator(".choose-unit").select_option("token")
    assert texts_in(tab, ".text .token bdi") == WORDS


def test_rounded_numbers_add_up_whatever_they_are(browser: Any) -> None:
    random = np.random.default_rng(0)
    with browser.new_context() as context:
        tab = context.new_page()
        tab.evaluate(f"{bundled('rounding.js')};window.modules = modules;0")
        for size in range(1, 40):
            values = random.normal(size=size) * random.choice([0.004, 0.1, 3.0])
            given = [values.tolist(), values.sum()]
            shown = np.array(tab.evaluate("given => modules.rounding.roundedTo(...given)", given))
            assert shown.sum() == pytest.approx(round(values.sum(), 2))
            assert np.abs(shown - values).max() < 0.01
            assert shown == pytest.approx(shown.round(2))


def test_the_two_classes_are_chosen_and_held_and_the_likeliest_are_offered(open_why: Any) -> None:
    text, parts = explained(WORDS, "a proprietary film.", label="bad")
    order = text.arrays["contributions/classes"]
    first, second, third = (CLASSES[place] for place in order)
    tab = open_why(text, explained(WORDS, "a proprietary film.", seed=3)[0])
    assert tab.locator(".predicted .name").inner_text() == first
    assert tab.locator(".predicted.for").count() == 1
    assert tab.locator(".offer").is_hidden()
    odds = np.exp(abs(numbers(tab.locator(".odds").inner_text())[0]))
    shown = re.findall(r"log-odds, ([\d.,]+) to 1 for (\w+)$", tab.locator(".odds").inner_text())
    assert float(shown[0][0].replace(",", "")) == pytest.approx(odds, rel=0.06)
    assert shown[0][1] == first
    tab.locator(".choose-asked").select_option(str(order[2]))
    assert texts_in(tab, f"{SUM} .class-name") == [third, second]
    assert texts_in(tab, ".offer")[0].startswith(
        f"Explained below: {third} over {second}, not {first}"
    )
    assert tab.locator(".offer .primary").count() == 1
    assert tab.locator(".odds").inner_text().endswith(f" to 1 for {second}")
    assert numbers(tab.locator(SUM).inner_text())[-1] == pytest.approx(
        (parts["log_odds"][2] - parts["log_odds"][1]), abs=0.006
    )
    assert tab.locator(".predicted .name").inner_text() == first  # whatever is asked
    assert tab.locator(".predicted:is(.for, .against)").count() == 0
    tab.locator(".choose-against").select_option(str(order[2]))  # they change places
    assert texts_in(tab, f"{SUM} .class-name") == [second, third]
    tab.locator(".choose-unit").select_option("token")
    assert texts_in(tab, f"{SUM} .class-name") == [second, third]
    tab.locator(".offer button").click()
    assert texts_in(tab, f"{SUM} .class-name") == [first, second]
    assert tab.locator(".offer").is_hidden()
    tab.locator(".choose-asked").select_option(str(order[2]))
    tab.locator(".choose-text").select_option("1")  # another text has its own likeliest classes
    tab.locator(".offer >> text=Back to").click()
    assert texts_in(tab, f"{SUM} .class-name") == [third, second]
    tab.locator(".choose-text").select_option("0")
    assert "Given label" in tab.locator(".facts-of-text").inner_text()
    heard = tab.locator(".prediction [aria-live=polite]")
    heard.get_by_text(first).wait_for(state="attached")  # once nothing is typed
    assert tab.locator("[aria-live], [role=status]").count() <= 5


@pytest.mark.slow
def test_one_of_several_labels_is_against_its_absence(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=3, heads=12, several=True)
    likeliest = text.arrays["probabilities"].max()
    tab = open_why(text)
    assert "over its absence" in tab.locator(".question").inner_text()
    total = numbers(tab.locator(SUM).inner_text())
    assert total[-1] == pytest.approx(np.log(likeliest / (1 - likeliest)), abs=0.006)
    rows = tab.locator(".cells-table tbody tr")
    assert 1 < rows.count() <= 10 + 2  # nine tenths of the sum, the other heads, past all
    others = rows.count() - 2
    assert f"{36 - others} other heads" in tab.locator(".cells-table").inner_text()
    sums = [numbers(row)[-1] for row in texts_in(tab, ".cells-table tbody tr")]
    assert sum(sums) == pytest.approx(total[-1])
    tab.get_by_text("All heads and words").click()
    assert rows.count() == 36 + 1
    assert rows.first.locator("td").count() == 4 + 2 + 1  # words, ends, biases, sum
    assert tab.locator(".wall-cell").count() == 36
    tab.locator(".wall-cell >> nth=14").click()
    assert tab.locator(".head h2").inner_text().startswith("layer 1 head 2")


def test_a_word_that_is_pointed_at_is_lit_everywhere(open_why: Any) -> None:
    tab = open_why(explained(["[CLS]", "so", "very", "so", "[SEP]"], "so very so")[0])
    lit = "all => all.map(it => it.querySelector('bdi')?.textContent ?? it.tagName)"
    tab.locator(".text .token >> nth=2").hover()
    for part, count in ((".text .token", 1), (".cells-table th", 1)):
        assert tab.locator(f"{part}.lit").evaluate_all(lit) == ["very"] * count
    assert tab.locator(".cells-table td.lit").count() == 4  # two heads, past them, and the word
    tab.locator(".cells-table th >> text=so").first.hover()
    assert texts_in(tab, ".cells-table th.lit") == ["so ×2"]
    tab.locator(".prediction").hover()
    assert tab.locator(".lit").count() == 0
    tab.locator(".text .token >> nth=2").focus()
    assert texts_in(tab, ".cells-table th.lit") == ["very"]
    tab.keyboard.press("ArrowRight")
    assert texts_in(tab, ".cells-table th.lit") == ["so ×2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sentence", "lang", "direction"),
    [("吾輩は|猫である。|名前は|まだ|無い。", "ja", "ltr"), ("هذا فيلم رائع", "ar", "rtl")],
)
def test_a_text_reads_as_it_is_written(
    open_why: Any, sentence: str, lang: str, direction: str
) -> None:
    names = sentence.split("|") if lang == "ja" else ()
    sentence = sentence.replace("|", "")
    pieces = [*sentence] if lang == "ja" else sentence.split()
    text, _ = explained(["[CLS]", *pieces, "[SEP]"], sentence, names=names)
    tab = open_why(text, width=390)
    row = tab.locator(".text .tokens >> nth=0")
    assert (row.get_attribute("lang"), row.get_attribute("dir")) == (lang, direction)
    assert row.locator("small:not([dir=ltr])").count() == 0  # +3.6, and not 3.6+
    words = row.locator("bdi").all_text_contents()[1:-1]
    if lang == "ja":
        assert len(words) < len(pieces)
        assert "".join(words) == sentence
        assert row.locator(".glued").count() == len(words) - 1
    assert tab.evaluate("document.documentElement.lang") == "en"
    assert tab.locator(".cells-table").get_attribute("lang") == lang
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_was_not_read_and_an_empty_text_are_said_and_an_emoji_is_one_word(
    open_why: Any,
) -> None:
    emoji = "👩\u200d🚀"
    cut, _ = explained(
        ["[CLS]", "👩", "🚀", "is", "[SEP]"], f"{emoji} is not read to its end", names=[emoji, "is"]
    )
    tab = open_why(cut, explained(["[CLS]", "[SEP]"], "")[0])
    assert texts_in(tab, ".text .token bdi")[1:3] == [emoji, "is"]
    assert "5 of 6 words are not read." in tab.locator(".facts-of-text .warns").inner_text()
    tab.locator(".choose-text").select_option("1")
    tab.locator(".facts-of-text >> text=The text is empty").wait_for()
    assert tab.locator(".predicted").inner_text().strip() == "No verdict"
    assert (
        "What it says without words (its class prior):"
        in tab.locator(".facts-of-text").inner_text()
    )


def test_a_head_unfolds_its_map_and_a_key_moves_in_it(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=2, heads=3)
    tab = open_why(text)
    assert tab.locator(".strips .thumbnail.strip").count() == 6  # the answer's row of each head
    for place in (3, 0):
        name = tab.locator(".head-name").nth(place)
        name.click()
        assert name.get_attribute("aria-expanded") == "true"
        assert tab.locator(".head h2").inner_text().startswith(name.inner_text())
    layer, head = map(int, re.findall(r"\d+", name.inner_text()))
    weights = text.arrays[f"layer_{layer}/weights"][head]
    readout = tab.locator(".head .readout")
    tab.locator(".head .large").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    readout.get_by_text("key 1").wait_for()
    shown = float(readout.locator("strong").inner_text())
    assert shown == pytest.approx(weights[0, 1], abs=5.1e-4)
    tab.locator(".choose-mode").select_option("passes")
    passed = text.arrays["contributions/maps"][layer, head, 0, 1]
    assert numbers(readout.inner_text())[-1] == pytest.approx(passed, abs=0.006)
    tab.locator(".head .large").press("Escape")
    assert tab.locator(".head .large").count() == 0


def weights_like(answer: list[float], others: list[float]) -> np.ndarray:
    """Return a map [7, 7] whose first row is the answer's, and all others alike."""
    return np.array([answer, *[others] * 6], np.float32)


def test_what_a_head_looks_at_is_what_its_row_shows(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=2, heads=3)
    even, sink = [1 / 7] * 7, [0.88, *[0.02] * 6]
    last = [0.02] * 6 + [0.88]
    word = [0.05, 0.05, 0.4, 0.3, 0.1, 0.05, 0.05]  # of two tokens
    maps = np.stack([weights_like(word, sink), weights_like(even, even), weights_like(last, word)])
    text.arrays["layer_0/weights"] = maps
    text.arrays["layer_1/weights"] = maps
    tab = open_why(text)
    looks = {}
    for node in tab.locator(".node.head").all():
        node.click()
        said = tab.locator(".card p").first.inner_text().removesuffix(".")
        looks[tab.locator(".card h2").inner_text()] = said.partition("It looks at ")[2]
    assert looks["layer 0 head 0"].startswith("proprietary: 70.0 % of its attention")
    assert looks["layer 0 head 1"] == looks["layer 1 head 1"] == "all tokens nearly alike"
    assert looks["layer 0 head 2"].startswith("[SEP]: 88.0 %")
    assert looks["layer 1 head 0"].startswith("the place of proprietary: ")  # words are mixed below
    tab.locator(".head-name >> text=layer 0 head 0").click()
    caption = tab.locator(".head .caption")
    assert caption.inner_text() == "for the answer: proprietary; else: [CLS]"
    short, _ = explained(["[CLS]", "GPL", "[SEP]"], "GPL")  # twice an even share cannot be reached
    short.arrays["layer_0/weights"][:, 0] = [[0.3, 0.66, 0.04]] * 2
    assert "looks at GPL: 66.0 %" in open_why(short).locator(".card p").first.inner_text()


def test_a_head_whose_absence_contradicts_its_sum_is_marked(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", heads=3)
    asked = text.arrays["contributions/classes"][0]
    share = text.arrays["probabilities"][asked]
    without = np.tile(text.arrays["probabilities"], (1, 3, 1))
    without[0, :, asked] += [0.028, -0.028, 0.004]
    text.arrays["without/heads"] = without
    tab = open_why(text)
    for row in tab.locator(".cells-table tbody tr:has(.head-name)").all():
        number = int(row.locator(".head-name").inner_text().split()[-1])
        said = row.locator(".without").inner_text()
        change = 100 * (float(without[0, number, asked]) - float(share))
        assert f"without it {change:+.1f}".replace("-", "−") in said
        brought = numbers(row.locator(".sum-of").inner_text())[0]
        is_marked = abs(change) >= 0.5 and abs(brought) >= 0.1 and change * brought > 0
        assert ("others take over" in said) == is_marked


def test_ends_and_biases_that_may_cancel_have_columns_of_their_own(open_why: Any) -> None:
    tab = open_why(explained(WORDS, "a proprietary film.")[0])
    names = texts_in(tab, ".cells-table thead th.others")
    assert [name.strip() for name in names] == ["ends", "biases"]


PAINTS = """() => {
  const own = CanvasRenderingContext2D.prototype;
  const paint = own.putImageData;
  window.paints = 0;
  own.putImageData = function (...values) { window.paints += 1; return paint.apply(this, values); };
}"""


def test_a_word_that_is_pointed_at_repaints_no_map(open_why: Any) -> None:
    tab = open_why(explained(WORDS, "a proprietary film.", layers=3, heads=12)[0])
    tab.evaluate(PAINTS)
    for place in (1, 2, 3):
        tab.locator(".text .token").nth(place).hover()
        assert tab.locator(".text .token.lit").count() == 1
    assert tab.evaluate("window.paints") == 0
    tab.locator(".wall-cell").first.click()
    assert tab.evaluate("window.paints") > 0


def test_all_maps_of_a_text_have_one_scale(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=2, heads=3)
    tab = open_why(text)
    most = max(text.arrays[f"layer_{layer}/weights"].max() for layer in (0, 1))
    assert f"{most:.3f}" in tab.locator(".card .scale").inner_text()
    for strip in tab.locator(".strip-of").all():
        layer, head = map(int, re.findall(r"layer (\d) head (\d)", strip.get_attribute("title"))[0])
        weights = text.arrays[f"layer_{layer}/weights"][head]
        strength = colours_of(strip.locator("canvas"))[..., 3]
        expected = 255 * np.sqrt(weights[:1] / most)
        np.testing.assert_allclose(strength, expected, atol=0.51)


def test_of_two_classes_each_has_its_colour_whichever_is_predicted(open_why: Any) -> None:
    texts = [explained(WORDS, "a proprietary film.", seed=seed, classes=2)[0] for seed in range(8)]
    tab = open_why(*texts)
    colours: dict[str, set[str]] = {}
    for number in range(len(texts)):
        tab.locator(".choose-text").select_option(str(number))
        shares = texts[number].arrays["probabilities"]
        tab.get_by_text(f"{100 * shares.max():.1f} %").first.wait_for()
        name = tab.locator(".predicted .name").inner_text()
        read = "node => getComputedStyle(node).color"
        colours.setdefault(name, set()).add(tab.locator(".predicted").evaluate(read))
    assert sorted(colours) == CLASSES[:2]
    assert [len(of) for of in colours.values()] == [1, 1]
    assert colours["bad"] != colours["good"]


def test_what_is_compared_is_explained_between_the_classes_that_changed(open_why: Any) -> None:
    texts = [explained(WORDS, "a proprietary film.", seed=seed) for seed in range(9)]
    predicted = [parts["log_odds"].argmax() for _, parts in texts]
    assert predicted == [0] * len(texts)  # of each text the first of its own order
    names = [CLASSES[text.arrays["contributions/classes"][0]] for text, _ in texts]
    other = next(number for number, name in enumerate(names) if name != names[0])
    tab = open_why(texts[0][0], texts[other][0])
    tab.locator(".choose-other").select_option("text")
    tab.get_by_text(f"What turned {names[other]} into {names[0]}").wait_for()
    assert texts_in(tab, f"{SUM} .class-name") == [names[other], names[0]]  # before, now
    changes = numbers(tab.locator(".changes").inner_text())
    assert sum(changes[:-1]) == pytest.approx(changes[-1])
    of_heads = numbers(tab.locator(".heads-changed").inner_text())  # which changed its mind
    assert sum(of_heads) == pytest.approx(changes[-1])
    assert "head 0" in tab.locator(".heads-changed").inner_text()
    order = [list(text.arrays["contributions/classes"]) for text, _ in (texts[0], texts[other])]
    pair = [CLASSES.index(names[other]), CLASSES.index(names[0])]
    odds = [
        parts["log_odds"][own.index(pair[0])] - parts["log_odds"][own.index(pair[1])]
        for own, (_, parts) in zip(order, (texts[0], texts[other]), strict=True)
    ]
    assert changes[-1] == pytest.approx(odds[0] - odds[1], abs=0.011)
    tab.locator(".choose-asked").select_option(str(pair[1]))  # whoever chooses is asked no more
    assert texts_in(tab, f"{SUM} .class-name") == [names[0], names[other]]


def test_how_sure_is_what_was_right_of_the_texts_nearest_in_confidence(browser: Any) -> None:
    random = np.random.default_rng(0)
    confidence = np.sort(random.uniform(0.3, 1, 2000))[::-1]
    is_right = random.uniform(size=2000) < confidence
    curve = accuracy_curve(confidence, is_right)
    with browser.new_context() as context:
        tab = context.new_page()
        tab.evaluate(f"{bundled('prediction.js')};window.modules = modules;0")
        for share in (0.35, 0.5, 0.75, 0.99, 0.05):
            found = tab.evaluate(
                "given => modules.prediction.nearestTexts(...given)", [curve, share]
            )
            near = np.argsort(np.abs(confidence - share), kind="stable")[: found["texts"]]
            near = near[np.abs(confidence[near] - share) <= 0.1]
            assert found["texts"] == (0 if share == 0.05 else pytest.approx(60, abs=4))
            assert found["right"] == pytest.approx(is_right[near].sum(), abs=4)


PAINTED = """node => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const ground = paint(getComputedStyle(node.closest(".panel")).backgroundColor);
  return [ground, paint(getComputedStyle(node).backgroundColor), paint(getComputedStyle(node).color)];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_can_be_seen_and_stay_on_paper_and_in_forced_colours(
    open_why: Any, scheme: str
) -> None:
    tab = open_why(explained(WORDS, "a proprietary film.", seed=3)[0], color_scheme=scheme)
    for selector in (".text .token", ".cell", ".node.head", ".answer-bar"):
        for node in tab.locator(selector).all():
            _, *colors = node.evaluate(PAINTED)
            assert contrast(*colors) >= 4.5, selector
    for mark in (".node[aria-pressed='true']", ".answer-bar", ".sum-bar"):
        ground, color, _ = tab.locator(mark).first.evaluate(PAINTED)
        assert contrast(ground, color) >= 3, mark
    for media in ({"forced_colors": "active"}, {"forced_colors": "none", "media": "print"}):
        tab.emulate_media(**media)
        for selector in (".text .token[style*='1.000']", ".node.head", ".sum-bar"):
            ground, color, _ = tab.locator(selector).first.evaluate(PAINTED)
            assert contrast(ground, color) > 1.5, (media, selector)
    paper = tab.locator(".panel.text").evaluate("it => getComputedStyle(it).backgroundColor")
    assert paper == "rgb(255, 255, 255)"  # whatever the scheme


@pytest.mark.slow
def test_the_words_move_with_the_slider_and_the_classes_do_not(
    open_tab: Opener, tmp_path: Path
) -> None:
    steps, odds, pair = {}, [], []
    for step in (0, 8):
        text, _ = explained(WORDS, "a proprietary film.", seed=step)
        parts = {name: array for name, array in text.arrays.items() if "contributions" in name}
        extra = {f"text_0/{name}": array for name, array in parts.items()}
        shares = text.arrays["probabilities"]
        maps = [[text.arrays["layer_0/weights"]]]
        steps[step] = step_arrays(maps, extra=extra, probabilities=[shares])
        pair = text.arrays["contributions/shown"].tolist()
        odds.append(np.log(shares))
    write_run(tmp_path, "mine", [text.text], steps, classes=CLASSES)
    tab = open_tab(tmp_path)
    for step, own in ((8, odds[1]), (0, odds[0])):
        tab.drawn(step)
        shown = numbers(tab.text(SUM))[-1]
        assert shown == pytest.approx(own[pair[0]] - own[pair[1]], abs=0.006)
        tab.press(",")
    tab.says(".offer", "Explained below")


@pytest.mark.slow
def test_of_two_classes_the_likelier_one_is_explained_at_every_step(
    open_tab: Opener, tmp_path: Path
) -> None:
    texts = [explained(WORDS, "a proprietary film.", seed=seed, classes=2)[0] for seed in range(9)]
    first = [text.arrays["probabilities"].argmax() for text in texts]
    both = [first.index(0), first.index(1)]
    steps = {}
    for step, number in enumerate(both):
        arrays = texts[number].arrays
        extra = {f"text_0/{name}": array for name, array in arrays.items() if "contrib" in name}
        likely = arrays["probabilities"]
        steps[step] = step_arrays(
            [[arrays["layer_0/weights"]]], extra=extra, probabilities=[likely]
        )
    write_run(tmp_path, "mine", [texts[0].text], steps, classes=CLASSES[:2])
    tab = open_tab(tmp_path)
    for step, names in ((1, ["good", "bad"]), (0, ["bad", "good"])):
        tab.drawn(step)
        tab.shows(f"{SUM} .class-name", names)
        assert numbers(tab.text(SUM))[-1] > 0
        assert tab.find(".offer").is_hidden()
        tab.press(",")


def test_in_japanese_layers_and_heads_have_the_numbers_of_the_terminal(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=2, heads=3)
    tab = open_why(text, locale="ja-JP")
    assert tab.evaluate("document.documentElement.lang") == "ja"
    names = " ".join(texts_in(tab, ".cells-table th"))
    assert "層0 ヘッド" in names
    assert "層1 ヘッド2" in names
    assert "層2" not in names
