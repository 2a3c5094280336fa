"""Chromium for the tests that look at a page as somebody does: opened once, and watched."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
READING = "Canvas2D: Multiple readback"  # a hint of the browser about how tests read pixels


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
        launched = playwright.chromium.launch(executable_path=executable, args=FLAGS)
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
