"""Why this class: the words with a strip for each head, their sums, and what a click asks."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answered import answered_run, contribution_arrays
from heads_browser import Opener
from heads_server import Step, maps_of, write_run

from chromium import watch
from headscope.record.schema import Text
from headscope.tab.page import PageText, page, write_page

CLASSES = ["bad", "good", "mixed"]
WORDS = ["[CLS]", "a", "proprie", "tary", "film", ".", "[SEP]"]  # a word of two tokens
STRIPS = ".text .token >> nth=2 >> i"


def explained(
    words: list[str],
    text: str,
    layers: int = 1,
    heads: int = 2,
    several: bool = False,
    seed: int = 0,
) -> tuple[PageText, np.ndarray]:
    """Return a text whose logits are the sum of its contributions [L, H, T, C], and these."""
    random = np.random.default_rng(seed)
    cells = random.normal(size=(layers, heads, len(words), 3))
    bias = np.array([0.2, 0.1, -0.3])
    logits = cells[-1].sum((0, 1)) + bias
    shares = np.exp(logits) / np.exp(logits).sum()
    if several:
        shares = 1 / (1 + np.exp(-logits))
    order = np.argsort(-logits)
    arrays: dict[str, Any] = {
        "probabilities": shares,
        **contribution_arrays(
            cells[-1].sum(axis=0)[..., order],
            cells[..., order],
            np.stack([np.zeros(3)] * layers + [bias[order]]),
        ),
    }
    for layer, weights in enumerate(maps_of(0, layers, heads, len(words))):
        arrays[f"layer_{layer}/weights"] = weights
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    against = -1 if several else order[1]
    arrays["contributions/classes"] = order.astype(np.int32)
    arrays["contributions/shown"] = np.array([order[0], against], np.int32)
    if several:
        arrays["given"] = (shares > 0.5).astype(np.uint8)
    shown = Text("text", words, text, None, None, [0, len(words) - 1], 0)
    return PageText(shown, arrays), cells[..., order]


@pytest.fixture
def open_why(browser: Any, tmp_path: Path) -> Any:
    """Open a page of texts, which may fetch nothing and complain about nothing."""
    contexts, requests, complaints = [], [], []
    path = tmp_path / "page.html"

    def opener(*texts: PageText, width: int = 1366, **options: Any) -> Any:
        count = len(texts[0].arrays["contributions/heads"])
        write_page(path, page("Why", [f"layer {at}" for at in range(count)], CLASSES, texts))
        context = browser.new_context(viewport={"width": width, "height": 768}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(30_000)
        watch(tab, requests, complaints)
        tab.goto(path.as_uri())
        tab.locator(".text .sum strong").first.wait_for()
        return tab

    yield opener
    for context in contexts:
        context.close()
    assert set(requests) <= {path.as_uri()}
    assert complaints == []


def numbers(words: str) -> list[float]:
    return [float(found.replace("−", "-")) for found in re.findall(r"[+−][\d.]+", words)]


def test_the_words_the_heads_and_the_sum_are_those_of_the_prediction(open_why: Any) -> None:
    text, cells = explained(WORDS, "a proprietary film.")
    shares = np.sort(text.arrays["probabilities"])[::-1]
    order = text.arrays["contributions/classes"]
    tab = open_why(text)
    total = numbers(tab.locator(".text .sum").inner_text())
    assert total[-1] == pytest.approx(np.log(shares[0] / shares[1]), abs=0.006)
    folds = tab.locator("details >> visible=true").evaluate_all("all => all.map(it => it.open)")
    assert folds == [False] * 4  # small maps, numbers, notes, keys: seldom read, one line each
    assert sum(total[:-1]) == pytest.approx(total[-1], abs=0.02)
    tokens = tab.locator(".text .token")
    words = ["[CLS]", "a", "proprietary", "film", ".", "[SEP]"]
    assert tokens.locator("bdi").all_text_contents() == words
    toward = (cells[..., 0] - cells[..., 1])[0]  # [H, T]
    title = numbers(tokens.nth(2).get_attribute("title"))
    own = toward[:, 2:4].sum(axis=1)
    assert title == pytest.approx([own.sum(), *own], abs=0.006)
    assert tab.locator(STRIPS).count() == 2
    assert tab.locator(".text h2 small").inner_text().endswith("from the top: head 0, 1")
    tab.locator(".choose-unit").select_option("token")
    assert tokens.locator("bdi").all_text_contents() == WORDS
    tokens.nth(2).locator("bdi").click()
    listed = numbers(tab.locator(".of-word").inner_text())
    assert sorted(listed) == pytest.approx(sorted(toward[:, 2]), abs=0.06)
    tab.locator(".sums .head-name").first.click()  # alone
    assert tab.locator(STRIPS).count() == 0
    largest = toward[np.abs(toward.sum(axis=1)).argmax()]
    (sum_of_word,) = numbers(tokens.nth(3).get_attribute("title"))
    assert sum_of_word == pytest.approx(largest[3], abs=0.006)
    tab.locator(".sums .head-name").first.click()
    tab.locator(".prediction .ask >> nth=2").click()
    named = [CLASSES[order[2]], CLASSES[order[0]]]
    assert tab.locator(".sum .class-name").all_text_contents() == named
    total = numbers(tab.locator(".text .sum").inner_text())
    assert total[-1] == pytest.approx(np.log(shares[2] / shares[0]), abs=0.006)


@pytest.mark.slow
def test_one_of_several_labels_is_against_its_absence(open_why: Any) -> None:
    text, _ = explained(WORDS, "a proprietary film.", layers=3, heads=4, several=True)
    likeliest = text.arrays["probabilities"].max()
    tab = open_why(text)
    assert "against its absence" in tab.locator(".text .sum").inner_text()
    total = numbers(tab.locator(".text .sum").inner_text())
    assert total[-1] == pytest.approx(np.log(likeliest / (1 - likeliest)), abs=0.006)
    assert tab.locator(STRIPS).count() == 7  # six heads, and the others as one
    named = tab.locator(".text h2 small").inner_text()
    assert named.split("layer·head ")[1].count("·") == 6
    assert named.endswith(", 6 others as one")
    tab.locator(".matrix summary").click()
    tab.locator(".cells-table tr").first.wait_for()
    assert tab.locator(".cells-table tr").count() == 1 + len(WORDS)
    assert tab.locator(".cells-table tr >> nth=1 >> td").count() == 1 + 12


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
    words = row.locator("bdi").all_text_contents()[1:-1]
    if lang == "ja":
        assert len(words) < len(pieces)
        assert "".join(words) == sentence
        assert row.locator(".glued").count() == len(words) - 1
    assert tab.evaluate("document.documentElement.lang") == "en"
    assert tab.locator(".head .keys").get_attribute("lang") == lang
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


COLUMNS = """all => all.map(column => [...column.childNodes].map(node => {
  return node.matches?.(".token") ? node.firstChild.textContent : null;
}))"""


@pytest.mark.slow
def test_two_texts_stand_beside_each_other_word_by_word(open_why: Any) -> None:
    words = [
        ["[CLS]", *sentence.split(), "[SEP]"] for sentence in ("a good film", "a very bad film")
    ]
    texts = [explained(each, " ".join(each[1:-1]), layers=2)[0] for each in words]
    shown, against = texts[0].arrays["contributions/shown"]
    odds = [np.log(text.arrays["probabilities"][[shown, against]]) @ [1, -1] for text in texts]
    tab = open_why(*texts)
    tab.locator(".choose-other").select_option("text")
    tab.locator(".pair-of").first.wait_for()
    same = [[word, word] for word in words[0]]
    expected = [*same[:2], ["good", "very"], [None, "bad"], *same[3:]]
    assert tab.locator(".pair-of").evaluate_all(COLUMNS) == expected
    assert numbers(tab.locator(".beside h3").inner_text())[-1] == pytest.approx(odds[1], abs=0.006)
    change = numbers(tab.locator(".prediction .change").first.inner_text())[0]
    shares = [text.arrays["probabilities"][shown] for text in texts]
    assert change == pytest.approx(shares[0] - shares[1], abs=0.001)
    tab.locator(".choose-compare-view").select_option("difference")
    tab.locator(".text h2 >> text=What changes for").wait_for()
    total = numbers(tab.locator(".text .sum").inner_text())[-1]
    assert total == pytest.approx(odds[0] - odds[1], abs=0.02)
    assert tab.locator(".pair-of").count() == 0
    tab.locator(".choose-other").select_option("")
    tab.locator(".text h2 >> text=Why").wait_for()
    assert tab.locator(".text .token bdi").all_text_contents() == words[0]


@pytest.mark.slow
def test_the_strips_move_with_the_slider(open_tab: Opener, tmp_path: Path) -> None:
    steps, odds = [], []
    for step in (0, 9):
        text, _ = explained(WORDS, "a proprietary film.", seed=step)
        parts = {name: array for name, array in text.arrays.items() if "contributions" in name}
        extra = {f"text_0/{name}": array for name, array in parts.items()}
        shares = text.arrays["probabilities"]
        steps.append(
            Step(step, [[text.arrays["layer_0/weights"]]], probabilities=[shares], extra=extra)
        )
        ranked = np.sort(shares)
        odds.append(np.log(ranked[-1] / ranked[-2]))
    write_run(tmp_path, "mine", [text.text], steps, classes=CLASSES)
    tab = open_tab(tmp_path)
    for step, expected in ((9, odds[1]), (0, odds[0])):
        tab.drawn(step)
        assert numbers(tab.text(".text .sum"))[-1] == pytest.approx(expected, abs=0.006)
        tab.press(",")


@pytest.mark.slow
def test_steps_are_compared_by_what_their_words_add(open_tab: Opener, tmp_path: Path) -> None:
    answered_run(tmp_path / "mine", steps=(0, 200), kept=200)
    answered_run(tmp_path / "other", steps=(0, 100), kept=100, seed=1)
    tab = open_tab(tmp_path, "#p.heads.run=mine")
    tab.drawn(200)
    tab.compare("other")
    tab.says(".text .beside h3", "other step 100")  # the best with the best
    own, there = (numbers(tab.text(f".text {part}"))[-1] for part in (".sum", ".beside h3"))
    tab.find(".choose-compare-view").select_option("difference")
    tab.says(".text .sum", "change of the log-odds")
    assert numbers(tab.text(".text .sum"))[-1] == pytest.approx(own - there, abs=0.02)
    tab.find(".choose-other").select_option("text")
    tab.find(".choose-compare-view").select_option("beside")
    tab.says(".text .beside h3", "Beneath, probe_1:")
    tab.has(lambda: "as=beside&p.heads.with=1" in tab.page.url, True)
    tab.reload(200)
    tab.says(".text .beside h3", "Beneath, probe_1:")
