"""The tour of hard cases: `pytest tests/hard -m slow` runs one of each kind, `make test-hard` all."""

from pathlib import Path

import pytest

from hard.forked import Server
from hard.interrupted import Whole


@pytest.fixture(scope="session")
def server() -> Server:
    """Return what runs cases, one for each worker."""
    return Server()


@pytest.fixture(scope="session")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return a training that nobody disturbed."""
    return Whole.trained(server, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def run(whole: Whole) -> Path:
    """Return the folder of a finished run."""
    return whole.run
