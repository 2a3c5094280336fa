"""What a run that goes on must keep of its settings: told before anything is written, and without torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headscope.data.config import is_local
from headscope.errors import ConfigError
from headscope.settings import described
from headscope.training.config import TrainConfig

NEW_RUN = "leave it out, or start a new run"
LAST = Path("checkpoints", "last.ckpt")  # below the run folder: what a resumed run goes on from
# Keys that decide what the network is, what it reads or which texts it has seen; with a dot at its end, a whole group.
KEPT = ("name", "outputs_dir", "seed", "data.", "tokenizer.", "model.")
FREE = ("data.tokens_per_batch", "data.cache_dir", "model.dropout", "model.attention_dropout", "model.frozen_layers")
PATHS = ("data.path", "data.validation_path", "data.test_path", "model.path")


def check_kept(config: TrainConfig, before: TrainConfig) -> None:
    """Refuse a resumed run whose settings do not fit the weights that it goes on with.

    Args:
        config: of the run that goes on.
        before: what its folder says that it was trained with.

    Raises:
        ConfigError: with a line for each key that has changed.
    """
    found = [
        f"{key}: got {new!r}, but resume={config.resume} was trained with {old!r}; {NEW_RUN}"
        for key, new, old in _changed(config, before)
    ]
    if found:
        raise ConfigError("\n".join(found))


def _changed(config: TrainConfig, before: TrainConfig) -> Iterator[tuple[str, Any, Any]]:
    """Yield what must not change and has: (key, new value, old value)."""
    for (key, new, _), (_, old, _) in zip(described(config), described(before), strict=True):
        if new != old and _is_kept(key) and not (key in PATHS and _is_gone(old)):
            yield key, new, old


def _is_kept(key: str) -> bool:
    return key not in FREE and any(key == kept or (kept.endswith(".") and key.startswith(kept)) for kept in KEPT)


def _is_gone(path: str | None) -> bool:
    """Tell whether a file has been moved, so that a run can only go on if it is told where to."""
    return bool(path) and is_local(str(path)) and not Path(str(path)).expanduser().exists()
