"""The backend of the Heads tab: reads the record of a run when somebody looks at it, and keeps nothing of its maps.

What an address names and what a file holds are not trusted: what is unknown or broken is answered with what is wrong
and what to do, and every other run and step can still be seen. A run is one that TensorBoard's data provider lists, and
nothing is opened that lies outside the logdir, whatever `..` or link leads to it.
"""

import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboard.backend.http_util import Respond
from tensorboard.plugin_util import context as request_context
from tensorboard.plugin_util import experiment_id
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug import Request, Response

from headscope.record.bounds import MEASURE, Shapes, check_measures
from headscope.record.reader import finite, nested, pack, read_members, record_errors, series_of
from headscope.record.schema import (
    FOLDER,
    INDEX,
    LARGEST_INDEX,
    Arrays,
    Index,
    RecordError,
    content_of,
    notes_of,
    read_index,
    recorded,
)
from headscope.tab.page import STATIC, PageText, page
from headscope.tab.summaries import PLUGIN

KEPT = LARGEST_INDEX  # bytes of the index files whose content is kept; in memory it takes some eight times as much
CONTENT_TYPES = {".js": "text/javascript", ".css": "text/css"}
SMALL, NUMBERS = (
    2**20,
    2**22,
)  # bytes: what is no map and larger than that is not sent as JSON; of all of it
LINES, LISTED = (
    1000,
    2**18,
)  # steps that lines over the steps are made of; members that their files may list
MEAN = re.compile("numbers/.+/mean", re.DOTALL)
Answer = Callable[[Request], Response]


class Records:
    """The records below a logdir, or none (--logdir_spec). Only indexes are kept, no more than `KEPT` bytes of them."""

    def __init__(self, logdir: str | None) -> None:
        self.logdir = logdir or ""
        # What was found at a path when it had this time, size and number: what is wrong with a record is kept too.
        self._kept: OrderedDict[Path, tuple[tuple[int, ...], Index | str]] = OrderedDict()
        self._lock = threading.Lock()  # TensorBoard answers each request in a thread of its own

    def root(self) -> Path:
        """Return the resolved logdir; RecordError if there is none on this machine."""
        if not self.logdir:
            raise RecordError(
                "TensorBoard was started without --logdir (or with --logdir_spec); give --logdir=FOLDER"
            )
        root = Path(self.logdir).expanduser()
        if not root.is_dir():
            raise RecordError(
                f"logdir {self.logdir!r} is no folder of this machine; start TensorBoard with one"
            )
        return root.resolve()

    def runs(self, provider: Any, context: Any, experiment: str) -> list[str]:
        """Return the runs that have the marker, and those without it that have an index, by the data provider."""
        if provider is None:
            return []
        self.root()  # says so if there is none
        marked = set(provider.list_tensors(context, experiment_id=experiment, plugin_name=PLUGIN))
        listed = {run.run_name for run in provider.list_runs(context, experiment_id=experiment)}
        return sorted(marked | {run for run in listed - marked if self._has_index(run)})

    def _has_index(self, run: str) -> bool:
        with suppress(RecordError):
            return self.file(run, INDEX).is_file()
        return False

    def file(self, run: str, name: str) -> Path:
        """Return a file in the record of a listed run; RecordError if it is missing or outside the logdir."""
        root = self.root()
        try:
            path = (root / run / FOLDER / name).resolve()
            inside, there = path.is_relative_to(root), path.exists()
        except (OSError, RuntimeError, ValueError) as error:
            raise RecordError(f"{name}: cannot be looked up: {error}") from error
        if not inside:
            raise RecordError(
                f"{name}: lies outside the logdir, so it is not opened; start TensorBoard further up"
            )
        if not there:
            raise RecordError(
                f"{name}: is missing; nothing has been recorded yet, or it was moved or deleted"
            )
        return path

    def index(self, run: str) -> Index:
        """Return the index of a listed run, not to be changed; RecordError if it is missing, broken or outside."""
        path = self.file(run, INDEX)
        if (
            path.name != INDEX
        ):  # what lies beside it under the right name may itself be a link that leads outside
            raise RecordError(
                f"{INDEX}: is a link to a file of another name, {path.name}; put the file itself there"
            )
        with record_errors(path):
            stat = path.stat()
        stamp = (
            stat.st_ctime_ns,
            stat.st_size,
            stat.st_ino,
        )  # of the time when permissions changed, too
        with self._lock:
            found = self._kept.get(path, ((), None))
        if found[0] != stamp:
            found = stamp, _read(path)
        with self._lock:
            is_new, self._kept[path] = self._kept.get(path) is not found, found
            self._kept.move_to_end(path)
            while (
                is_new
                and len(self._kept) > 1
                and sum(size for (_, size, _), _ in self._kept.values()) > KEPT
            ):
                self._kept.popitem(last=False)
        if isinstance(found[1], str):
            raise RecordError(found[1])
        return found[1]


def _read(path: Path) -> Index | str:
    """Return an index, or what is wrong with it."""
    try:
        with record_errors(path):
            return read_index(path.parent)
    except RecordError as error:
        return str(error)


class ParameterError(Exception):
    """A parameter that is missing or not what it should be."""


class HeadsPlugin(TBPlugin):
    """The routes below data/plugin/heads/, by the data provider and the logdir of the context."""

    plugin_name = PLUGIN

    def __init__(self, context: TBContext) -> None:
        self.provider, self.records = context.data_provider, Records(context.logdir)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """Return each route's application."""
        routes: dict[str, Answer] = {
            "/runs": self._runs,
            "/index": self._index,
            "/maps": self._maps,
            "/numbers": self._numbers,
            "/series": self._series,
            "/page": self._page,
            "/static/*": _static,
        }
        return {route: Request.application(_guarded(answer)) for route, answer in routes.items()}

    def is_active(self) -> bool:
        """Return False: TensorBoard itself looks for the marker, and asks this only where no run has it."""
        return False

    def frontend_metadata(self) -> FrontendMetadata:
        """Return where the module of the tab is, and what it is called."""
        return FrontendMetadata(es_module_path="/static/index.js", tab_name="Heads")

    def _listed(self, request: Request) -> list[str]:
        return self.records.runs(
            self.provider, request_context(request.environ), experiment_id(request.environ)
        )

    def _runs(self, request: Request) -> Response:
        runs = [self._described(run) for run in self._listed(request)]
        return _json(request, {"runs": runs, "logdir": self.records.logdir})

    def _described(self, run: str) -> dict[str, Any]:
        """Return what the list of runs says of a run, with the reason where its record cannot be read."""
        try:
            index, error = self.records.index(run), None
        except RecordError as reason:
            index, error = Index([], [], []), f"run {run!r}: {reason}"
        times = [
            step.time for step in index.steps
        ]  # of any step, since one may be amended after the last was written
        return {
            "run": run,
            "error": error,
            "steps": len(index.steps),
            "first": index.steps[0].step if index.steps else None,
            "last": index.steps[-1].step if index.steps else None,
            "recorded": index.recorded,
            "texts": [text.name for text in index.texts],
            "layers": index.layers,
            "heads": index.heads,
            "time": max(times) if times and all(map(math.isfinite, times)) else None,
        }

    def _run(self, request: Request) -> tuple[str, Index]:
        """Return the run that is asked for, and its index."""
        run = _parameter(request, "run", ".+", "the name of a run")
        if run not in self._listed(request):
            raise RecordError(
                "is no run that TensorBoard lists with a record of heads; see data/plugin/heads/runs"
            )
        return run, self.records.index(run)

    def _step(self, request: Request) -> tuple[Path, Index, int]:
        """Return the file of the step that is asked for, the index of its run, and the step's number."""
        number = int(_parameter(request, "step", "-?[0-9]{1,18}", "the number of a step"))
        run, index = self._run(request)
        files = [step.file for step in index.steps if step.step == number]
        if not files:
            raise RecordError(
                f"step {number} is not in its record; data/plugin/heads/index lists those that are"
            )
        return self.records.file(run, files[0]), index, number

    def _index(self, request: Request) -> Response:
        _, index = self._run(request)
        return _json(request, finite(content_of(index)))

    def _maps(self, request: Request) -> Response:
        text = _text(request)
        path, index, _ = self._step(request)
        arrays = _arrays_of(path, index, text)
        with record_errors(path):
            bundle = pack(arrays)
        return _answer(request, bundle, "application/octet-stream")

    def _numbers(self, request: Request) -> Response:
        path, index, _ = self._step(request)
        measures, extra = _numbers_of(path, index)
        return _json(request, {"measures": measures, "extra": extra})

    def _series(self, request: Request) -> Response:
        """Answer with the means of every head over the steps; over some of them, evenly spread, where they are many."""
        run, index = self._run(request)
        steps = index.steps[:: -(-len(index.steps) // LINES) or 1]
        steps += [] if steps[-1:] == index.steps[-1:] else index.steps[-1:]
        tables: list[Arrays] = []
        errors: list[RecordError] = []
        listed = 0

        def means(sizes: Mapping[str, int]) -> list[str]:
            nonlocal listed
            listed += len(sizes)
            check_measures([name for name in sizes if not name.startswith("text_")])
            return [name for name, size in sizes.items() if size <= SMALL and MEAN.fullmatch(name)]

        for step in steps:
            try:
                tables.append(
                    read_members(
                        self.records.file(run, step.file), means, Shapes(index.heads, 0).check
                    )
                )
            except RecordError as error:  # a gap in the lines, as long as there are others
                tables.append({})
                errors.append(error)
            if listed > LISTED:
                raise RecordError(
                    f"no lines over the steps: the files of {len(tables)} list more than {LISTED} arrays"
                )
        if errors and len(errors) == len(tables):
            raise errors[-1]
        numbers = [step.step for step in steps]
        return _json(
            request,
            {"steps": numbers, "measures": series_of(tables), "errors": [str(it) for it in errors]},
        )

    def _page(self, request: Request) -> Response:
        text = _text(request)
        path, index, step = self._step(request)
        arrays, (measures, extra) = _arrays_of(path, index, text), _numbers_of(path, index)
        run, shown = request.args["run"], index.texts[text]
        with record_errors(path):
            answer = index.classes[int(arrays["nats/class"])] if "nats/class" in arrays else ""
            notes = {"run": run, "step": str(step)} | notes_of(
                recorded(arrays, answer, shown.tokens)
            )
            notes |= {str(key): str(value) for key, value in index.notes.items()}
            means = {name: kinds["mean"] for name, kinds in measures.items() if "mean" in kinds}
            errors = {name: kinds["error"] for name, kinds in measures.items() if "error" in kinds}
            content = PageText(shown, arrays, means, notes, None, extra, errors)
            html = page(f"{shown.name}, step {step}", index.layers, index.classes, [content])
        name = re.sub("[^A-Za-z0-9_-]+", "_", f"{run}_{shown.name}")[:100]
        headers = [("Content-Disposition", f'attachment; filename="{name}_step_{step}.html"')]
        return _answer(request, html, "text/html", headers=headers)


def _arrays_of(path: Path, index: Index, text: int) -> Arrays:
    """Return the members of one text that a page shows, by their names without text_t/."""
    if text >= len(index.texts):
        raise RecordError(
            f"text {text} is not in its record, which has {len(index.texts)}, counted from 0"
        )
    own = f"text_{text}/"
    shapes = Shapes(index.heads, len(index.classes), len(index.texts[text].tokens))

    def shown(sizes: Mapping[str, int]) -> list[str]:
        return [
            name for name in sizes if name.startswith(own) and shapes.known(name.removeprefix(own))
        ]

    found = read_members(
        path, shown, lambda name, *header: shapes.check(name.removeprefix(own), *header)
    )
    if not found:
        raise RecordError(f"{path.name}: holds nothing of text {text}; choose another step")
    arrays = {name.removeprefix(own): array for name, array in found.items()}
    with record_errors(path):
        shapes.check_text(arrays)
    return arrays


def _numbers_of(path: Path, index: Index) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return {measure: {"mean": [layer][head], "error": ...}} of a step, and what else it has that is small."""

    def small(sizes: Mapping[str, int]) -> list[str]:
        names = [name for name in sizes if not name.startswith("text_")]
        check_measures(names)
        return [name for name in names if sizes[name] <= SMALL]

    arrays = read_members(path, small, Shapes(index.heads, len(index.classes)).check, NUMBERS)
    with record_errors(path):
        extra = {name: nested(array) for name, array in arrays.items()}
    measures: dict[str, dict[str, Any]] = {}
    for match in filter(None, map(MEASURE.fullmatch, list(extra))):
        measures.setdefault(match[1], {})[match[2]] = extra.pop(match[0])
    return measures, extra


def _guarded(answer: Answer) -> Answer:
    """Return `answer` for GET and HEAD alone, with what goes wrong told in JSON."""

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


def _parameter(request: Request, name: str, pattern: str, what: str) -> str:
    value = request.args.get(name, "")
    if not re.fullmatch(pattern, value, re.DOTALL):
        raise ParameterError(f"parameter {name} is {value!r}; it must be {what}, as in {name}=1")
    return value


def _text(request: Request) -> int:
    return int(_parameter(request, "text", "[0-9]{1,9}", "the number of a text, counted from 0"))


def _json(request: Request, content: dict[str, Any], status: int = 200) -> Response:
    # TensorBoard's own encoding would write NaN as a string.
    return _answer(request, json.dumps(content, allow_nan=False), "application/json", code=status)


def _answer(request: Request, content: str | bytes, content_type: str, **details: Any) -> Response:
    # It tells the browser not to guess types, and what the page may fetch; and gives HEAD the length alone.
    response: Response = Respond(request, content, content_type, **details)
    return response


def _static(request: Request) -> Response:
    """Return a file of the tab; nothing from elsewhere."""
    name = request.path.partition("/static/")[2]
    try:
        path = (STATIC / name).resolve()
        found = path.is_relative_to(STATIC.resolve()) and path.is_file()
    except (OSError, RuntimeError, ValueError):
        found = False
    if not found or path.suffix not in CONTENT_TYPES:
        raise RecordError(
            f"static/{name}: is no file of the Heads tab; install headscope again if the tab needs it"
        )
    return _answer(request, path.read_bytes(), CONTENT_TYPES[path.suffix])
