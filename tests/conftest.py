"""What all tests share: shapes are checked while they run, and nothing of the user's is read or written."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import config, install_import_hook

from chromium import chromium

# Every annotated shape and type in headscope is checked at each call during the tests, and in the tests alone.
install_import_hook("headscope", "beartype.beartype")

# Set before `datasets` is imported, which reads them once: one cache for all tests, and no request to the Hub.
CACHE = (
    Path(tempfile.gettempdir()) / f"headscope-tests-{os.getuid() if hasattr(os, 'getuid') else 0}"
)
os.environ |= {
    "HF_HOME": str(CACHE / "hub"),
    "HF_HUB_OFFLINE": "1",
    "XDG_CACHE_HOME": str(CACHE / "user"),
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


# Under nohup it is ignored, by the processes started here too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Two workers share two cores: more threads would only wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Run as a user does, whose shapes nobody checks: for what happens with arguments that do not fit."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return Chromium, one for all tests of a process."""
    with chromium() as launched:
        yield launched
