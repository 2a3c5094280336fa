"""From what a model makes of its probes to the record that the Heads tab shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headscope.inspection.config import InspectionConfig
from headscope.inspection.record import Text
from headscope.inspection.recorder import HeadRecorder
from headscope.training.probes import Probe, Reading

# layer -> measure -> (means, standard errors), one of each per head
Summary = dict[str, dict[str, tuple[list[float], list[float]]]]
MIB = 2**20


def new_recorder(
    folder: Path, probes: Sequence[Probe], labels: Sequence[str], config: InspectionConfig, notes: Mapping[str, str]
) -> HeadRecorder:
    """Return the recorder of a run, or go on with the one that a resumed run had."""
    texts = [Text(f"probe_{number}", probe.tokens, probe.text, probe.label) for number, probe in enumerate(probes)]
    is_exact = config.precision == "float16"
    return HeadRecorder(folder, texts, labels, config.budget * MIB, config.max_tokens, is_exact, notes)


def keep_readings(
    recorder: HeadRecorder, step: int, readings: Sequence[Reading], summary: Summary | None = None
) -> None:
    """Record the maps of every probe, and the numbers of every head if there are any."""
    recorder.record(
        step,
        [{f"layer {number}": weights for number, weights in enumerate(reading.maps.values())} for reading in readings],
        numbers_of(summary or {}),
        [reading.pooling for reading in readings],
        [np.array(list(reading.probabilities.values())) for reading in readings],
        [reading.difference for reading in readings],
    )


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
