"""Turning what Hydra and OmegaConf raise into one line that names the key, what it got and what it takes."""

import difflib
import re
from dataclasses import fields, is_dataclass
from typing import get_args

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from headscope.commands.groups import unknown_set
from headscope.commands.keys import type_of

QUOTE = "Quote a value with commas, colons, brackets or equals signs: 'key=\"a, b\"'"


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
    return _of_hydra(error)


def _of_hydra(error: Exception) -> str:
    """Say in one line what Hydra says in several."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, given = error.missing_cfg_file.rpartition("/")
        return unknown_set(group, given, sorted(error.options))
    if isinstance(error, OverrideParseException):
        return f"{error.override}: cannot be read. {QUOTE}"
    if found := re.match(r"Ambiguous value for argument '(.*)'\n", str(error)):
        return f"{found[1]}: has a comma. Give -m too for a run with each, or write a list as key=[a,b]. {QUOTE}"
    # Hydra adds where it looked for configurations, which is of no use to who mistyped a name.
    return " ".join(str(error).split("\nConfig search path")[0].split("\n")).strip()


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


def _unknown_key(key: str, schema: type) -> str:
    *groups, last = key.split(".")
    parent = type_of(schema, groups)
    known = [entry.name for option in [parent, *get_args(parent)] if is_dataclass(option) for entry in fields(option)]
    close = difflib.get_close_matches(last, known, n=1)
    hint = f"did you mean {'.'.join([*groups, close[0]])}? " if close else ""
    return f"{key}: unknown key; {hint}{'.'.join(groups) or 'the configuration'} takes {', '.join(known)}"


def _type_name(schema: type, key: str) -> str:
    """Say a key's type in words."""
    kind = type_of(schema, key.split("[")[0].split("."))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    options = get_args(kind) or (kind,)
    return " or ".join(words.get(option, getattr(option, "__name__", str(option))) for option in options)
