"""What a text holds is shown as it stands: TensorBoard's own Markdown turns it into a page without any markup of it."""

import re
import warnings
from html.parser import HTMLParser

import pytest

with warnings.catch_warnings():  # what tensorboard imports warns about itself
    warnings.simplefilter("ignore")
    from tensorboard import plugin_util

from headscope.tab.summaries import literal, probe_markdown

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "**bold** _em_ `code` [a](http://x) ![b](c) # head",
    "| a | b |\n|---|---|\n",
    "&lt;b&gt; &#42; &amp;",
    "a\\*b ~~c~~ http://example.com <http://x>",
    "\"quotes\" and 'more'",
    "日本語 中文 عربي 🎉",
    "    indented\n\n> quoted\n\n- list\n\n1. one",
]


class Page(HTMLParser):
    """Collect the tags and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        if tag == "p":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_out_literally(text: str) -> None:
    markdown = probe_markdown(text, [text, "plain"], text, text, {text: 0.75, "other": 0.25})
    page = Page(plugin_util.markdown_to_safe_html(markdown))
    assert page.tags == {"p", "strong"}
    rows = dict(cell.split(" \xa0 ", 1) for cell in page.cells)
    assert list(rows) == ["text", "tokens", "label", "prediction", "probabilities"]
    assert flat(rows["text"]) == flat(text)
    assert flat(rows["tokens"]) == flat(f"{text} · plain")
    assert flat(rows["prediction"]) == flat(f"{text} ✓")
    assert flat(rows["probabilities"]) == flat(f"{text} 0.750, other 0.250")


def flat(text: str) -> str:
    """Fold white space, which a page does not show."""
    return re.sub(r"\s+", " ", text).strip()


def test_the_verdict_and_letters_stay_readable() -> None:
    assert literal("Grüße 42") == "Grüße 42"
    assert "✗" in probe_markdown("t", ["t"], "a", "b", {"b": 1.0})
    assert "✓" not in probe_markdown("t", ["t"], None, "b", {"b": 1.0})
    assert "unknown" in probe_markdown("t", ["t"], None, "b", {"b": 1.0})
