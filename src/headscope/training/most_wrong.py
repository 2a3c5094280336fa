"""The test texts that a model is most wrong about: a page with the heads of each, and a table for TensorBoard."""

import math
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from headscope.data.columns import texts_among
from headscope.data.datamodule import TextDataModule
from headscope.heads.report import (
    ProbeOutput,
    make_probe,
    page_text,
    readout_position,
    run_probe,
    shortened,
    text_numbers,
)
from headscope.model.objective import ONE_CLASS, Answer, Objective
from headscope.record.schema import label_text
from headscope.run import MOST_WRONG
from headscope.tab.page import PageText, page, write_page
from headscope.tab.summaries import table_markdown
from headscope.training.report import Report

MOST_BYTES = 10 * 2**20  # of all maps on the page
PAGE_CHARACTERS = 4_000  # of a text
TABLE_CHARACTERS = 160
COLUMNS = ("", "loss", "label", "its probability", "prediction", "its probability", "text")


def write_most_wrong(
    report: Report, model: nn.Module, data: TextDataModule, writer: SummaryWriter
) -> Path | None:
    """Write most_wrong.html and TensorBoard's table; None where there is no such text or none is asked for.

    The model reads each text anew, whole as in the test; of its maps the first `inspection.max_tokens` tokens are
    shown, or fewer where the page would be larger than about 10 MiB.
    """
    config = report.config.inspection
    if not config.enabled or not config.most_wrong:
        return None
    logits = report.logits.double() / report.temperature
    wrong = most_wrong(logits, report.targets, config.most_wrong, report.objective)
    if not wrong:
        return None
    pages = []
    rows = []
    for place, (row, loss) in enumerate(wrong.items(), start=1):
        output, label = _read(report, model, data, row)
        num_maps = len(wrong) * sum(map(len, output.maps))
        shown = shortened(output, min(config.max_tokens, tokens_that_fit(num_maps)))
        notes = {
            "run": str(report.folder),
            "row": f"{row} of the test split, counted from 0",
            "loss": f"{loss:.3f} nats",
        }
        pages.append(_page(output, shown, row, notes))
        named = (*_named(label, output), *_named(output.answer, output))
        rows.append(
            (str(place), f"{loss:.3f}", *named, clipped(output.text.text, TABLE_CHARACTERS))
        )
    writer.add_text(
        "test/most_wrong", table_markdown(COLUMNS, rows), report.facts_of_training["steps"]
    )
    title = f"{report.folder.name}: the {len(wrong)} of {len(report.targets)} test texts that it is most wrong about"
    layers = [f"layer {number}" for number in range(len(output.layers))]
    path = report.folder / MOST_WRONG
    write_page(path, page(title, layers, data.corpus.labels, pages))
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
    (wrong,) = (~objective.correct(logits, labels)).nonzero(as_tuple=True)
    rows = wrong[losses[wrong].argsort(descending=True, stable=True)[:count]]
    return dict(zip(rows.tolist(), losses[rows].tolist(), strict=True))


def _read(
    report: Report, model: nn.Module, data: TextDataModule, row: int
) -> tuple[ProbeOutput, Answer]:
    """Return what the model makes of a test text, with contributions to its prediction minus its label; the label."""
    classes = data.corpus.labels
    example = data.corpus.splits["test"][row]
    is_class = report.objective.has(torch.tensor([example["label"]]), len(classes))
    (label,) = report.objective.names(is_class, classes)
    texts = tuple(example[column] for column in texts_among(example))
    readout = readout_position(model)
    probe = make_probe(data.tokenizer, texts, label_text(label), None, data.evidence, readout)
    return run_probe(model, probe, classes, report.objective, report.temperature, label), label


def tokens_that_fit(maps: int) -> int:
    """Return the T at which so many maps take MOST_BYTES: a byte a weight, four a row, in base64 a third more."""
    return max(2, math.isqrt(MOST_BYTES * 3 // 4 // maps + 4) - 2)


def _page(output: ProbeOutput, shown: ProbeOutput, row: int, notes: dict[str, str]) -> PageText:
    """Return what the page shows of a text: the maps of its first tokens, the numbers of all."""
    total = len(output.text.tokens)
    count = len(shown.text.tokens)
    notes["shown"] = f"{count} tokens"
    if count < total:
        notes["shown"] = (
            f"{count} of {total} tokens; a row's weights on the others are left out, its numbers count all"
        )
    clipped_text = replace(
        shown.text, name=f"row {row}", text=clipped(shown.text.text, PAGE_CHARACTERS)
    )
    return page_text(replace(shown, text=clipped_text), text_numbers(output), notes)


def _named(answer: Answer, output: ProbeOutput) -> tuple[str, str]:
    """Return one class or several, and the probability of each."""
    names = [answer] if isinstance(answer, str) else answer
    return label_text(answer), ", ".join(f"{output.probabilities[name]:.3f}" for name in names)


def clipped(text: str, length: int) -> str:
    """Return a text of at most `length` characters, with an ellipsis where it was longer."""
    return text if len(text) <= length else text[: length - 1] + "…"
