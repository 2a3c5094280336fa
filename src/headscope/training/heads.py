"""What a run records of its heads: during training, and of the best checkpoint."""

from pathlib import Path

from lightning.pytorch import Trainer

from headscope.config import TrainConfig
from headscope.data.batching import Batch, TextBatches
from headscope.data.datamodule import TextDataModule
from headscope.errors import RunError
from headscope.heads.capture import headed_layers
from headscope.heads.contributions import mean_contributions
from headscope.heads.integrations.lightning_callback import HeadLogger, ProbeSet
from headscope.heads.report import (
    choose_probes,
    new_recorder,
    record_best,
    record_study,
)
from headscope.heads.study import draw_samples, special_tokens, study
from headscope.record.schema import RUN_NOTE, RecordError
from headscope.run_folder import Setup
from headscope.terminal import Bar
from headscope.training.module import ClassifierModule, chosen_precision
from headscope.training.report import ABLATION, CONTRIBUTIONS, DETAILS, HEADLINE, Report

CONTRIBUTION_TEXTS = 300  # over which contributions of heads are averaged
MOST_RUNS = 10_000  # of one text with a head ablated; more heads have fewer texts, at least
LEAST_TEXTS = 100


def head_logger(
    setup: Setup, folder: Path, data: TextDataModule, module: ClassifierModule
) -> HeadLogger:
    """Return the callback that records probe texts and measures during training."""
    config = setup.config
    labels = data.corpus.labels
    probes = choose_probes(data, config.inspection, module.model, module.objective)
    # Maps are made outside of Lightning's context for mixed precision, in the weights' own type.
    notes = {
        "precision": "32-true",
        "dropout": "off",
        "trained in": chosen_precision(config.trainer),
        RUN_NOTE: setup.identity(),
    }
    try:
        recorder = new_recorder(folder, probes, labels, config.inspection, notes)
    except RecordError as error:
        raise RunError(
            f"resume={folder}: heads/{error}; move the folder heads away, or remove it"
        ) from error

    special = special_tokens(data.tokenizer)
    subjects = ProbeSet(probes, labels, special, module.objective)
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
    model = module.model
    objective = module.objective
    temperature = report.temperature
    step = report.facts_of_training["kept step"]
    best = (model, logger.subjects.probes, objective, temperature)
    num_heads = sum(layer.num_heads for layer in headed_layers(model).values())
    most = max(LEAST_TEXTS, MOST_RUNS // max(1, num_heads))
    count = min(report.config.inspection.causes, len(data.labels("validation")), most)
    if count < 2 or not num_heads:
        record_best(logger.recorder, step, *best, with_ablations=False)
        return
    chooses, others = _samples(report.config, data, count // 2, 2)
    bar.update(0, name=f"ablating heads on {2 * (count // 2)} texts")
    result = study(model, chooses, others, logger.subjects.special, objective, bar.update)
    record_study(logger.recorder, step, result, *best)
    report.facts_of_training |= {
        ABLATION: {"texts": result.texts, "heads": result.loss_increases()},
        HEADLINE: result.answer,
        DETAILS: result.details,
        "heads": {"sets": result.facts()},
    }


def add_contributions(module: ClassifierModule, data: TextDataModule, report: Report) -> None:
    """Add what passes through each head to the predicted class, the mean over texts."""
    texts = _samples(report.config, data, CONTRIBUTION_TEXTS)[0]
    means = mean_contributions(module.model, texts, module.objective, report.temperature)
    report.facts_of_training[CONTRIBUTIONS] = means.facts(module.objective)


def _samples(
    config: TrainConfig, data: TextDataModule, size: int, count: int = 1
) -> list[list[Batch]]:
    """Return disjoint samples of `size` validation texts; see `draw_samples`."""
    texts = TextBatches(data.encoded["validation"], data.labels("validation"))
    return draw_samples(texts, size, config.data.tokens_per_batch, config.seed, count)
