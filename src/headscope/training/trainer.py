"""Lightning's Trainer by the settings of a run: device, precision, callbacks and loggers."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import (
    CSVLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console

from headscope.ground.errors import ConfigError, first_line
from headscope.ground.files import without_home
from headscope.settings.checks import flatten
from headscope.settings.config import TrainConfig
from headscope.training.callbacks import (
    AtomicCheckpointIO,
    Patience,
    RunCheckpoint,
    RunProgress,
    StopAtLastStep,
    StopAtNonFiniteLoss,
)
from headscope.training.distributed import is_shared
from headscope.training.module import STEPS_BETWEEN_LOGS, chosen_precision
from headscope.training.prepare import Prepared
from headscope.training.resume import LAST


def build_trainer(prepared: Prepared, folder: Path, console: Console) -> pl.Trainer:
    """Return a Trainer with the device, precision and callbacks of the settings."""
    config = prepared.setup.config
    settings = config.trainer
    total_steps = prepared.module.total_steps
    callbacks: list[Callback] = [StopAtNonFiniteLoss(folder / LAST)]
    if prepared.head_logger is not None:
        callbacks.append(prepared.head_logger)
    if settings.patience is not None:
        callbacks.append(Patience(settings.patience))
    callbacks += [
        StopAtLastStep(total_steps),
        RunProgress(total_steps, console, settings.progress),
        RunCheckpoint(folder / LAST, prepared.setup),
    ]
    return pl.Trainer(
        accelerator=settings.accelerator,
        precision=chosen_precision(config),  # type: ignore[arg-type]
        max_epochs=settings.max_epochs,
        accumulate_grad_batches=settings.accumulate,
        gradient_clip_val=config.optimizer.gradient_clip or None,
        logger=loggers(config, folder),
        callbacks=callbacks,
        num_sanity_val_steps=0,  # the record at step 0 makes a pass of its own
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # our sampler shares its batches itself
        log_every_n_steps=STEPS_BETWEEN_LOGS,
        default_root_dir=folder,
        **_processes(),
    )


def _processes() -> dict[str, Any]:
    """Return the Trainer's arguments for this process alone, or for those of torchrun."""
    if not is_shared():
        # Lightning would count on the processes of a scheduler, and requeue its jobs at a signal.
        return {"devices": 1, "plugins": [AtomicCheckpointIO(), LightningEnvironment()]}
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    return {
        "devices": devices,
        "num_nodes": dist.get_world_size() // devices,
        # No buffer of ours changes.
        "strategy": DDPStrategy(forward_sync_buffers=False, gradient_as_bucket_view=True),
        "plugins": [AtomicCheckpointIO(), TorchElasticEnvironment()],
    }


def loggers(config: TrainConfig, folder: Path) -> list[Logger]:
    """Return TensorBoard's logger, which the Heads tab needs, and the one of trainer.logger.

    csv writes into the run folder; MLflow and W&B read their own environment variables.
    """
    loggers: list[Logger] = [
        TensorBoardLogger(folder, name="", version="", default_hp_metric=False)
    ]
    name = config.name
    match config.trainer.logger:
        case "csv":
            loggers.append(CSVLogger(folder, name="", version="csv"))
        case "mlflow":
            place = os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
            loggers.append(MLFlowLogger("headscope", run_name=name, tracking_uri=place))
        case "wandb":
            loggers.append(WandbLogger(project="headscope", name=name, save_dir=folder))
    for logger in loggers[1:]:
        try:
            logger.log_hyperparams(flatten(without_home(asdict(config))))
        except Exception as error:  # of its package, or of the server that it talks to
            raise ConfigError(f"trainer.logger: {first_line(error)}") from error
    return loggers
