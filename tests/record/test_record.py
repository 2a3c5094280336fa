"""What is recorded can be read again, whatever happened meanwhile."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headscope.record.reader import is_of_heads, read_index, read_step
from headscope.record.schema import FOLDER, INDEX, RecordError, Text
from headscope.record.writer import HeadRecorder
from records import step_arrays

TEXTS = [
    Text("first", ["[CLS]", "日本", "</script>", "\ud800"], "日本</script>"),
    Text("second", ["a", "b"], "ab", "x"),
]
WORDS = [("don't", 1, 4), ("\ud800", 4, 5)]
SPANS = Text(
    "spans", ["[CLS]", *"don't"[:3], "x"], "don x", words=WORDS, places=[(0, 0)] * 5, special=[0]
)
PAIR = Text(
    "pair", ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"], "a b c", "x", [None, 0, 0, None, 1, None]
)
FIRST_STEP = "step_000000000000.npz"


def step_of(seed: int = 0, texts: list[Text] = TEXTS) -> dict[str, np.ndarray]:
    """Draw rows that sum to 1, for two layers of three and two heads."""
    random = np.random.default_rng(seed)

    def draw(heads: int, text: Text) -> np.ndarray:
        weights = random.random((heads, len(text.tokens), len(text.tokens))) ** 4
        return weights / weights.sum(-1, keepdims=True)

    return step_arrays([[draw(3 - layer, text) for layer in range(2)] for text in texts])


def steps_in(folder: Path) -> list[int]:
    """Return the listed steps; no other files are there."""
    steps = read_index(folder / FOLDER).steps
    files = {path.name for path in (folder / FOLDER).iterdir()}
    assert files == {INDEX, *(step.file for step in steps)}
    return [step.step for step in steps]


def test_words_are_read_as_they_were_written_and_hold_no_token_twice(tmp_path: Path) -> None:
    HeadRecorder(tmp_path, [SPANS]).write(0, step_of(texts=[SPANS]))
    (read,) = read_index(tmp_path / FOLDER).texts
    assert read == SPANS
    assert read.words == [("don't", 1, 4), ("?", 4, 5)]  # half a character has no UTF-8
    for words in ([("a", 1, 3), ("b", 2, 4)], [("a", 3, 6)], [("a", 2, 2)], [("a", -1, 2)]):
        with pytest.raises(ValueError, match="spans: expected words of 5 tokens, got "):
            replace(SPANS, words=words)
    with pytest.raises(ValueError, match="spans: expected places of 5 tokens, got 1"):
        replace(SPANS, places=[(0, 0)])


def test_a_step_is_read_as_it_was_written(tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS, classes=["x", "y"], notes={"precision": "32-true"})
    others = {
        "text_0/pooling": np.array([0.5, 0.5, 0, 0], np.float32),
        "numbers/entropy/mean": np.array([[1, np.nan, 1]]),
    }
    recorder.write(7, step_of() | others)
    index = read_index(tmp_path / FOLDER)
    assert index == recorder.index
    assert index.texts[0].tokens[3] == "?"  # half a character has no UTF-8
    assert (index.layers, index.heads) == (["layer 0", "layer 1"], [3, 2])
    path = tmp_path / FOLDER / index.steps[0].file
    step = read_step(path)
    assert {*step} == {*step_of(), *others}
    for name, weights in step_of().items():
        np.testing.assert_array_equal(step[name], weights.astype(np.float16), strict=True)
    assert step["text_0/pooling"].tolist() == [0.5, 0.5, 0, 0]
    assert step["numbers/entropy/mean"].dtype == np.float32
    assert [*read_step(path, is_of_heads)] == ["numbers/entropy/mean"]


@pytest.mark.parametrize("several", [False, True])
def test_every_step_has_one_temperature_however_often_it_changes(
    tmp_path: Path, several: bool
) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS[1:])
    logits = {0: np.array([1.5, -0.5, 0.25]), 10: np.array([-3.0, 2.0, 40.0])}

    def arrays_at(step: int, temperature: float) -> dict[str, np.ndarray]:
        odds = logits[step] / temperature
        shares = 1 / (1 + np.exp(-odds)) if several else np.exp(odds) / np.exp(odds).sum()
        arrays = {"probabilities": shares, "contributions/words": np.outer([0.3, 0.7], odds)}
        arrays |= {"contributions/classes": np.arange(3), "contributions/log_odds": odds}
        if several:
            arrays["given"] = np.array([1, 0, 1])
        return {f"text_0/{name}": array for name, array in arrays.items()}

    for step in logits:
        recorder.write(step, step_of(step, TEXTS[1:]) | arrays_at(step, 1))
    recorder.amend(10, arrays_at(10, 1.25), 1.25)  # the best one, as the run has it
    times = [step.time for step in recorder.index.steps]
    for temperature in (1.25, 2.0, 1.0):
        recorder.temper(temperature)
        steps = read_index(tmp_path / FOLDER).steps
        assert [step.temperature for step in steps] == [temperature] * 2
        assert [step.time for step in steps] == times  # nothing is newly recorded
        for step in steps:
            found = read_step(tmp_path / FOLDER / step.file)
            for name, expected in arrays_at(step.step, temperature).items():
                np.testing.assert_allclose(found[name], expected, rtol=1e-6, err_msg=name)


def test_a_resumed_run_replaces_what_comes_later(tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    for step in (0, 10, 20, 30):
        recorder.write(step, step_of(step))
    resumed = HeadRecorder(tmp_path, TEXTS)
    resumed.write(20, step_of(99))
    resumed.write(40, step_of(40))
    assert steps_in(tmp_path) == [0, 10, 20, 40]
    index = read_index(tmp_path / FOLDER)
    name = "text_0/layer_0/weights"
    step = read_step(tmp_path / FOLDER / index.steps[2].file)
    np.testing.assert_array_equal(step[name], step_of(99)[name].astype(np.float16))
    HeadRecorder(tmp_path, TEXTS[:1]).write(50, step_of(0, TEXTS[:1]))  # other texts: a new record
    assert steps_in(tmp_path) == [50]


def test_a_step_can_be_added_to_as_long_as_it_is_there(tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    for step in (0, 10):
        recorder.write(step, step_of() | {"old": np.array([1.0])})
    recorder = HeadRecorder(tmp_path, TEXTS)  # another process, later
    recorder.amend(0, {"other": np.array([0.1, 0.2])})
    recorder.amend(5, {})
    assert steps_in(tmp_path) == [0, 10]
    index = read_index(tmp_path / FOLDER)
    arrays = read_step(tmp_path / FOLDER / index.steps[0].file)
    assert {*arrays} == {*step_of(), "old", "other"}
    assert arrays["other"].tolist() == [0.1, 0.2]


LAST_MAP = "text_1/layer_1/weights"
ROW = "second, layer 1, head 1, query 0: expected weights from 0 that sum to 1, got weights from "


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (LAST_MAP, lambda row: row * np.nan, ROW + "nan that sum to nan"),
        (LAST_MAP, lambda row: row - 0.5, ROW + "-0.[0-9]+ that sum to"),
        (LAST_MAP, lambda row: row * 2, ROW + r"0\.[0-9]+ that sum to 2$"),
        (LAST_MAP, lambda row: row * 0.9, ROW + r"0\.[0-9]+ that sum to 0\.9$"),
        (LAST_MAP, None, r"second, layer 1: expected a map \[H, 2, 2\], got \(0,\)"),
        ("text_0/layer_0/weights", None, "expected a map"),
    ],
)
def test_what_is_no_map_is_rejected_with_its_place(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray] | None, message: str
) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    wrong = step_of()
    if change is None:
        del wrong[name]
    else:
        wrong[name][1, 0] = change(wrong[name][1, 0])
    with pytest.raises(ValueError, match=message):
        recorder.write(0, wrong)
    with pytest.raises(ValueError, match="expected maps of at least one layer, got none"):
        recorder.write(0, {})
    other = step_of(0, TEXTS[::-1])
    with pytest.raises(ValueError, match=r"layer 0: expected a map \[H, 4, 4\], got \(3, 2, 2\)"):
        recorder.write(0, other)
    assert not (tmp_path / FOLDER).exists()
    right = step_of()
    right[LAST_MAP][1, 0] = 0  # a query that may look nowhere
    recorder.write(0, right)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-9], "cannot be read"),
        (lambda content: "", "cannot be read"),
        (lambda content: content.replace('"version":4', '"version":3'), "of version 4 are read"),
        (lambda content: content.replace('"classes"', '"unknown"'), "unknown: "),
        (lambda content: content.replace('"step":0', '"step":"zero"'), r"steps\.0\.step: "),
        (lambda content: content.replace(":[null,0", ":[null,7"), r"texts\.0: .*segments"),
        (lambda content: content.replace('"[CLS]"', "[" * 9_000), "cannot be read"),
    ],
    ids=["cut", "empty", "version", "key", "word", "segments", "deep"],
)
def test_a_broken_index_is_named(
    tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    HeadRecorder(tmp_path, [PAIR]).write(0, step_of(0, [PAIR]))
    path = tmp_path / FOLDER / INDEX
    path.write_text(change(path.read_text()))
    with pytest.raises(RecordError, match=message) as error:
        read_index(tmp_path / FOLDER)
    assert str(error.value).startswith("index.json: ")


def test_the_format_is_what_its_page_says(tmp_path: Path) -> None:
    HeadRecorder(tmp_path, [PAIR, TEXTS[1]]).write(5, step_of(0, [PAIR, TEXTS[1]]))
    content = json.loads((tmp_path / FOLDER / INDEX).read_text())
    page = (Path(__file__).parents[2] / "docs/record-format.md").read_text()
    assert all(f"`{key}`" in page for key in content)
    first, second = content["texts"]
    assert first["segments"] == PAIR.segments
    assert second == {"name": "second", "tokens": ["a", "b"], "text": "ab", "label": "x"}
    (code,) = page.split("```python\n")[1:]
    code = code.partition("```")[0].replace("outputs/first", str(tmp_path))
    found: dict[str, np.ndarray] = {}
    exec(compile(code, "record-format.md", "exec"), found)
    np.testing.assert_allclose(found["weights"].sum(-1), 1, atol=2e-3)
