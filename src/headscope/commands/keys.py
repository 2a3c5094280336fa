"""What the configuration's classes say about a key."""

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints


def type_of(schema: Any, parts: list[str]) -> Any:
    """Return the type of the key that `parts` lead to, or None."""
    for part in parts:
        options = [schema, *get_args(schema)]
        schema = next((get_type_hints(option).get(part) for option in options if is_dataclass(option)), None)
    return schema


def is_text(schema: type | None, key: str) -> bool:
    """Tell whether a key takes any text, rather than one of a few words."""
    *groups, last = key.lstrip("+").split(".")
    parent = type_of(schema, groups)
    owners = [option for option in (parent, *get_args(parent)) if is_dataclass(option)]
    rules = [entry.metadata["rule"] for owner in owners for entry in fields(owner) if entry.name == last]
    kind = type_of(parent, [last])
    return str in (kind, *get_args(kind)) and not any(rule.choices for rule in rules)


def is_list_of_text(schema: type | None, key: str) -> bool:
    """Tell whether a key takes a list of texts."""
    kind = type_of(schema, key.lstrip("+").split("."))
    return list[str] in (kind, *get_args(kind))
