"""The test texts that a model is most wrong about: a page with the heads of each, and a table for TensorBoard."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from headscope.data.columns import texts_among
from headscope.data.datamodule import TextDataModule
from headscope.heads.interventions import device_of
from headscope.heads.report import (
    Probe,
    ProbeOutput,
    encoded_probe,
    readout_position,
    run_probe,
    shortened,
)
from headscope.heads.show import head_numbers, page_text, reading_numbers
from headscope.model.objective import ONE_CLASS, Answer, Objective
from headscope.record.schema import Contributions, label_text, quadrants
from headscope.run import MOST_WRONG
from headscope.tab.page import PageText, page, write_page
from headscope.tab.summaries import table_markdown
from headscope.training.report import Report

MOST_BYTES = 10 * 2**20  # of all maps on the page
ON_THE_PAGE, IN_THE_TABLE = 4_000, 160  # characters of a text that are shown
COLUMNS = ("", "loss", "label", "its probability", "prediction", "its probability", "text")


def write_most_wrong(
    report: Report, model: nn.Module, data: TextDataModule, writer: SummaryWriter
) -> Path | None:
    """Write most_wrong.html and TensorBoard's table; None where there is no such text or none is asked for.

    The model reads each text anew, whole as in the test; of its maps the first `inspection.max_tokens` tokens are
    shown, or fewer where the page would be larger than about 10 MiB.
    """
    settings, temperature = report.config.inspection, report.temperature
    if not settings.enabled or not settings.most_wrong:
        return None
    found = most_wrong(
        report.logits.double() / temperature, report.targets, settings.most_wrong, report.objective
    )
    texts = [_read(report, model, data, row, loss, len(found)) for row, loss in found.items()]
    if not texts:
        return None
    writer.add_text("test/most_wrong", _table(texts), report.facts_of_training["steps"])
    title = f"{report.folder.name}: the {len(texts)} of {len(report.targets)} test texts that it is most wrong about"
    path = report.folder / MOST_WRONG
    layers = [f"layer {number}" for number in range(len(texts[0].reading.maps))]
    shown = [_on_the_page(wrong, report.folder) for wrong in texts]
    write_page(path, page(title, layers, data.corpus.labels, shown))
    return path


def most_wrong(
    logits: Float[Tensor, "N C"],
    labels: Int[Tensor, "N *C"],
    count: int,
    objective: Objective = ONE_CLASS,
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
    reading: ProbeOutput  # with the maps of the tokens that are shown
    numbers: list[
        list[dict[str, float]]
    ]  # of each head, layer by layer, over all tokens that the model read
    tokens: int  # how many it read
    label: Answer
    shares: list[np.ndarray] | None = (
        None  # for a pair, how its texts divide each layer's whole maps [H, 2, 2]
    )


def _read(
    report: Report, model: nn.Module, data: TextDataModule, row: int, loss: float, texts: int
) -> Wrong:
    found = data.corpus.splits["test"][row]
    columns = texts_among(found)
    classes = report.objective.has(torch.tensor([found["label"]]), len(data.corpus.labels))
    (label,) = report.objective.names(classes, data.corpus.labels)
    both = tuple(found[column] for column in columns)
    probe = encoded_probe(
        data.tokenizer, both, label_text(label), data.evidence, readout_position(model)
    )
    reading = run_probe(
        model, probe, data.corpus.labels, device_of(model), report.objective, report.temperature
    )
    reading = replace(reading, spoken=_against_the_label(probe, reading, label), attribution=None)
    numbers = head_numbers(reading_numbers(reading), reading, probe.segments)
    fitting = tokens_that_fit(texts * sum(map(len, reading.maps.values())))
    shown = shortened(probe, reading, min(report.config.inspection.max_tokens, fitting))
    segments = probe.segments
    shares = (
        None if segments is None else [quadrants(maps, segments) for maps in reading.maps.values()]
    )
    return Wrong(row, loss, *shown, numbers, len(probe.tokens), label, shares)


def _against_the_label(probe: Probe, reading: ProbeOutput, label: Answer) -> Contributions | None:
    """Return what spoke for the answer against the label; None where that cannot be said."""
    if reading.attribution is None:
        return None
    given, has = (
        [answer] if isinstance(answer, str) else answer for answer in (reading.answer, label)
    )
    weights = torch.tensor(
        [(name in given) - (name in has) for name in reading.probabilities]
    ).double()
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
    one = page_text(
        f"row {wrong.row}", wrong.probe, wrong.reading, wrong.numbers, notes, wrong.shares
    )
    return replace(one, text=replace(one.text, text=clipped(wrong.probe.text, ON_THE_PAGE)))


def _table(texts: list[Wrong]) -> str:
    rows = []
    for place, wrong in enumerate(texts, start=1):
        both = (*_named(wrong.label, wrong.reading), *_named(wrong.reading.answer, wrong.reading))
        rows.append(
            (str(place), f"{wrong.loss:.3f}", *both, clipped(wrong.probe.text, IN_THE_TABLE))
        )
    return table_markdown(COLUMNS, rows)


def _named(answer: Answer, reading: ProbeOutput) -> tuple[str, str]:
    """Return one class or several, and the probability of each."""
    names = [answer] if isinstance(answer, str) else answer
    return label_text(answer), ", ".join(f"{reading.probabilities[name]:.3f}" for name in names)


def clipped(text: str, length: int) -> str:
    """Return a text of at most `length` characters, the last of which says that there are more."""
    return text if len(text) <= length else text[: length - 1] + "…"
