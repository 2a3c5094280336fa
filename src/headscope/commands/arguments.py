"""The command line as Hydra wants it, so that nobody has to write its quotes."""

import re
from collections.abc import Iterator

FREE_TEXT = ("text", "text_pair", "title")  # keys whose value is taken as it stands, commas and brackets included
OVERRIDES = re.compile(r"(train|variants\.[\w-]+)=\[(.*)\]", re.DOTALL)  # lists of arguments of another script
QUOTES = "\"'"


def quoted(argument: str) -> str:
    """Return an argument whose value is free text, or a list of arguments, in Hydra's quotes; others as they are."""
    if found := OVERRIDES.fullmatch(argument):
        return _list_of_arguments(*found.groups())
    key, sign, value = argument.partition("=")
    if key not in FREE_TEXT or not sign or (len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"):
        return argument
    return f"{key}={_in_quotes(value)}"


def _in_quotes(value: str) -> str:
    # Hydra reads backslashes before a quote, OmegaConf a dollar sign with a brace.
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped).replace("${", "\\${")
    return f'"{escaped}"'


def _list_of_arguments(key: str, value: str) -> str:
    """Return train=[a=1,b=[2,3]] as train=["a=1","b=[2,3]"]; a key that names what it makes new gets Hydra's plus."""
    plus = "+" if "." in key else ""
    parts = [part.strip() for part in _parts(value) if part.strip()]
    return f"{plus}{key}=[{','.join(part if part[0] in QUOTES else _in_quotes(part) for part in parts)}]"


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
