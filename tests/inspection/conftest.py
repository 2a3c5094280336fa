"""The page of a report, opened in a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import watch
from headscope.inspection.page import Report, write_page, write_page_of_texts

Opener = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """Open a report, or several, in a tab; whatever a test does there, nothing may be fetched or complained about."""
    path = tmp_path / "page.html"
    contexts: list[Any] = []
    requests: list[str] = []
    complaints: list[str] = []

    def opener(shown: Report | list[Report], **options: Any) -> Any:
        if isinstance(shown, Report):
            write_page(path, shown)
        else:
            write_page_of_texts(path, "Several texts", shown)
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options}))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(30_000)  # a busy machine is slow, not wrong
        watch(tab, requests, complaints)
        tab.goto(path.as_uri())
        return tab

    yield opener
    for context in contexts:
        context.close()
    assert set(requests) == {path.as_uri()}
    assert complaints == []
