"""How settings are checked: a dictionary becomes a configuration, and every mistake is one line.

A message has the form `key: expected Y, got X; remedy`, in pydantic's words where they are its own.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from reprlib import repr as short_repr
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import InitErrorDetails, PydanticCustomError

from headscope.ground.errors import ConfigError, did_you_mean, shown

# Validators are built when a class is first used, so that `--help` of one command is quick.
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
MOST = 10**9  # of integers without a bound of their own: more is a slip, or does not fit 64 bits
Conflicts = Iterator[tuple[str, ...]]  # key, what was expected, and perhaps a remedy
BAD = re.compile("[\0\ud800-\udfff]")
PLAIN = re.compile(r"[\w./@+-]+( [\w./@+-]+)*")  # what Hydra reads without quotes
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
# A path as a shell has it: "~" at its start is the home directory, if that user exists.
PathText = Annotated[str, AfterValidator(os.path.expanduser)]


def key(default: Any, description: str, **bounds: Any) -> Any:
    """Return a setting: its default, its meaning, and perhaps bounds such as ge=1."""
    return Field(default=default, description=description, **bounds)


@dataclass(config=STRICT, frozen=True)
class Settings:
    """A group of settings; `_conflicts` and `_absent` yield what is wrong with it."""

    def _conflicts(self) -> Conflicts:
        """Yield values that exclude each other."""
        yield from ()

    def _absent(self) -> Iterator[str]:
        """Yield a message for each file or package that is not on this machine; for `check`."""
        for group in vars(self).values():
            if isinstance(group, Settings):
                yield from group._absent()

    def _bad_texts(self) -> Conflicts:
        for key, value in vars(self).items():
            texts = value if isinstance(value, list) else [value]
            # What was no UTF-8 on the command line has surrogates.
            if any(isinstance(text, str) and BAD.search(text) for text in texts):
                yield key, "text in UTF-8, without NUL"

    @model_validator(mode="after")
    def _no_conflicts(self) -> "Settings":
        faults: list[InitErrorDetails] = []
        for key, expected, *remedy in [*self._bad_texts(), *self._conflicts()]:
            error = fault(expected, *remedy)
            faults.append({"type": error, "loc": (key,), "input": getattr(self, key)})
        if faults:
            raise ValidationError.from_exception_data(type(self).__name__, faults)
        return self


def fault(expected: str, *remedy: str) -> PydanticCustomError:
    """Return what a validator raises for a value, which becomes a `message`."""
    content = {"expected": expected, "remedy": remedy}
    return PydanticCustomError("conflict", "Input should be {expected}", content)


def validate(schema: type[T], content: Mapping[str, Any]) -> T:
    """Return settings of class `schema`; a ConfigError with a line for each wrong key."""
    try:
        return TypeAdapter(schema).validate_python(content)
    except ValidationError as error:
        raise ConfigError("\n".join(validation_errors(error, schema))) from None


def check(config: Any) -> None:
    """Raise a ConfigError with a line for each wrong value and each file that does not exist."""
    validate(type(config), asdict(config))
    if lines := [*config._absent()]:
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
    """Yield `key: expected Y, got X; remedy` for everything that pydantic rejects."""
    known = keys(schema)
    for wrong in error.errors(include_url=False):
        key = ".".join(part for part in wrong["loc"] if isinstance(part, str))
        meaning = known.get(key, {}).get("description")
        if meaning is None:
            yield unknown_key(key, schema)
        elif wrong["type"] == "missing":
            yield f"{key}: missing ({meaning}); give it as {key}=..."
        else:
            expected = wrong["msg"].removeprefix("Input should be ")
            yield message(
                key, expected, wrong["input"], *wrong.get("ctx", {}).get("remedy", [meaning])
            )


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
    """Return the type of a key's values and their bounds, or the choices, by its JSON schema."""
    kinds: list[str] = []
    for option in entry.get("anyOf", [entry]):
        choices = option.get("enum") or option.get("examples")
        choices = choices or [option.get("const", option.get("type", "group"))]
        bounds = [f"{sign} {option[name]}" for name, sign in BOUNDS.items() if name in option]
        kinds += [" ".join([*choices, *bounds])] if bounds else choices
    return " | ".join(kinds)


BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


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
    content: dict[str, Any] = asdict(config)  # type: ignore[call-overload]
    for key, value in values.items():
        group, _, name = key.rpartition(".")
        (content.setdefault(group, {}) if group else content)[name] = value
    return validate(type(config), content)


def flatten(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, given as the dictionary of a configuration, with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        members = value if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{key}".rstrip("."): member for key, member in members.items()}
    return flat


def format_conflicts(encoding: str, separator: str | None, prefix: str) -> Conflicts:
    """Yield what cannot be the format of a file of rows; `prefix` stands before the keys."""
    try:
        "a".encode(encoding)
    except LookupError:
        yield "encoding", "a text encoding, such as utf-8, utf-16, cp1252 or cp932"
    if separator is not None and not re.fullmatch(r'\\t|[^"\r\n]', separator):
        example = rf'"{prefix}separator=;" or, for a tab, "{prefix}separator=\t"'
        yield "separator", "one character", f"give {example}"


def quote(value: str) -> str:
    """Return a text in the quotes of Hydra's grammar."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)  # backslashes count in front of a quote alone
    return '"' + re.sub(r"(\\+)$", r"\1\1", escaped) + '"'


def command(words: str, **values: object) -> str:
    """Return a command to copy: `words`, then key=value, as Hydra and a shell read them back."""
    named = [f"{key}={_as_word(value)}" for key, value in values.items()]
    return " ".join([words, *map(shlex.quote, named)])


def resume_command(folder: str | os.PathLike[str]) -> str:
    """Return the command that resumes a run."""
    return command("headscope train", resume=folder)


def _as_word(value: object) -> str:
    if value is None:
        return "null"
    text = str(value)
    is_literal = PLAIN.fullmatch(text) and text.lower() != "null"
    return text if is_literal or not isinstance(value, str | os.PathLike) else quote(text)
