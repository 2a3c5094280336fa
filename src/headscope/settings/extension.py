"""Your own attention layer or loader, named by an import path: `package.module:Name`.

Resolving one runs that module's code, so a run folder that names one is rejected until you allow
it. docs/extending.md says how each is called.
"""

import os
import pkgutil
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headscope.ground.errors import ConfigError, RunError

ALLOW = "HEADSCOPE_ALLOW_CODE"  # environment variable; 1 lets run folders name code
WORD = r"[^\W\d]\w*"


def is_import_path(value: str) -> bool:
    """Tell whether a value is an import path."""
    return re.fullmatch(rf"{WORD}(\.{WORD})*:{WORD}", value) is not None


def check_allowed(settings: Mapping[str, str], folder: object, allow_code: bool) -> None:
    """Raise a RunError if settings of a run, by key, name code that the user has not allowed."""
    named = [f"{key}={value}" for key, value in settings.items() if is_import_path(value)]
    if named and not allow_code and os.environ.get(ALLOW) != "1":
        raise RunError(
            f"run={folder}: names Python code to be run: {', '.join(named)}; "
            f"if you trust it, set {ALLOW}=1 (from Python: headscope.load(..., allow_code=True))"
        )


@contextmanager
def own_code(key: str, path: str) -> Iterator[Any]:
    """Import what a path names, for a block; a ConfigError if either raises an error."""
    try:
        yield pkgutil.resolve_name(path)
    except ConfigError as error:
        raise ConfigError(f"{key}={path}: {error}") from error
    except Exception as error:  # whatever the module raises when it is run
        raise ConfigError(f"{key}={path}: {type(error).__name__}: {error}") from error
