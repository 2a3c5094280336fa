"""The Heads tab of a logdir, opened in a browser."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # pytest's importlib mode adds no folder

from explained import CLASSES
from heads_browser import Opener, opening

from chromium import PageOpener
from headscope.record.schema import PageText
from headscope.tab.html import texts_page

SUM = ".text .sum"


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Opener]:
    """Return what opens a logdir."""
    with opening(browser) as opener:
        yield opener


@pytest.fixture
def open_why(open_page: PageOpener) -> Any:
    """Return what opens a page of texts."""

    def opener(*texts: PageText, width: int = 1366, **options: Any) -> Any:
        layers = [f"layer {at}" for at in range(len(texts[0].arrays["contributions/heads"]))]
        classes = CLASSES[: len(texts[0].arrays["contributions/classes"])]
        content = texts_page("Why", layers, classes, texts)
        size = {"width": width, "height": 768}
        tab = open_page(content, ".text .token", viewport=size, **options)
        tab.locator(f"{SUM} strong").first.wait_for()
        return tab

    return opener
