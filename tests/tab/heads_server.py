"""A small TensorBoard for tests of the Heads tab: the real plugin's routes inside a page that frames it as TensorBoard does."""

import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

from headscope.record.schema import FOLDER, INDEX, Text
from headscope.record.writer import HeadRecorder
from records import random_maps

with warnings.catch_warnings():  # TensorBoard brings an html5lib that calls itself deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from tensorboard.backend.application import TensorBoardWSGI
    from tensorboard.plugins.base_plugin import TBContext

    from headscope.tab.plugin import HeadsPlugin

HOST_PAGE = """<!DOCTYPE html><html><body style="margin:0" class="{theme}">
<iframe id="tab" title="Heads" src="data/plugin_entry.html?name=heads"
 style="position:fixed;inset:0;width:100%;height:100%;border:0"></iframe></body></html>"""


class Provider:
    """What the plugin asks TensorBoard's data provider: which runs there are. All folders of the logdir are."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = logdir

    def list_tensors(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def list_runs(self, *_: Any, **__: Any) -> list[Any]:
        folders = sorted(path for path in self.logdir.iterdir() if path.is_dir())
        return [SimpleNamespace(run_name=folder.name) for folder in folders]


class Quiet(WSGIRequestHandler):
    """Serve without a line for each request."""

    def log(self, *_: Any, **__: Any) -> None:
        return None


@dataclass
class Server:
    """A server that runs: its address, and what was asked for."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(logdir: Path) -> Iterator[Server]:
    """Serve the records below a folder until the block ends."""
    plugin = HeadsPlugin(TBContext(logdir=str(logdir), data_provider=Provider(logdir)))
    board = TensorBoardWSGI([plugin])
    state = Server("")

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        state.asked.append(request.full_path)
        if request.path == "/":
            page = HOST_PAGE.format(theme="dark-mode" if "dark" in request.args else "")
            return Response(page, mimetype="text/html")(environ, start_response)
        if request.path == "/favicon.ico":
            return Response(status=204)(environ, start_response)
        answer: Iterable[bytes] = board(environ, start_response)
        return answer

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    state.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class TensorBoard:
    """The real one, in a process of its own."""

    url: str

    def get(self, route: str, **query: Any) -> httpx.Response:
        return httpx.get(f"{self.url}data/{route}", params=query, timeout=600, trust_env=False)

    def until(self, route: str, holds: Callable[[httpx.Response], bool]) -> None:
        """Ask again and again until the answer is as it should be: runs are found one by one."""
        for _ in range(600):
            if holds(self.get(route)):
                return
            time.sleep(0.1)
        raise AssertionError(route)


@contextmanager
def starting_tensorboard(logdir: Path, *options: str) -> Iterator[TensorBoard]:
    """Start TensorBoard on the loopback alone, and end it with the block."""
    words = [f"--logdir={logdir}", "--port=0", "--host=127.0.0.1", "--reload_interval=1", *options]
    command = [sys.executable, "-m", "tensorboard.main", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        found = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in process.stdout)
        yield TensorBoard(next(match[0] for match in found if match))
    finally:
        process.terminate()
        process.communicate(timeout=600)


def maps_of(seed: int, layers: int, heads: int, count: int) -> list[np.ndarray]:
    """Return a map [heads, count, count] for each layer, all of them different."""
    return list(random_maps(seed, layers, heads, count))


def write_run(
    logdir: Path,
    run: str,
    texts: list[Text],
    steps: Mapping[int, dict[str, np.ndarray]],
    **options: Any,
) -> Path:
    """Record a run from the arrays of each step, and return its folder of heads."""
    recorder = HeadRecorder(logdir / run, texts, **options)
    for step, arrays in steps.items():
        recorder.write(step, arrays)
    assert (logdir / run / FOLDER / INDEX).exists()
    return logdir / run / FOLDER
