"""Recording maps while a model trains, within a budget of bytes."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headscope.record.pairs import quadrants
from headscope.record.schema import (
    FOLDER,
    INDEX,
    MAX_STEPS,
    Arrays,
    Index,
    Step,
    Text,
    levels_of,
    read_index,
    read_step,
    weights_from,
    write_index,
    write_step,
)

# Of a long text: keys kept for each query, and the side of its overview.
TOP_KEYS = 16
OVERVIEW = 64


class HeadRecorder:
    """Keeps the maps and numbers of every head, step by step, beside the event file of a run.

        recorder = HeadRecorder("outputs/mine", [Text("first", tokens, text)])
        recorder.record(step, [{"layer 0": weights}])   # weights [H, Q, K], rows summing to 1

    Near the budget every other step is dropped, again and again, so that the steps that stay are spread evenly; the
    first and the last always stay.

    Args:
        logdir: folder of the run, where its event file is.
        texts: probe texts, the same ones at every step.
        classes: names of the classes, if probabilities are recorded.
        budget: bytes that the steps may take; at least two steps are kept, whatever they take.
        max_tokens: of longer texts only the top keys of each query, the mass of the others, and an overview of
            `OVERVIEW` x `OVERVIEW` are kept.
        exact: keep weights as float16, rather than as levels of a row's maximum.
        notes: anything that a reader should know.

    Attributes:
        index: what was recorded so far.
    """

    def __init__(
        self,
        logdir: str | Path,
        texts: Sequence[Text],
        classes: Sequence[str] = (),
        budget: int = 2**28,
        max_tokens: int = 256,
        exact: bool = False,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(logdir) / FOLDER
        self.max_tokens = max_tokens
        self.exact = exact
        self.index = Index(list(texts), [], [], list(classes), budget=budget)
        self.index.notes = dict(notes or {})
        self._ordinals: list[int] = []  # of the kept steps, among all that were recorded
        self._replaced: set[str] = set()  # files of an older record of other texts
        if (self.folder / INDEX).exists():
            self._resume(read_index(self.folder))

    def _resume(self, before: Index) -> None:
        """Continue the record of a resumed run if it has the same texts; else the first step replaces it."""
        # Older records lack the positions of special tokens.
        ours = [(text.name, text.tokens, text.text, text.label) for text in self.index.texts]
        if ours != [(text.name, text.tokens, text.text, text.label) for text in before.texts]:
            self._replaced = {step.file for step in before.steps}
            return
        for name in ("layers", "heads", "steps", "recorded", "every", "kept"):
            setattr(self.index, name, getattr(before, name))
        self._ordinals = [place * before.every for place in range(len(before.steps) - 1)]
        if before.steps:
            self._ordinals.append(before.recorded - 1)

    def record(
        self,
        step: int,
        maps: Sequence[Mapping[str, np.ndarray]],
        numbers: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
        pooling: Sequence[np.ndarray | None] = (),
        probabilities: Sequence[np.ndarray] = (),
        checks: Sequence[float] = (),
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Write one step; steps that are not earlier are replaced, since a resumed run has gone back.

        Args:
            step: number of the training step.
            maps: for each text, layer -> weights [H, Q, K].
            numbers: measure -> (means, standard errors), each [L, H], over the validation split or a sample.
            pooling: for each text, the weights [T] of a pooling that attends, or None.
            probabilities: for each text, one for each class.
            checks: for each text, the largest difference between the head outputs that the model used and the maps
                times the values. How a map is stored adds to it: in 8 bits, up to 1/510 of its row's largest weight.
            extra: other small arrays, by name.

        Raises:
            ValueError: if a map does not fit its text or is no softmax.
        """
        if not maps or len(maps) != len(self.index.texts):
            num_texts = len(self.index.texts)
            raise ValueError(f"expected the maps of {num_texts} texts, got those of {len(maps)}")
        arrays = _members(numbers or {}) | dict(extra or {})
        for place, layers in enumerate(maps):
            for number, weights in enumerate(layers.values()):
                arrays[f"text_{place}/layer_{number}/weights"] = weights
        of_texts = {"pooling": pooling, "probabilities": probabilities, "check": checks}
        for name, of_text in of_texts.items():
            for place, value in enumerate(of_text):
                if value is not None:
                    arrays[f"text_{place}/{name}"] = np.asarray(value, dtype=np.float32)
        self.write(step, arrays, list(maps[0]))

    def write(
        self, step: int, arrays: Mapping[str, np.ndarray], layers: Sequence[str] | None = None
    ) -> None:
        """Write one step of arrays that are named as in docs/record-format.md.

        Every map is given in full, as text_t/layer_l/weights [H, T, T]; the record stores it in its own way. Layers
        without a name are called layer 0, layer 1 ... Raises ValueError if a map does not fit its text.
        """
        if layers is None:
            maps = [name for name in arrays if re.fullmatch(r"text_0/layer_\d+/weights", name)]
            layers = [f"layer {number}" for number in range(len(maps))]
        stored: Arrays = {}
        others = dict(arrays)
        for place, text in enumerate(self.index.texts):
            if not layers:
                raise ValueError(f"{text.name}: expected maps of at least one layer, got none")
            rounding = 0.0
            for number, layer in enumerate(layers):
                name = f"text_{place}/layer_{number}"
                weights = _checked_map(others.pop(f"{name}/weights", None), text, layer)
                if text.segments is not None and f"{name}/quadrants" not in others:
                    shares = quadrants(weights, text.segments)
                    stored[f"{name}/quadrants"] = shares.astype(np.float32)
                parts = self._stored(weights)
                rounding = max(rounding, _rounding(weights, parts))
                for part, values in parts.items():
                    stored[f"{name}/{part}"] = values
            stored[f"text_{place}/rounding"] = np.array(rounding, dtype=np.float32)
        self.index.layers = list(layers)
        first = [arrays[f"text_0/layer_{number}/weights"] for number in range(len(layers))]
        self.index.heads = list(map(len, first))
        self._keep(step, stored | others)

    def amend(
        self,
        step: int,
        numbers: Mapping[str, tuple[np.ndarray, np.ndarray]],
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> bool:
        """Add arrays to a recorded step, or replace them; return False if the step was dropped."""
        for place, old in enumerate(self.index.steps):
            if old.step == step:
                arrays = read_step(self.folder / old.file) | _members(numbers) | dict(extra or {})
                self.index.steps[place] = self._write(step, arrays)
                write_index(self.folder, self.index)
                return True
        return False

    def _write(self, step: int, arrays: Arrays) -> Step:
        path = write_step(self.folder, step, _in_single_precision(arrays))
        return Step(step, path.name, path.stat().st_size, time.time())

    def _stored(self, weights: np.ndarray) -> Arrays:
        """Return what is kept of a layer's maps [H, Q, K]."""
        if weights.shape[-1] > self.max_tokens:
            return _summarized(weights)
        if self.exact:
            return {"weights": weights.astype(np.float16)}
        levels, scales = levels_of(weights)
        return {"levels": levels, "scales": scales}

    def _keep(self, step: int, arrays: Arrays) -> None:
        """Write the step, list it, and only then delete what is no longer listed."""
        written = self._write(step, arrays)
        before = {old.file for old in self.index.steps} | self._replaced
        num_earlier = sum(old.step < step for old in self.index.steps)
        if num_earlier < len(self.index.steps):  # a resumed run has gone back
            del self.index.steps[num_earlier:]
            del self._ordinals[num_earlier:]
            self.index.recorded = self._ordinals[-1] + 1 if self._ordinals else 0
        self.index.steps.append(written)
        self._ordinals.append(self.index.recorded)
        self.index.recorded += 1
        self._thin()
        write_index(self.folder, self.index)
        for file in before - {kept.file for kept in self.index.steps}:
            (self.folder / file).unlink(missing_ok=True)
        self._replaced = set()

    def _thin(self) -> None:
        """Drop steps until those that stay fit the budget."""
        last = self.index.recorded - 1
        while True:
            kept = {
                ordinal: step
                for ordinal, step in zip(self._ordinals, self.index.steps, strict=True)
                if ordinal % self.index.every == 0 or ordinal == last
            }
            self._ordinals = list(kept)
            self.index.steps = list(kept.values())
            size = sum(step.bytes for step in self.index.steps)
            if len(kept) <= 2 or (size <= self.index.budget and len(kept) <= MAX_STEPS):
                return
            self.index.every *= 2


def _checked_map(given: np.ndarray | None, text: Text, layer: str) -> np.ndarray:
    """Return a layer's maps in float32; ValueError unless they are [H, T, T] and each row sums to 1."""
    if given is None:
        raise ValueError(f"{text.name}: expected maps of at least one layer, got none")
    T = len(text.tokens)
    where = f"{text.name}, {layer}"
    if given.ndim != 3 or given.shape[1:] != (T, T) or not len(given):
        raise ValueError(f"{where}: expected a map [H, {T}, {T}], got {given.shape}")
    weights = np.asarray(given, dtype=np.float32)
    _check_weights(weights, where)
    return weights


def _check_weights(weights: np.ndarray, where: str) -> None:
    """Check that weights [H, Q, K] are a softmax; ValueError that names the first row that is not."""
    sums = weights.sum(axis=-1)
    # A query that may attend to nothing has a row of zeros. bfloat16 rounds a weight by up to 1/256.
    is_valid = (weights >= 0).all(axis=-1) & ((np.abs(sums - 1) < 0.01) | (sums == 0))
    if not is_valid.all():
        head, query = np.argwhere(~is_valid)[0]
        row = weights[head, query]
        fault = f"a sum of {row.sum():.4g}"
        if np.isnan(row).any():
            fault = "a NaN"
        elif (row < 0).any():
            fault = "a weight below 0"
        place = f"{where}, head {head}, query {query}"
        raise ValueError(f"{place}: expected weights that sum to 1, got {fault}")


def _rounding(weights: np.ndarray, stored: Arrays) -> float:
    """Return the largest difference of a stored weight; 0 where only a part of the map is kept."""
    if "levels" in stored:
        shown = weights_from(stored["levels"], stored["scales"])
    elif "weights" in stored:
        shown = stored["weights"].astype(np.float32)
    else:
        return 0.0
    return float(np.abs(shown - weights).max())


def _members(numbers: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Arrays:
    arrays: Arrays = {}
    for measure, (means, errors) in numbers.items():
        arrays[f"numbers/{measure}/mean"] = np.asarray(means, dtype=np.float32)
        arrays[f"numbers/{measure}/error"] = np.asarray(errors, dtype=np.float32)
    return arrays


def _in_single_precision(arrays: Arrays) -> Arrays:
    """Return the arrays with the numbers of heads in float32."""
    return {
        name: array.astype(np.float32) if name.startswith("numbers/") else array
        for name, array in arrays.items()
    }


def _summarized(weights: np.ndarray) -> Arrays:
    """Return the top keys of each query, the mass of the others, and a small picture of the whole."""
    Q = weights.shape[1]
    num_keys = min(TOP_KEYS, Q)
    keys = np.argpartition(-weights, num_keys - 1, axis=-1)[..., :num_keys]  # [H, Q, num_keys]
    top = np.take_along_axis(weights, keys, axis=-1)
    order = np.argsort(-top, axis=-1, kind="stable")
    keys = np.take_along_axis(keys, order, axis=-1)
    top = np.take_along_axis(top, order, axis=-1)
    levels, scales = levels_of(top)
    rest = np.clip(weights.sum(axis=-1) - top.sum(axis=-1), 0, None)
    side = min(OVERVIEW, Q)
    edges = np.linspace(0, Q, side, endpoint=False).astype(int)
    sums = np.add.reduceat(
        np.add.reduceat(weights, edges, axis=1), edges, axis=2
    )  # [H, side, side]
    num_rows = np.diff([*edges, Q])[:, None]
    overview, overview_scales = levels_of(sums / num_rows)  # each row still sums to 1
    return {
        "top_keys": keys.astype(np.int32),
        "top_levels": levels,
        "scales": scales,
        "rest": rest.astype(np.float32),
        "overview": overview,
        "overview_scales": overview_scales,
    }
