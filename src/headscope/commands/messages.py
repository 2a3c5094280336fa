"""Turning what Hydra and OmegaConf raise into one line that names the key, what it got and what it takes."""

import difflib
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from hydra.errors import HydraException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)


def explain(error: Exception, schema: type) -> str:
    """Return the message for an error in the command line or a config file.

    Args:
        error: what composing the configuration raised.
        schema: the dataclass that the configuration must fit.
    """
    cause = _omegaconf_cause(error)
    key = str(getattr(cause, "full_key", "") or "")
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return _unknown_key(key, schema)
    if isinstance(cause, MissingMandatoryValue):
        return f"{key}: is missing; give it as {key}=..."
    if isinstance(cause, ValidationError):
        return f"{key}: {_first_line(cause)}; takes {_type_name(schema, key)}"
    if (isinstance(error, HydraException) and "mismatched input" in str(error)) or "no viable alternative" in str(
        error
    ):
        return f"{_first_line(error)}\nQuote a value with commas, colons, brackets or equals signs: 'key=\"a, b\"'"
    # Hydra adds where it looked for configurations, which is of no use to who mistyped a name.
    return str(error).split("\nConfig search path")[0].strip()


def _omegaconf_cause(error: BaseException) -> OmegaConfBaseException | None:
    current: BaseException | None = error
    found = None
    while current is not None:
        if isinstance(current, OmegaConfBaseException):
            found = current
        current = current.__cause__
    return found


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _children(schema: Any, parts: list[str]) -> Any:
    """Return the type of the key that `parts` lead to, or None."""
    for part in parts:
        options = [schema, *get_args(schema)]
        schema = next((get_type_hints(option).get(part) for option in options if is_dataclass(option)), None)
    return schema


def _unknown_key(key: str, schema: type) -> str:
    *groups, last = key.split(".")
    parent = _children(schema, groups)
    known = [entry.name for option in [parent, *get_args(parent)] if is_dataclass(option) for entry in fields(option)]
    close = difflib.get_close_matches(last, known, n=1)
    hint = f"did you mean {'.'.join([*groups, close[0]])}? " if close else ""
    return f"{key}: unknown key; {hint}{'.'.join(groups) or 'the configuration'} takes {', '.join(known)}"


def _type_name(schema: type, key: str) -> str:
    """Say a key's type in words."""
    kind = _children(schema, key.split("[")[0].split("."))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    options = get_args(kind) or (kind,)
    return " or ".join(words.get(option, getattr(option, "__name__", str(option))) for option in options)
