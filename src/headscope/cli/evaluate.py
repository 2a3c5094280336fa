"""evaluate(config): score a finished run, on its own splits or on other data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from rich.console import Console
from torch import Tensor

from headscope.cli.abstaining import show_abstaining
from headscope.cli.compare import answers_in, compare, write_beside
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.columns import (
    known_classes,
    numbers,
    text_rows,
)
from headscope.ground.errors import ConfigError, DataError, listed, warn
from headscope.ground.files import check_links, without_home, write_free
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.heads.study import warn_below_chance
from headscope.results.baseline import above, differences
from headscope.results.console import show_confusion, show_scores
from headscope.results.scores import SCORES, Scores, calibration, predicted_classes, scores
from headscope.runs.folder import as_json, load_validation
from headscope.runs.prediction import best_device, split_logits
from headscope.runs.rules import least_of
from headscope.runs.run import Run, load_run
from headscope.runs.texts import learned_by, texts_of
from headscope.settings.commands import EvaluateConfig
from headscope.settings.config import absolute


@dataclass(frozen=True)
class Scored:
    """What a run makes of labelled texts. N texts, C classes."""

    run: Run
    split: str
    texts: list[tuple[str, ...]]
    logits: Float[Tensor, "N C"]
    targets: Int[Tensor, "N *C"]
    is_odd: Bool[np.ndarray, " N"]  # unlike the texts of training

    def scores(self) -> Scores:
        """Return the scores on all of the texts."""
        return scores(self.logits, self.targets, self.run.objective)

    def only(self, rows: Bool[np.ndarray, " N"]) -> "Scored":
        """Return the same of some of the texts."""
        texts = [text for text, is_one in zip(self.texts, rows, strict=True) if is_one]
        kept = (self.logits[rows], self.targets[rows], self.is_odd[rows])
        return Scored(self.run, self.split, texts, *kept)


def evaluate(config: EvaluateConfig, console: Console | None = None) -> Scores:
    """Print the scores and keep them in the run folder as evaluations/<data>-<split>.json.

    Those of a whole file are evaluations/<file>.json. Other scores of this name stay: then it is
    <data>-<split>_2.json and so on. Where the run folder cannot be written, a warning says that
    they are not kept.
    """
    console = terminal(console)
    run = load_run(config.run)
    check_links(run.folder)
    least = _least(config, run, console)
    scored = _scored(config, run, console)
    found = scored.scores()
    data = config.data or run.config.data
    is_file = config.data is not None and config.split is None and Path(data.path).is_file()
    of_split = "" if is_file else f", split {scored.split}"  # all of a file is no split
    is_of_training = config.data is None and scored.split != "test"
    learned = ", which it was trained on" if is_of_training and scored.split == "train" else ""
    title = f"{data.file_of(scored.split)}{of_split}, {len(scored.texts)} texts{learned}"
    content = {
        "path": without_home(absolute(data.path)),
        "split": scored.split,
        "step": run.chosen.step,
        "texts": len(scored.texts),
        "labels": run.labels,
        **found.content(run.labels),
        "calibration": _show(console, title, scored, found),
    }
    if least is not None:
        show_line(console, "the same on these texts, some of which may be unfamiliar:")
        labelled = (scored.logits, scored.targets, scored.is_odd)
        content["abstaining"] = show_abstaining(console, run, least, *labelled)
    is_learned = learned_by(run, scored.texts)
    content["learned"] = None if is_of_training else show_learned(console, scored, is_learned)
    if config.against is not None:
        content["against"] = _compare(console, config, scored, is_learned)
    name = Path(data.path).stem + ("" if is_file else f"-{scored.split}")
    try:
        kept = write_free(run.folder / "evaluations" / f"{name}.json", as_json(content))
    except OSError as error:
        warn(f"these scores are not kept: {error}")
    else:
        show_line(console, f"kept in {kept}")
    return found


def _least(config: EvaluateConfig, run: Run, console: Console) -> float | None:
    """Return the confidence from which the run answers; print what a chosen one does."""
    least = least_of(config, run)
    if least is not None and config.target_accuracy is not None:
        logits, labels = load_validation(run.folder)
        count = len(labels)
        chose = f"which chose to answer from a confidence of {least:.4f} on:"
        show_line(console, f"target_accuracy, on {count} validation texts, {chose}")
        show_abstaining(console, run, least, logits, labels, np.zeros(count, dtype=bool))
    return least


def _scored(config: EvaluateConfig, run: Run, console: Console) -> Scored:
    """Return the texts that the settings name, and what the run makes of them."""
    with Bar(console, "reading texts"):
        dataset, split = texts_of(config, run)
    with Bar(console, "scoring"):
        rows = [*text_rows(dataset)]
        texts = TextBatches(run.encode(rows), numbers(dataset, "label"))
        sampler = TokenBudgetSampler(texts.texts.lengths, run.config.data.tokens_per_batch)
        batches = BatchLoader(texts, sampler)
        logits, targets = split_logits(run.model, batches, best_device(config.accelerator))
    return Scored(run, split, rows, logits, targets, run.unfamiliar(texts.texts))


def _show(console: Console, title: str, scored: Scored, found: Scores) -> dict[str, Any] | None:
    """Print the scores; return what the run's temperature changes, as JSON, or None without one."""
    run = scored.run
    table = {str(run.folder): found}
    calibrated = None
    if not run.config.data.multi_label:
        tempered = scores(scored.logits.double() / run.temperature, scored.targets)
        count = len(scored.texts)
        warn_below_chance(round(found.accuracy * count), count, run.labels)
        if run.temperature != 1:
            table[f"at temperature {run.temperature:.3f}"] = tempered
        calibrated = calibration(run.temperature, {scored.split: (found, tempered)})
    show_scores(console, title, table)
    show_confusion(console, run.labels, found)
    return calibrated


# Texts that a run has seen say nothing about others.


def show_learned(
    console: Console, scored: Scored, is_learned: Bool[np.ndarray, " N"]
) -> dict[str, Any] | None:
    """Print how many texts a run has learned, and its scores on the others; return both."""
    count = int(is_learned.sum())
    if count == 0:
        return None
    show_line(console, learned_line(scored.run, is_learned))
    if count == len(is_learned):
        return {"texts": count, "without": None}
    found = scored.only(~is_learned).scores().values()
    values = ", ".join(f"{SCORES[name]} {value:.4f}" for name, value in found.items())
    show_line(console, f"without them, on {len(is_learned) - count} texts: {values}")
    return {"texts": count, "without": found}


def learned_line(run: Run, is_learned: Bool[np.ndarray, " N"]) -> str:
    """Return how many texts a run has learned."""
    count = f"{is_learned.sum()} of {len(is_learned)} texts"
    return f"note: {count} are in what {run.folder} was trained or chosen on"


# Against another run, or predictions in a file.


def _compare(
    console: Console, config: EvaluateConfig, scored: Scored, is_learned: Bool[np.ndarray, " N"]
) -> dict[str, Any]:
    """Print the differences, also on the texts that neither has learned; return them as JSON."""
    path = str(config.against)
    theirs, is_theirs = _answers(config, path, scored)
    found = compared(console, path, scored, theirs)
    if Path(path).is_dir():
        run = scored.run
        given = run.objective.names(run.objective.has(scored.targets, len(run.labels)), run.labels)
        with Bar(console, "comparing words and heads"):
            both = compare(run, path, scored.texts, given)
        found["page"] = write_beside(console, both, run.folder)
    is_new = ~(is_learned | is_theirs)
    if is_new.any() and not is_new.all():
        show_line(console, f"on the {is_new.sum()} texts that neither run has learned:")
        others = [answer for answer, new in zip(theirs, is_new, strict=True) if new]
        found["without learned texts"] = compared(console, path, scored.only(is_new), others)
    return found


def _answers(
    config: EvaluateConfig, path: str, scored: Scored
) -> tuple[list[list[str]], Bool[np.ndarray, " N"]]:
    """Return the classes that the other one gives each text, and which texts it has learned."""
    run = scored.run
    own = run.config.data
    if not Path(path).is_dir():
        return answers_in(path, run, scored.texts), np.zeros(len(scored.texts), bool)
    other = load_run(path)
    theirs = other.config.data
    for key in ("multi_label", "text_pair_column"):
        if bool(getattr(theirs, key)) != bool(getattr(own, key)):
            expected = f"expected a run with data.{key} as {run.folder}"
            raise ConfigError(f"against: {expected}, got {getattr(theirs, key)}")
    digests = [each.setup.digests.get(scored.split, {}).get("texts") for each in (run, other)]
    if other.setup.learned is None and config.data is None and digests[0] != digests[1]:
        warn(f"against={path}: was trained on other splits, so it may have learned these texts")
    is_learned = learned_by(other, scored.texts)
    if is_learned.any():
        warn(learned_line(other, is_learned).removeprefix("note: "))
    names = known_classes(run.labels, other.labels)
    lacking = sorted({*run.labels} - {*names.values()})
    besides = sorted({*other.labels} - {*names})
    if lacking or besides:
        differ = f"{listed(lacking) or 'none'} missing, {listed(besides) or 'none'} besides"
        warn(f"against={path}: it has other classes, {differ}; texts of these count as wrong")
    answers = [each.labels for each in other.predict(scored.texts)]
    return [[names.get(name, name) for name in answer] for answer in answers], is_learned


def compared(
    console: Console, name: str, scored: Scored, theirs: list[list[str]]
) -> dict[str, Any]:
    """Print the differences on the same texts, and return them as JSON.

    An answer that is no class of the run, such as "" where the other one abstains, is wrong.
    """
    run = scored.run
    truth = run.objective.has(scored.targets, len(run.labels))
    ours = predicted_classes(run.objective, scored.logits)
    others = torch.tensor([[label in answer for label in run.labels] for answer in theirs])
    if not others.any():
        raise DataError(
            f"against={name}: expected the classes {listed(run.labels)}, got "
            f"{listed(sorted({name for answer in theirs for name in answer}))}"
        )
    is_right = (ours == truth).all(dim=1)
    is_other_right = (others == truth).all(dim=1)
    found = differences(ours, others, truth)
    only_ours = int((is_right & ~is_other_right).sum())
    only_theirs = int((is_other_right & ~is_right).sum())
    accuracy = is_other_right.double().mean().item()
    show_line(console, f"{name}: accuracy {accuracy:.4f}")
    unanswered = int((~others.any(dim=1)).sum())
    if unanswered and not run.config.data.multi_label:
        show_line(console, f"{unanswered} of its texts have no prediction; these count as wrong")
    show_line(console, above(name, found))
    show_line(console, f"only this run is right: {only_ours} texts; only {name}: {only_theirs}")
    return {
        "name": name,
        "accuracy": accuracy,
        "differences": found,
        "only this run is right": only_ours,
        "only the other is right": only_theirs,
    }
