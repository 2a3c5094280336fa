"""Recording steps while a model trains.

In a run `headscope.heads.lightning_callback.HeadLogger` writes <run>/heads/step_*.npz
at each validation, `headscope.heads.step.record_best` at the end.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headscope.ground.files import write_atomic
from headscope.record.reader import read_index, read_step
from headscope.record.schema import (
    FOLDER,
    INDEX,
    INDEX_ADAPTER,
    RUN_NOTE,
    Arrays,
    Index,
    Step,
    Text,
)

TOLERANCE = 0.01  # of the sum of a row: bfloat16 rounds a weight by up to 1/256


class HeadRecorder:
    """Keeps the maps and numbers of every head, step by step, beside the event file of a run.

        recorder = HeadRecorder("outputs/mine", [Text("first", tokens, text)])
        recorder.write(step, {"text_0/layer_0/weights": weights})  # [H, T, T], rows sum to 1

    Args:
        logdir: folder of the run, where its event file is.
        texts: probe texts, the same ones at every step.
        classes: names of the classes, if probabilities are recorded.
        notes: anything that a reader should know.

    Attributes:
        index: what was recorded so far.
    """

    def __init__(
        self,
        logdir: str | Path,
        texts: Sequence[Text],
        classes: Sequence[str] = (),
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(logdir) / FOLDER
        self.index = Index(list(texts), [], [], list(classes), notes=dict(notes or {}))
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
        for name in ("layers", "heads", "steps", "best"):
            setattr(self.index, name, getattr(before, name))

    def write(
        self, step: int, arrays: Mapping[str, np.ndarray], layers: Sequence[str] = ()
    ) -> None:
        """Write one step, and remove the same and later ones: a resumed run has gone back.

        Args:
            step: number of the training step.
            arrays: named as in docs/record-format.md; of each text and layer the map,
                text_t/layer_l/weights [H, T, T], whose rows sum to 1.
            layers: names of the layers; by default layer 0, layer 1 ...

        Raises:
            ValueError: if a map is missing, does not fit its text, or is no softmax.
        """
        if not layers:
            maps = filter(re.compile(r"text_0/layer_\d+/weights").fullmatch, arrays)
            layers = [f"layer {number}" for number, _ in enumerate(maps)]
        heads = []
        for number, layer in enumerate(layers):
            for place, text in enumerate(self.index.texts):
                name = f"text_{place}/layer_{number}/weights"
                weights = np.asarray(arrays.get(name, ()), dtype=np.float32)
                _check_map(weights, len(text.tokens), f"{text.name}, {layer}")
            heads.append(len(weights))
        if not layers:
            raise ValueError("expected maps of at least one layer, got none")
        self.index.layers = list(layers)
        self.index.heads = heads
        written = self._write_step(step, arrays)
        before = {old.file for old in self.index.steps} | self._replaced
        self.index.steps = [old for old in self.index.steps if old.step < step] + [written]
        self._write_index()
        for file in before - {kept.file for kept in self.index.steps}:  # no longer listed
            (self.folder / file).unlink(missing_ok=True)
        self._replaced = set()

    def amend(
        self, step: int, arrays: Mapping[str, np.ndarray], temperature: float | None = None
    ) -> None:
        """Add arrays to a step, or replace them, if the step was recorded.

        `temperature` is what the logits of these arrays are divided by.
        """
        for place, old in enumerate(self.index.steps):
            if old.step == step:
                before = self._read_own(old)
                written = self._write_step(step, before | dict(arrays))
                self.index.steps[place] = replace(
                    written, temperature=temperature or old.temperature
                )
                self._write_index()

    def temper(self, temperature: float) -> None:
        """Divide the logits of every step by one temperature, so that steps can be compared."""
        for place, old in enumerate(self.index.steps):
            ratio = temperature / (old.temperature or 1)
            if ratio == 1:
                continue
            arrays = self._read_own(old)
            written = self._write_step(old.step, tempered(arrays, ratio))
            self.index.steps[place] = replace(written, time=old.time, temperature=temperature)
            self._write_index()

    def _read_own(self, step: Step) -> dict[str, np.ndarray]:
        """Return the arrays of a step that this process has written, of any size."""
        path = self.folder / step.file
        return read_step(path, most=1 + (path.stat().st_size >> 20))

    def _write_step(self, step: int, arrays: Mapping[str, np.ndarray]) -> Step:
        """Write a step's arrays into one file, atomically: maps in float16, numbers in float32."""
        kept = dict(arrays)
        for name, array in arrays.items():
            if name.endswith("/weights"):
                kept[name] = array.astype(np.float16)
            elif name.startswith("numbers/"):
                kept[name] = array.astype(np.float32)

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:  # a name without .npz, which savez would append
                np.savez(file, **kept)  # type: ignore[arg-type]

        written = Step(step, time.time())
        write_atomic(self.folder / written.file, write)
        return written

    def _write_index(self) -> None:
        content = INDEX_ADAPTER.dump_json(self.index, warnings=False)
        write_atomic(self.folder / INDEX, lambda temporary: temporary.write_bytes(content))


def tempered(arrays: Mapping[str, np.ndarray], temperature: float) -> Arrays:
    """Return a step's arrays as they are where the logits are divided by a temperature.

    Contributions are divided. Probabilities are softmax(log p / temperature), or, of a text with
    any number of classes, sigmoid(log(p / (1 - p)) / temperature).
    """
    found = dict(arrays)
    for name, array in arrays.items():
        text, _, own = name.partition("/")
        if own.startswith("contributions/") and array.dtype.kind == "f":
            found[name] = (array / temperature).astype(array.dtype)
        elif own in ("probabilities", "without/heads"):
            shares = array.astype(np.float64)
            has_any = f"{text}/given" in arrays
            with np.errstate(divide="ignore", invalid="ignore"):  # of 0 and of 1
                logits = np.log(shares) - (np.log1p(-shares) if has_any else 0)
                powers = np.exp(logits / temperature)
                whole = 1 + powers if has_any else powers.sum(axis=-1, keepdims=True)
                found[name] = np.where(np.isinf(powers), 1, powers / whole).astype(array.dtype)
    return found


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
