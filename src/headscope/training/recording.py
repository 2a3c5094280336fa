"""From what a model makes of its probes to the record that the Heads tab shows."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from headscope.inspection.config import InspectionConfig
from headscope.inspection.measures import Examples, Summary, TopTexts
from headscope.inspection.record import Arrays, Text, encodable
from headscope.inspection.recorder import HeadRecorder
from headscope.training.probes import Probe, Reading

MIB, LONGEST_EXAMPLE = 2**20, 160  # bytes; characters of an example's text that are kept


def new_recorder(
    folder: Path, probes: Sequence[Probe], labels: Sequence[str], config: InspectionConfig, notes: Mapping[str, str]
) -> HeadRecorder:
    """Return the recorder of a run, or go on with the one that a resumed run had."""
    texts = [
        Text(f"probe_{number}", probe.tokens, probe.text, probe.label, probe.segments)
        for number, probe in enumerate(probes)
    ]
    is_exact = config.precision == "float16"
    return HeadRecorder(folder, texts, labels, config.budget * MIB, config.max_tokens, is_exact, notes)


def keep_readings(
    recorder: HeadRecorder,
    step: int,
    readings: Sequence[Reading],
    summary: Summary | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Record the maps of every probe, and the numbers of every head if there are any.

    Where a text may be given any number of classes, those that it is given are recorded too: text_t/given; where it
    can be said, what every head put for the likeliest one: text_t/nats.
    """
    given = {f"text_{place}/given": _given(reading) for place, reading in enumerate(readings)}
    said = {f"text_{place}/{name}": values
            for place, reading in enumerate(readings) for name, values in _said(reading).items()}  # fmt: skip
    recorder.record(
        step,
        [{f"layer {number}": weights for number, weights in enumerate(reading.maps.values())} for reading in readings],
        numbers_of(summary or {}),
        [reading.pooling for reading in readings],
        [np.array(list(reading.probabilities.values())) for reading in readings],
        [reading.difference for reading in readings],
        {name: classes for name, classes in given.items() if classes is not None} | said | dict(extra or {}),
    )


def _said(reading: Reading) -> Arrays:
    if reading.spoken is None:
        return {}
    likeliest = list(reading.probabilities).index(reading.spoken.answer)
    return reading.spoken.arrays() | {"nats/class": np.array(likeliest, dtype=np.int32)}


def _given(reading: Reading) -> np.ndarray | None:
    """Return 1 at each class that the text is given and 0 at the others; None where it is given the likeliest one."""
    if isinstance(reading.answer, str):
        return None
    return np.array([name in reading.answer for name in reading.probabilities], dtype=np.uint8)


def numbers_of(summary: Summary) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Turn layer -> measure around: measure -> (means [L, H], errors [L, H]), NaN where a layer has fewer heads."""
    layers = list(summary.values())
    heads = max((len(means) for layer in layers for means, _ in layer.values()), default=0)
    numbers = {}
    for measure in dict.fromkeys(name for layer in layers for name in layer):
        both = np.full((2, len(layers), heads), np.nan)
        for number, layer in enumerate(layers):
            for part, values in enumerate(layer.get(measure, ())):
                both[part, number, : len(values)] = values
        numbers[measure] = (both[0], both[1])
    return numbers


def examples_of(examples: Examples, text_of: Callable[[int], str]) -> dict[str, np.ndarray]:
    """Return the texts that stand out as arrays: their rows and scores [L, H, n], and the texts by row.

    Args:
        examples: of one validation.
        text_of: the text of a row of the validation split.
    """
    arrays: dict[str, np.ndarray] = {}
    for kind, layers in (("focused", examples.focused), ("changed", examples.changed)):
        if layers:
            arrays[f"examples/{kind}/rows"], arrays[f"examples/{kind}/scores"] = _ranked(list(layers.values()))
    named = [found.ravel() for name, found in arrays.items() if name.endswith("rows")]
    rows = np.unique(np.concatenate([np.zeros(0, dtype=np.int32), *named]))
    rows = rows[rows >= 0]
    texts = [encodable(text_of(int(row))[:LONGEST_EXAMPLE]) for row in rows]
    return arrays | {"examples/rows": rows, "examples/texts": np.array(texts, dtype=f"<U{LONGEST_EXAMPLE}")}


def _ranked(layers: Sequence[TopTexts]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and scores [L, H, n]; where there are fewer texts, -1 and NaN."""
    best = [layer.best() for layer in layers]
    heads, most = max(map(len, best)), max((len(texts) for layer in best for texts in layer), default=0)
    rows, scores = np.full((len(best), heads, most), -1, dtype=np.int32), np.full((len(best), heads, most), np.nan)
    for number, layer in enumerate(best):
        for head, texts in enumerate(layer):
            for place, (row, score) in enumerate(texts):
                rows[number, head, place], scores[number, head, place] = row, score
    return rows, scores.astype(np.float32)
