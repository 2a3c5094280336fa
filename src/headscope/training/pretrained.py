"""Where a run starts from that takes its encoder from a checkpoint."""

from pathlib import Path

from headscope.errors import ConfigError
from headscope.model.config import ModelConfig
from headscope.model.pretrained.architecture import Architecture
from headscope.model.pretrained.checkpoint import Checkpoint, find_checkpoint
from headscope.training.config import TrainConfig

SIZES = ("d_model", "num_heads", "num_layers", "feedforward_size")


def starting_point(config: TrainConfig, last: Path) -> Checkpoint | None:
    """Return the checkpoint that a run begins with, whose sizes are put into the configuration.

    Args:
        config: of the run; changed, so that its config.yaml says what is trained.
        last: the run's own last checkpoint. A resumed run that has one needs no other.

    Returns:
        None where there is nothing to take over.

    Raises:
        ConfigError: if the checkpoint cannot be used, or a key says otherwise than it does.
    """
    if config.model.path is None or (config.resume is not None and last.exists()):
        return None
    checkpoint = find_checkpoint(config.model.path, config.model.revision)
    _adopt(config.model, checkpoint.architecture)
    config.data.max_length = min(config.data.max_length, checkpoint.architecture.max_positions)
    return checkpoint


def _adopt(config: ModelConfig, architecture: Architecture) -> None:
    """Take the sizes over. A key that has its default may not have been given, so it contradicts nothing."""
    for key in SIZES:
        given, found = getattr(config, key), getattr(architecture, key)
        if given not in (found, getattr(ModelConfig, key)):
            raise ConfigError(f"model.{key}: got {given}, and the checkpoint of model.path has {found}; leave it out")
        setattr(config, key, found)
    config.positions = "learned"
    if config.frozen_layers is not None and config.frozen_layers > config.num_layers:
        raise ConfigError(
            f"model.frozen_layers: got {config.frozen_layers}, and the checkpoint has {config.num_layers} layers"
        )
