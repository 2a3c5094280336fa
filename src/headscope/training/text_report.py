"""From what a model makes of a text to the page that shows it."""

import numpy as np
import torch

from headscope.inspection.measures import HeadStatistics, Summary
from headscope.inspection.page import HeadReport, LayerReport, Report
from headscope.inspection.pairs import numbers_of_pair
from headscope.inspection.spoken import notes_of, numbers_of_head
from headscope.training.probes import Probe, Reading


def reading_numbers(reading: Reading) -> Summary:
    """Return the numbers of every head over this one text."""
    statistics = HeadStatistics()
    for layer, maps in reading.maps.items():
        statistics.update(layer, torch.from_numpy(maps)[None])  # [1, H, T, T]
    return statistics.summary()


def head_numbers(summary: Summary, reading: Reading, segments: list[int | None] | None) -> list[list[dict[str, float]]]:
    """Return the numbers turned around: layer by layer and head by head, each measure's mean.

    Of a pair of texts, whose segments say which text each token is of, also what goes from one to the other; and, where
    it can be said, what the head put for the answer in nats.
    """
    numbers = []
    for layer, (measures, maps) in enumerate(zip(summary.values(), reading.maps.values(), strict=True)):
        heads = zip(*(means for means, _ in measures.values()), strict=True)
        numbers.append([
            dict(zip(measures, values, strict=True))
            | numbers_of_pair(maps[head], segments)
            | numbers_of_head(reading.spoken, layer, head)
            for head, values in enumerate(heads)
        ])  # fmt: skip
    return numbers


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
    layers, said = [], reading.spoken
    for number, (maps, own) in enumerate(zip(reading.maps.values(), numbers, strict=True)):
        parts = [None] * len(maps) if shares is None else shares[number]
        lines = [None if said is None else said.line(number, head) for head in range(len(maps))]
        heads = [HeadReport(*head) for head in zip(maps, own, parts, lines, strict=True)]
        layers.append(LayerReport(f"layer {number}", heads))
    return Report(
        title,
        probe.text,
        probe.tokens,
        layers,
        reading.probabilities,
        probe.label,
        notes | notes_of(said),
        reading.pooling,
        reading.prediction,
        probe.segments,
    )
