"""The command line before Hydra reads it: what is no key=value is told in one line, and the rest gets its quotes."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import get_args

from headscope.commands.arguments import quoted
from headscope.commands.groups import check_groups
from headscope.commands.keys import type_of
from headscope.errors import ConfigError

FLAGS = (
    "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m", "--shell-completion",
    "-sc",
)  # fmt: skip
WITH_VALUE = (
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd",
    "--experimental-rerun", "--info", "-i",
)  # fmt: skip
OWN_FILES = ("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd")  # may hold sets of their own
SWEEP_FOLDER = "hydra.sweep.dir"
FILES = "files"  # the ready set of data that leaves everything to single keys


def prepared(arguments: Sequence[str], schema: type, configs: Path, name: str) -> list[str]:
    """Return the arguments as Hydra takes them.

    Args:
        arguments: as they were typed.
        schema: the dataclass of the configuration.
        configs: folder of the configuration files.
        name: of the script's configuration file.

    Raises:
        ConfigError: if one is neither key=value nor an option, or chooses a set that there is not; if a sweep has the
            name of another.
    """
    for place, argument in enumerate(arguments):
        _check_form(arguments, place, argument, schema)
    options = {argument.partition("=")[0] for argument in arguments}
    if not options & {*OWN_FILES}:
        check_groups(arguments, configs, name)
    sweeps = bool(options & {"-m", "--multirun", "hydra.mode"})
    further = [*_left_out(arguments, schema), *(_sweep_folder(arguments) if sweeps else ())]
    return [quoted(argument, schema, sweeps) for argument in [*_options_first(arguments), *further]]


def _options_first(arguments: Sequence[str]) -> list[str]:
    """Return the options, each with its value, before the keys: Hydra knows them nowhere else."""
    pairs = list(zip(["", *arguments], arguments, strict=False))  # each with what stands before it
    return [word for _, word in sorted(pairs, key=lambda pair: not _is_option(*pair))]


def _is_option(before: str, argument: str) -> bool:
    return argument.startswith("-") or before in WITH_VALUE


def _check_form(arguments: Sequence[str], place: int, argument: str, schema: type) -> None:
    """Refuse an unknown option, and a word that stands alone."""
    before = arguments[place - 1] if place else ""
    if argument.startswith("-"):
        _check_option(argument, schema)
    elif argument.find("=") < 1 and not argument.startswith("~") and before not in WITH_VALUE:
        raise ConfigError(_lone_word(arguments, place))


def _check_option(argument: str, schema: type) -> None:
    option, sign, value = argument.partition("=")
    if option in WITH_VALUE or (option in FLAGS and not sign):
        return
    key = option.lstrip("-")
    if type_of(schema, key.split(".")) is not None:
        raise ConfigError(f"{argument}: keys are given without dashes: {key}={value or '...'}")
    raise ConfigError(f"{argument}: unknown option; settings are given as key=value, and --help lists them")


def _lone_word(arguments: Sequence[str], place: int) -> str:
    """Say that a word is no key=value, and how the value before it, if it went on here, would be written."""
    word = arguments[place]
    if not place or "=" not in arguments[place - 1]:
        return f"{word}: takes the form key=value; --help lists the keys"
    rest = [*arguments[place - 1 : place + 1]]
    for other in arguments[place + 1 :]:
        if "=" in other or other.startswith("-"):
            break
        rest.append(other)
    return f'{word}: takes the form key=value; put quotes around a text with spaces: "{" ".join(rest)}"'


def _left_out(arguments: Sequence[str], schema: type) -> Iterator[str]:
    """Yield data=files where keys of data are given to a script that has no data unless it is told."""
    keys = [argument.partition("=")[0] for argument in arguments]
    for entry in fields(schema):
        kind = type_of(schema, [entry.name])
        is_optional = entry.default is None and any(is_dataclass(option) for option in get_args(kind))
        if is_optional and entry.name not in keys and any(key.startswith(f"{entry.name}.") for key in keys):
            yield f"{entry.name}={FILES}"


def _sweep_folder(arguments: Sequence[str]) -> Iterator[str]:
    """Yield Hydra's key for the folder of a sweep, where outputs_dir or name, one for all its jobs, says which."""
    pairs = (argument.partition("=")[::2] for argument in arguments)
    given = {key: value.strip("'\"") for key, value in pairs if value not in ("", "null") and "," not in value}
    if SWEEP_FOLDER in given or not {"outputs_dir", "name"} & {*given}:
        return
    name = given.get("name") or f"sweep_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    folder = Path(given.get("outputs_dir", "outputs")) / name
    if (folder / "sweep.csv").exists():
        raise ConfigError(f"name={name}: {folder} holds a sweep already; take another name")
    yield f"{SWEEP_FOLDER}={folder}"
