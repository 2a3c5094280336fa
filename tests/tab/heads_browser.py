"""The Heads tab in a browser: how a test opens it, finds things in it, and what its maps should look like."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from heads_server import Server, serving

from chromium import PATIENCE, colours_of, watch

ALLOWED = ("Failed to load resource",)  # what a test breaks on purpose
Opener = Callable[..., "Tab"]


@dataclass
class Tab:
    """The page in a browser: the page around it, and the frame that is the tab.

    What a test reads may be on its way: `shows`, `says`, `looks` and `has` wait for it.
    """

    page: Any
    frame: Any
    server: Server

    def find(self, selector: str) -> Any:
        return self.frame.locator(selector)

    def expect(self, selector: str) -> Any:
        from playwright.sync_api import expect

        return expect(self.find(selector))

    def unfold(self) -> None:
        """Open what is folded."""
        self.wait("() => document.querySelector('.fold-view, .error')")
        self.frame.evaluate(
            "document.querySelectorAll('.fold-view').forEach(it => (it.open = true))"
        )

    def text(self, selector: str) -> str:
        content: str = self.find(selector).first.inner_text()
        return re.sub(r"\s+", " ", content).strip()

    def wait(self, condition: str) -> None:
        # Asked by time: frames are not drawn while a busy machine has the window behind others.
        self.frame.wait_for_function(condition, timeout=PATIENCE, polling=50)

    def drawn(self, step: int) -> None:
        self.wait(
            f"() => document.querySelector('.now:not(.pending)')?.textContent === 'step {step}'"
        )

    def shows(self, selector: str, text: str | list[str]) -> None:
        """Wait until an element, or each of several, has exactly this text."""
        self.expect(selector if isinstance(text, list) else f"{selector} >> nth=0").to_have_text(
            text
        )

    def says(self, selector: str, words: str) -> None:
        """Wait until an element's text has these words in it."""
        self.expect(f"{selector} >> nth=0").to_contain_text(words)

    def has(self, read: Callable[[], Any], expected: Any) -> None:
        """Wait until what is read from the page is as expected."""
        end = time.monotonic() + PATIENCE / 1000
        while time.monotonic() < end:
            if np.array_equal(read(), expected):
                return
            self.page.wait_for_timeout(50)
        np.testing.assert_array_equal(read(), expected)

    def looks(self, selector: str, expected: np.ndarray, index: int = 0) -> None:
        """Wait until a canvas has these colours."""
        self.has(lambda: pixels_of(self, selector, index), expected)

    def number(self, selector: str) -> float:
        return float(self.text(selector).replace("−", "-"))

    def compare(self, run: str) -> None:
        self.find(".choose-other").select_option(f"={run}")

    def choose(self, layer: int, head: int) -> None:
        """Choose a head, and wait until it is drawn."""
        self.find(f".table th button >> text=layer {layer} head {head}").click()
        self.says(".head h2", f"layer {layer} head {head}")

    def hover_cell(self, query: int, key: int, section: str = ".head") -> None:
        large = self.find(f"{section} .large")
        cell = large.bounding_box()["height"] / self.find(f"{section} .queries .label").count()
        large.hover(position={"x": (key + 0.5) * cell, "y": (query + 0.5) * cell})

    def press(self, key: str) -> None:
        """Press a key as somebody does whose last click was in the tab, on nothing."""
        self.find(".text h2").click()
        self.page.keyboard.press(key)

    def refresh(self) -> None:
        """Look for new runs and steps at once."""
        self.frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def reload(self, step: int) -> None:
        self.page.reload()
        self.frame = self.page.frames[1]
        self.drawn(step)
        self.unfold()

    def saved(self, kind: str = "HTML") -> tuple[str, bytes]:
        """Return the name and the content of the file that the menu saves."""
        with self.page.expect_download() as waiting:
            if self.find(".save[open]").count() == 0:
                self.find(".save summary").click()
            self.find(f".save button >> text={kind}").click()
        return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()

    def fits(self) -> bool:
        return bool(self.frame.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@contextmanager
def opening(browser: Any) -> Iterator[Opener]:
    """Open logdirs; whatever is done there, nothing may be fetched from elsewhere or complained about."""
    requests: list[str] = []
    complaints: list[str] = []
    servers: list[Server] = []
    with ExitStack() as stack:

        def opener(
            logdir: Path, address: str = "", width: int = 1280, height: int = 720, **options: Any
        ) -> Tab:
            server = stack.enter_context(serving(logdir))
            servers.append(server)
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            watch(page, requests, complaints, ALLOWED)
            page.goto(server.url + address)
            tab = Tab(page, page.frames[1], server)
            tab.wait("() => document.querySelector('.choose-run option, .error:not([hidden])')")
            tab.unfold()
            return tab

        yield opener
    homes = tuple([server.url for server in servers] + ["blob:"])
    assert [url for url in requests if not url.startswith(homes)] == []
    assert complaints == []


def pixels_of(tab: Tab, selector: str, index: int = 0) -> np.ndarray:
    """Return how strong the colours of a canvas are [row, column], up to 255."""
    return colours_of(tab.find(selector).nth(index))[..., 3]


def expected_pixels(weights: np.ndarray, *maps: np.ndarray) -> np.ndarray:
    """Return how strong the colours of a map are, on the one scale of all maps [H, Q, T] shown."""
    most = max(stored(each).max() for each in maps)
    found: np.ndarray = np.floor(255 * np.sqrt(stored(weights) / np.float64(most)) + 0.5)
    return found.astype(int)


def stored(weights: np.ndarray) -> np.ndarray:
    """Return the weights as a record has them."""
    return weights.astype(np.float16).astype(np.float32)


def assert_close(shown: str | float, weights: np.ndarray, query: int, key: int) -> None:
    shown = float(shown.replace("−", "-")) if isinstance(shown, str) else shown
    assert abs(shown - weights[query, key]) <= 1e-3
