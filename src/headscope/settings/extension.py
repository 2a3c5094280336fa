"""Your own attention layer or loader, named by an import path: `package.module:Name`.

Resolving one runs that module's code, so a run folder that names one is rejected until you allow
it. docs/extending.md says how each is called.
"""

import os
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headscope.ground.errors import ConfigError, RunError

ALLOW = "HEADSCOPE_ALLOW_CODE"  # environment variable; 1 lets run folders name code
WORD = r"[^\W\d]\w*"
# Where one may start is tried once, or a long word would take a time of its square.
IMPORT_PATH = re.compile(rf"(?<![\w.]){WORD}(?:\.{WORD})*:{WORD}")
OURS = ("headscope.proof.who:english", "headscope.proof.who:japanese")  # no foreign code
CODE_KEYS = ("model.attention", "data.path")  # that may name code


def is_import_path(value: str) -> bool:
    """Tell whether a value is an import path."""
    return IMPORT_PATH.fullmatch(value) is not None


def import_paths_in(words: Iterable[str]) -> set[str]:
    """Return the import paths in the words of a command line: those are the user's own."""
    return {path for word in words for path in IMPORT_PATH.findall(word)}


def check_allowed(
    settings: Mapping[str, Any], source: str, allow_code: bool | Collection[str]
) -> None:
    """Raise a RunError if settings of somebody's folder name code that the user has not allowed.

    Args:
        settings: by key, such as model.attention.
        source: where they come from, such as run=outputs/first.
        allow_code: whether any code is allowed; or the import paths that are the user's own.
    """
    if allow_code is True or os.environ.get(ALLOW) == "1":
        return
    own = (*OURS, *(allow_code or ()))
    named = [
        f"{key}={settings[key]}"
        for key in CODE_KEYS
        if is_import_path(str(settings.get(key))) and settings[key] not in own
    ]
    if named:
        raise RunError(
            f"{source}: names Python code to be run: {', '.join(named)}; "
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
