"""What all tests share: shapes are checked where tensors are computed, and nothing of the user's is read or written."""

import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import config, install_import_hook

from chromium import PageOpener, chromium, opening_pages
from hard.forked import Server

# Annotated shapes and types are checked at each call during the tests, and in the tests alone.
# Importing takes five seconds longer if all of headscope is checked, most of which has no tensors.
ROOMS = ["attention", "model", "heads", "proof", "data.batching", "data.evidence", "data.features"]
ROOMS += ["runs.prediction", "training.module", "results.scores", "results.baseline"]
install_import_hook([f"headscope.{name}" for name in ROOMS], "beartype.beartype")

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


LONGEST = ("test_processes", "test_readme", "test_launchers")
gc.disable()  # until all is imported, of which nothing is ever freed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker ends long after the other."""
    items.sort(key=lambda item: Path(item.path).stem not in LONGEST)


def pytest_collection_finish() -> None:
    """Let no garbage collection look again and again at a million objects that stay."""
    gc.freeze()
    gc.enable()


# Under nohup it is ignored, by the processes started here too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Two workers share two cores: more threads would only wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Run as a user does, whose shapes nobody checks: with arguments that do not fit, or three times as fast."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unchecked_shapes: None
) -> Callable[..., str]:
    """Return what runs a command in this process, which has imported it, and returns all it prints."""
    from headscope.cli.main import main

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("headscope.cli.main.warnings_as_notes", lambda: None)

    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        shown = capsys.readouterr()
        assert int(ended.value.code or 0) == code, shown
        return shown.out + shown.err

    return run


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what has a signal come, once, in the middle of a training, after so many batches; Ctrl-C by default."""
    from headscope.training.module import ClassifierModule

    step = ClassifierModule.training_step

    def press(batches: int, *signals: int) -> None:
        left = iter(range(batches - 1, -1, -1))

        def pressed(module: Any, *args: Any) -> Any:
            loss = step(module, *args)
            if next(left, None) == 0:
                for number in signals or (signal.SIGINT,):
                    os.kill(os.getpid(), number)
            return loss

        monkeypatch.setattr(ClassifierModule, "training_step", pressed)

    return press


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return Chromium, one for all tests of a process."""
    with chromium() as launched:
        yield launched


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[PageOpener]:
    """Return what opens a page in a browser, once it shows what is waited for."""
    with opening_pages(browser, tmp_path / "page.html") as opener:
        yield opener


@pytest.fixture(scope="session")
def server() -> Server:
    """Return what runs commands as processes, forked from one that has imported torch; one for each worker."""
    return Server()


def trained_once(name: str) -> Any:
    """Return a fixture: the run of a configuration of training_runs, which all workers share."""

    @pytest.fixture(scope="session")
    def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
        import training_runs  # which imports what takes seconds

        make = partial(training_runs.trained, getattr(training_runs, name))
        return training_runs.once(tmp_path_factory, name, make)

    return run


plain = trained_once("plain")
mistaken = trained_once("mistaken")
of_pairs = trained_once("of_pairs")
any_classes = trained_once("any_classes")
