"""The Heads tab of a logdir, opened in a browser."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # pytest's importlib mode adds no folder

from heads_browser import Opener, opening


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Opener]:
    """Return what opens a logdir."""
    with opening(browser) as opener:
        yield opener
