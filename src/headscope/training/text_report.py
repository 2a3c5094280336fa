"""From what a model makes of a text to the page that shows it."""

import numpy as np
import torch

from headscope.inspection.measures import HeadStatistics, Summary
from headscope.inspection.pairs import numbers_of_pair, quadrants
from headscope.inspection.record import Arrays, Text, levels_of
from headscope.inspection.spoken import notes_of, numbers_of_head
from headscope.tensorboard.page import PageText
from headscope.training.probes import Probe, Reading

EXACT = 2**16  # weights of all maps of a text


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


def page_text(
    name: str,
    probe: Probe,
    reading: Reading,
    numbers: list[list[dict[str, float]]],
    notes: dict[str, str],
    shares: list[np.ndarray] | None = None,
) -> PageText:
    """Return what a page shows of a text.

    Weights are exact in float32 where all of them are few; else they are kept as the record keeps them, in one byte.

    Args:
        name: of the text.
        probe: the text and its tokens.
        reading: what the model makes of it.
        numbers: layer by layer and head by head.
        notes: where all this comes from.
        shares: layer by layer, how a pair's texts divide each head's map [H, 2, 2], where the reading is cut.
    """
    arrays: Arrays = {"probabilities": np.array(list(reading.probabilities.values()), dtype=np.float32)}
    is_exact = sum(maps.size for maps in reading.maps.values()) <= EXACT
    for number, maps in enumerate(reading.maps.values()):
        if is_exact:
            arrays[f"layer_{number}/weights"] = maps.astype(np.float32)
        else:
            arrays[f"layer_{number}/levels"], arrays[f"layer_{number}/scales"] = levels_of(maps)
        if probe.segments is not None:
            whole = quadrants(maps, probe.segments) if shares is None else shares[number]
            arrays[f"layer_{number}/quadrants"] = whole.astype(np.float32)
    if reading.pooling is not None:
        arrays["pooling"] = reading.pooling.astype(np.float32)
    if not isinstance(reading.answer, str):
        arrays["given"] = np.array([name in reading.answer for name in reading.probabilities], dtype=np.uint8)
    said = reading.spoken
    arrays |= {} if said is None else said.arrays()
    measures = {measure: [[head.get(measure) for head in heads] for heads in numbers] for measure in numbers[0][0]}
    text = Text(name, probe.tokens, probe.text, probe.label, probe.segments)
    return PageText(text, arrays, measures, notes_of(said) | notes, None if said is None else said.answer)
