"""What a run records of its heads: during training, and of the best checkpoint."""

from pathlib import Path

from lightning.pytorch import Trainer

from headscope.config import TrainConfig
from headscope.data.batching import Batch, TextBatches
from headscope.data.columns import texts_among
from headscope.data.datamodule import TextDataModule
from headscope.errors import RunError
from headscope.heads.ablation import most_texts
from headscope.heads.contributions import has_contributions, mean_contributions
from headscope.heads.integrations.lightning_callback import HeadLogger, ProbeSet
from headscope.heads.report import (
    JOIN,
    choose_probes,
    new_recorder,
    record_best,
    record_study,
)
from headscope.heads.study import draw_samples, special_tokens, study, study_plan
from headscope.record.schema import RUN_NOTE, RecordError
from headscope.terminal import Bar
from headscope.training.module import ClassifierModule, chosen_precision
from headscope.training.report import ABLATION, CONTRIBUTIONS, DETAILS, HEADLINE, Report

CONTRIBUTION_TEXTS = 300  # over which contributions of heads are averaged
MOST_SECONDS = 120.0  # else heads are set to zero alone, and no text is taken apart
# Of a text's tokens, for faithfulness; `headscope inspect` takes more.
QUICK_SHARES: tuple[float, ...] = (0.2,)


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
