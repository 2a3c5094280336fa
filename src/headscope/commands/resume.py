"""The configuration of a run that goes on: what its folder says, and over it what the command line does."""

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from headscope.errors import ConfigError
from headscope.training.resuming import check_kept


def resumed(composed: DictConfig, schema: type) -> Any:
    """Return the configuration of the run to go on with; keys on the command line override it.

    Raises:
        ConfigError: if there is no such run, if a whole group (model=small) is overridden, or a key that the run's
            weights depend on.
    """
    path = Path(composed.resume) / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"resume: got {composed.resume!r}, takes a run folder with a config.yaml in it")
    kept = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.load(path))
    before: Any = OmegaConf.to_object(kept)
    for key in _given(composed):
        OmegaConf.update(kept, key, _as_written(composed, key))
    config: Any = OmegaConf.to_object(kept)
    check_kept(config, before)
    return config


def _given(composed: DictConfig) -> list[str]:
    """Return the keys on the command line, `resume` among them."""
    settings = HydraConfig.get()
    # ~key takes a key out of the ready configuration, of which a resumed run takes nothing.
    keys = [given.partition("=")[0].lstrip("+") for given in settings.overrides.task if not given.startswith("~")]
    for key in keys:
        if key in settings.runtime.choices or isinstance(OmegaConf.select(composed, key), DictConfig):
            raise ConfigError(
                f"{key}=...: a resumed run keeps its groups; override single keys, such as trainer.max_epochs=20"
            )
    return keys


def _as_written(composed: DictConfig, key: str) -> Any:
    """Return a value with its interpolations, which are to be read among the run's own settings."""
    found: Any = OmegaConf.to_container(composed, resolve=False)
    for part in key.split("."):
        found = found[part]
    return found
