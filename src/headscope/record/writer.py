"""Recording maps while something trains, within a budget of bytes."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headscope.record.bounds import MOST
from headscope.record.schema import (
    FOLDER,
    INDEX,
    Arrays,
    Index,
    Step,
    Text,
    levels_of,
    quadrants,
    read_index,
    read_step,
    weights_from,
    write_index,
    write_step,
)

TOP_KEYS, OVERVIEW = (
    16,
    64,
)  # of a long text: keys kept for each query, and the side of its overview


class HeadRecorder:
    """Keep the maps and numbers of every head, step by step, beside the event file of a run.

        recorder = HeadRecorder("outputs/mine", [Text("first", tokens, text)])
        recorder.record(step, [{"layer 0": weights}])   # weights [H, Q, K], rows summing to 1

    When the steps come near the budget, every other one is dropped, again and again, so that those that stay are spread
    evenly; the first and the last always stay.

    Args:
        logdir: folder of the run, where its event file is.
        texts: whose maps are recorded, the same ones at every step.
        classes: names of the classes, if probabilities are recorded.
        budget: bytes that the steps may take; at least two steps are kept, whatever they take.
        max_tokens: of texts longer than that only the top keys of each query, the mass of the others, and an overview
            of `OVERVIEW` x `OVERVIEW` are kept.
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
        self.folder, self.max_tokens, self.exact = Path(logdir) / FOLDER, max_tokens, exact
        self.index = Index(
            list(texts), [], [], list(classes), budget=budget, notes=dict(notes or {})
        )
        self._ordinals: list[int] = []  # of the kept steps, among all that were recorded
        self._of_other_texts: set[str] = set()  # files of a record that this one takes the place of
        if (self.folder / INDEX).exists():
            self._continue(read_index(self.folder))

    def _continue(self, before: Index) -> None:
        """Go on with what a resumed run recorded, if it is of the same texts; else the first step replaces it."""
        # Older records lack these.
        here, there = (
            [replace(text, segments=None, special=None, readout=None) for text in it.texts]
            for it in (self.index, before)
        )
        if here == there:
            self.index.layers, self.index.heads, self.index.steps = (
                before.layers,
                before.heads,
                before.steps,
            )
            self.index.recorded, self.index.every, self.index.kept = (
                before.recorded,
                before.every,
                before.kept,
            )
            self._ordinals = [place * before.every for place in range(len(before.steps) - 1)]
            self._ordinals += [before.recorded - 1] if before.steps else []
        else:
            self._of_other_texts = {step.file for step in before.steps}

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
        """Write one step; a map that does not fit its text is a ValueError.

        Args:
            step: steps that are not earlier are replaced: the run was resumed from an earlier checkpoint.
            maps: for each text, layer -> weights [H, Q, K].
            numbers: measure -> (means, standard errors), each [L, H], over the validation split or a sample.
            pooling: for each text, the weights [T] of a pooling that attends, or None.
            probabilities: for each text, one for each class.
            checks: for each text, the largest difference between the sums that a layer went on with and its maps times
                the values. How a map is stored adds to it: in 8 bits, up to 1/510 of its row's largest weight.
            extra: other small arrays, by name.
        """
        if len(maps) != len(self.index.texts) or not maps:
            raise ValueError(
                f"{len(maps)} texts have maps, {len(self.index.texts)} texts were announced"
            )
        arrays = _members(numbers or {}) | dict(extra or {})
        for place, layers in enumerate(maps):
            for number, weights in enumerate(layers.values()):
                arrays[f"text_{place}/layer_{number}/weights"] = weights
        per_text = {"pooling": pooling, "probabilities": probabilities, "check": checks}
        for name, values in per_text.items():
            for place, value in enumerate(values):
                if value is not None:
                    arrays[f"text_{place}/{name}"] = np.asarray(value, dtype=np.float32)
        self.write(step, arrays, list(maps[0]))

    def write(
        self, step: int, arrays: Mapping[str, np.ndarray], layers: Sequence[str] | None = None
    ) -> None:
        """Write one step of arrays that are named as in docs/record-format.md.

        Every map is given in full, as text_t/layer_l/weights [H, T, T]; it is stored as this record stores maps.
        A map that does not fit its text is a ValueError. Layers without a name are called layer 0, layer 1 ...
        """
        if layers is None:
            maps = [name for name in arrays if re.fullmatch(r"text_0/layer_\d+/weights", name)]
            layers = [f"layer {number}" for number in range(len(maps))]
        stored: Arrays = {}
        others = dict(arrays)
        for place, text in enumerate(self.index.texts):
            rounding = 0.0
            for number, layer in enumerate(layers):
                name = f"text_{place}/layer_{number}"
                weights = _checked_map(others.pop(f"{name}/weights", None), text, layer)
                if text.segments is not None and f"{name}/quadrants" not in others:
                    shares = quadrants(weights, text.segments)
                    stored[f"{name}/quadrants"] = shares.astype(np.float32)
                parts = self._stored(weights)
                rounding = max(rounding, _rounding(weights, parts))
                stored |= {f"{name}/{part}": values for part, values in parts.items()}
            stored[f"text_{place}/rounding"] = np.array(rounding, dtype=np.float32)
        self.index.layers = list(layers)
        self.index.heads = [
            len(arrays[f"text_0/layer_{number}/weights"]) for number in range(len(layers))
        ]
        self._keep(step, stored | _in_single_precision(others))

    def amend(
        self,
        step: int,
        numbers: Mapping[str, tuple[np.ndarray, np.ndarray]],
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> bool:
        """Add numbers and other arrays to a recorded step, such as what took too long to be measured then.

        Numbers of a name that is there are replaced. False if the step was thinned out.
        """
        places = [place for place, kept in enumerate(self.index.steps) if kept.step == step]
        if not places:
            return False
        old = self.index.steps[places[0]]
        arrays = read_step(self.folder / old.file) | _members(numbers) | dict(extra or {})
        path = write_step(self.folder, step, _in_single_precision(arrays))
        self.index.steps[places[0]] = Step(step, path.name, path.stat().st_size, time.time())
        write_index(self.folder, self.index)
        return True

    def _stored(self, weights: np.ndarray) -> Arrays:
        """Return what is kept of a layer's maps [H, Q, K]."""
        if weights.shape[-1] > self.max_tokens:
            return _summarized(weights)
        if self.exact:
            return {"weights": weights.astype(np.float16)}
        levels, scales = levels_of(weights)
        return {"levels": levels, "scales": scales}

    def _keep(self, step: int, arrays: Arrays) -> None:
        """Write the step, list it, and only then let go of what is no longer listed."""
        path = write_step(self.folder, step, arrays)
        before = {old.file for old in self.index.steps} | self._of_other_texts
        earlier = sum(old.step < step for old in self.index.steps)
        if earlier < len(self.index.steps):  # a resumed run has gone back
            del self.index.steps[earlier:], self._ordinals[earlier:]
            self.index.recorded = self._ordinals[-1] + 1 if self._ordinals else 0
        self.index.steps.append(Step(step, path.name, path.stat().st_size, time.time()))
        self._ordinals.append(self.index.recorded)
        self.index.recorded += 1
        self._thin()
        write_index(self.folder, self.index)
        for file in before - {kept.file for kept in self.index.steps}:
            (self.folder / file).unlink(missing_ok=True)
        self._of_other_texts = set()

    def _thin(self) -> None:
        """Drop steps until those that stay fit the budget."""
        last = self.index.recorded - 1
        while True:
            kept = [
                (ordinal, step)
                for ordinal, step in zip(self._ordinals, self.index.steps, strict=True)
                if ordinal % self.index.every == 0 or ordinal == last
            ]
            self._ordinals, self.index.steps = (
                [ordinal for ordinal, _ in kept],
                [step for _, step in kept],
            )
            size = sum(step.bytes for step in self.index.steps)
            if len(kept) <= 2 or (size <= self.index.budget and len(kept) <= MOST["steps"]):
                return
            self.index.every *= 2


def _checked_map(given: np.ndarray | None, text: Text, layer: str) -> np.ndarray:
    """Return a layer's maps in float32; ValueError unless they are [H, T, T] and each row sums to 1."""
    if given is None:
        raise ValueError(f"{text.name}: has no maps; give those of at least one layer, [H, T, T]")
    tokens = len(text.tokens)
    if given.ndim != 3 or given.shape[1:] != (tokens, tokens) or not len(given):
        raise ValueError(f"{text.name}, {layer}: a map of shape {given.shape} for {tokens} tokens")
    weights = np.asarray(given, dtype=np.float32)
    _check_weights(weights, f"{text.name}, {layer}")
    return weights


def _check_weights(weights: np.ndarray, where: str) -> None:
    """Check that weights [H, Q, K] are those of a softmax; ValueError that names the first head that is not."""
    sums = weights.sum(axis=-1)
    # A query that may look nowhere gives no weight: its row sums to 0. bfloat16 rounds a weight by up to 1/256 of it.
    fine = (weights >= 0).all(axis=-1) & ((np.abs(sums - 1) < 0.01) | (sums == 0))
    if fine.all():
        return
    head, query = np.argwhere(~fine)[0]
    row = weights[head, query]
    has = (
        "a NaN"
        if np.isnan(row).any()
        else "a weight below 0"
        if (row < 0).any()
        else f"a sum of {row.sum():.4g}"
    )
    raise ValueError(
        f"{where}, head {head}: the row of query {query} has {has}; takes weights that sum to 1"
    )


def _rounding(weights: np.ndarray, stored: Arrays) -> float:
    """Return how far the stored weights are from the true ones at most; 0 where a part of them alone is kept."""
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
    count = min(TOP_KEYS, Q)
    keys = np.argpartition(-weights, count - 1, axis=-1)[..., :count]  # [H, Q, count]
    top = np.take_along_axis(weights, keys, axis=-1)
    order = np.argsort(-top, axis=-1, kind="stable")
    keys, top = np.take_along_axis(keys, order, axis=-1), np.take_along_axis(top, order, axis=-1)
    levels, scales = levels_of(top)
    side = min(OVERVIEW, Q)
    edges = np.linspace(0, Q, side, endpoint=False).astype(int)
    sums = np.add.reduceat(
        np.add.reduceat(weights, edges, axis=1), edges, axis=2
    )  # [H, side, side]
    rows = np.diff([*edges, Q])[:, None]
    overview, overview_scales = levels_of(sums / rows)  # each row still sums to 1
    rest = np.clip(weights.sum(axis=-1) - top.sum(axis=-1), 0, None)
    return {
        "top_keys": keys.astype(np.int32), "top_levels": levels, "scales": scales, "rest": rest.astype(np.float32),
        "overview": overview, "overview_scales": overview_scales,
    }  # fmt: skip
