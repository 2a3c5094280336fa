"""Your own attention layer or loader, named by an import path: `package.module:Name`.

Resolving one runs that module's code, so a run folder that names one is rejected until you allow
it. docs/extending.md says how each is called.
"""

import os
import pkgutil
import re
from collections.abc import Callable, Mapping
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


def resolve(key: str, path: str) -> Callable[..., Any]:
    """Import what a path names; a ConfigError if it cannot be imported or called."""
    try:
        function: Callable[..., Any] = pkgutil.resolve_name(path)
    except Exception as error:  # whatever the module raises when it is run
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{key}={path}: cannot be imported: {reason}") from error
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"{key}={path}: expected a class or a function, got a {kind}")
    return function


def called(key: str, path: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call what a path names; a ConfigError if it raises an error."""
    try:
        return function(*args, **named)
    except Exception as error:
        given = ", ".join([*(type(value).__name__ for value in args), *named])
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{key}={path}: called with ({given}): {reason}") from error
