"""The backend of the Heads tab: reads the record of a run when somebody looks at it.

What an address names and what a file holds are not trusted: what is unknown or broken is answered
with what is wrong and what to do, and every other run and step can still be seen. A run is one that
TensorBoard's data provider lists, and nothing outside the logdir is opened, whatever `..` or link
leads to it.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import TypeAdapter
from tensorboard.backend.http_util import Respond
from tensorboard.plugin_util import context as request_context
from tensorboard.plugin_util import experiment_id
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug import Request, Response

from headscope.record.reader import (
    MOST_MIB_NUMBERS,
    check_size,
    is_of_heads,
    numbers_of,
    pack,
    read_index,
    read_step,
    read_text,
    record_errors,
)
from headscope.record.schema import (
    FOLDER,
    INDEX,
    INDEX_ADAPTER,
    Arrays,
    Index,
    Numbers,
    PageText,
    RecordError,
    Step,
)
from headscope.tab.html import STATIC, texts_page
from headscope.tab.summaries import PLUGIN

WORDS = "words.csv"  # of a run, beside its record
METRICS = "metrics.json"
MOST_MIB_WORDS = 64
MOST_MIB_METRICS = 16
SILENT = 600.0  # seconds without a new file, after which a run no longer trains
CONTENT_TYPES = {".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
Answer = Callable[[Request], Response]


@dataclass(frozen=True)
class Sure:
    """What metrics.json has of how often a run is right, by confidence, and on which texts."""

    accuracy_by_confidence: list[tuple[float, int, int]] | None
    most_unknown: float


SURE = TypeAdapter(Sure)


class ParameterError(Exception):
    """A parameter that is missing or malformed."""


class HeadsPlugin(TBPlugin):
    """The routes below data/plugin/heads/, by the data provider and the logdir of the context."""

    plugin_name = PLUGIN

    def __init__(self, context: TBContext) -> None:
        self.provider = context.data_provider
        self.reading = Lock()
        self.logdir = context.logdir or ""  # "" with --logdir_spec
        path = Path(self.logdir)
        self.shown_logdir = path.name if path.is_absolute() else self.logdir

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """Return each route's application."""
        routes: dict[str, Answer] = {
            "/runs": self._runs,
            "/index": self._index,
            "/maps": self._maps,
            "/numbers": self._numbers,
            "/words": self._words,
            "/page": self._page,
            "/static/*": _static,
        }
        return {route: Request.application(_guarded(answer)) for route, answer in routes.items()}

    def is_active(self) -> bool:
        """Return False: TensorBoard looks for the marker, and asks only where no run has it."""
        return False

    def frontend_metadata(self) -> FrontendMetadata:
        """Return the module and the name of the tab."""
        return FrontendMetadata(es_module_path="/static/index.js", tab_name="Heads")

    def _root(self) -> Path:
        root = Path(self.logdir).expanduser()
        if not self.logdir or not root.is_dir():
            raise RecordError(
                f"logdir: expected a folder of this machine, got {self.shown_logdir!r}; "
                "start TensorBoard with --logdir=FOLDER"
            )
        return root.resolve()

    def _file(self, run: str, name: str, folder: str = FOLDER) -> Path:
        """Return a file below a listed run's folder; RecordError if it is missing or outside."""
        root = self._root()
        try:
            path = (root / run / folder / name).resolve()
            exists = path.exists()
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__  # no path
            raise RecordError(f"{name}: cannot be looked up: {reason}") from error
        if not path.is_relative_to(root) or path.name != name:  # a link may lead anywhere
            raise RecordError(
                f"{name}: is a link, or lies outside the logdir; start TensorBoard further up"
            )
        if not exists:
            raise RecordError(f"{name}: is missing; nothing was recorded yet, or it was deleted")
        return path

    def _listed(self, request: Request) -> list[str]:
        """Return the runs that TensorBoard lists and that have the marker or an index."""
        if self.provider is None:
            return []
        self._root()  # raises if there is none
        context = request_context(request.environ)
        experiment = experiment_id(request.environ)
        marked = self.provider.list_tensors(context, experiment_id=experiment, plugin_name=PLUGIN)
        runs = self.provider.list_runs(context, experiment_id=experiment)
        others = {run.run_name for run in runs} - {*marked}
        return sorted([*marked, *filter(self._has_index, others)])

    def _has_index(self, run: str) -> bool:
        with suppress(RecordError):
            return self._file(run, INDEX).is_file()
        return False

    def _read_index(self, run: str) -> Index:
        """Return the index of a listed run, not to be changed; RecordError if it cannot be read."""
        path = self._file(run, INDEX)
        with record_errors(path):
            stat = path.stat()
        return _cached_index(path, (stat.st_ctime_ns, stat.st_size, stat.st_ino))

    def _runs(self, request: Request) -> Response:
        runs = list(map(self._summary, self._listed(request)))
        return _json(request, {"runs": runs, "logdir": self.shown_logdir})

    def _summary(self, run: str) -> dict[str, Any]:
        """Return how many steps a run has and when one changed, or why it cannot be read.

        `trained` says whether it is a run folder of headscope's, which its commands take;
        `training` the last recorded step and the last step of all, while the run trains.
        """
        steps: Sequence[Step] = ()
        total = None
        error = None
        try:
            index = self._read_index(run)
            steps = index.steps
            total = index.total
        except RecordError as reason:
            error = f"run {run!r}: {reason}"
        last = max((step.time for step in steps), default=None)
        summary = {"run": run, "error": error, "steps": len(steps), "time": last}
        own: dict[str, bool | list[int] | None] = {"trained": False, "training": None}
        with suppress(OSError):  # such as a name that is too long
            folder = self._root() / run
            weights = folder / "model.safetensors"
            own["trained"] = weights.is_file()
            if steps and total and steps[-1].step < total:
                is_done = own["trained"] and weights.stat().st_mtime >= steps[-1].time
                if not is_done and _is_alive(folder):
                    own["training"] = [steps[-1].step, total]
        return summary | own

    def _run(self, request: Request) -> tuple[str, Index]:
        """Return the requested run and its index."""
        run = _parameter(request, "run", ".+", "the name of a run")
        if run not in self._listed(request):
            raise RecordError("is no run with a record of heads; data/plugin/heads/runs lists them")
        return run, self._read_index(run)

    def _step(self, request: Request) -> tuple[Path, Index, int]:
        """Return the file of the requested step, the index of its run, and the step's number."""
        number = int(_parameter(request, "step", "-?[0-9]{1,18}", "the number of a step"))
        run, index = self._run(request)
        for step in index.steps:
            if step.step == number:
                return self._file(run, step.file), index, number
        raise RecordError(f"step {number} is not recorded; data/plugin/heads/index lists the steps")

    def _index(self, request: Request) -> Response:
        run, index = self._run(request)
        return _json(request, INDEX_ADAPTER.dump_python(index, mode="json") | self._sure(run))

    def _sure(self, run: str) -> dict[str, Any]:
        """Return how often the best step is right by confidence; {} where that is unknown."""
        with suppress(RecordError):
            path = self._file(run, METRICS, folder="")
            with record_errors(path):
                check_size(path, path.stat().st_size, MOST_MIB_METRICS)
                found = SURE.validate_json(path.read_bytes())
            return {"curve": found.accuracy_by_confidence, "most_unknown": found.most_unknown}
        return {}

    def _maps(self, request: Request) -> Response:
        text = _text(request)
        path, index, _ = self._step(request)
        arrays = _text_arrays(path, index, text)
        with record_errors(path):
            bundle = pack(arrays)
        return _respond(request, bundle, "application/octet-stream")

    def _numbers(self, request: Request) -> Response:
        path, _, _ = self._step(request)
        return _json(request, _read_numbers(path))

    def _words(self, request: Request) -> Response:
        run, index = self._run(request)
        path = self._file(run, WORDS, folder="")
        with record_errors(path):
            stat = path.stat()
            check_size(path, stat.st_size, MOST_MIB_WORDS)
        stamp = (stat.st_ctime_ns, stat.st_size, stat.st_ino)
        with self.reading:  # one of all readers computes it
            answer = _cached_words(path, stamp, sum(index.heads))
        if isinstance(answer, RecordError):
            raise answer
        return _respond(request, answer, "application/json")

    def _page(self, request: Request) -> Response:
        number = _text(request)
        path, index, step = self._step(request)
        arrays = _text_arrays(path, index, number)
        numbers = _read_numbers(path)
        text = index.texts[number]
        run = request.args["run"]
        with record_errors(path):
            notes = {"run": run, "step": str(step)} | index.notes
            shown = PageText(text, arrays, numbers, notes)
            title = f"{text.name}, step {step}"
            sure = self._sure(run) if step == index.best else None
            html = texts_page(title, index.layers, index.classes, [shown], sure)
        name = re.sub("[^A-Za-z0-9_-]+", "_", f"{run}_{text.name}")[:100]
        disposition = f'attachment; filename="{name}_step_{step}.html"'
        return _respond(request, html, "text/html", headers=[("Content-Disposition", disposition)])


@lru_cache(maxsize=32)  # of at most 8 MiB in JSON each; all runs are asked for every 10 seconds
def _cached_index(path: Path, _stamp: tuple[int, ...]) -> Index:
    return read_index(path.parent)


@lru_cache(maxsize=32)
def _cached_words(path: Path, _stamp: tuple[int, ...], heads: int) -> str | RecordError:
    """Return the words as JSON; or what is wrong with the file, which takes as long to find."""
    from headscope.record.words import read_words  # pandas is heavy, and TensorBoard waits

    try:
        with record_errors(path):
            return json.dumps(read_words(path, heads), allow_nan=False)
    except RecordError as error:
        return error


def _is_alive(folder: Path) -> bool:
    """Return whether a run has written something within ten minutes."""
    newest = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
    return time.time() - newest < SILENT


def _text_arrays(path: Path, index: Index, text: int) -> Arrays:
    """Return the arrays of one text."""
    if text >= len(index.texts):
        raise RecordError(f"text {text}: expected one of {len(index.texts)}, counted from 0")
    return read_text(path, text)


def _read_numbers(path: Path) -> Numbers:
    arrays = read_step(path, is_of_heads, MOST_MIB_NUMBERS)
    with record_errors(path):
        return numbers_of(arrays)


def _guarded(answer: Answer) -> Answer:
    """Return `answer` for GET and HEAD alone, with errors as JSON."""

    def guarded(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _json(request, {"error": f"{request.method} is not answered; use GET"}, 405)
        try:
            return answer(request)
        except ParameterError as error:
            return _json(request, {"error": str(error)}, 400)
        except RecordError as error:
            run = request.args.get("run")
            return _json(request, {"error": f"run {run!r}: {error}" if run else str(error)}, 404)

    return guarded


def _parameter(request: Request, name: str, pattern: str, expected: str) -> str:
    value = request.args.get(name, "")
    if not re.fullmatch(pattern, value, re.DOTALL):
        raise ParameterError(f"{name}: expected {expected}, got {value!r}; give it as {name}=1")
    return value


def _text(request: Request) -> int:
    return int(_parameter(request, "text", "[0-9]{1,9}", "the number of a text, counted from 0"))


def _json(request: Request, content: dict[str, Any], status: int = 200) -> Response:
    # TensorBoard's own encoding would write NaN as a string.
    return _respond(request, json.dumps(content, allow_nan=False), "application/json", code=status)


def _respond(request: Request, content: str | bytes, content_type: str, **details: Any) -> Response:
    # It forbids the browser to guess types, limits what it may fetch, and gives HEAD the length.
    response: Response = Respond(request, content, content_type, **details)
    return response


def _static(request: Request) -> Response:
    """Return a file of the tab, and nothing from elsewhere."""
    name = request.path.partition("/static/")[2]
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in CONTENT_TYPES}
    if name not in files:
        raise RecordError(f"static/{name}: is no file of the Heads tab; reinstall headscope")
    return _respond(request, files[name].read_bytes(), CONTENT_TYPES[files[name].suffix])
