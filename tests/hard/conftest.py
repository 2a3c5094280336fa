"""The tour of hard cases: how many are run, and the table of how they ended.

`pytest tests/hard -m slow` runs some of each kind, and `make test-hard` all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hard.forked import Judge, Server
from hard.interrupted import Whole

SAMPLE = 1  # of each test, unless --hard=full


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hard", choices=("some", "full"), default="some", help="how many hard cases are tried"
    )


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Make none of the hostile files where only quick tests are wanted."""
    return True if config.getoption("-m") == "not slow" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tour as slow; keep some cases of each test, evenly spread, unless all are wanted."""
    here = Path(__file__).parent
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.slow)
            found.setdefault(item.nodeid.split("[")[0], []).append(item)
    is_named = config.getoption("-k") or any("::" in argument for argument in config.args)
    if is_named or config.getoption("--hard", "some") == "full":
        return
    left_out = {
        item
        for each in found.values()
        for item in each
        if item not in each[:: -(-len(each) // SAMPLE)]
    }
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Return what runs cases, one for each worker."""
    started = Server()
    yield started
    started.close()


@pytest.fixture(scope="session")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return a training that nobody disturbed."""
    return Whole.trained(server, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def run(whole: Whole) -> Path:
    """Return the folder of a finished run."""
    return whole.run


@pytest.fixture
def judge(record_property: Callable[[str, Any], None]) -> Iterator[Judge]:
    """Return what a test tells of each case: its kind, its name, and what went wrong."""
    failed: list[str] = []

    def told(kind: str, name: str, mistakes: Sequence[str]) -> None:
        record_property("hard", (kind, bool(mistakes)))
        failed.extend(f"{name}: {mistake}" for mistake in mistakes)

    yield told
    if failed:
        pytest.fail("\n".join(failed), pytrace=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was tried and how it ended, as a table."""
    tried, wrong = Counter[str](), Counter[str]()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if report.when != "call":  # the teardown repeats what the call has recorded
                continue
            told = [value for key, value in report.user_properties if key == "hard"]
            tried.update(kind for kind, _ in told)
            wrong.update(kind for kind, is_wrong in told if is_wrong)
    if tried:
        terminalreporter.section("hard cases")
        terminalreporter.write_line("| What is tried | Cases | Right | Wrong |")
        terminalreporter.write_line("|---|---|---|---|")
        for kind in sorted(tried):
            terminalreporter.write_line(
                f"| {kind} | {tried[kind]} | {tried[kind] - wrong[kind]} | {wrong[kind]} |"
            )
