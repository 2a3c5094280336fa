"""No English is left on a Japanese screen: strings in the sources, and pages as a reader sees them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chromium import PageOpener
from headscope.heads.measures import NO_PATTERN, RULES
from headscope.pages.live import live_html
from headscope.pages.report import write_report
from headscope.pages.shown_run import ShownRun, load_shown
from headscope.tab.html import LIVE, STATIC, bundled
from training_runs import Trained, reviews

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
TEXTS = [f"{row['text']} {number}" for number, row in enumerate(reviews(40))]
# Names of files, keys and settings, which have no translation.
KEPT = r"TF-IDF|PNG|SVG|CSV|JSON|HTML|English|CLS|SEP|Esc|Enter|\b\d+ ms|words\.csv|float(16|32)|32-true"
# All that is seen or read aloud, but for what the reader or the data has written.
SEEN = """() => {
  document.querySelectorAll("details").forEach((node) => node.open = true);
  const own = "bdi, code, textarea, select, script, style, .token, .snippet, .listed, .tokens";
  const found = [];
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_ALL);
  while (nodes.nextNode()) {
    const node = nodes.currentNode;
    const parent = node.nodeType === 3 ? node.parentElement : node;
    if (parent.closest(own) || node.nodeType === 8) continue;
    if (node.nodeType === 3) found.push(node.data);
    else for (const name of ["title", "aria-label", "placeholder", "data-about"]) {
      if (node.hasAttribute?.(name)) found.push(node.getAttribute(name));
    }
  }
  document.querySelectorAll(".choose-kind option, .choose-sort option").forEach((node) => {
    found.push(node.textContent);
  });
  return found.concat(document.title);
}"""


@pytest.fixture(scope="session")
def run(plain: Trained) -> ShownRun:
    return load_shown(plain.folder)


def english(texts: list[str], names: list[str]) -> list[str]:
    """Return the texts in which English words are left, once the names of the data are out."""
    own = "|".join([KEPT, *map(re.escape, sorted(names, key=len, reverse=True))])
    return sorted({text for text in texts if re.search("[A-Za-z]{2,}", re.sub(own, "", text))})


@pytest.mark.slow
def test_a_report_has_no_english_on_a_japanese_screen(
    run: ShownRun, open_page: PageOpener, tmp_path: Path
) -> None:
    found = run.report(TEXTS, [row["label"] for row in reviews(40)])
    write_report(run, found, "test", tmp_path / "report.html")
    content = (tmp_path / "report.html").read_text("utf-8")
    tab = open_page(content, wait=".report-texts", locale="ja-JP")
    assert english(tab.evaluate(SEEN), names_of(run)) == []
    assert (
        tab.title()
        == f"実行 {run.folder.resolve().name}：テストデータ40件、{len(run.labels)}クラス"
    )


@pytest.mark.slow
def test_a_page_of_a_run_has_no_english_on_a_japanese_screen(
    run: ShownRun, open_page: PageOpener
) -> None:
    tab = open_page(live_html(run, [TEXTS[0]]), locale="ja-JP")
    tab.locator(".predicted strong").wait_for()
    tab.evaluate(SEEN)  # which unfolds all
    tab.locator(".table tbody tr").first.wait_for()
    assert english(tab.evaluate(SEEN), names_of(run)) == []


def names_of(run: ShownRun) -> list[str]:
    """Return what comes from the data: classes, words, the run's name."""
    words = {word for text in TEXTS for word in re.findall(r"\w+", text.lower())}
    return [*run.labels, run.folder.resolve().name, *words]


@pytest.mark.slow
def test_what_python_says_of_heads_is_told_in_japanese(open_page: PageOpener) -> None:
    script = f"<script>{bundled('told.js')}window.told = modules.told;</script>"
    tab = open_page(f"<meta charset=utf-8><p>text</p>{script}", wait="p", locale="ja-JP")
    told = {
        "On 25 other texts layer 0 head 1, layer 1 head 0 and 3 more alone keep 80.0 of 84.0 %"
        " (−20.1 to 11.2 points), without heads 36.0 %. Replacing attention by plain averages costs"
        " nothing measurable (−1.0 to 1.2 points).": "ほかの25件での正解率は、層0 ヘッド1、層1 ヘッド0"
        "とほか3個だけで80.0 %（全ヘッドありは84.0 %、差は−20.1〜11.2ポイント）、ヘッドなしで36.0 %。"
        "アテンションを単純な平均に置き換えても、測れる低下はありません（−1.0〜1.2ポイント）。",
        "over all 50 validation texts": "検証データ全50件での値",
        "Run first on 40 texts: test, 2 classes": "実行 first：テストデータ40件、2クラス",
        "TF-IDF (words 1-2, characters 2-4) + logistic regression": "TF-IDF（単語1〜2、文字2〜4）"
        "＋ロジスティック回帰",
        "outputs/mine": "outputs/mine",  # a name is none of them
    }
    assert {text: tab.evaluate("text => told.told(text)", text) for text in told} == told
    names = [name for name, *_ in RULES] + [NO_PATTERN]
    roles = [tab.evaluate("name => told.named(name)", name) for name in names]
    assert all(re.search("[ぁ-ん一-龯]", role) for role in roles), roles


def test_no_words_stand_in_the_views_but_those_that_are_translated() -> None:
    left: dict[str, Any] = {}
    for path in [*STATIC.glob("*.js"), *LIVE.glob("*.js")]:
        if path.stem == "preact":
            continue
        source = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
        words = [*literals(source)]
        if words:
            left[path.name] = words
    assert left == {}, json.dumps(left, ensure_ascii=False, indent=1)


def literals(source: str) -> list[str]:
    """Return the words of html`...` that stand between tags or in what is read aloud."""
    found = []
    for start in re.finditer(r"html`", source):
        markup, depth = "", 0
        for part in re.split(r"(\$\{|[{}`])", source[start.end() :]):
            if depth == 0 and part == "`":
                break
            if depth == 0 and part != "${":
                markup += part
            depth += (part in ("${", "{")) - (part == "}")
        read = re.findall(r'(?:title|aria-label|placeholder)="([^"]*)"', markup)
        between = re.sub(r"<[^>]*>", "\n", markup).split("\n")
        found += [words.strip() for words in [*read, *between] if re.search("[A-Za-z]{3,}", words)]
    return found
