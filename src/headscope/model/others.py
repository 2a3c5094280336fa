"""The door to models that are not ours: any module, and families that do not open.

They have a room of their own, `headscope.foreign`, which nothing imports but the public names. It
is looked up here, when such a model is met; without it all that is ours works as before.
"""

from importlib import import_module
from typing import Any

from headscope.ground.errors import ConfigError
from headscope.settings.config import NO_TRANSFORMERS

ROOM = "headscope.foreign"


def others() -> Any:
    """Return the modules of that room, as attributes of one; ConfigError where it was left out."""
    try:
        return import_module(ROOM)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("headscope.foreign"):
            raise
        message = "expected headscope.foreign, which explains models that are not ours, found none"
        raise ConfigError(message) from error


def import_transformers(key: str) -> Any:
    """Return the library, without its notes and progress bars; ConfigError if it is missing."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(f"{key}: {NO_TRANSFORMERS}") from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers
