"""How settings are checked: a dictionary becomes a configuration, and every mistake is one line.

A message has the form `key: expected Y, got X; remedy`. What a key takes is said by the JSON schema
that pydantic makes of a class, here and in `--help`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from reprlib import repr as short_repr
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import InitErrorDetails, PydanticCustomError

from headscope.ground.errors import ConfigError, did_you_mean, shown

# Validators are built when a class is first used, so that `--help` of one command is quick.
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
MOST = 10**9  # of integers without a bound of their own: more is a slip, or does not fit 64 bits
Conflicts = Iterator[tuple[str, ...]]  # key, what was expected, and perhaps a remedy
BAD = re.compile("[\0\ud800-\udfff]")
# Of OmegaConf: "${" behind an even number of backslashes. Behind an odd one it is escaped.
INTERPOLATION = re.compile(r"(?<!\\)(\\\\)*\$\{")
ELSEWHERE = {  # names of other libraries -> ours
    "lr": "learning_rate",
    "epochs": "max_epochs",
    "num_train_epochs": "max_epochs",
    "batch_size": "tokens_per_batch",
    "heads": "num_heads",
    "layers": "num_layers",
    "hidden_size": "d_model",
}
T = TypeVar("T")


@dataclass(config=STRICT)
class Settings:
    """A group of settings; `conflicts` and `absent` yield what is wrong with it."""

    def conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        yield from ()

    def absent(self) -> Iterator[str]:
        """Yield a message for each file or package that is not on this machine; for `check`."""
        for group in vars(self).values():
            if isinstance(group, Settings):
                yield from group.absent()

    def _bad_texts(self) -> Conflicts:
        for key, value in vars(self).items():
            texts = value if isinstance(value, list) else [value]
            # What was no UTF-8 on the command line has surrogates.
            if any(isinstance(text, str) and BAD.search(text) for text in texts):
                yield key, "text in UTF-8, without NUL"

    @model_validator(mode="after")
    def _no_conflicts(self) -> "Settings":
        faults: list[InitErrorDetails] = []
        for key, expected, *remedy in [*self._bad_texts(), *self.conflicts()]:
            error = fault(expected, *remedy)
            faults.append({"type": error, "loc": (key,), "input": getattr(self, key)})
        if faults:
            raise ValidationError.from_exception_data(type(self).__name__, faults)
        return self


def fault(expected: str, *remedy: str) -> PydanticCustomError:
    """Return what a validator raises for a value, which becomes a `message`."""
    words = {"expected": expected, "remedy": remedy}
    return PydanticCustomError("conflict", "expected {expected}", words)


def validate(schema: type[T], content: Mapping[str, Any]) -> T:
    """Return settings of class `schema`; a ConfigError with a line for each wrong key."""
    try:
        return TypeAdapter(schema).validate_python(content)
    except ValidationError as error:
        raise ConfigError("\n".join(validation_errors(error, schema))) from None
    except OSError as error:  # such as for a name that no file system can hold
        raise ConfigError(str(error)) from error


def check(config: Any) -> None:
    """Raise a ConfigError with a line for each wrong value and each file that does not exist."""
    validate(type(config), asdict(config))
    try:
        lines = [*config.absent()]
    except OSError as error:  # such as for a name that no file system can hold
        raise ConfigError(str(error)) from error
    if lines:
        raise ConfigError("\n".join(lines))


def message(key: str, expected: str, value: Any, *remedy: str) -> str:
    """Return one line for a wrong value."""
    return "; ".join([f"{key}: expected {expected}, got {literal(value)}", *remedy])


def literal(value: Any) -> str:
    """Return a value as it is written on the command line; a long one is cut."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if is_dataclass(value):
        return "some of its keys"
    return shown(short_repr(value) if isinstance(value, list | dict) else repr(value), 200)


def validation_errors(error: ValidationError, schema: Any) -> Iterator[str]:
    """Yield `key: expected Y, got X` for everything that pydantic rejects."""
    known = keys(schema)
    for wrong in error.errors(include_url=False):
        key = ".".join(part for part in wrong["loc"] if isinstance(part, str))
        context = wrong.get("ctx", {})
        if wrong["type"] == "conflict":
            yield message(key, context["expected"], wrong["input"], *context["remedy"])
        elif key not in known:
            yield unknown_key(key, schema)
        elif wrong["type"] == "missing":
            yield f"{key}: missing ({known[key]['description']}); give it as {key}=..."
        else:
            is_number = is_text(known[key]) and isinstance(wrong["input"], int | float)
            remedy = ["write it in quotes"] if is_number else []
            value = message(key, takes(known[key]), wrong["input"], *remedy)
            yield f"{value} ({known[key]['description']})"


@cache
def keys(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each key, those of a group after the group itself."""
    document = TypeAdapter(schema).json_schema()
    entries: dict[str, dict[str, Any]] = {}
    for name, entry in document["properties"].items():
        entries[name] = entry
        if group := re.search(r"#/\$defs/(\w+)", str(entry)):
            members = document["$defs"][group[1]]["properties"]
            entries |= {f"{name}.{key}": member for key, member in members.items()}
    return entries


def is_text(entry: Mapping[str, Any]) -> bool:
    """Tell by its JSON schema whether the values of a key are any text, or null."""
    options = entry.get("anyOf", [entry])
    kinds = {option.get("type") for option in options}
    return "string" in kinds <= {"string", "null"} and not any("enum" in one for one in options)


def takes(entry: Mapping[str, Any]) -> str:
    """Say which values a key takes, by its JSON schema."""
    options = entry.get("anyOf", [entry])
    return " or ".join(_takes(option) for option in options)


def _takes(entry: Mapping[str, Any]) -> str:
    choices = entry.get("enum") or entry.get("examples") or [entry.get("const")]
    if choices[0] is not None:
        return (
            "one of " + ", ".join(choices) + (" or an import path" if "examples" in entry else "")
        )
    if "items" in entry:
        return f"a list, each {_takes(entry['items'])}"
    kind = KINDS.get(entry.get("type", ""), "a group of keys")
    bounds = [f"{words} {entry[name]}" for name, words in BOUNDS.items() if name in entry]
    return f"{kind} {' and '.join(bounds)}".strip().replace(str(MOST), "10^9")


KINDS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "null": "null",
}
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def unknown_key(key: str, schema: Any) -> str:
    """Return the message for a key that does not exist, with the keys that are named nearly so."""
    if key in ("trainer.devices", "trainer.num_nodes"):
        return f"{key}: unknown key; start torchrun --nproc-per-node=2 -m headscope train ..."
    similar = similar_keys(key, schema)
    hint = f"did you mean {' or '.join(similar)}? " if similar else ""
    return f"{key}: unknown key; {hint}--help lists all keys"


def similar_keys(key: str, schema: Any) -> list[str]:
    """Return the keys that are named nearly so, or what other libraries call so."""
    known = keys(schema)
    group, _, name = key.rpartition(".")
    name = ELSEWHERE.get(name, name)
    close = did_you_mean(name, {entry.rpartition(".")[2] for entry in known})
    similar = [entry for entry in known if entry.rpartition(".")[2] == close]
    return [entry for entry in similar if entry.rpartition(".")[0] == group] or similar


def override(config: T, values: Mapping[str, Any]) -> T:
    """Return a configuration with some keys, such as model.d_model, changed; checked anew."""
    schema: Any = type(config)
    content: dict[str, Any] = asdict(config)  # type: ignore[call-overload]
    for key, value in values.items():
        if key not in keys(schema):
            raise ConfigError(unknown_key(key, schema))
        group, _, name = key.rpartition(".")
        (content[group] if group else content)[name] = value
    changed: T = validate(schema, content)
    return changed


def flatten(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, given as the dictionary of a configuration, with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        members = value if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{key}".rstrip("."): member for key, member in members.items()}
    return flat


def is_encoding(name: str) -> bool:
    """Tell whether Python knows a text encoding by this name."""
    try:
        return "a".encode(name).decode(name) == "a"
    except (LookupError, ValueError):
        return False


def format_conflicts(encoding: str, separator: str | None, prefix: str) -> Conflicts:
    """Yield what cannot be the format of a file of rows; `prefix` stands before the keys."""
    if not is_encoding(encoding):
        yield "encoding", "a text encoding, such as utf-8, utf-16, cp1252 or shift_jis"
    if separator is not None and not re.fullmatch(r'\\t|[^"\r\n]', separator):
        example = rf'"{prefix}separator=;" or, for a tab, "{prefix}separator=\t"'
        yield "separator", "one character", f"give {example}"
