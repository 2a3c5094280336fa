"""Recording maps while a model trains, within a budget of bytes."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headscope.files import write_atomic
from headscope.record.pairs import quadrants
from headscope.record.reader import read_index, read_step
from headscope.record.schema import (
    FOLDER,
    INDEX,
    INDEX_ADAPTER,
    MAX_STEPS,
    RUN_NOTE,
    Arrays,
    Index,
    Step,
    Text,
    levels_of,
    step_file,
    weights_from,
)

# Of a long text: keys kept for each query, and the side of its overview.
TOP_KEYS = 16
OVERVIEW = 64
TOLERANCE = 0.01  # of the sum of a row: bfloat16 rounds a weight by up to 1/256


class HeadRecorder:
    """Keeps the maps and numbers of every head, step by step, beside the event file of a run.

        recorder = HeadRecorder("outputs/mine", [Text("first", tokens, text)])
        recorder.record(step, [{"layer 0": weights}])   # weights [H, Q, K], rows summing to 1

    Near the budget every other step is dropped, again and again, so that the steps that stay are
    spread evenly; the first and the last always stay.

    Args:
        logdir: folder of the run, where its event file is.
        texts: probe texts, the same ones at every step.
        classes: names of the classes, if probabilities are recorded.
        budget: bytes that the steps may take; at least two steps are kept, whatever they take.
        max_tokens: of longer texts only the top keys of each query, the mass of the others, and an
            overview of `OVERVIEW` x `OVERVIEW` are kept.
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
        self._replaced: set[str] = set()  # files of an older record of other texts
        if (self.folder / INDEX).exists():
            self._resume(read_index(self.folder))

    def _resume(self, before: Index) -> None:
        """Continue the record of a resumed run; the first step replaces another record."""

        def told(index: Index) -> list[object]:
            return [index.notes.get(RUN_NOTE), *index.texts]

        if told(self.index) != told(before):
            self._replaced = {step.file for step in before.steps}
            return
        for name in ("layers", "heads", "steps", "recorded", "every", "kept"):
            setattr(self.index, name, getattr(before, name))

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
        """Write one step; it replaces those that are not earlier: a resumed run has gone back.

        Args:
            step: number of the training step.
            maps: for each text, layer -> weights [H, Q, K].
            numbers: measure -> (means, standard errors), each [L, H], over the validation split or
                a sample.
            pooling: for each text, the weights [T] of a pooling that attends, or None.
            probabilities: for each text, one for each class.
            checks: for each text, the largest difference between the head outputs that the model
                used and the maps times the values. How a map is stored adds to it: in 8 bits, up to
                1/510 of its row's largest weight.
            extra: other small arrays, by name.

        Raises:
            ValueError: if a map does not fit its text or is no softmax.
        """
        if not maps or len(maps) != len(self.index.texts):
            num_texts = len(self.index.texts)
            raise ValueError(f"expected the maps of {num_texts} texts, got those of {len(maps)}")
        arrays = dict(extra or {})
        for measure, both in (numbers or {}).items():
            for kind, values in zip(("mean", "error"), both, strict=True):
                arrays[f"numbers/{measure}/{kind}"] = np.asarray(values)
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

        Every map is given in full, as text_t/layer_l/weights [H, T, T]; the record stores it in its
        own way. Layers without a name are called layer 0, layer 1 ... Raises ValueError if a map
        does not fit its text.
        """
        if layers is None:
            maps = [name for name in arrays if re.fullmatch(r"text_0/layer_\d+/weights", name)]
            layers = [f"layer {number}" for number in range(len(maps))]
        stored: Arrays = {}
        others = dict(arrays)
        heads: list[int] = []
        for place, text in enumerate(self.index.texts):
            errors = [0.0]
            for number, layer in enumerate(layers):
                name = f"text_{place}/layer_{number}"
                weights = others.pop(f"{name}/weights", np.zeros(0))
                weights = np.asarray(weights, dtype=np.float32)
                _check_map(weights, len(text.tokens), f"{text.name}, {layer}")
                if text.segments is not None and f"{name}/quadrants" not in others:
                    shares = quadrants(weights, text.segments)
                    stored[f"{name}/quadrants"] = shares.astype(np.float32)
                parts, error = self._stored(weights)
                stored |= {f"{name}/{part}": values for part, values in parts.items()}
                errors.append(error)
                heads.append(len(weights))
            stored[f"text_{place}/rounding"] = np.array(max(errors), dtype=np.float32)
        if not layers:
            raise ValueError("expected maps of at least one layer, got none")
        self.index.layers = list(layers)
        self.index.heads = heads[: len(layers)]
        self._keep(step, stored | others)

    def amend(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Add arrays to a recorded step, or replace them; return False if the step was dropped."""
        for place, old in enumerate(self.index.steps):
            if old.step == step:
                before = read_step(self.folder / old.file)
                self.index.steps[place] = self._write_step(step, before | dict(arrays))
                self._write_index()
                return True
        return False

    def _stored(self, weights: np.ndarray) -> tuple[Arrays, float]:
        """Return what is kept of a layer's maps [H, Q, K], and the largest error of a weight."""
        if weights.shape[-1] > self.max_tokens:
            return _summarized(weights), 0.0
        if not self.exact:
            return rounded(weights)
        halved = weights.astype(np.float16)
        return {"weights": halved}, float(np.abs(halved.astype(np.float32) - weights).max())

    def _keep(self, step: int, arrays: Arrays) -> None:
        """Write the step, list it, and only then delete what is no longer listed.

        Listed are every n-th of the steps that were recorded, and the last one. Over the budget, n
        is doubled.
        """
        written = self._write_step(step, arrays)
        index = self.index
        before = {old.file for old in index.steps} | self._replaced
        num_earlier = sum(old.step < step for old in index.steps)
        if num_earlier < len(index.steps):  # a resumed run has gone back
            del index.steps[num_earlier:]
            index.recorded = max(0, (num_earlier - 1) * index.every + 1)
        elif index.steps and (index.recorded - 1) % index.every:  # listed as the last one alone
            del index.steps[-1]
        index.steps.append(written)
        index.recorded += 1
        while len(index.steps) > 2 and self._is_over():
            index.steps = index.steps[:-1:2] + index.steps[-1:]
            index.every *= 2
        self._write_index()
        for file in before - {kept.file for kept in index.steps}:
            (self.folder / file).unlink(missing_ok=True)
        self._replaced = set()

    def _is_over(self) -> bool:
        size = sum(step.bytes for step in self.index.steps)
        return size > self.index.budget or len(self.index.steps) > MAX_STEPS

    def _write_step(self, step: int, arrays: Arrays) -> Step:
        """Write a step's arrays into one file, atomically, the numbers of heads in float32."""
        single = {
            name: array.astype(np.float32) if name.startswith("numbers/") else array
            for name, array in arrays.items()
        }

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:  # a name without .npz, which savez would append
                np.savez(file, **single)  # type: ignore[arg-type]

        path = write_atomic(self.folder / step_file(step), write)
        return Step(step, path.name, path.stat().st_size, time.time())

    def _write_index(self) -> None:
        content = INDEX_ADAPTER.dump_json(self.index, warnings=False)
        write_atomic(self.folder / INDEX, lambda temporary: temporary.write_bytes(content))


def _check_map(weights: np.ndarray, num_tokens: int, where: str) -> None:
    """Check that maps are [H, T, T] and rows a softmax; ValueError for the first that is not."""
    T = num_tokens
    if weights.ndim != 3 or weights.shape[1:] != (T, T) or not len(weights):
        raise ValueError(f"{where}: expected a map [H, {T}, {T}], got {weights.shape}")
    sums = weights.sum(axis=-1)
    # A query that may attend to nothing has a row of zeros.
    is_softmax = (weights >= 0).all(axis=-1) & ((np.abs(sums - 1) < TOLERANCE) | (sums == 0))
    if not is_softmax.all():
        head, query = np.argwhere(~is_softmax)[0]
        row = weights[head, query]
        raise ValueError(
            f"{where}, head {head}, query {query}: expected weights from 0 that sum to 1, "
            f"got weights from {row.min():.4g} that sum to {row.sum():.4g}"
        )


def rounded(weights: np.ndarray) -> tuple[Arrays, float]:
    """Return levels and scales of maps [H, Q, K], and the largest error of a weight."""
    levels, scales = levels_of(weights)
    error = np.abs(weights_from(levels, scales) - weights).max()
    return {"levels": levels, "scales": scales}, float(error)


def _summarized(weights: np.ndarray) -> Arrays:
    """Return the top keys of each query, the mass of the others, and an overview."""
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
