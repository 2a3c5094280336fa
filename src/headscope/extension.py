"""Your own attention layer, read-out, loader or tokenizer, named by an import path: my_package.MyAttention.

The path is `package.module.name` or `package.module:name`. To resolve it runs that module's code, so a run folder that
names one is refused until the user allows it. docs/extending.md says what each is called with.
"""

import os
import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from headscope.errors import ConfigError, RunError

KEYS = ("model.attention", "model.pooling", "tokenizer.kind", "data.path")
ALLOW = "HEADSCOPE_ALLOW_CODE"  # environment variable; 1 lets run folders name code
WORD = r"[^\W\d]\w*"


class OrImportPath(tuple[str, ...]):
    """The choices of a setting that takes an import path too."""

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or is_import_path(value)


def is_import_path(value: object, separators: str = ".:") -> bool:
    """Tell whether a value is an import path. In data.path it has a colon: with a dot it could be a Hub id."""
    return isinstance(value, str) and bool(
        re.fullmatch(rf"{WORD}(\.{WORD})*[{separators}]{WORD}", value)
    )


def check_allowed(config: Any, folder: object, allow_code: bool) -> None:
    """Raise a RunError if the configuration in a run folder names code that the user has not allowed to run."""
    values = {key: attrgetter(key)(config) for key in KEYS}
    separators = dict.fromkeys(KEYS, ".:") | {"data.path": ":"}
    named = [
        f"{key}={value}" for key, value in values.items() if is_import_path(value, separators[key])
    ]
    if named and not allow_code and os.environ.get(ALLOW) != "1":
        raise RunError(
            f"run={folder}: names Python code to be run: {', '.join(named)}; if you trust it, set {ALLOW}=1 "
            "(from Python: headscope.load(..., allow_code=True))"
        )


def missing_package(key: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield (key, sentence) if the package of an import path is not installed. Runs none of its code."""
    package = re.split("[.:]", value)[0]
    if is_import_path(value) and find_spec(package) is None:
        yield (
            key,
            f"got {value!r}, and there is no module {package!r}; install it, or put its folder on PYTHONPATH",
        )


def resolve(key: str, path: str) -> Callable[..., Any]:
    """Import what a path names.

    Raises:
        ConfigError: if it cannot be imported or called; the message says why.
    """
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # whatever the module raises while it is run
        raise ConfigError(
            f"{key}={path}: cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{key}={path}: is of type {type(found).__name__}; takes a class or a function"
        )
    return found  # type: ignore[no-any-return]


def called(key: str, path: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call what a path names.

    Raises:
        ConfigError: if it raises an error, such as for an argument that it does not take.
    """
    try:
        return function(*args, **named)
    except Exception as error:
        given = ", ".join([*(type(value).__name__ for value in args), *named])
        raise ConfigError(
            f"{key}={path}: called with ({given}): {type(error).__name__}: {error}"
        ) from error
