"""What a run records of its heads: during training, of the best checkpoint, and on its mistakes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from lightning.pytorch import Trainer
from torch import Tensor, nn

from headscope.config import TrainConfig
from headscope.data.batching import Batch, TextBatches
from headscope.data.columns import texts_among
from headscope.data.datamodule import TextDataModule
from headscope.errors import RunError
from headscope.heads.ablation import most_texts
from headscope.heads.capture import readout_position
from headscope.heads.contributions import has_contributions, mean_contributions
from headscope.heads.integrations.lightning_callback import HeadLogger, ProbeSet
from headscope.heads.report import (
    JOIN,
    ProbeOutput,
    choose_probes,
    make_probe,
    new_recorder,
    page_text,
    record_best,
    record_study,
    run_probe,
    shortened,
    text_numbers,
    text_summary,
)
from headscope.heads.study import draw_samples, special_tokens, study, study_plan
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Objective
from headscope.record.schema import RUN_NOTE, RecordError, label_text
from headscope.run import Run
from headscope.run_folder import MOST_WRONG
from headscope.tab.page import PageText, page, write_page
from headscope.terminal import Bar
from headscope.training.module import ClassifierModule, chosen_precision
from headscope.training.report import ABLATION, CONTRIBUTIONS, DETAILS, HEADLINE, Report

CONTRIBUTION_TEXTS = 300  # over which contributions of heads are averaged
MOST_SECONDS = 120.0  # else heads are set to zero alone, and no text is taken apart
# Of a text's tokens, for faithfulness; `headscope inspect` takes more.
QUICK_SHARES: tuple[float, ...] = (0.2,)
MOST_BYTES = 10 * 2**20  # of all maps on the page of mistakes
MOST_CHARACTERS = 4_000  # of a text there


def head_logger(
    config: TrainConfig, folder: Path, data: TextDataModule, module: ClassifierModule
) -> HeadLogger:
    """Return the callback that records probe texts and measures during training."""
    labels = data.corpus.labels
    split = data.corpus.splits["validation"]
    columns = texts_among(split.column_names)
    probes = choose_probes(data, config.inspection, module.model, module.objective)
    # Maps are made outside of Lightning's context for mixed precision, in the weights' own type.
    notes = {
        "precision": "32-true",
        "dropout": "off",
        "trained in": chosen_precision(config.trainer),
    }
    if module.run_id is not None:
        notes[RUN_NOTE] = module.run_id
    try:
        recorder = new_recorder(folder, probes, labels, config.inspection, notes)
    except RecordError as error:
        raise RunError(
            f"resume={folder}: heads/{error}; move the folder heads away, or remove it"
        ) from error

    def text_of(row: int) -> str:
        return JOIN.join(split[row][column] for column in columns)

    special = special_tokens(data.tokenizer)
    subjects = ProbeSet(probes, labels, special, text_of, module.objective)
    return HeadLogger(subjects, config.inspection, recorder)


def study_heads(
    trainer: Trainer,
    module: ClassifierModule,
    data: TextDataModule,
    logger: HeadLogger,
    report: Report,
    bar: Bar,
) -> None:
    """Ablate each head of the best checkpoint on validation texts; add to record and report."""
    count = report.config.inspection.causes
    model = module.model
    objective = module.objective
    temperature = report.temperature
    step = report.facts_of_training["kept step"]
    best = (model, logger.subjects.probes, objective, temperature)
    if not count:
        record_best(logger.recorder, step, *best, with_ablations=False)
        return
    samples = _samples(report.config, data, count)
    special = logger.subjects.special
    shares = QUICK_SHARES
    plan = study_plan(model, samples, shares)
    if plan.seconds > MOST_SECONDS:
        shares = ()
        plan = study_plan(model, samples, shares)
    bar.update(0, name=f"ablating heads on {plan.num_texts} texts, about {plan.seconds:.0f} s")
    result = study(model, samples, special, shares, objective, bar.update, temperature)
    record_study(logger.recorder, step, result, *best)
    report.facts_of_training |= {
        ABLATION: {"texts": most_texts(result.effects.values()), "heads": result.loss_increases()},
        HEADLINE: result.answer,
        DETAILS: result.details,
        "heads": {"sets": None if result.sets is None else result.sets.facts()},
    }


def add_contributions(module: ClassifierModule, data: TextDataModule, report: Report) -> None:
    """Add the mean contribution of each head to the predicted class, where there is one."""
    model = module.model
    if has_contributions(model):
        texts = _samples(report.config, data, CONTRIBUTION_TEXTS)[0]
        means = mean_contributions(model, texts, module.objective, report.temperature)
        report.facts_of_training[CONTRIBUTIONS] = means.facts(module.objective)


def _samples(config: TrainConfig, data: TextDataModule, count: int) -> list[list[Batch]]:
    """Return `count` validation texts and further ones; see `draw_samples`."""
    texts = TextBatches(data.encoded["validation"], data.labels("validation"))
    return draw_samples(texts, count, config.data.tokens_per_batch, config.seed)


# The page of mistakes.


def write_most_wrong(report: Report, model: nn.Module, data: TextDataModule) -> Path | None:
    """Write most_wrong.html; None where there is no such text or the settings ask for none.

    The model reads each text whole; its maps are shown for the first `inspection.max_tokens`
    tokens, or fewer where the page would exceed about 10 MiB.
    """
    config = report.config.inspection
    if not config.enabled or not config.most_wrong:
        return None
    logits = report.logits.double() / report.temperature
    losses = most_wrong(logits, report.targets, config.most_wrong, report.objective)
    if not losses:
        return None
    classes = data.corpus.labels
    own = (report.objective, report.temperature, data.evidence)
    run = Run(
        report.folder, report.config, data.tokenizer, classes, cast(TextClassifier, model), *own
    )

    def texts() -> Iterator[WrongText]:
        for row, loss in losses.items():
            example = data.corpus.splits["test"][row]
            is_class = run.objective.has(torch.tensor([example["label"]]), len(classes))
            (label,) = run.objective.names(is_class, classes)
            notes = {
                "run": str(report.folder),
                "row": f"{row} of the test split, counted from 0",
                "loss": f"{loss:.3f} nats",
            }
            parts = tuple(example[column] for column in texts_among(example))
            yield WrongText(f"row {row}", run, parts, label, notes)

    title = (
        f"{report.folder.name}: the {len(losses)} of {len(report.targets)} test texts that it is "
        "most wrong about"
    )
    path = report.folder / MOST_WRONG
    write_wrong_texts(path, title, texts(), len(losses))
    return path


class WrongText(NamedTuple):
    """A text on the page, and the network that predicts another class than its label."""

    name: str
    run: Run
    parts: tuple[str, ...]
    label: str | list[str]
    notes: dict[str, str]


def write_wrong_texts(path: Path, title: str, texts: Iterable[WrongText], count: int) -> None:
    """Write a page of `count` texts, with contributions to the prediction against the label."""
    pages = []
    for text in texts:
        run = text.run
        readout = readout_position(run.model)
        label = label_text(text.label)
        probe = make_probe(run.tokenizer, text.parts, label, None, run.evidence, readout)
        others = (run.labels, run.objective, run.temperature, text.label)
        output = run_probe(run.model, probe, *others)
        num_maps = count * sum(map(len, output.maps))
        most_tokens = run.config.inspection.max_tokens
        shown = shortened(output, min(most_tokens, tokens_that_fit(num_maps)))
        pages.append(_page(output, shown, text.name, text.notes))
    layers = [f"layer {number}" for number in range(len(output.layers))]
    write_page(path, page(title, layers, run.labels, pages))


def most_wrong(
    logits: Float[Tensor, "N C"],
    labels: Int[Tensor, "N *C"],
    count: int,
    objective: Objective = ONE_CLASS,
) -> dict[int, float]:
    """Return row -> loss in nats of at most `count` misclassified texts, the highest loss first.

    The logits are those of all texts, divided by the temperature.
    """
    losses = objective.losses(logits, labels)  # [N]
    (wrong,) = (~objective.correct(logits, labels)).nonzero(as_tuple=True)
    rows = wrong[losses[wrong].argsort(descending=True, stable=True)[:count]]
    return dict(zip(rows.tolist(), losses[rows].tolist(), strict=True))


def tokens_that_fit(num_maps: int) -> int:
    """Return the T at which maps take MOST_BYTES: a byte a weight, four a row, 4/3 in base64."""
    return max(2, math.isqrt(MOST_BYTES * 3 // 4 // num_maps + 4) - 2)


def _page(output: ProbeOutput, shown: ProbeOutput, name: str, notes: dict[str, str]) -> PageText:
    """Return the page of a text: the maps of its first tokens, the numbers of all."""
    total = len(output.text.tokens)
    count = len(shown.text.tokens)
    notes["shown"] = f"{count} tokens"
    if count < total:
        notes["shown"] = (
            f"{count} of {total} tokens; a row's weights on the others are left out, its numbers "
            "count all"
        )
    text = shown.text.text
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 1] + "…"
    shown = replace(shown, text=replace(shown.text, name=name, text=text))
    return page_text(shown, text_numbers(output, text_summary(output)), notes)
