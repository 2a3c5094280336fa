"""From what a model makes of a text to the page that shows it."""

from typing import Any

import numpy as np
import torch

from headscope.inspection.measures import HeadStatistics, Summary
from headscope.inspection.page import HeadReport, LayerReport, Report
from headscope.inspection.pairs import numbers_of_pair
from headscope.training.probes import Probe, Reading


def reading_numbers(reading: Reading) -> Summary:
    """Return the numbers of every head over this one text."""
    statistics = HeadStatistics()
    for layer, maps in reading.maps.items():
        statistics.update(layer, torch.from_numpy(maps)[None])  # [1, H, T, T]
    return statistics.summary()


def head_numbers(summary: Summary, reading: Reading, segments: list[int | None] | None) -> list[list[dict[str, float]]]:
    """Return the numbers turned around: layer by layer and head by head, each measure's mean.

    Of a pair of texts, whose segments say which text each token is of, also what goes from one to the other.
    """
    return [
        [
            dict(zip(measures, values, strict=True)) | numbers_of_pair(weights, segments)
            for *values, weights in zip(*(means for means, _ in measures.values()), maps, strict=True)
        ]
        for measures, maps in zip(summary.values(), reading.maps.values(), strict=True)
    ]


def text_report(
    probe: Probe,
    reading: Reading,
    numbers: list[list[dict[str, float]]],
    title: str,
    notes: dict[str, str],
    shares: list[np.ndarray] | None = None,
) -> Report:
    """Return what the page shows of a text.

    Args:
        probe: the text and its tokens.
        reading: what the model makes of it.
        numbers: layer by layer and head by head.
        title: of the text.
        notes: where all this comes from.
        shares: layer by layer, how a pair's texts divide each head's map [H, 2, 2], where the reading is cut.
    """
    unknown: Any = [[None] * len(maps) for maps in reading.maps.values()]
    layers = [
        LayerReport(f"layer {number}", [HeadReport(*head) for head in zip(maps, own, parts, strict=True)])
        for number, (maps, own, parts) in enumerate(zip(reading.maps.values(), numbers, shares or unknown, strict=True))
    ]
    return Report(
        title,
        probe.text,
        probe.tokens,
        layers,
        reading.probabilities,
        probe.label,
        notes,
        reading.pooling,
        reading.prediction,
        probe.segments,
    )
