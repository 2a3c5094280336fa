"""The first screen: the prediction, the words, the bar, heads and words, and that all of it adds up."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heads_browser import Opener
from heads_server import maps_of, write_run

from chromium import PageOpener, contrast
from headscope.record.schema import PageText, Text
from headscope.tab.html import bundled, texts_page
from records import step_arrays

CLASSES = ["bad", "good", "mixed"]
WORDS = ["[CLS]", "a", "proprie", "tary", "film", ".", "[SEP]"]  # a word of two tokens
SUM = ".adds-up .sum"


def explained(
    words: list[str],
    text: str,
    layers: int = 1,
    heads: int = 2,
    several: bool = False,
    seed: int = 0,
    label: str | None = None,
) -> tuple[PageText, dict[str, np.ndarray]]:
    """Return a text whose logits are the sums of its contributions, and these."""
    random = np.random.default_rng(seed)
    T, C = len(words), 3
    parts = {"words": random.normal(size=(T, C)), "biases": random.normal(size=(layers + 1, C))}
    logits = parts["words"].sum(0) + parts["biases"].sum(0)
    parts["heads"] = random.normal(size=(layers, heads, T, C)) / heads
    through = parts["heads"].sum((1, 2))  # [L, C]
    above = np.cumsum(parts["biases"][::-1], axis=0)[::-1][1:]
    parts |= {"past": logits - through - above, "log_odds": logits}
    shares = np.exp(logits) / np.exp(logits).sum()
    if several:
        shares = 1 / (1 + np.exp(-logits))
    order = np.argsort(-logits)
    parts = {name: part[..., order] for name, part in parts.items()}
    arrays: dict[str, Any] = {f"contributions/{name}": part for name, part in parts.items()}
    arrays["probabilities"] = shares
    for layer, weights in enumerate(maps_of(0, layers, heads, T)):
        arrays[f"layer_{layer}/weights"] = weights
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    against = -1 if several else order[1]
    arrays["contributions/classes"] = order.astype(np.int32)
    arrays["contributions/shown"] = np.array([order[0], against], np.int32)
    if several:
        arrays["given"] = (shares > 0.5).astype(np.uint8)
    ends = [place for place, word in enumerate(words) if word in ("[CLS]", "[SEP]")]
    shown = Text("text", words, text, label, None, ends, 0)
    return PageText(shown, arrays), parts


@pytest.fixture
def open_why(open_page: PageOpener) -> Any:
    """Return what opens a page of texts."""

    def opener(*texts: PageText, width: int = 1366, **options: Any) -> Any:
        layers = [f"layer {at}" for at in range(len(texts[0].arrays["contributions/heads"]))]
        content = texts_page("Why", layers, CLASSES, texts)
        return open_page(
            content, f"{SUM} strong", viewport={"width": width, "height": 768}, **options
        )

    return opener


def numbers(words: str) -> list[float]:
    """Return the numbers with two decimals, to the hundredth."""
    return [float(found.replace("−", "-")) for found in re.findall(r"[+−]?\d+\.\d\d", words)]


def texts_in(tab: Any, selector: str) -> list[str]:
    found: list[str] = tab.locator(selector).all_text_contents()
    return found


def test_words_bar_heads_and_biases_add_up_to_the_log_odds_as_they_are_shown(open_why: Any) -> None:
    text, parts = explained(WORDS, "a proprietary film.", layers=2, heads=3)
    shares = np.sort(text.arrays["probabilities"])[::-1]
    tab = open_why(text)
    total = numbers(tab.locator(SUM).inner_text())
    assert total[-1] == pytest.approx(np.log(shares[0] / shares[1]), abs=0.006)
    assert sum(total[:-1]) == pytest.approx(total[-1], abs=1e-9)
    bar = numbers(" ".join(texts_in(tab, ".segment > span")))
    assert sum(bar) == pytest.approx(total[-1], abs=1e-9)
    toward = {name: part[..., 0] - part[..., 1] for name, part in parts.items()}
    words = toward["words"]
    by_word = [*words[:2], words[2:4].sum(), *words[4:]]
    titles = tab.locator(".text .token").evaluate_all("all => all.map(it => it.title)")
    shown = {title.rsplit(" ", 1)[0]: numbers(title)[-1] for title in titles}
    assert [*shown.values()] == pytest.approx(by_word, abs=0.011)
    named = tab.locator(".segment.word").evaluate_all("all => all.map(it => it.title)")
    for title in named:  # one number wherever it stands
        assert shown[title.rsplit(" ", 1)[0]] == numbers(title)[-1]
    layers = tab.locator(".heads-words .about .state")
    layer = int(toward["heads"].sum((1, 2)).argmax())  # the one that passes most of the sum
    assert layers.nth(layer).get_attribute("aria-pressed") == "true"
    for layer in (0, 1):
        layers.nth(layer).click()
        rows = [numbers(row) for row in texts_in(tab, ".cells-table tbody tr")]
        *columns, of_heads = numbers(texts_in(tab, ".cells-table tfoot tr")[0])
        assert [sum(row[:-1]) for row in rows] == pytest.approx([row[-1] for row in rows])
        cells = np.array([row[:-1] for row in rows])
        assert cells.sum(axis=0) == pytest.approx(columns)
        assert sum(columns) == pytest.approx(of_heads)
        end = numbers(tab.locator(".through").inner_text())
        assert end[0] == of_heads
        assert sum(end[:-1]) == pytest.approx(end[-1])
        assert end[-1] == total[-1]
        sums = sorted(toward["heads"][layer].sum(-1), key=lambda value: -abs(value))
        assert [row[-1] for row in rows] == pytest.approx(sums, abs=0.016)
        at = tab.locator(".cells-table thead th >> nth=1").inner_text().startswith("at ")
        assert at == (layer > 0)  # above the first layer the words have mixed
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
    assert f"← {second} −" in tab.locator(".ledger-axis").inner_text()  # to where the bar runs
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
    assert tab.locator(".predicted").get_attribute("aria-live") == "polite"
    assert tab.locator("[aria-live], [role=status]").count() <= 4


@pytest.mark.slow
def test_one_of_several_labels_is_against_its_absence(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=3, heads=12, several=True)
    likeliest = text.arrays["probabilities"].max()
    tab = open_why(text)
    assert "over its absence" in tab.locator(".question").inner_text()
    total = numbers(tab.locator(SUM).inner_text())
    assert total[-1] == pytest.approx(np.log(likeliest / (1 - likeliest)), abs=0.006)
    rows = tab.locator(".cells-table tbody tr")
    assert rows.count() == 12
    tab.get_by_text("All heads and words").click()
    assert rows.first.locator("td").count() == 6 + 1  # each word, and the sum


def test_a_word_that_is_pointed_at_is_lit_everywhere(open_why: Any) -> None:
    tab = open_why(explained(["[CLS]", "so", "very", "so", "[SEP]"], "so very so")[0])
    lit = "all => all.map(it => it.querySelector('bdi')?.textContent ?? it.tagName)"
    tab.locator(".text .token >> nth=2").hover()
    for part, count in ((".text .token", 1), (".segment", 1), (".cells-table th", 1)):
        assert tab.locator(f"{part}.lit").evaluate_all(lit) == ["very"] * count
    assert tab.locator(".cells-table td.lit").count() == 3  # two heads, and their sum
    tab.locator(".segment >> text=so").first.hover()
    assert texts_in(tab, ".cells-table th.lit") == ["so ×2"]
    tab.locator(".prediction").hover()
    assert tab.locator(".lit").count() == 0
    tab.locator(".text .token >> nth=2").focus()
    assert tab.locator(".segment.lit").count() == 1
    tab.keyboard.press("ArrowRight")
    assert texts_in(tab, ".cells-table th.lit") == ["so ×2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sentence", "lang", "direction"),
    [("吾輩は猫である。名前はまだ無い。", "ja", "ltr"), ("هذا فيلم رائع", "ar", "rtl")],
)
def test_a_text_reads_as_it_is_written(
    open_why: Any, sentence: str, lang: str, direction: str
) -> None:
    pieces = [*sentence] if lang == "ja" else sentence.split()
    text, _ = explained(["[CLS]", *pieces, "[SEP]"], sentence)
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
    cut, _ = explained(["[CLS]", "👩", "🚀", "is", "[SEP]"], f"{emoji} is not read to its end")
    tab = open_why(cut, explained(["[CLS]", "[SEP]"], "")[0])
    assert texts_in(tab, ".text .token bdi")[1:3] == [emoji, "is"]
    assert "5 of 6 words are not read." in tab.locator(".facts-of-text .warns").inner_text()
    tab.locator(".choose-text").select_option("1")
    tab.locator(".facts-of-text >> text=The text is empty").wait_for()


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
    for selector in (".text .token", ".cell", ".segment.word"):
        for node in tab.locator(selector).all():
            _, *colors = node.evaluate(PAINTED)
            assert contrast(*colors) >= 4.5, selector
    for mark in (".segment.word:not(.less)", ".segment.word.less", ".sum-bar"):
        ground, color, _ = tab.locator(mark).first.evaluate(PAINTED)
        assert contrast(ground, color) >= 3, mark
    for media in ({"forced_colors": "active"}, {"forced_colors": "none", "media": "print"}):
        tab.emulate_media(**media)
        for selector in (".text .token[style*='1.000']", ".segment.word", ".sum-bar"):
            ground, color, _ = tab.locator(selector).first.evaluate(PAINTED)
            assert contrast(ground, color) > 1.5, (media, selector)
    paper = tab.locator(".panel.text").evaluate("it => getComputedStyle(it).backgroundColor")
    assert paper == "rgb(255, 255, 255)"  # whatever the scheme


@pytest.mark.slow
def test_the_words_move_with_the_slider_and_the_classes_do_not(
    open_tab: Opener, tmp_path: Path
) -> None:
    steps, odds, pair = {}, [], []
    for step in (0, 9):
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
    for step, own in ((9, odds[1]), (0, odds[0])):
        tab.drawn(step)
        shown = numbers(tab.text(SUM))[-1]
        assert shown == pytest.approx(own[pair[0]] - own[pair[1]], abs=0.006)
        tab.press(",")
    tab.says(".offer", "Explained below")
