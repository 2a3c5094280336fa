"""What is recorded can be read again, whatever happened meanwhile, and fits its budget."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from headscope.record.pairs import quadrants
from headscope.record.reader import read_index, read_step
from headscope.record.schema import FOLDER, INDEX, RecordError, Text, levels_of, weights_from
from headscope.record.writer import OVERVIEW, TOP_KEYS, HeadRecorder

TEXTS = [
    Text("first", ["[CLS]", "日本", "</script>", "\ud800"], "日本</script>"),
    Text("second", ["a", "b"], "ab", "x"),
]
PAIR = Text(
    "pair", ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"], "a b c", "x", [None, 0, 0, None, 1, None]
)
FIRST_STEP = "step_000000000000.npz"


def maps(seed: int = 0, texts: list[Text] = TEXTS) -> list[dict[str, np.ndarray]]:
    """Draw rows that sum to 1, for two layers of three and two heads."""
    random = np.random.default_rng(seed)

    def draw(heads: int, text: Text) -> np.ndarray:
        weights = random.random((heads, len(text.tokens), len(text.tokens))) ** 4
        return weights / weights.sum(-1, keepdims=True)

    return [{f"layer {layer}": draw(3 - layer, text) for layer in range(2)} for text in texts]


@settings(max_examples=50, deadline=None)
@given(arrays_of.arrays(np.float32, (2, 3, 5), elements=st.floats(0, 1, width=32)))
def test_levels_keep_each_row_to_half_a_step(weights: np.ndarray) -> None:
    levels, scales = levels_of(weights)
    assert levels.dtype == np.uint8
    back = weights_from(levels, scales)
    assert (np.abs(back - weights) <= scales[..., None] / 510 * 1.0001 + 1e-30).all()
    np.testing.assert_allclose(back.max(axis=-1), weights.max(axis=-1), rtol=1e-6, atol=1e-30)


def test_a_step_is_read_as_it_was_written(tmp_path: Path) -> None:
    numbers = {"entropy": (np.ones((2, 3)), np.full((2, 3), np.nan))}
    recorder = HeadRecorder(tmp_path, TEXTS, classes=["x", "y"], notes={"precision": "32-true"})
    recorder.record(
        7,
        maps(),
        numbers,
        pooling=[np.array([0.5, 0.5, 0, 0]), None],
        probabilities=[np.array([0.25, 0.75])] * 2,
        checks=[1e-7, 0.0],
    )
    index = read_index(tmp_path / FOLDER)
    assert index == recorder.index
    assert index.texts[0].tokens[3] == "?"  # half a character has no UTF-8
    assert index.layers == ["layer 0", "layer 1"]
    assert index.heads == [3, 2]
    step = read_step(tmp_path / FOLDER / index.steps[0].file)
    for text, layers in enumerate(maps()):
        errors = []
        for layer, weights in enumerate(layers.values()):
            name = f"text_{text}/layer_{layer}"
            back = weights_from(step[f"{name}/levels"], step[f"{name}/scales"])
            errors.append(np.abs(back - weights).max())
            assert errors[-1] <= weights.max() / 510 * 1.001
        assert step[f"text_{text}/rounding"] == pytest.approx(max(errors), abs=1e-7)
    assert step["text_0/pooling"].tolist() == [0.5, 0.5, 0, 0]
    assert "text_1/pooling" not in step
    assert step["text_1/probabilities"].tolist() == [0.25, 0.75]
    assert step["numbers/entropy/mean"].dtype == np.float32
    assert step["numbers/entropy/mean"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert np.isnan(step["numbers/entropy/error"]).all()
    assert step["text_0/check"] == np.float32(1e-7)
    only = read_step(tmp_path / FOLDER / index.steps[0].file, "numbers/")
    assert set(only) == {"numbers/entropy/mean", "numbers/entropy/error"}


def test_exact_maps_are_kept_as_float16(tmp_path: Path) -> None:
    HeadRecorder(tmp_path, TEXTS, exact=True).record(0, maps())
    weights = read_step(tmp_path / FOLDER / FIRST_STEP)["text_1/layer_1/weights"]
    np.testing.assert_array_equal(weights, maps()[1]["layer 1"].astype(np.float16), strict=True)


def test_of_a_long_text_the_top_keys_and_the_rest_are_kept(tmp_path: Path) -> None:
    long = [Text("long", ["t"] * 300, "t" * 300)]
    weights = maps(1, long)[0]["layer 0"]
    HeadRecorder(tmp_path, long, max_tokens=256).record(0, [{"layer 0": weights}])
    step = read_step(tmp_path / FOLDER / FIRST_STEP, "text_0/layer_0/")
    step = {name.rsplit("/")[-1]: values for name, values in step.items()}
    assert set(step) == {"top_keys", "top_levels", "scales", "rest", "overview", "overview_scales"}
    order = np.argsort(-weights, axis=-1)[..., :TOP_KEYS]
    top = weights_from(step["top_levels"], step["scales"])
    np.testing.assert_array_equal(step["top_keys"], order)
    expected = np.take_along_axis(weights, order, -1)
    np.testing.assert_allclose(top, expected, atol=weights.max() / 500)
    np.testing.assert_allclose(step["rest"] + top.sum(-1), 1, atol=1e-2)
    overview = weights_from(step["overview"], step["overview_scales"])
    assert overview.shape == (3, OVERVIEW, OVERVIEW)
    np.testing.assert_allclose(overview.sum(-1), 1, atol=1e-2)
    edges = np.linspace(0, 300, OVERVIEW, endpoint=False).astype(int)
    block = weights[1, edges[3] : edges[4], edges[7] : edges[8]].sum(-1).mean()
    assert overview[1, 3, 7] == pytest.approx(block, abs=2e-3)
    assert sum(values.nbytes for values in step.values()) < weights.nbytes / 20


def test_within_a_budget_the_steps_that_stay_are_even_and_first_and_last_are_there(
    tmp_path: Path,
) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    recorder.record(0, maps())
    recorder.index.budget = 10 * recorder.index.steps[0].bytes + 100
    drawn = maps(1)
    for step in range(1, 41):
        if step == 25:  # a resumed run
            recorder = HeadRecorder(tmp_path, TEXTS, budget=recorder.index.budget)
        recorder.record(step, drawn)
        index = read_index(tmp_path / FOLDER)
        assert sum(kept.bytes for kept in index.steps) <= index.budget
        kept_steps = [kept.step for kept in index.steps]
        assert kept_steps[0] == 0
        assert kept_steps[-1] == step
        assert set(np.diff(kept_steps)[:-1]) <= {index.every}
        on_disk = {path.name for path in (tmp_path / FOLDER).iterdir()}
        assert on_disk == {kept.file for kept in index.steps} | {INDEX}
    assert index.recorded == 41
    assert 5 <= len(index.steps) <= 10


def test_two_steps_stay_whatever_they_take(tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS, budget=1)
    for step in (0, 5, 9):
        recorder.record(step, maps())
    assert [kept.step for kept in read_index(tmp_path / FOLDER).steps] == [0, 9]


def test_a_resumed_run_replaces_what_comes_later(tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    for step in (0, 10, 20, 30):
        recorder.record(step, maps(step))
    resumed = HeadRecorder(tmp_path, TEXTS)
    resumed.record(20, maps(99))
    resumed.record(40, maps(40))
    index = read_index(tmp_path / FOLDER)
    assert [kept.step for kept in index.steps] == [0, 10, 20, 40]
    assert index.recorded == 4
    step = read_step(tmp_path / FOLDER / index.steps[2].file)
    expected = levels_of(maps(99)[0]["layer 0"])[0]
    np.testing.assert_array_equal(step["text_0/layer_0/levels"], expected)
    assert not (tmp_path / FOLDER / "step_000000000030.npz").exists()
    HeadRecorder(tmp_path, TEXTS[:1]).record(50, maps()[:1])  # other texts: a record of its own
    assert [kept.step for kept in read_index(tmp_path / FOLDER).steps] == [50]
    files = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert files == {INDEX, "step_000000000050.npz"}


def test_a_step_can_be_added_to_as_long_as_it_is_there(tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    one = np.ones((2, 3))
    for step in (0, 10):
        recorder.record(step, maps(), {"entropy": (one, one)})
    recorder = HeadRecorder(tmp_path, TEXTS)  # another process, later
    added = {"numbers/loss_zeroed/mean": 2 * one, "other": np.array([0.1, 0.2])}
    assert recorder.amend(0, added)
    assert not recorder.amend(5, {})
    index = read_index(tmp_path / FOLDER)
    sizes = [(tmp_path / FOLDER / kept.file).stat().st_size for kept in index.steps]
    assert [kept.bytes for kept in index.steps] == sizes
    arrays = read_step(tmp_path / FOLDER / index.steps[0].file)
    assert arrays["numbers/loss_zeroed/mean"].tolist() == (2 * one).tolist()
    assert arrays["numbers/entropy/mean"].tolist() == one.tolist()
    assert arrays["other"].tolist() == [0.1, 0.2]
    assert "text_1/layer_1/levels" in arrays


def test_half_a_file_is_never_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    recorder.record(0, maps())

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        recorder.record(1, maps())
    assert [kept.step for kept in read_index(tmp_path / FOLDER).steps] == [0]
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {INDEX, FIRST_STEP}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row * np.nan, "weights from nan that sum to nan"),
        (lambda row: row - 0.5, "weights from -0.[0-9]+ that sum to"),
        (lambda row: row * 2, r"weights from 0\.[0-9]+ that sum to 2$"),
        (lambda row: row * 0.9, r"weights from 0\.[0-9]+ that sum to 0\.9$"),
    ],
)
def test_what_is_no_softmax_is_rejected_with_its_place(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    recorder = HeadRecorder(tmp_path, TEXTS)
    wrong = maps()
    wrong[1]["layer 1"][1, 0] = change(wrong[1]["layer 1"][1, 0])
    place = "second, layer 1, head 1, query 0: expected weights from 0 that sum to 1, got "
    with pytest.raises(ValueError, match=place + message):
        recorder.record(0, wrong)
    assert not (tmp_path / FOLDER).exists()
    right = maps()
    right[1]["layer 1"][1, 0] = 0  # a query that may look nowhere
    recorder.record(0, right)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (maps()[:1], "expected the maps of 2 texts, got those of 1"),
        (maps()[::-1], r"first, layer 0: expected a map \[H, 4, 4\], got \(3, 2, 2\)"),
        ([maps()[0], {}], r"second, layer 0: expected a map \[H, 2, 2\], got \(0,\)"),
        ([{}, {}], "expected maps of at least one layer, got none"),
    ],
    ids=["fewer", "other", "none", "no layer"],
)
def test_maps_that_do_not_fit_are_rejected(tmp_path: Path, wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadRecorder(tmp_path, TEXTS).record(0, wrong)
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-9], "cannot be read"),
        (lambda content: content.replace('"version":1', '"version":99'), "upgrade headscope"),
        (lambda content: content.replace('"recorded"', '"unknown"'), "unknown: "),
        (lambda content: content.replace('"step":0', '"step":"zero"'), r"steps\.0\.step: "),
        (lambda content: content.replace(":[null,0", ":[null,7"), r"texts\.0\.segments\.1: "),
    ],
    ids=["cut", "version", "key", "word", "segments"],
)
def test_a_broken_index_is_named(
    tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    HeadRecorder(tmp_path, [PAIR]).record(0, maps(0, [PAIR]))
    path = tmp_path / FOLDER / INDEX
    path.write_text(change(path.read_text()))
    with pytest.raises(RecordError, match=message):
        read_index(tmp_path / FOLDER)


def test_the_format_is_what_its_page_says(tmp_path: Path) -> None:
    HeadRecorder(tmp_path, TEXTS).record(5, maps())
    content = json.loads((tmp_path / FOLDER / INDEX).read_text())
    page = (Path(__file__).parents[2] / "docs/record-format.md").read_text()
    assert all(f"`{key}`" in page for key in content)
    with np.load(tmp_path / FOLDER / content["steps"][-1]["file"], allow_pickle=False) as step:
        weights = step["text_0/layer_0/levels"] / 255 * step["text_0/layer_0/scales"][..., None]
    np.testing.assert_allclose(weights.sum(-1), 1, atol=0.02)


# --- pairs ---


@pytest.mark.parametrize(
    "options", [{}, {"exact": True}, {"max_tokens": 5}], ids=["levels", "exact", "long"]
)
def test_a_pair_has_segments_and_the_shares_of_the_whole_map(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    texts = [PAIR, TEXTS[1]]
    HeadRecorder(tmp_path, texts, **options).record(0, maps(0, texts))
    assert read_index(tmp_path / FOLDER).texts == texts
    written = json.loads((tmp_path / FOLDER / INDEX).read_text())["texts"]
    assert written[0]["segments"] == PAIR.segments
    assert written[1] == {"name": "second", "tokens": ["a", "b"], "text": "ab", "label": "x"}
    step = read_step(tmp_path / FOLDER / FIRST_STEP)
    assert PAIR.segments is not None
    for layer, weights in enumerate(maps(0, texts)[0].values()):
        shares = step[f"text_0/layer_{layer}/quadrants"]
        assert shares.dtype == np.float32
        np.testing.assert_allclose(shares, quadrants(weights, PAIR.segments), rtol=1e-6)
    assert not [name for name in step if name.startswith("text_1/") and "quadrants" in name]
    assert ("text_0/layer_0/top_keys" in step) == ("max_tokens" in options)


def test_segments_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(ValueError, match="t: segments: expected 0, 1 or None for each of 2 tokens"):
        Text("t", ["a", "b"], "a b", segments=[0, 1, 1])
