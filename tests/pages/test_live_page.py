"""The page in which the network runs: the same answers as Python's, and what its reader does on it, in Chromium."""

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chromium import PageOpener
from headscope.cli.inspect import inspect
from headscope.cli.pages import page
from headscope.data.batching import encode_texts
from headscope.data.evidence import known_ngrams
from headscope.data.tokenizer import train_tokenizer, unknown_ids
from headscope.data.units import read_texts, visible
from headscope.ground.errors import LivePageError
from headscope.heads.step import text_of
from headscope.pages.live import Example, live_html
from headscope.pages.pack import live_content
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.pages.stored import Storage
from headscope.pages.tokenizer import page_tokenizer
from headscope.settings.commands import InspectConfig, PageConfig
from headscope.settings.config import DataConfig, TokenizerConfig
from headscope.tab.html import bundled
from hostile_texts import random_text
from page_answers import OPEN, READ, same_answer
from training_runs import Trained, changed
from untrained import untrained, words_of

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1">'
TEXTS = [
    "the film was lovely and so was the book",
    "",
    HOSTILE,
    "[CLS] ΟΔΟΣ straße e\u0301le\u0301ment ﬁne ½ ㌔",
    "この映画は、カタカナとても面白かった。",
    "नमस्ते 한국어 🐈‍⬛ a\u200bb\ufeffc\u0085d",
    "quite dark " * 40,
]
NGRAMS = """([content, keys, ratios, texts]) => {
  const tokenizer = new modules.tokenizer.Tokenizer(content);
  const table = BigUint64Array.from(keys, BigInt);
  const evidence = new modules.evidence.Evidence(table, ratios, 1, tokenizer);
  const read = texts.map(text => tokenizer.encode([text], true));
  return read.map(({ pieces, rest }) => [...evidence.ofTokens(pieces, rest)]);
}"""
SPANS = """([content, rows]) => {
  const tokenizer = new modules.tokenizer.Tokenizer(content);
  return rows.map(row => tokenizer.encode(row)).map(it => [it.tokens, it.words, it.places]);
}"""
TYPE = """text => {
  const box = document.querySelector("textarea");
  box.value = text;
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
}"""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> ShownRun:
    return made(tmp_path_factory.mktemp("run"))


@pytest.fixture
def script(browser: Any) -> Iterator[Any]:
    """Return a tab that has the page's modules and nothing else."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.evaluate(f"{bundled('classifier.js')};window.modules = modules;0")
        yield tab


def made(
    folder: Path,
    num_classes: int = 3,
    is_pair: bool = False,
    max_length: int = 32,
    **model: Any,
) -> ShownRun:
    """Return a run whose every weight, bias and ratio is random."""
    data = DataConfig(max_length=max_length, text_pair_column="other" if is_pair else None)
    labels = [f"class {number}" for number in range(num_classes)]
    return load_shown(untrained(folder, TEXTS, data, labels, **model))


def shows(tab: Any, words: list[str]) -> None:
    """Wait until the words of the text are these."""
    from playwright.sync_api import expect

    expect(tab.locator(".text .tokens").first.locator("bdi")).to_have_text(words)


def shares(tab: Any) -> dict[str, float]:
    """Return the probabilities of the likeliest classes, to a thousandth."""
    found = {}
    for line in tab.locator(".classes li:not(.note)").all():
        number = line.locator(".number").inner_text().split(" %")[0]
        share = {"< 0.1": 0.0, "> 99.9": 100.0}.get(number)
        found[line.locator(".name").inner_text()] = (
            float(number) if share is None else share
        ) / 100
    return found


def expected(run: ShownRun, text: str) -> dict[str, float]:
    (prediction,) = run.predict([text])
    return prediction.probabilities


# --- the same answers ---


OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 4, "num_heads": 8, "d_model": 32, "num_classes": 11},
    {"positions": "learned", "evidence": False},
    {"positions": "sinusoidal", "num_layers": 1},
    {"is_pair": True, "num_classes": 2},
    {"window": 3, "num_kv_heads": 2, "num_layers": 3},
    {"pooling": "mean", "causal": True, "positions": "learned"},
    {"kind": "bpe"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_tokens_logits_maps_and_exact_sums_are_those_of_python(
    script: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    run = made(tmp_path, **options)
    rows = [(text,) for text in TEXTS]
    if "is_pair" in options:
        rows = [*zip(TEXTS, reversed(TEXTS), strict=True), (TEXTS[-1], TEXTS[-1])]
    ablations: Any = [[], [["0,1", "zero"], ["0,2", "uniform"], ["0,0", "zero"]]]
    if run.config.model.num_layers > 1:
        ablations[1][2] = ["1,0", "zero"]
    script.evaluate(OPEN, live_content(run, Storage("float32")))
    for row, heads in product(rows, ablations):
        same_answer(run, row, heads, script.evaluate(READ, [list(row), heads]))


def test_the_page_of_pairs_has_two_boxes(open_page: PageOpener, tmp_path: Path) -> None:
    tab = open_page(live_html(made(tmp_path, is_pair=True), ["a lovely film", "not at all"]))
    assert tab.locator("textarea").count() == 2
    shows(tab, ["[CLS]", "a", "lovely", "film", "[SEP]", "not", "at", "all", "[SEP]"])


def test_the_page_joins_tokens_into_the_words_that_python_does(script: Any) -> None:
    random = np.random.default_rng(1)
    letters = [
        *"カードが二重に請求されました我被重复扣款请退款。、,'’.019abc 한국어ไทย👍🏽\u200d🇯🇵\u3099"
    ]
    texts = [
        "I don't want a refund: it's 3.14 or 1,000.",
        "カードが二重に請求されました。10月3日にGoogleで公開 ｶﾞﾊﾟ",
        "我被重复扣款两次，请退款 한국어 단어",
        "👨‍👩‍👧 🇯🇵 👍🏽!! 1️⃣ 🐈‍⬛ ㌔ ½",
        "ไทย แลนด์ \x1c ¨A \u2028",
        *TEXTS,
        *("".join(random.choice(letters, 30)) for _ in range(400)),
        *(random_text(random) for _ in range(200)),
    ]
    config = TokenizerConfig(vocab_size=700, min_frequency=1)
    tokenizer = train_tokenizer(iter(texts[:12]), config)
    tokenizer.enable_truncation(24)
    rows = [(text,) for text in texts] + list(zip(texts[:150], reversed(texts), strict=False))
    found = script.evaluate(SPANS, [page_tokenizer(tokenizer, 24), rows])
    for row, (tokens, words, places) in zip(rows, found, strict=True):
        text = text_of(read_texts(tokenizer, [row])[0], unknown_ids(tokenizer))
        assert text.tokens == tokens, row
        assert [[*word] for word in text.words or []] == words, row
        assert [[*place] for place in text.places or []] == places, row
        units = np.frombuffer(text.text.encode("utf-16-le"), "<u2")
        for name, start, end in words:  # their places are those of their letters
            own = units[places[start][0] : places[end - 1][1]].tobytes().decode("utf-16-le")
            assert visible(own) == name


def test_words_and_ngrams_have_the_same_lower_case_as_in_python(script: Any, run: ShownRun) -> None:
    texts = [*TEXTS, "ΟΔΟΣ Οδος ΣΑΣ Σ", "İSTANBUL STRAẞE ǅ \u1c89\ua7cb", "\ufeffBOM \x1c ¨A"]
    rows = [(text,) for text in texts]
    known = known_ngrams(words_of(run.tokenizer, rows * 4))
    ratios = np.random.default_rng(0).normal(size=len(known)).astype(np.float32)
    numbers = [str(key) for key in known.keys]
    given = [live_content(run, Storage("float32"))["tokenizer"], numbers, ratios.tolist(), texts]
    found = script.evaluate(NGRAMS, given)
    evidence = encode_texts(run.tokenizer, rows, known)
    assert evidence.evidence is not None
    for row, sums in enumerate(found):
        ngrams = evidence.evidence.of([row])
        expected = np.zeros(len(sums))
        np.add.at(expected, ngrams.places.numpy(), ratios[ngrams.ids.numpy()])
        counts = np.bincount(ngrams.places.numpy(), minlength=len(sums))
        expected *= np.sqrt(64 / np.maximum(64, counts))  # of the rest of a long text
        np.testing.assert_allclose(sums, expected, atol=1e-4, err_msg=texts[row])


def test_what_javascript_cannot_compute_is_rejected_by_name(run: ShownRun) -> None:
    rejected = {
        "model.pooling": ("first or mean", "max"),
        "model.attention": ("multi_head", "shared_projection"),
    }
    for key, (expected, value) in rejected.items():
        setup = replace(run.setup, config=changed(run.config, key, value))
        with pytest.raises(LivePageError, match=f"^{key}: expected {expected}, got {value}$"):
            live_html(replace(run, setup=setup))
    with pytest.raises(
        LivePageError, match=r"its network takes .* MB, more than 0.01; headscope page max_mb="
    ):
        live_html(run, max_mb=0.01)


def test_the_command_chooses_examples_and_inspect_and_show_write_this_page(
    plain: Trained, tmp_path: Path, open_page: PageOpener
) -> None:
    path = page(PageConfig(run=str(plain.folder), output=str(tmp_path / "a.html"), examples=6))
    tab = open_page(path.read_text("utf-8"))
    examples = tab.locator(".example")
    assert examples.count() >= 2
    first = tab.locator("textarea").input_value()
    examples.first.click()  # the one that is shown
    examples.first.click()
    assert tab.locator("textarea").input_value() != first
    tab.locator(".facts-of-text >> text=Given label ✓").wait_for()
    assert re.search(r"validation text|were right", tab.locator(".sure").inner_text())
    assert tab.title() == tab.locator("h1").inner_text()
    assert tab.title().endswith(
        f"run {plain.folder.name}: 6 heads, {len(load_shown(plain.folder).labels)} classes"
    )
    parts = (".toolbar", ".prediction", ".text", ".heads-words", ".answer")
    tops = [tab.locator(part).bounding_box()["y"] for part in parts]
    assert tops == sorted(tops)
    folder = plain.copy(tmp_path)
    text = "a lovely film"
    config = InspectConfig(run=str(folder), text=text, output=str(tmp_path / "b.html"))
    tab = open_page(inspect(config).read_text("utf-8"))
    assert tab.locator("textarea").input_value() == text
    assert tab.locator(".answer").is_visible()
    view = load_shown(plain.folder).show(text)
    assert "Type a text" in view.html
    assert view.tokens[1:4] == ["a", "lovely", "film"]


# --- what its reader does ---


def test_every_keystroke_moves_the_prediction_but_none_within_a_composition(
    open_page: PageOpener, run: ShownRun
) -> None:
    tab = open_page(live_html(run, ["a kind day"]))
    shows(tab, ["[CLS]", "a", "kind", "day", "[SEP]"])
    box = tab.locator("textarea")
    box.press("End")
    tab.keyboard.type(" and a cruel cold book")
    words = ["[CLS]", *box.input_value().split(), "[SEP]"]
    shows(tab, words)
    likely = expected(run, box.input_value())
    for name, share in shares(tab).items():
        assert likely[name] == pytest.approx(share, abs=1.1e-3)
    # The nodes of words stay, those that are new apart.
    nodes = "[...document.querySelectorAll('.text .token')]"
    tab.evaluate(f"{nodes}.forEach(node => (node.isFormer = true))")
    tab.keyboard.type(" so")
    shows(tab, [*words[:-1], "so", "[SEP]"])
    assert tab.evaluate(f"{nodes}.filter(node => !node.isFormer).length") == 1
    for _ in " so":
        box.press("Backspace")
    box.evaluate("node => node.dispatchEvent(new CompositionEvent('compositionstart'))")
    tab.evaluate(TYPE, "にほ")
    tab.wait_for_timeout(100)
    shows(tab, words)
    tab.evaluate(TYPE, "日本語の映画")
    box.evaluate("node => node.dispatchEvent(new CompositionEvent('compositionend'))")
    tab.locator(".notes >> text=8 tokens").wait_for()
    assert box.get_attribute("lang") == "ja"


STATE = """state => [...document.querySelectorAll(`.cells-table .state[data-state=${state}]`)]
  .filter(it => it.getAttribute("aria-checked") === "true").length"""


def test_heads_are_switched_in_any_combination_and_the_classes_are_held(
    open_page: PageOpener, run: ShownRun
) -> None:
    tab = open_page(live_html(run, ["a lovely film"]))
    tab.locator(".cells-table .state").first.wait_for()
    before = shares(tab)
    pair = tab.locator(".sum .class-name").all_inner_texts()
    rows = tab.locator(".cells-table .head-name").all_inner_texts()
    off = tab.locator(".cells-table .state[data-state=zero]").first
    off.click()
    tab.locator(".classes .note >> text=all heads").wait_for()
    assert tab.evaluate(STATE, "zero") == 1
    assert off.evaluate("node => node === document.activeElement")  # its row stays
    assert tab.locator(".cells-table .head-name").all_inner_texts() == rows
    assert tab.locator(".sum .class-name").all_inner_texts() == pair
    off.press("ArrowLeft")  # one stop of the Tab key for each head, in which arrows choose
    assert tab.evaluate(STATE, "uniform") == 1
    assert tab.locator(".cells-table .state[tabindex='0']").count() == len(rows)
    for average in tab.locator(".cells-table .state[data-state=uniform]").all():
        average.click()
    assert tab.evaluate(STATE, "uniform") == len(rows)
    tab.locator("h1").click()
    tab.keyboard.press("a")  # all on
    tab.locator(".classes .note").wait_for(state="detached")
    assert shares(tab) == before
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.tagName") == "TEXTAREA"
    tab.keyboard.type("o k a")  # in the box these are letters
    shows(tab, ["[CLS]", "o", "k", "a", "[SEP]"])
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.tagName") == "BODY"


def test_an_edited_text_keeps_its_classes_and_another_has_its_own(
    open_page: PageOpener, run: ShownRun
) -> None:
    from playwright.sync_api import expect

    text = "a lovely film and a kind day"
    another = "quite dark books were so very awful"
    own = sorted(run.labels, key=expected(run, another).__getitem__, reverse=True)
    tab = open_page(live_html(run, [text]))
    names = tab.locator(".sum .class-name")
    chosen = own[::-1][:2]
    tab.locator(".choose-asked").select_option(label=chosen[0])
    tab.locator(".choose-against").select_option(label=chosen[1])
    for edited in (text + " today", "a lovely film", text):
        tab.evaluate(TYPE, edited)
        shows(tab, ["[CLS]", *edited.split(), "[SEP]"])
        expect(names).to_have_text(chosen)
    tab.evaluate(TYPE, another)
    expect(names).to_have_text(own[:2])
    tab.locator(".offer button").click()  # back to those that were chosen
    expect(names).to_have_text(chosen)
    tab.evaluate(TYPE, "")
    shows(tab, ["[CLS]", "[SEP]"])
    tab.evaluate(TYPE, another)
    expect(names).to_have_text(own[:2])


def test_a_text_is_kept_and_compared_with_one_of_other_words(
    open_page: PageOpener, run: ShownRun
) -> None:
    texts = ["it was a lovely day", "it was a very very awful day"]
    tab = open_page(live_html(run, texts[:1]))
    tab.locator("h1").click()
    tab.keyboard.press("k")
    tab.evaluate(TYPE, texts[1])
    tab.locator(".text .tokens >> nth=0 >> text=awful").wait_for()
    kept = tab.locator(".beside .token bdi")
    assert kept.all_inner_texts() == ["[CLS]", *texts[0].split(), "[SEP]"]
    tab.locator(".classes .note >> text=the other text").wait_for()
    assert "awful" in tab.locator(".changes").inner_text()
    names = tab.locator(".sum .class-name").all_inner_texts()
    odds = np.log(np.divide(*(expected(run, texts[0])[name] for name in names)))
    shown = tab.locator(".beside h3").inner_text().split(", ")[1].split()[0]
    assert float(shown.replace("−", "-")) == pytest.approx(odds, abs=0.02)
    tab.get_by_text("Back to it").click()
    shows(tab, ["[CLS]", *texts[0].split(), "[SEP]"])
    tab.locator("h1").click()
    tab.keyboard.press("k")
    tab.locator(".kept-text").wait_for(state="hidden")


def test_the_address_is_a_link_to_the_same_text_and_view(
    open_page: PageOpener, run: ShownRun
) -> None:
    content = live_html(run, ["a lovely film"])
    tab = open_page(content)
    text = "quite & dark #100% 映画"
    tab.evaluate(TYPE, text)
    tab.locator(".cells-table .state[data-state=zero]").first.click()
    tab.locator(".classes .note").wait_for()
    tab.wait_for_url(re.compile("heads="))
    link = tab.evaluate("location.hash")
    other = open_page(content, link=link)
    other.locator(".classes .note").wait_for()
    assert other.locator("textarea").input_value() == text
    assert other.evaluate(STATE, "zero") == 1
    assert shares(other) == shares(tab)
    tab.evaluate(TYPE, "word " * 3000)
    tab.locator(".save summary").click()
    tab.get_by_text("Copy link").click()
    tab.get_by_text("too long for a link").wait_for()
    tab.keyboard.press("Escape")
    assert tab.locator(".save[open]").count() == 0
    open_page(content, link="#text=a&heads=9.9z%20x&layer=99&classes=77.1&view=no")


def test_words_are_removed_until_the_class_changes(open_page: PageOpener, run: ShownRun) -> None:
    text = "a lovely film and a kind day"
    tab = open_page(live_html(run, [text]))
    tab.locator(".flip").get_by_text("removal").or_(tab.locator(".flip button")).first.wait_for()

    label = max(expected(run, text), key=expected(run, text).__getitem__)
    lost = {}
    for row in tab.locator(".effects tbody tr").all():
        word, *cells = row.locator("th bdi, td b").all_inner_texts()
        lost[word] = float(cells[1].replace("−", "-"))
    first, second = tab.locator(".sum .class-name").all_inner_texts()

    def odds(words: str) -> float:
        shares = expected(run, words)
        return float(np.log(shares[first] / shares[second]))

    for word in ("lovely", "film", "kind"):
        change = odds(text) - odds(text.replace(f"{word} ", ""))
        assert lost[word] == pytest.approx(change, abs=0.011)
    if tab.locator(".flip button").count():
        tab.locator(".flip button").click()
        tab.locator(f".predicted .name >> text={label}").wait_for(state="detached")


def test_of_a_long_text_words_are_removed_on_request_in_a_worker(
    open_page: PageOpener, tmp_path: Path
) -> None:
    words = [f"{word}{number}" for number in range(30) for word in ("kind", "cruel", "day")]
    run = made(tmp_path, max_length=128)
    tab = open_page(live_html(run, [" ".join(words[:70])]))
    asked = tab.locator(".mind button")
    asked.wait_for()
    tab.wait_for_timeout(1000)  # more than the rest after which words are removed
    assert tab.locator(".effects tbody tr").count() == 0
    asked.click()
    tab.locator(".effects tbody tr").first.wait_for()
    assert len(tab.workers) == 1
    tab.evaluate(TYPE, " ".join(words[:20]))  # a short one needs no request
    tab.locator(".effects tbody tr").nth(7).wait_for()
    assert len(tab.workers) == 1


DRAWS = """text => {
  window.draws = 0;
  const observer = new MutationObserver(() => (window.draws += 1));
  observer.observe(document.body, {
    subtree: true, childList: true, characterData: true, attributes: true,
  });
  const box = document.querySelector("textarea");
  box.value = text;
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
}"""


def test_an_empty_text_and_unknown_words_have_no_verdict(
    open_page: PageOpener, run: ShownRun
) -> None:
    tab = open_page(live_html(run, ["a lovely film"]))
    facts = tab.locator(".facts-of-text")
    for text, words in [("", "The text is empty."), ("xqzt blorf film", "not seen such words")]:
        tab.evaluate(TYPE, text)
        facts.get_by_text(words).wait_for()
        assert tab.locator(".predicted").inner_text().strip() == "No verdict"
        assert tab.locator(".sure").count() == 0
        name, share = max(expected(run, text).items(), key=lambda item: item[1])
        said = (
            "A guess from letters alone" if text else "What it says without words (its class prior)"
        )
        assert f"{said}: {name} {100 * share:.1f} %" in facts.inner_text()


def test_how_sure_is_said_of_texts_like_those_it_was_measured_on_with_all_heads_on(
    open_page: PageOpener, run: ShownRun
) -> None:
    curve = [(1 - at / 100, 10 * at + 10, 9 * at + 9) for at in range(100)]
    measured = replace(run, chosen=replace(run.chosen, most_unknown=0.4, curve=curve))
    tab = open_page(live_html(measured, ["xqzt lovely film"]))  # one word of three is unknown
    sure, facts = tab.locator(".sure"), tab.locator(".facts-of-text")
    sure.get_by_text("were right").wait_for()
    assert "nknown" not in facts.inner_text()
    tab.locator(".cells-table .state[data-state=zero]").first.click()
    tab.locator(".classes .note >> text=all heads").wait_for()
    assert sure.count() == 0
    tab.locator("h1").click()
    tab.keyboard.press("a")
    tab.evaluate(TYPE, "xqzt blorf lovely film")
    sure.get_by_text("How often it is right was not measured on such texts.").wait_for()
    assert "2 of 4 tokens. That is more than in texts of training." in facts.inner_text()


def test_what_is_lost_without_a_word_stands_beside_its_sum(
    open_page: PageOpener, run: ShownRun
) -> None:
    text = "a lovely film and a kind day"
    tab = open_page(live_html(run, [text]))
    tab.locator(".flip").get_by_text("removal").or_(tab.locator(".flip button")).first.wait_for()
    pair = tab.locator(".sum .class-name").all_inner_texts()
    sums = dict(
        title.rsplit(" ", 1)
        for title in tab.locator(".text .token").evaluate_all("all => all.map(it => it.title)")
    )

    def odds(words: str) -> float:
        found = expected(run, words)
        return float(np.log(found[pair[0]] / found[pair[1]]))

    for row in tab.locator(".effects tbody tr").all():
        word = row.locator("th bdi").inner_text()
        if word == "a":  # it stands twice, each with its place
            assert re.search(r"\([12] of 2\)", row.locator("th").inner_text())
            continue
        own, lost = row.locator("td b").all_inner_texts()
        assert own == sums[word]
        change = odds(text) - odds(text.replace(f"{word} ", "").removesuffix(f" {word}"))
        lost, own = (float(number.replace("−", "-")) for number in (lost, own))
        assert lost == pytest.approx(change, abs=0.011)
        differs = own * lost < 0 and min(abs(own), abs(lost)) >= 0.1
        assert row.locator(".differs").count() == differs


def test_it_is_said_how_many_heads_are_off_and_which(open_page: PageOpener, run: ShownRun) -> None:
    tab = open_page(live_html(run, ["a lovely film"]))
    tab.locator(".cells-table .state[data-state=zero]").nth(1).click()
    name = tab.locator(".head-name").nth(1).inner_text()
    heads = tab.locator(".head-name").count()
    tab.get_by_text(f"1 of {heads} heads off: {name}.").wait_for()


def test_a_key_draws_everything_once(open_page: PageOpener, run: ShownRun) -> None:
    tab = open_page(live_html(run, ["a kind day"]))
    tab.locator(".flip").get_by_text("removal").or_(tab.locator(".flip button")).first.wait_for()
    tab.locator(".prediction [aria-live]:not(:empty)").wait_for(state="attached")  # it was heard
    tab.evaluate(DRAWS, "a kind cruel day")
    shows(tab, ["[CLS]", "a", "kind", "cruel", "day", "[SEP]"])
    assert tab.evaluate("window.draws") == 1


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1366, "light")])
def test_hostile_texts_and_names_stay_text_in_a_window_of_any_size(
    open_page: PageOpener, run: ShownRun, width: int, scheme: str
) -> None:
    hostile = replace(
        run,
        setup=replace(
            run.setup, labels=[f"{HOSTILE}{number}" for number in range(len(run.labels))]
        ),
    )
    examples = [Example("wrong", HOSTILE, [f"{HOSTILE} </script><script>alert(1)</script>"])]
    content = live_html(hostile, [HOSTILE + "x" * 300], examples=examples)
    tab = open_page(
        content,
        color_scheme=scheme,
        viewport={"width": width, "height": 844},
        has_touch=width < 400,
    )
    tab.evaluate("document.querySelectorAll('details').forEach(it => (it.open = true))")
    tab.locator(".example").click()
    tab.get_by_text("Compare", exact=True).click()
    assert tab.locator("img").count() == 0
    assert tab.title().startswith("Type a text")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_it_works_over_http(open_page: PageOpener, run: ShownRun, tmp_path: Path) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/page.html"
        tab = open_page(live_html(run, ["a lovely film"], Storage("float16")), address=address)
        shows(tab, ["[CLS]", "a", "lovely", "film", "[SEP]"])
        assert "weights in 16 bits" in tab.locator(".notes").inner_text()
        server.shutdown()
