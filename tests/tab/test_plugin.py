"""The Heads tab's routes: what they answer, and what they refuse."""

import json
import logging
import os
import pickle
import shutil
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from werkzeug.test import Client

with warnings.catch_warnings():  # what tensorboard imports warns about itself
    warnings.simplefilter("ignore")
    from tensorboard.backend.application import TensorBoardWSGI
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.base_plugin import TBContext

from headscope.record.reader import nested, pack, read_index, read_step
from headscope.record.schema import FOLDER, Text
from headscope.record.writer import HeadRecorder
from headscope.tab import plugin
from headscope.tab.loader import HeadsLoader
from headscope.tab.plugin import HeadsPlugin
from headscope.tab.summaries import write_marker
from page_contents import texts_of, unpack
from records import random_maps, step_arrays

LONG = 24  # tokens
LAST = "step_000000000010.npz"
TEXTS = [
    Text("short", ["[CLS]", "日本", "</script>", "[SEP]"], "日本 </script>", "good"),
    Text("long", [f"t{number}" for number in range(LONG)], "a long text"),
]
Ask = Callable[..., Any]
OF_TEXT = {"step": 10, "text": 0}
STEP_ROUTES = {"maps": OF_TEXT, "numbers": {"step": 10}, "page": OF_TEXT}
RUN_ROUTES = {"index": {}, "words": {}, **STEP_ROUTES}
BUNDLED = st.sampled_from([np.uint8, np.int32, np.float32, np.float16]).flatmap(
    lambda kind: arrays(kind, array_shapes(min_dims=0, min_side=0, max_side=5))
)


class Provider:
    """A data provider that lists what it is told to."""

    def __init__(self, marked: list[str], others: list[str] | None = None) -> None:
        self.marked, self.others = marked, others or []

    def list_tensors(self, context: Any, *, experiment_id: str, plugin_name: str) -> dict[str, Any]:
        assert plugin_name == "heads"
        return {run: {} for run in self.marked}

    def list_runs(self, context: Any, *, experiment_id: str) -> list[Any]:
        return [SimpleNamespace(run_name=run) for run in self.marked + self.others]


def maps_of(seed: int, tokens: int) -> np.ndarray:
    return random_maps(seed, 2, 3, tokens)


def numbers_of(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    means = np.random.default_rng(seed).random((2, 3)).astype(np.float32)
    means[1, 2] = np.nan
    return {"entropy": (means, means / 10)}


def record(folder: Path, steps: tuple[int, ...] = (0, 10, 25)) -> HeadRecorder:
    recorder = HeadRecorder(folder, TEXTS, ("bad", "good"), notes={"precision": "float32"})
    for step in steps:
        arrays = step_arrays(
            [maps_of(step, 4), maps_of(step + 1, LONG)],
            numbers_of(step),
            pooling=[np.full(4, 0.25), None],
            probabilities=[[0.25, 0.75], [0.5, 0.5]],
            check=[1e-7, 2e-7],
        )
        recorder.write(step, arrays)
    return recorder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    record(folder / "mine")
    record(folder / "deep" / "other", (5,))
    return folder


@pytest.fixture
def logdir(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "logs"))


@pytest.fixture
def client(logdir: Path) -> Client:
    return make_client(logdir, Provider(["mine", "deep/other"]))


def make_client(logdir: Path | str | None, provider: Any) -> Client:
    context = TBContext(data_provider=provider, logdir=None if logdir is None else str(logdir))
    return Client(TensorBoardWSGI([HeadsPlugin(context)]))


@pytest.fixture
def ask(client: Client) -> Ask:
    return asker(client)


def asker(client: Client) -> Ask:
    """Return a function that asks a route and returns the answer."""

    def ask(route: str, **query: Any) -> Any:
        return client.get(f"/data/plugin/heads/{route}", query_string=query)

    return ask


def refused(answer: Any, status: int, *words: str) -> str:
    """Check that an answer is an error in JSON that says all the words, and return it."""
    assert answer.status_code == status
    assert answer.content_type == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    (key, message), *rest = answer.get_json().items()
    assert (key, rest) == ("error", [])
    assert [word for word in words if word not in message] == []
    return str(message)


# What is answered.


def test_runs_are_listed_with_what_they_hold(ask: Ask, logdir: Path) -> None:
    answer = ask("runs")
    other, mine = answer.get_json()["runs"]
    assert answer.get_json()["logdir"] == logdir.name, "not where it lies"
    assert other["run"] == "deep/other"
    time = read_index(logdir / "mine" / "heads").steps[-1].time
    expected = {"run": "mine", "error": None, "steps": 3, "time": time}
    assert mine == expected | {"trained": False, "training": None}


def test_a_run_trains_until_it_has_weights_or_has_been_silent(ask: Ask, logdir: Path) -> None:
    recorder = HeadRecorder(logdir / "mine", read_index(logdir / "mine" / FOLDER).texts)
    last = recorder.index.steps[-1].step

    def training() -> Any:
        return ask("runs").get_json()["runs"][1]["training"]

    recorder.index.total = last + 300
    recorder.amend(last, {})
    assert training() == [last, last + 300]
    weights = logdir / "mine" / "model.safetensors"
    weights.touch()
    os.utime(weights, (0, 0))  # of the run before it was resumed
    assert training() == [last, last + 300]
    weights.touch()
    assert training() is None
    weights.unlink()
    for path in (logdir / "mine").iterdir():
        os.utime(path, (0, 0))
    assert training() is None


def test_a_run_without_marker_is_listed_where_it_has_an_index(logdir: Path) -> None:
    (logdir / "other").mkdir()
    runs = asker(make_client(logdir, Provider([], ["mine", "other"])))("runs").get_json()["runs"]
    assert [run["run"] for run in runs] == ["mine"]


def test_the_index_is_the_file(ask: Ask, logdir: Path) -> None:
    assert ask("index", run="mine").get_json() == json.loads(
        (logdir / "mine/heads/index.json").read_bytes()
    )


@pytest.mark.parametrize("text", [0, 1])
def test_maps_are_the_arrays_of_the_text(ask: Ask, logdir: Path, text: int) -> None:
    answer = ask("maps", run="mine", step=10, text=text)
    assert answer.content_type == "application/octet-stream"
    found = unpack(answer.data)
    stored = read_step(logdir / "mine/heads" / LAST, lambda name: name.startswith(f"text_{text}/"))
    assert {f"text_{text}/{name}" for name in found} == set(stored)
    for name, array in found.items():
        np.testing.assert_array_equal(array, stored[f"text_{text}/{name}"], strict=True)
    expected = maps_of(10 + text, len(TEXTS[text].tokens))[1].astype(np.float16)
    np.testing.assert_array_equal(found["layer_1/weights"], expected, strict=True)


def test_numbers_have_null_where_there_is_none(ask: Ask, logdir: Path) -> None:
    recorder = record(logdir / "mine", ())
    recorder.amend(10, {"other": np.array([[1, np.inf]]), "curve": np.arange(3)})
    answer = ask("numbers", run="mine", step=10).get_json()
    means, errors = numbers_of(10)["entropy"]
    assert list(answer) == ["measures", "extra"]
    assert answer["measures"] == {"entropy": {"mean": nested(means), "error": nested(errors)}}
    assert answer["measures"]["entropy"]["mean"][1][2] is None
    assert answer["extra"] == {"other": [[1.0, None]], "curve": [0, 1, 2]}


@pytest.mark.parametrize(("run", "step"), [("mine", 10), ("deep/other", 5)])
def test_the_page_is_that_text_at_that_step(ask: Ask, run: str, step: int) -> None:
    answer = ask("page", run=run, step=step, text=0)
    assert answer.content_type == "text/html; charset=utf-8"
    name = run.replace("/", "_")
    file = f'"{name}_short_step_{step}.html"'
    assert answer.headers["Content-Disposition"] == f"attachment; filename={file}"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    (shown,) = texts_of(answer.text)
    assert f"<title>short, step {step}</title>" in answer.text
    assert (shown.text["tokens"], shown.text["label"]) == (TEXTS[0].tokens, "good")
    assert shown.probabilities == {"bad": 0.25, "good": 0.75}
    assert shown.text["notes"] == {"run": run, "step": str(step), "precision": "float32"}
    assert shown.numbers == {"entropy": nested(numbers_of(step)["entropy"][0])}
    sent = unpack(ask("maps", run=run, step=step, text=0).data)  # the very maps that the tab shows
    assert list(shown.arrays) == list(sent)
    for name, array in sent.items():
        np.testing.assert_array_equal(shown.arrays[name], array, strict=True)


def test_the_name_of_a_page_is_safe(logdir: Path) -> None:
    run = 'a"\r\nX: y; 日'
    record(logdir / run, (1,))
    answer = asker(make_client(logdir, Provider([run])))("page", run=run, step=1, text=0)
    assert (
        answer.headers["Content-Disposition"] == 'attachment; filename="a_X_y__short_step_1.html"'
    )
    assert "X" not in answer.headers


def test_the_module_of_the_tab_is_there(client: Client, ask: Ask) -> None:
    assert "render" in ask("static/index.js").text
    listing = client.get("/data/plugins_listing").get_json()["heads"]
    assert listing["tab_name"] == "Heads"
    assert listing["loading_mechanism"] == {
        "type": "IFRAME", "module_path": "/data/plugin/heads/static/index.js",
    }  # fmt: skip


def test_only_get_and_head(client: Client, ask: Ask) -> None:
    query = {"run": "mine", "step": 10, "text": 0}
    head = client.head("/data/plugin/heads/maps", query_string=query)
    assert (head.status_code, head.data) == (200, b"")
    assert head.headers["Content-Length"] == str(len(ask("maps", **query).data))
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        refused(client.open("/data/plugin/heads/runs", method=method), 405, method, "GET")


# What is unknown or malformed.


def test_a_run_that_is_not_listed_is_not_looked_up(ask: Ask) -> None:
    runs = [
        "none", "..", "../mine", "mine/../mine", "/etc", "/", "mine/", "./mine", "deep", "mine\0",
        "..%2fmine", "%2e%2e/mine", "..\\mine", "mine/heads", b"?", "Mine",
    ]  # fmt: skip
    for route, query in RUN_ROUTES.items():
        for run in runs:
            refused(ask(route, run=run, **query), 404, "is no run with a record of heads")


@pytest.mark.parametrize("run", ["../outside", "up/../../outside", "ABSOLUTE", "link", "linked"])
def test_a_listed_run_outside_the_logdir_is_refused(tmp_path: Path, run: str) -> None:
    logdir, outside = tmp_path / "logs", tmp_path / "outside"
    record(outside)
    (logdir / "up").mkdir(parents=True)
    (logdir / "link").symlink_to(outside)  # the whole run
    (logdir / "linked").mkdir()
    (logdir / "linked" / "heads").symlink_to(outside / "heads")
    run = run.replace("ABSOLUTE", str(outside))
    ask = asker(make_client(logdir, Provider([run])))
    assert "outside the logdir" in ask("runs").get_json()["runs"][0]["error"]
    for route, query in RUN_ROUTES.items():
        refused(ask(route, run=run, **query), 404, "index.json", "outside the logdir")
    assert asker(make_client(logdir, Provider([], [run])))("runs").get_json()["runs"] == []


def test_files_that_are_links_leading_outside_are_refused(
    ask: Ask, logdir: Path, tmp_path: Path
) -> None:
    record(tmp_path / "outside")
    path = logdir / "mine/heads/step_000000000010.npz"
    path.unlink()
    path.symlink_to(tmp_path / "outside/heads" / path.name)
    for route, query in STEP_ROUTES.items():
        refused(ask(route, run="mine", **query), 404, path.name, "outside the logdir")
    index = logdir / "mine/heads/index.json"
    index.rename(logdir / "other.json")
    for target in (tmp_path / "outside/heads/index.json", logdir / "other.json"):
        index.symlink_to(target)
        refused(ask("index", run="mine"), 404, "'mine'", "index.json", "outside the logdir")
        index.unlink()


def test_static_files_come_from_their_folder_alone(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = tmp_path / "static"
    static.mkdir()
    for path in (static / "heads.npz", tmp_path / "plugin.py", tmp_path / "secret.js"):
        path.touch()
    monkeypatch.setattr(plugin, "STATIC", static)
    for name in (
        "../plugin.py", "..%2fplugin.py", "%2e%2e/plugin.py", "/etc/passwd", "//etc/passwd", ".",
        "..\\plugin.py", "index.js%00.png", "heads.npz", "%252e%252e/plugin.py",
    ):  # fmt: skip
        refused(ask(f"static/{name}"), 404, "no file of the Heads tab")


@pytest.mark.parametrize("route", RUN_ROUTES)
def test_parameters_that_are_missing_or_malformed_are_named(ask: Ask, route: str) -> None:
    whole = {"run": "mine", **RUN_ROUTES[route]}
    for name in whole:
        others = {key: value for key, value in whole.items() if key != name}
        refused(ask(route, **others), 400, f"{name}: expected")
    for name in whole.keys() - {"run"}:
        for value in ("", "one", "1.0", "1e3", " 1", "1\n", "٣", "9" * 30, "0x1", "--1"):
            refused(ask(route, **{**whole, name: value}), 400, f"{name}: expected the number")


def test_unknown_steps_and_texts_are_answered_with_what_to_do(ask: Ask) -> None:
    for step in (11, -1, 10**15):
        refused(ask("numbers", run="mine", step=step), 404, "'mine'", f"step {step}", "/index")
    refused(ask("maps", run="mine", step=10, text=2), 404, "'mine'", "text 2", "one of 2")
    refused(ask("page", run="mine", step=10, text=2), 404, "'mine'", "text 2", "one of 2")


@pytest.mark.parametrize(
    ("logdir_given", "words"),
    [(None, "--logdir=FOLDER"), ("gs://x/y", "gs://x/y"), ("none", "none")],
)
def test_without_a_logdir_that_is_said(logdir_given: str | None, words: str) -> None:
    ask = asker(make_client(logdir_given, Provider(["mine"])))
    refused(ask("runs"), 404, words)
    refused(ask("index", run="mine"), 404, words)


def test_without_a_data_provider_there_are_no_runs(logdir: Path) -> None:
    assert asker(make_client(logdir, None))("runs").get_json()["runs"] == []


# What is broken, and that the rest still works.


def special(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what puts something else in the place of a file."""

    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


# What is wrong with a file: an index or a step.
DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": rewritten(lambda before: before[: len(before) // 2]),
    "empty": rewritten(lambda before: b""),
    "noise": rewritten(lambda before: b"PK\x03\x04" + bytes(range(256)) * 9),
    "flipped": rewritten(lambda before: before[:200] + b"\1\2\3\4" + before[204:]),  # in numbers
    "missing": special(lambda path: None),
    "pipe": special(os.mkfifo),
    "device": special(lambda path: path.symlink_to("/dev/zero")),
    "link to itself": special(lambda path: path.symlink_to(path.name)),
    "link outside": special(lambda path: path.symlink_to("/etc/passwd")),
    "folder": special(Path.mkdir),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_broken_is_named_and_the_rest_still_works(
    ask: Ask, logdir: Path, damage: str
) -> None:
    DAMAGES[damage](logdir / "mine/heads" / LAST)
    for route in {*STEP_ROUTES} - ({"maps"} if damage == "flipped" else set()):
        answer = ask(route, run="mine", **STEP_ROUTES[route])
        assert len(refused(answer, 404, "'mine'", LAST)) < 500
    assert set(unpack(ask("maps", run="mine", step=25, text=0).data)) >= {"pooling"}
    assert ask("runs").get_json()["runs"][1]["error"] is None
    if damage == "flipped":  # which is nothing to an index
        return
    DAMAGES[damage](logdir / "mine/heads/index.json")
    other, mine = ask("runs").get_json()["runs"]
    assert mine["error"].startswith("run 'mine': index.json: ")
    assert len(mine["error"]) < 400
    for route, query in RUN_ROUTES.items():
        assert refused(ask(route, run="mine", **query), 404) == mine["error"]
    assert other["error"] is None
    assert ask("maps", run="deep/other", step=5, text=0).status_code == 200


TRACE = Path(tempfile.gettempdir()) / f"headscope-was-unpickled-{os.getpid()}"


class Trap:
    """What would leave a trace if it were unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (TRACE,))


def test_nothing_is_unpickled(ask: Ask, logdir: Path) -> None:
    path = logdir / "mine/heads" / LAST
    trap = np.array([Trap()], dtype=object)
    arrays = read_step(path) | {"text_0/contributions/past": trap, "sets/enough": trap}
    np.savez(path, allow_pickle=True, **arrays)  # type: ignore[arg-type]
    for route, query in (("maps", {"text": 0}), ("numbers", {})):
        answer = ask(route, run="mine", step=10, **query)
        refused(answer, 404, "'mine'", LAST, "allow_pickle=False")
    assert ask("maps", run="mine", step=10, text=1).status_code == 200
    path.write_bytes(pickle.dumps(trap))
    refused(ask("maps", run="mine", step=10, text=1), 404, "'mine'", LAST)
    assert not TRACE.exists()


# Bundles.


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.text(max_size=8), BUNDLED, max_size=4))
def test_a_bundle_gives_back_what_was_packed(packed: dict[str, np.ndarray]) -> None:
    packed_bytes = pack(packed)
    found = unpack(packed_bytes)
    assert list(found) == list(packed)
    for name, array in packed.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    (length,) = struct.unpack_from("<I", packed_bytes)
    header = json.loads(packed_bytes[4 : 4 + length])
    assert not any(entry["offset"] % 8 for entry in header)
    start = 4 + length + -(4 + length) % 8
    assert packed_bytes[4 + length : start].strip(b"\0") == b""
    assert len(packed_bytes) % 8 == 0


@pytest.mark.parametrize("kind", [np.float64, np.int64, bool, complex, object, "U3"])
def test_a_bundle_refuses_other_types(kind: Any) -> None:
    with pytest.raises(ValueError, match="expected uint8"):
        pack({"a": np.zeros(2, dtype=kind)})


# The marker, the loader, the entry point.


def test_the_marker_is_listed_as_a_tensor_of_the_plugin(tmp_path: Path) -> None:
    write_marker(tmp_path)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["tensors"] == ["heads"]
    assert events.SummaryMetadata("heads").plugin_data.plugin_name == "heads"
    assert events.SummaryMetadata("heads").data_class == 2  # DATA_CLASS_TENSOR
    (event,) = events.Tensors("heads")
    assert (event.step, event.tensor_proto.string_val) == (0, [b"4"])


def test_the_entry_point_loads_the_plugin(logdir: Path) -> None:
    (point,) = entry_points(group="tensorboard_plugins", name="heads")
    assert point.value == "headscope.tab.loader:HeadsLoader"
    loaded = HeadsLoader().load(TBContext(logdir=str(logdir), data_provider=Provider([])))
    assert isinstance(loaded, HeadsPlugin)
    assert loaded.plugin_name == "heads"
    assert not loaded.is_active()


@pytest.mark.parametrize("broken", ["headscope.tab.plugin", "headscope.record.reader"])
def test_a_plugin_that_cannot_be_loaded_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    monkeypatch.delitem(sys.modules, "headscope.tab.plugin")
    monkeypatch.setitem(sys.modules, broken, None)
    monkeypatch.setattr(logging.getLogger("tensorboard"), "propagate", True)
    with caplog.at_level(logging.WARNING, "tensorboard"):
        assert HeadsLoader().load(TBContext()) is None
    assert "The Heads tab is left out" in caplog.text
    assert broken in caplog.text


def words_csv(path: Path, heads: int, classes: int) -> None:
    columns = ["class", "word", "mean", "interval", "n", "example"]
    columns += [f"layer 0 head {head}" for head in range(heads)]
    rows = [[f"c{at}", "'=w", "1.5", "", "3", "a text", *["1"] * heads] for at in range(classes)]
    path.write_text("\n".join(map(",".join, [columns, *rows])), encoding="utf-8")


def test_words_take_time_by_what_is_shown_and_once(
    logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = logdir / "mine" / "words.csv"
    words_csv(path, 6, 2)
    ask = asker(make_client(logdir, Provider(["mine"])))
    found = ask("words", run="mine").json
    assert [*found] == ["mean", *(f"layer 0 head {head}" for head in range(6))]
    assert found["mean"]["c1"] == [[["=w", 1.5, None, 3, "a text"]], []]
    with monkeypatch.context() as unread:  # it is kept until the file changes
        unread.setattr("headscope.record.words.read_words", None)
        assert ask("words", run="mine").json == found
    for heads, classes, words in (
        (20_000, 1, "cannot be read: expected 6 to 12 columns, for the heads of the record, got"),
        (6, 2_001, "expected at most 2,000 classes, got 2,001"),
    ):
        words_csv(path, heads, classes)
        start = time.process_time()
        for _ in range(30):
            assert words in ask("words", run="mine").json["error"]
        assert time.process_time() - start < 5
    words_csv(path, 6, 200)  # heads of many classes are left out
    assert [*ask("words", run="mine").json] == ["mean"]
