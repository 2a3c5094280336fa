"""After training: what is measured of the best checkpoint, one step after another.

The run can be used before: its model and its scores are written. So a step that fails does not
lose the run: what it would have said is missing, and a note names the reason and the command that
does it later. metrics.json is completed after each step.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import lightning.pytorch as pl
from rich.console import Console

from headscope.data.datamodule import Phase
from headscope.ground.errors import message_of, warn
from headscope.ground.terminal import Bar, show_line
from headscope.heads.capture import headed_layers
from headscope.heads.contributions import SPLIT_TOKENS
from headscope.heads.effects import MIN_TEXTS, MOST_GREEDY, num_runs
from headscope.heads.step import record_best
from headscope.heads.study import draw_samples, study
from headscope.heads.words import mean_contributions
from headscope.pages.report import report_of, write_report
from headscope.results.baseline import Compared, averages_in_place_of_attention, baseline_scores
from headscope.results.metrics import (
    ABLATION,
    CONTRIBUTIONS,
    DETAILS,
    HEADLINE,
    WORDS,
    Results,
    write_summaries,
)
from headscope.runs.run import Run
from headscope.runs.texts import texts_and_labels
from headscope.settings.checks import command, resume_command
from headscope.settings.config import REPORT, REPORT_WORDS
from headscope.training.fit import fit, logits_of
from headscope.training.module import build_module
from headscope.training.prepare import Prepared, resolved
from headscope.training.trainer import build_trainer

CONTRIBUTION_TEXTS = 300  # over which contributions of heads are averaged
WORD_SECONDS = 10.0
MOST_RUNS = 10_000  # forward passes of a text with a head ablated: many heads have fewer texts
SHARE_OF_TRAINING = 0.2  # that ablating takes at most, of a text's passes
PASSES_OF_STEP = 3.0  # forward passes that a text takes in training: its gradients take two
PASSES_OF_RUN = 0.5  # and with heads ablated: the layers below them are run once for all
LEAST_TEXTS = 2 * MIN_TEXTS  # of fewer no standard error is told


@dataclass(frozen=True)
class Trained:
    """What each step reads, and the results that it completes."""

    trainer: pl.Trainer
    prepared: Prepared
    results: Results
    console: Console

    @property
    def run(self) -> Run:
        """The run, as it can be loaded from its folder."""
        model = self.prepared.module.model
        results = self.results
        return Run(results.folder, self.prepared.setup, model, results.chosen())


@dataclass(frozen=True)
class Step:
    """Something that is measured of the best checkpoint.

    Attributes:
        name: its key among the seconds of metrics.json.
        title: what is done, while it is done.
        do: does it, and completes the results.
        is_wanted: whether the settings ask for it.
        later: makes the command that does it later, of the run folder.
    """

    name: str
    title: str
    do: Callable[[Trained, Bar], None]
    is_wanted: Callable[[Prepared], bool]
    later: Callable[[Path], str] = resume_command


def finish(
    trainer: pl.Trainer, prepared: Prepared, results: Results, console: Console, phase: Phase
) -> None:
    """Do all wanted steps; metrics.json is written before them, and after each."""
    trained = Trained(trainer, prepared, results, console)
    wanted = [step for step in STEPS if step.is_wanted(prepared)]
    results.pending = [step.name for step in wanted]
    results.save()
    for step in wanted:
        try:
            with prepared.timed(step.name), phase(step.title) as bar:
                step.do(trained, bar)
        except Exception as error:
            later = step.later(results.folder)
            results.failed[step.name] = f"{message_of(error)}; do it later: {later}"
        results.pending.remove(step.name)
        results.seconds["everything"] = time.perf_counter() - prepared.start
        results.save()
        if step.name in results.failed:
            warn(f"{step.title}: {results.failed[step.name]}")


# Each step.


def _ablate_heads(trained: Trained, bar: Bar) -> None:
    """Ablate each head of the best checkpoint on validation texts; add to record and results."""
    head_logger = trained.prepared.head_logger
    assert head_logger is not None, "is_wanted asks for it"
    module = trained.prepared.module
    data = trained.prepared.data
    results = trained.results
    num_heads = sum(headed_layers(module.model).values())
    seen = len(data.encoded["train"].lengths) * data.passes * results.facts_of_training["epochs"]
    texts = data.batches("validation")
    most = min(results.config.inspection.ablation_texts, len(texts.texts.lengths))
    size = min(most, affordable_texts(num_heads, seen)) // 2
    ablated = None
    if size and num_heads:
        chooses, others = draw_samples(texts, size, data.config.tokens_per_batch, data.seed, 2)
        bar.update(0, name=f"ablating heads on {2 * size} texts")
        ablated = study(
            module.model, chooses, others, head_logger.special, module.objective, bar.update
        )
        results.facts_of_training |= {
            ABLATION: {"texts": ablated.texts, "heads": ablated.loss_increases()},
            HEADLINE: ablated.answer,
            DETAILS: ablated.details,
        }
    record_best(
        head_logger.recorder,
        results.facts_of_training["best_step"],
        module.model,
        head_logger.probes,
        results.reading,
        ablated,
    )


def affordable_texts(num_heads: int, seen: int) -> int:
    """Return on how many texts heads are ablated, of a training that read `seen` texts.

    Many heads must not take longer than a share of training. The number follows from counts alone,
    not from how fast the machine is.
    """
    most = MOST_RUNS // max(1, num_heads)
    if num_heads > MOST_GREEDY:
        passes = PASSES_OF_RUN * (num_heads + num_runs(num_heads))
        most = min(most, int(SHARE_OF_TRAINING * PASSES_OF_STEP * seen / passes))
    return max(LEAST_TEXTS, most)


def _add_contributions(trained: Trained, bar: Bar) -> None:
    """Add what passes through each head to the predicted class, the mean over texts."""
    module = trained.prepared.module
    data = trained.prepared.data
    texts = data.batches("validation")
    tokens = min(SPLIT_TOKENS, data.config.tokens_per_batch)
    (sample,) = draw_samples(texts, CONTRIBUTION_TEXTS, tokens, data.seed)
    means = mean_contributions(module.model, sample, trained.results.reading)
    trained.results.facts_of_training[CONTRIBUTIONS] = means._asdict()


def _add_baseline(trained: Trained, bar: Bar) -> None:
    """Compare with TF-IDF and logistic regression."""
    trained.results.compare("baseline", baseline_scores(trained.prepared.data.corpus.splits))


def _add_control(trained: Trained, bar: Bar) -> None:
    """Train the network once more, with averages in place of attention, and score it on test."""
    name = "averages in place of attention"
    show_line(trained.console, f"control=uniform: the same network, with {name}")
    setup = trained.prepared.setup
    config, checkpoint = resolved(setup.config)
    pl.seed_everything(config.seed, verbose=False)
    module = build_module(setup, trained.prepared.data, checkpoint)
    alone = replace(config, trainer=replace(config.trainer, logger="tensorboard"))
    prepared = Prepared(replace(setup, config=alone), trained.prepared.data, module, None, None)
    with (
        averages_in_place_of_attention(module.model),
        tempfile.TemporaryDirectory(prefix="headscope-") as gone,
    ):
        folder = Path(gone)
        trainer = build_trainer(prepared, folder, trained.console)
        fit(trainer, prepared, folder)
        trainer.logger.experiment.close()  # type: ignore[union-attr]
        logits, targets = logits_of(trainer, module, prepared.data, "test")
    trained.results.compare("control", Compared.of(name, logits, targets, module.objective))


def _write_pictures(trained: Trained, bar: Bar) -> None:
    """Write the closing entries of TensorBoard."""
    write_summaries(trained.trainer.loggers, trained.results)


def _add_words(trained: Trained, bar: Bar) -> None:
    """Write words.csv and report.html over the test texts; add each class's first words."""
    run = trained.run
    split = trained.prepared.data.corpus.splits["test"]
    texts, labels = texts_and_labels(split, run.objective, run.labels)
    of_texts = report_of(run, texts, labels, WORD_SECONDS)
    trained.results.facts_of_training[WORDS] = of_texts.summary()
    write_report(run, of_texts, "test", run.folder / REPORT, run.folder / REPORT_WORDS)


def _inspects(prepared: Prepared) -> bool:
    return prepared.setup.config.inspection.enabled


def _records(prepared: Prepared) -> bool:
    """Tell whether heads were recorded: those of some models cannot be observed."""
    return prepared.head_logger is not None and not prepared.head_logger.is_off


STEPS = (
    Step("ablation", "ablating heads", _ablate_heads, _records),
    Step("contributions", "contributions of heads", _add_contributions, _inspects),
    Step(
        "baseline",
        "baseline: TF-IDF and logistic regression",
        _add_baseline,
        lambda prepared: prepared.setup.config.baseline,
    ),
    Step(
        "control",
        "averages in place of attention",
        _add_control,
        lambda prepared: prepared.setup.config.control is not None,
    ),
    Step("pictures", "pictures for TensorBoard", _write_pictures, lambda prepared: True),
    Step(
        "words",
        "words of each class",
        _add_words,
        _inspects,
        lambda folder: command("headscope report", run=folder, output=folder / REPORT),
    ),
)
