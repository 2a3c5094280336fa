"""The test texts that a model is most wrong about: a page with the heads of each, and a table for TensorBoard."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.data.columns import texts_among
from headscope.inspection.measures import HeadStatistics, Summary
from headscope.inspection.probes import Probe, Reading, encoded_probe, read_probe, shortened
from headscope.model.objective import ONE_CLASS, Answer, Objective
from headscope.tensorboard.page import PageText, page, write_page
from headscope.tensorboard.record import (
    Arrays,
    Spoken,
    Text,
    label_text,
    levels_of,
    notes_of,
    numbers_of_pair,
    quadrants,
)
from headscope.tensorboard.summaries import table_markdown
from headscope.training.folder import MOST_WRONG
from headscope.training.report import Report
from headscope.training.session import Session

EXACT = 2**16  # weights of all maps of a text, up to which a page has them in float32
MOST_BYTES = 10 * 2**20  # of all maps on the page
ON_THE_PAGE, IN_THE_TABLE = 4_000, 160  # characters of a text that are shown
COLUMNS = ("", "loss", "label", "its probability", "prediction", "its probability", "text")


def write_most_wrong(session: Session, report: Report) -> Path | None:
    """Write most_wrong.html and TensorBoard's table; None where there is no such text or none is asked for.

    The model reads each text anew, whole as in the test; of its maps the first `inspection.max_tokens` tokens are
    shown, or fewer where the page would be larger than about 10 MiB.
    """
    settings, temperature = session.config.inspection, report.temperature
    if not settings.enabled or not settings.most_wrong:
        return None
    found = most_wrong(report.logits.double() / temperature, report.targets, settings.most_wrong, report.objective)
    texts = [_read(session, report, row, loss, len(found)) for row, loss in found.items()]
    if not texts:
        return None
    session.writer.add_text("test/most_wrong", _table(texts), report.facts_of_training["steps"])
    title = f"{report.folder.name}: the {len(texts)} of {len(report.targets)} test texts that it is most wrong about"
    path = report.folder / MOST_WRONG
    layers = [f"layer {number}" for number in range(len(texts[0].reading.maps))]
    shown = [_on_the_page(wrong, report.folder) for wrong in texts]
    write_page(path, page(title, layers, session.data.corpus.labels, shown))
    return path


def most_wrong(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, "N *C"], count: int, objective: Objective = ONE_CLASS
) -> dict[int, float]:
    """Return the loss of at most `count` misclassified texts, the highest first: row -> nats.

    The logits are of all texts, divided by the temperature.
    """
    losses = objective.losses(logits, labels)  # [N]
    (wrong,) = (~objective.hits(logits, labels)).nonzero(as_tuple=True)
    rows = wrong[losses[wrong].argsort(descending=True, stable=True)[:count]]
    return dict(zip(rows.tolist(), losses[rows].tolist(), strict=True))


@dataclass(frozen=True)
class Wrong:
    """A text that was misclassified."""

    row: int  # its place in the test split
    loss: float  # cross-entropy of its label, in nats
    probe: Probe  # with the tokens that are shown
    reading: Reading  # with the maps of the tokens that are shown
    numbers: list[list[dict[str, float]]]  # of each head, layer by layer, over all tokens that the model read
    tokens: int  # how many it read
    label: Answer
    shares: list[np.ndarray] | None = None  # for a pair, how its texts divide each layer's whole maps [H, 2, 2]


def _read(session: Session, report: Report, row: int, loss: float, texts: int) -> Wrong:
    data = session.data
    found = data.corpus.splits["test"][row]
    columns = texts_among(found)
    classes = session.objective.has(torch.tensor([found["label"]]), len(data.corpus.labels))
    (label,) = session.objective.names(classes, data.corpus.labels)
    probe = encoded_probe(data.tokenizer, tuple(found[column] for column in columns), label_text(label), data.evidence)
    reading = read_probe(
        session.module.model, probe, data.corpus.labels, session.device, session.objective, report.temperature
    )
    reading = replace(reading, spoken=_against_the_label(probe, reading, label), attribution=None)
    numbers = head_numbers(reading_numbers(reading), reading, probe.segments)
    fitting = tokens_that_fit(texts * sum(map(len, reading.maps.values())))
    shown = shortened(probe, reading, min(session.config.inspection.max_tokens, fitting))
    segments = probe.segments
    shares = None if segments is None else [quadrants(maps, segments) for maps in reading.maps.values()]
    return Wrong(row, loss, *shown, numbers, len(probe.tokens), label, shares)


def _against_the_label(probe: Probe, reading: Reading, label: Answer) -> Spoken | None:
    """Return what spoke for the answer against the label; None where that cannot be said."""
    if reading.attribution is None:
        return None
    given, has = ([answer] if isinstance(answer, str) else answer for answer in (reading.answer, label))
    weights = torch.tensor([(name in given) - (name in has) for name in reading.probabilities]).double()
    answer = f"{label_text(reading.answer)} against {label_text(label)}"
    return reading.attribution.said(weights, answer, probe.tokens)


def tokens_that_fit(maps: int) -> int:
    """Return the T at which so many maps take MOST_BYTES: a byte a weight, four a row, in base64 a third more."""
    return max(2, math.isqrt(MOST_BYTES * 3 // 4 // maps + 4) - 2)


def _on_the_page(wrong: Wrong, folder: Path) -> PageText:
    shown = len(wrong.probe.tokens)
    cut = f"{shown} of {wrong.tokens} tokens; a row's weights on the others are left out, its numbers count all"
    notes = {
        "run": str(folder),
        "row": f"{wrong.row} of the test split, counted from 0",
        "loss": f"{wrong.loss:.3f} nats",
        "shown": f"{shown} tokens" if shown == wrong.tokens else cut,
    }
    one = page_text(f"row {wrong.row}", wrong.probe, wrong.reading, wrong.numbers, notes, wrong.shares)
    return replace(one, text=replace(one.text, text=clipped(wrong.probe.text, ON_THE_PAGE)))


def _table(texts: list[Wrong]) -> str:
    rows = []
    for place, wrong in enumerate(texts, start=1):
        both = (*_named(wrong.label, wrong.reading), *_named(wrong.reading.answer, wrong.reading))
        rows.append((str(place), f"{wrong.loss:.3f}", *both, clipped(wrong.probe.text, IN_THE_TABLE)))
    return table_markdown(COLUMNS, rows)


def _named(answer: Answer, reading: Reading) -> tuple[str, str]:
    """Return one class or several, and the probability of each."""
    names = [answer] if isinstance(answer, str) else answer
    return label_text(answer), ", ".join(f"{reading.probabilities[name]:.3f}" for name in names)


def clipped(text: str, length: int) -> str:
    """Return a text of at most `length` characters, the last of which says that there are more."""
    return text if len(text) <= length else text[: length - 1] + "…"


def reading_numbers(reading: Reading) -> Summary:
    """Return the numbers of every head over this one text."""
    statistics = HeadStatistics()
    for layer, maps in reading.maps.items():
        statistics.update(layer, torch.from_numpy(maps)[None])  # [1, H, T, T]
    return statistics.summary()


def head_numbers(summary: Summary, reading: Reading, segments: list[int | None] | None) -> list[list[dict[str, float]]]:
    """Return each measure's mean, layer by layer and head by head.

    Of a pair, whose segments say which text each token is of, also what goes from one text to the other; and, where it
    can be said, what the head put for the answer in nats.
    """
    numbers = []
    for layer, (measures, maps) in enumerate(zip(summary.values(), reading.maps.values(), strict=True)):
        heads = zip(*(means for means, _ in measures.values()), strict=True)
        numbers.append([
            dict(zip(measures, values, strict=True))
            | numbers_of_pair(maps[head], segments)
            | ({} if reading.spoken is None else {"nats": float(reading.spoken.heads[layer, head])})
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
    """Return what a page shows of a text, with the numbers of its heads and notes on where all this comes from.

    Weights are exact in float32 where they are few; else they are kept as the record keeps them, in one byte. Of a
    reading that is cut, `shares` say layer by layer how a pair's texts divide each head's whole map [H, 2, 2].
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
