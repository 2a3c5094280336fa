"""The Heads tab inside the real `tensorboard` command, under each of its loaders."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from headscope.tab.summaries import write_marker
from pages import unpack
from records import step_arrays

PATIENCE = 120  # seconds; two busy cores may be slow
START = (
    "import sys; from tensorboard.main import run_main; "
    "sys.argv[0] = 'tensorboard'; sys.exit(run_main())"
)
LOADERS = ["false", "true"] if find_spec("tensorboard_data_server") else ["false"]
Get = Callable[..., tuple[int, bytes]]


@contextmanager
def tensorboard(logdir: Path, load_fast: str) -> Iterator[Get]:
    """Start TensorBoard on the loopback alone, give a function that asks it, and end it."""
    options = [f"--logdir={logdir}", "--port=0", "--host=127.0.0.1", "--reload_interval=1"]
    command = [sys.executable, "-c", START, *options, f"--load_fast={load_fast}"]
    log = logdir.parent / "tensorboard.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL
        )
    try:
        address = re.compile(r"http://127\.0\.0\.1:\d+/")
        base = until(lambda: address.search(log.read_text()), process)[0]
        yield lambda route, **query: get(f"{base}data/{route}?{urllib.parse.urlencode(query)}")
    finally:
        process.terminate()
        process.wait(PATIENCE)


def until(look: Callable[[], Any], process: Any = None) -> Any:
    """Look again and again, and return the first thing that is seen."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if seen := look():
            return seen
        assert process is None or process.poll() is None
        time.sleep(0.1)
    raise AssertionError(f"nothing within {PATIENCE} s")


def get(url: str) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for run in (".", "deep/日本"):
        recorder = HeadRecorder(folder / run, [Text("probe", ["a", "b"], "a b", "x")], ["x", "y"])
        for step in (0, 4):
            maps = [[np.full((2, 2, 2), 0.5)]]
            recorder.write(step, step_arrays(maps, probabilities=[[1.0, 0.0]]))
        write_marker(folder / run)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("load_fast", LOADERS)
def test_tensorboard_shows_the_same_under_each_loader(logdir: Path, load_fast: str) -> None:
    with tensorboard(logdir, load_fast) as ask:
        until(lambda: json.loads(ask("plugins_listing")[1]).get("heads", {}).get("enabled"))
        until(lambda: len(json.loads(ask("plugin/heads/runs")[1])["runs"]) == 2)
        runs = json.loads(ask("plugin/heads/runs")[1])
        assert [(run["run"], run["steps"], run["error"]) for run in runs["runs"]] == [
            (".", 2, None),
            ("deep/日本", 2, None),
        ]
        assert runs["logdir"] == str(logdir)
        for run in (".", "deep/日本"):
            check_routes(ask, run)
        status, answer = ask("plugin/heads/index", run="../" + logdir.name)
        assert (status, list(json.loads(answer))) == (404, ["error"])
        status, script = ask("plugin/heads/static/index.js")
        assert (status, b"render" in script) == (200, True)
        status, entry = ask("plugin_entry.html", name="heads")
        assert (status, b"./static/index.js" in entry) == (200, True)


def check_routes(ask: Get, run: str) -> None:
    status, answer = ask("plugin/heads/index", run=run)
    assert (status, [step["step"] for step in json.loads(answer)["steps"]]) == (200, [0, 4])
    status, answer = ask("plugin/heads/maps", run=run, step=4, text=0)
    arrays = unpack(answer)
    assert (status, arrays["layer_0/weights"].tolist()) == (200, np.full((2, 2, 2), 0.5).tolist())
