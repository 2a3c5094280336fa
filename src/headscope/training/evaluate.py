"""The scores of the best checkpoint, its temperature, and the file that is the model."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from headscope.data.datamodule import Phase
from headscope.ground.errors import warn
from headscope.model.classifier import TextClassifier
from headscope.model.objective import MultiLabel
from headscope.results.metrics import Results
from headscope.results.scores import chosen_temperature, scores
from headscope.runs.abstaining import accuracy_curve, most_unknown
from headscope.runs.folder import CONFIG, save_copies, save_model
from headscope.training.fit import logits_of
from headscope.training.module import ClassifierModule
from headscope.training.prepare import Prepared


def evaluate(
    trainer: pl.Trainer, prepared: Prepared, folder: Path, best: dict[str, Any], phase: Phase
) -> Results:
    """Score the best checkpoint, calibrate its probabilities, and write the model.

    From here on the run can be used, whatever happens to what is measured after it.
    """
    module = prepared.module
    setup = prepared.setup
    data = prepared.data
    model = module.model
    if isinstance(model, TextClassifier) and model.features is None:
        data.drop_features()  # heads of its frozen layers are studied too
    with prepared.timed("testing"), phase("scoring the best checkpoint"):
        logits, targets = logits_of(trainer, module, data, "test")
        validation = logits_of(trainer, module, data, "validation")
        results = Results(
            folder=folder,
            config=setup.config,
            labels=setup.labels,
            test=scores(logits, targets, module.objective),
            validation=scores(*validation, module.objective),
            logits=logits,
            targets=targets,
            objective=module.objective,
            most_unknown=most_unknown(data.tokenizer, data.encoded["validation"]),
            facts_of_training=_facts(trainer, module) | best,
            facts_of_data=data.facts(),
            seconds=prepared.seconds,
        )
        kept = None
        if not isinstance(module.objective, MultiLabel):  # which has thresholds instead
            _calibrate(results, *validation)
            kept = validation
    if not (folder / CONFIG).exists():
        warn(f"{folder}: was moved or removed while it trained; what had been written is not in it")
        save_copies(folder, setup)
    results.digest = save_model(folder, setup, module.model, results.chosen(), kept)
    if prepared.head_logger is not None:
        results.seconds["inspection"] = prepared.head_logger.seconds
    return results


def _facts(trainer: pl.Trainer, module: ClassifierModule) -> dict[str, Any]:
    return {
        "steps": trainer.global_step,
        # Those started: current_epoch is one less where a resumed run found nothing left to do.
        "epochs": trainer.fit_loop.epoch_progress.current.ready,
        "parameters": sum(weight.numel() for weight in module.model.parameters()),
        "precision": str(trainer.precision),
        "device": str(trainer.strategy.root_device),
        "processes": trainer.world_size,
    }


def _calibrate(results: Results, logits: Tensor, targets: Tensor) -> None:
    """Add the temperature of validation logits, scores with it, and accuracy by confidence."""
    results.temperature = chosen_temperature(logits, targets)
    tempered = logits.double() / results.temperature
    results.tempered = {
        "validation": scores(tempered, targets),
        "test": scores(results.logits.double() / results.temperature, results.targets),
    }
    confidence, prediction = tempered.softmax(dim=-1).max(dim=-1)
    # In hundredths: an exact confidence would tell whose text it is.
    results.curve = accuracy_curve(confidence.numpy().round(2), (prediction == targets).numpy())
