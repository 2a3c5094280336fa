"""Chromium for the tests that look at a page as somebody does: opened once, and watched."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
READING = "Canvas2D: Multiple readback"  # a hint of the browser about how tests read pixels
PATIENCE = 120_000  # milliseconds: a busy machine is slow, not wrong
REFUSALS = (
    "document.addEventListener('securitypolicyviolation', it => console.log(it.violatedDirective))"
)
PageOpener = Callable[..., Any]


@contextmanager
def chromium() -> Iterator[Any]:
    """Open the browser until the block ends; skip the test, with a hint, where there is none."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install -e '.[test]'"
    )
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("needs Chromium: `apt-get install chromium`, or put a `chromium` on the PATH")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=PATIENCE)
        options = {"executable_path": executable, "args": FLAGS, "timeout": PATIENCE}
        launched = playwright.chromium.launch(**options)
        yield launched
        launched.close()


def watch(
    page: Any, requests: list[str], complaints: list[str], allowed: tuple[str, ...] = ()
) -> None:
    """Note what a page asks for, and what it says on its console, throws or pops up, but for what begins as allowed."""

    def refuse(dialog: Any) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def complain(message: Any) -> None:
        if not message.text.startswith((*allowed, READING)):
            complaints.append(message.text)

    page.on("request", lambda request: requests.append(request.url))
    page.on("console", complain)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", refuse)


@contextmanager
def opening_pages(browser: Any, path: Path) -> Iterator[PageOpener]:
    """Open pages from a file, offline; a page may fetch nothing and complain about nothing."""
    requests: list[str] = []
    complaints: list[str] = []
    with ExitStack() as stack:

        def opener(
            content: str,
            wait: str = ".text .token",
            link: str = "",
            unfolds: bool = True,
            address: str | None = None,
            **options: Any,
        ) -> Any:
            path.write_text(content, "utf-8")
            place = address or path.as_uri()
            settings = {"viewport": {"width": 1366, "height": 768}, **options}
            context = stack.enter_context(browser.new_context(**settings))
            context.set_offline(address is None)
            tab = context.new_page()
            tab.set_default_timeout(PATIENCE)
            watch(tab, requests, complaints)
            tab.add_init_script(REFUSALS)
            tab.goto(place + link)
            tab.locator(wait).first.wait_for()
            if unfolds:  # the bar and the table
                tab.evaluate(
                    "document.querySelector('main > .fold-view')?.setAttribute('open', '')"
                )
            return tab

        yield opener
    requests = [url for url in requests if not url.startswith("blob:")]  # the page's own Worker
    assert {url.split("#")[0].rsplit("/", 1)[-1] for url in requests} <= {path.name}
    assert complaints == []


def colours_of(canvas: Any) -> np.ndarray:
    """Return a canvas's colours [row, column, (red, green, blue, opacity)]."""
    read = "c => [c.width, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    width, *data = canvas.evaluate(read)
    return np.array(data).reshape(-1, width, 4)


def contrast(*colors: list[int]) -> float:
    """Return the contrast ratio of two colours [r, g, b] in 0..255 as WCAG 2 defines it: from 1 to 21."""
    parts = np.array(colors) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return float(light / dark)
