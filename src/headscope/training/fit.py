"""Training, the best checkpoint, and its scores."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from torch import Tensor

from headscope.data.datamodule import Phase, TextDataModule
from headscope.ground.signals import Stopped, signals_taken
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.model.pretrained import PretrainedClassifier
from headscope.results.metrics import Results
from headscope.results.scores import best_thresholds, chosen_temperature, scores
from headscope.runs.abstaining import accuracy_curve, most_unknown
from headscope.runs.folder import save_model
from headscope.runs.prediction import split_logits
from headscope.runs.setup import Chosen
from headscope.training.callbacks import Best, RunCheckpoint, without_needless_warnings
from headscope.training.distributed import is_rank_zero
from headscope.training.module import ClassifierModule
from headscope.training.prepare import Prepared


def fit(trainer: pl.Trainer, prepared: Prepared, folder: Path) -> dict[str, Any] | None:
    """Train, and load the best weights; return their step, epoch and loss, in rank 0 alone.

    Raises:
        Stopped: by a signal; unless it was a second Ctrl-C, the run can be resumed and used.
    """
    module = prepared.module
    data = prepared.data
    (last,) = (each for each in trainer.checkpoint_callbacks if isinstance(each, RunCheckpoint))
    path = None if prepared.resumed is None else prepared.resumed.path
    with (
        prepared.timed("training"),
        signals_taken(last.on_signal),
        without_needless_warnings(),
    ):
        try:
            trainer.fit(module, datamodule=data, ckpt_path=path, weights_only=True)
        except Stopped as stopped:
            stopped.said = f" at step {trainer.global_step}"
            if last.has_stopped and is_rank_zero() and last.best is not None:
                _load_best(trainer, module, data, last.best)
                chosen = Chosen(last.best["step"], thresholds=thresholds_of(module.objective))
                save_model(folder, last.run_setup, module.model, chosen)
            raise
    if last.is_asked_to_stop():  # while no step was left to take
        raise Stopped(int(last.received or 0))
    is_writer = is_rank_zero()
    if dist.is_initialized():
        dist.destroy_process_group()
    if last.best is None or not is_writer:
        return None
    _load_best(trainer, module, data, last.best)
    return {
        "best_step": last.best["step"],
        "best_epoch": last.best["epoch"],
        "best_validation_loss": last.best["loss"],
    }


def _load_best(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, best: Best
) -> None:
    """Load the best weights, and choose the thresholds of classes for them."""
    module.load_state_dict(best["weights"], strict=False)
    if isinstance(module.objective, MultiLabel):
        validation = logits_of(trainer, module, data, "validation")
        module.objective = MultiLabel(best_thresholds(*validation))


def logits_of(
    trainer: pl.Trainer, module: ClassifierModule, data: TextDataModule, role: str
) -> tuple[Tensor, Tensor]:
    """Return logits and labels of a split."""
    return split_logits(module.model, data.loader(role), trainer.strategy.root_device)


def evaluate(
    trainer: pl.Trainer, prepared: Prepared, folder: Path, best: dict[str, Any], phase: Phase
) -> Results:
    """Score the best checkpoint, calibrate its probabilities, and write the model.

    From here on the run can be used, whatever happens to what is measured after it.
    """
    module = prepared.module
    setup = prepared.setup
    data = prepared.data
    if isinstance(module.model, PretrainedClassifier):  # heads of its frozen layers are studied too
        data.drop_features()
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
        if not isinstance(module.objective, MultiLabel):  # which has thresholds instead
            _calibrate(results, *validation)
    save_model(folder, setup, module.model, results.chosen())
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
    results.curve = accuracy_curve(confidence.numpy(), (prediction == targets).numpy())
