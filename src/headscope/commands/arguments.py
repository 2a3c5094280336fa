"""The command line as Hydra wants it, so that nobody has to write its quotes."""

import re
from collections.abc import Iterator

from headscope.commands.keys import is_list_of_text, is_text
from headscope.commands.override import is_list_of_values, is_understood

FREE_TEXT = ("text", "text_pair")  # keys whose value is taken as it stands, commas and brackets included
QUOTES = "\"'"


def quoted(argument: str, schema: type | None = None, sweeps: bool = False) -> str:
    """Return an argument in Hydra's quotes where it needs them: free text, or any other key's text.

    Args:
        argument: as it was typed.
        schema: the dataclass of the configuration; without it, no key is known to be text.
        sweeps: whether a comma stands between the values of a sweep.
    """
    key, sign, value = argument.partition("=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in QUOTES
    if not sign or (is_quoted and is_understood(value)):  # and not '"Yes," she said. "No."'
        return argument
    if key in FREE_TEXT:
        return f"{key}={_in_quotes(value)}"
    return f"{key}={_plain(key, value, schema, sweeps)}"


def _plain(key: str, value: str, schema: type | None, sweeps: bool) -> str:
    """Return a value with what Hydra's grammar has no word for in quotes."""
    if is_understood(value):
        splits = not sweeps and is_list_of_values(value) and is_text(schema, key)
        return _as_text(value) if splits else value
    if value.startswith("[") and value.endswith("]") and is_list_of_text(schema, key):
        return f"[{','.join(_part(part.strip()) for part in _parts(value[1:-1]))}]"
    return ",".join(map(_part, _parts(value))) if sweeps and value.strip(",") else _as_text(value)


def _part(value: str) -> str:
    return value if is_understood(value) else _as_text(value)


def _as_text(value: str) -> str:
    """Return a value in quotes, but for one that has Hydra's own signs for lists and quotes in front."""
    interpolates = "${" in value
    if value.startswith(("[", "{", *QUOTES)) or (interpolates and '"' in value):
        return value
    return f'"{value}"' if interpolates else _in_quotes(value)


def _in_quotes(value: str) -> str:
    # Hydra reads backslashes before a quote, OmegaConf a dollar sign with a brace.
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped).replace("${", "\\${")
    return f'"{escaped}"'


def _parts(value: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no bracket and in no quotes."""
    part, depth, quote = "", 0, ""
    for letter in value:
        if letter == "," and not depth and not quote:
            yield part
            part = ""
            continue
        if letter in QUOTES:
            quote = "" if quote == letter else quote or letter
        if not quote:
            depth += (letter in "[{(") - (letter in ")}]")
        part += letter
    yield part
