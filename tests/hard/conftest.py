"""The tour of hard cases: `pytest tests/hard -m slow` runs one of each kind, `make test-hard` all."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hard.forked import Judge, Server
from hard.interrupted import Whole


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hard", choices=("some", "full"), default="some", help="how many hard cases")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Make none of the hostile files where only quick tests are wanted."""
    return True if config.getoption("-m") == "not slow" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tour as slow; keep the first case of each test, unless all are wanted."""
    here = Path(__file__).parent
    is_whole = config.getoption("-k") or any("::" in argument for argument in config.args)
    is_whole = is_whole or config.getoption("--hard", "some") == "full"
    seen: set[str] = set()
    left_out = []
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.slow)
            test = item.nodeid.split("[")[0]
            if test in seen and not is_whole:
                left_out.append(item)
            seen.add(test)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


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


@pytest.fixture
def judge() -> Iterator[Judge]:
    """Return what a test tells of each case: its kind, its name, and what went wrong."""
    failed: list[str] = []

    def told(kind: str, name: str, mistakes: Sequence[str]) -> None:
        failed.extend(f"{kind}, {name}: {mistake}" for mistake in mistakes)

    yield told
    if failed:
        pytest.fail("\n".join(failed), pytrace=False)
