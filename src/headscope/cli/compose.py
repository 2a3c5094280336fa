"""From words on the command line to a checked configuration.

Words are `key=value` in Hydra's grammar. Hydra composes the settings of train from the files
of configs/; the other commands have no files but configs/data, and a resumed run has its own
settings, so there its parser is enough.
"""

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headscope.ground.errors import ConfigError, RunError, did_you_mean, first_line, shown
from headscope.ground.files import from_yaml, home
from headscope.settings.checks import (
    check,
    flatten,
    is_text,
    keys,
    quote,
    similar_keys,
    unknown_key,
)
from headscope.settings.config import TrainConfig
from headscope.settings.extension import ALLOW, check_allowed, import_paths_in

INSTALLED = Path(__file__).parents[1] / "configs"
CHECKOUT = Path(__file__).parents[3] / "configs"
CONFIGS = INSTALLED if INSTALLED.is_dir() else CHECKOUT
SHORT = {"-h": "--help", "-m": "--multirun", "-c": "--cfg"}
SHORT |= {"-cd": "--config-dir", "-cn": "--config-name"}
QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
FLAGS = ("--help", "--multirun")
CALLED = ("launcher", "sweeper", "callbacks", "job_logging", "hydra_logging", "env")
HYDRA_KEYS = (*CALLED, "mode", "run", "sweep", "output_subdir")  # and where it writes
# Such as ${oc.env:HOME}, or ${${a}:HOME}, which has the name of what it calls from elsewhere.
RESOLVER = re.compile(r"\$\{[^{}]*(?::|\$\{)[^}]*")
OPTIONS_WITH_VALUE = ("--cfg", "--config-dir", "--config-name")


@dataclass
class CommandLine:
    """The words behind a command: its options, such as {"--cfg": "job"}, and its overrides."""

    schema: type
    options: dict[str, str]
    overrides: list[Override]

    @property
    def words(self) -> list[str]:
        """Return the overrides as they were written."""
        return [str(entry.input_line) for entry in self.overrides]


def parse(words: Sequence[str], schema: type) -> CommandLine:
    """Return the options and overrides, whose keys exist."""
    line = CommandLine(schema, {}, [])
    is_sweep = not {"-m", "--multirun"}.isdisjoint(words)
    remaining = iter(words)
    for word in remaining:
        option, sign, value = word.partition("=")
        option = SHORT.get(option, option)
        if option in FLAGS:
            line.options[option] = ""
        elif option in OPTIONS_WITH_VALUE:
            line.options[option] = value if sign else next(remaining, "")
        elif not word.startswith("-"):
            line.overrides.append(parse_override(word, schema, is_sweep))
        else:
            key = option.lstrip("-").replace("-", "_")
            close = did_you_mean(option, SHORT.values())
            similar = similar_keys(key, schema)
            if close and not similar:
                raise ConfigError(f"{option}: unknown option; did you mean {close}?")
            meant = " or ".join(f"{each}={value or '...'}" for each in similar or [key])
            raise ConfigError(f"{option}: unknown option; keys are given without dashes: {meant}")
    if folder := line.options.get("--config-dir"):
        line.options["--config-dir"] = str(home(folder))
        _check_yaml(home(folder))
    if line.options.get("--cfg", "job") != "job":
        raise ConfigError(f"--cfg: expected job, got {line.options['--cfg']!r}")
    known = {*keys(schema), *groups(schema)}
    for entry in line.overrides:
        key = entry.key_or_group
        if key not in known and not key.startswith("hydra"):
            raise ConfigError(unknown_key(key, schema))
    return line


def parse_override(word: str, schema: type, is_sweep: bool) -> Override:
    """Return a word as Hydra's grammar reads it; the value of a key of type text is that text."""
    key, sign, value = word.partition("=")
    if not key or not (sign or key.startswith("~")):
        example = '"text=two words"'
        raise ConfigError(f"{word}: expected key=value; a text with spaces is quoted: {example}")
    if is_text(keys(schema).get(key.lstrip("+"), {})):
        word = f"{key}={as_text(value, is_sweep)}"
    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, ValueError, RecursionError):
        example = "\"key=['one text', '日本語']\""
        raise ConfigError(
            f"{word}: Hydra cannot read the value; texts in a list are quoted: {example}"
        ) from None


def as_text(value: str, is_sweep: bool) -> str:
    """Return the value of a key of type text in quotes, or those that a sweep tries.

    null, a value in quotes and, in a sweep, choice(a,b) stay as they are.
    """
    if is_sweep and re.fullmatch(r"[a-z]+\(.*\)", value):
        return value
    texts = re.findall(f"(?:{QUOTED}|[^,])+", value) if is_sweep and value else [value]
    is_literal = re.compile(f"null|{QUOTED}", re.DOTALL).fullmatch
    return ",".join(text if is_literal(text) else quote(text) for text in texts)


def groups(schema: Any) -> dict[str, list[str]]:
    """Return the groups that a command's files are chosen from, each with their names."""
    folders = [path for path in CONFIGS.iterdir() if path.is_dir()]
    return {
        path.name: sorted(file.stem for file in path.glob("*.yaml"))
        for path in sorted(folders)
        if issubclass(schema, TrainConfig) or f"{path.name}.path" in keys(schema)
    }


def compose(line: CommandLine) -> dict[str, Any]:
    """Return the settings that the words name, not yet checked."""
    for entry in line.overrides:
        key = entry.key_or_group
        if entry.is_sweep_override():
            raise ConfigError(
                f"{key}: expected one value, got {entry.get_value_string()}; "
                f"for a list {key}=[a,b], for a run with each value train -m"
            )
        if key.startswith("hydra"):
            raise ConfigError(f"{key}: expected `train -m` with it; a single run has no launcher")
    if not issubclass(line.schema, TrainConfig):
        return _without_hydra(line, {})
    given = [entry for entry in line.overrides if not entry.is_delete()]
    values = {entry.key_or_group: entry.value() for entry in given}
    if line.schema is TrainConfig and values.get("resume") is not None:
        run = str(TrainConfig(resume=str(values["resume"])).resume)
        check(TrainConfig(resume=run))
        from headscope.training.resume import resumed_config  # which imports torch

        return _without_hydra(line, asdict(resumed_config(Path(run))))
    for group, names in groups(line.schema).items():
        chosen = values.get(group, [])
        for name in chosen if isinstance(chosen, list) else [chosen]:
            if not isinstance(name, str):  # with null or a number Hydra would end in a traceback
                got = "null" if name is None else str(name)
                raise ConfigError(unknown_choice(group, got, names))
    try:
        return resolved(_with_hydra(line, line.words))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error


def check_code(line: CommandLine, content: dict[str, Any]) -> None:
    """Raise a RunError for code that no word names, but a resumed run or a file of --config-dir."""
    folder = line.options.get("--config-dir")
    source = f"resume={content.get('resume')}" if folder is None else f"--config-dir={folder}"
    check_allowed(flatten(content), source, import_paths_in(line.words))


def check_hydra(line: CommandLine) -> None:
    """Raise a RunError if a file of --config-dir changes what Hydra calls or writes in a sweep."""
    if "--config-dir" not in line.options or os.environ.get(ALLOW) == "1":
        return
    single = [entry for entry in line.overrides if not entry.is_sweep_override()]
    words = [str(entry.input_line) for entry in single]
    plain = [word for word in words if word.lstrip("+~").startswith("hydra")]
    swept = [
        [f"{entry.key_or_group}={name}"]
        for entry in line.overrides
        if entry.is_sweep_override() and entry.key_or_group in groups(line.schema)
        for name in entry.sweep_string_iterator()
    ]
    expected = _hydra_settings(CommandLine(line.schema, {}, []), plain)
    for choice in [[], *swept]:
        found = _hydra_settings(line, [*words, *choice])
        if changed := [key for key in expected if found[key] != expected[key]]:
            raise RunError(
                f"--config-dir={line.options['--config-dir']}: changes hydra.{changed[0]}, which "
                f"can run any code or write anywhere; if you trust it, set {ALLOW}=1"
            )


def _hydra_settings(line: CommandLine, words: list[str]) -> dict[str, Any]:
    """Return Hydra's own settings, but for names of files and what differs from call to call."""
    settings = _with_hydra(line, words, return_hydra_config=True).hydra
    content: dict[str, Any] = OmegaConf.to_container(settings)  # type: ignore[assignment]
    kept = {key: content[key] for key in HYDRA_KEYS}
    return kept | {key: content["job"][key] for key in ("env_set", "env_copy", "chdir")}


def _with_hydra(line: CommandLine, words: list[str], **options: bool) -> DictConfig:
    store_defaults(line.schema)
    main = CONFIGS
    if "--config-dir" in line.options:
        other = Path(line.options["--config-dir"]).absolute()
        if not other.is_dir():
            raise ConfigError(f"--config-dir: expected a directory, got {str(other)!r}")
        if "--config-name" in line.options:  # Hydra looks for it in the main directory
            main, other = other, main
        words = [*words, f"hydra.searchpath=[{quote(f'file://{other}')}]"]
    with hydra.initialize_config_dir(str(main), version_base="1.3"):
        composed = hydra.compose(line.options.get("--config-name", "train"), words, **options)
    if "--config-dir" in line.options and os.environ.get(ALLOW) != "1":
        _check_resolvers(line, composed)
    return composed


def _check_yaml(folder: Path) -> None:
    """Raise a ConfigError for a file of --config-dir that is no YAML, or far more than it says."""
    for path in sorted(folder.rglob("*.yaml")):
        try:
            from_yaml(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"--config-dir={folder}: {path.name}: {first_line(error)}") from error


def _check_resolvers(line: CommandLine, composed: DictConfig) -> None:
    """Raise a RunError for a file of --config-dir that asks the environment or calls a resolver.

    What is found could be sent on: as the name of a data set, or of a run.
    """
    content: dict[Any, Any] = OmegaConf.to_container(composed, resolve=False)  # type: ignore[assignment]
    content.pop("hydra", None)  # Hydra's own settings call some
    typed = " ".join(line.words)
    for key, value in flatten(content).items():
        for call in RESOLVER.findall(str(value)):
            if call not in typed:
                raise RunError(
                    f"--config-dir={line.options['--config-dir']}: {key} asks for {shown(call)}}}; "
                    f"write the value itself or, if you trust it, set {ALLOW}=1"
                )


def store_defaults(schema: Any) -> None:
    """Have Hydra know the defaults of a command, as the entry `schema` of configs/train.yaml."""
    ConfigStore.instance().store("schema", asdict(schema()))


def resolved(composed: DictConfig) -> dict[str, Any]:
    """Return what Hydra composed as a dictionary, interpolations resolved."""
    content: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment]
    return content


def _without_hydra(line: CommandLine, content: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the keys on the command line changed, groups before keys in them."""
    choices = groups(line.schema)
    for entry in sorted(line.overrides, key=lambda entry: "." in entry.key_or_group):
        key = entry.key_or_group
        value = entry.value()
        if entry.is_delete() or entry.package:
            raise ConfigError(f"{entry.input_line}: expected key=value")
        if key in choices and value is not None:
            value = _read_group(line, key, str(value))
        group, _, name = key.rpartition(".")
        if group:
            content[group] = {**(content.get(group) or {}), name: value}
        else:
            content[name] = value
    return content


def _read_group(line: CommandLine, group: str, name: str) -> Any:
    for folder in (Path(line.options.get("--config-dir", CONFIGS)), CONFIGS):
        path = folder / group / f"{name}.yaml"
        if path.is_file():
            return from_yaml(path.read_text(encoding="utf-8"))
    raise ConfigError(unknown_choice(group, name, groups(line.schema)[group]))


def starting(config: Any) -> AbstractContextManager[Any]:
    """Return a bar for what is imported: seconds, on a busy machine many."""
    from rich.console import Console

    from headscope.ground.terminal import Bar

    is_hidden = isinstance(config, TrainConfig) and not config.trainer.progress
    return Bar(Console(stderr=True), "starting", is_hidden=is_hidden)


def unknown_choice(group: str, name: str, known: Sequence[str]) -> str:
    """Return the message for a file of a group that does not exist."""
    close = did_you_mean(name, known)
    hint = f"; did you mean {close}?" if close else ""
    return f"{group}: expected one of {', '.join(known)}, got {name!r}{hint}"


def explain(error: BaseException) -> str:
    """Return one line for what Hydra or OmegaConf raises."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if group in ("hydra/launcher", "hydra/sweeper"):
            package = f"hydra-{name.partition('_')[0]}-{group.partition('/')[2]}"
            return f"{group}={name}: is not installed; pip install {package} brings it"
        return unknown_choice(group, name, sorted(error.options))
    while not isinstance(error, OmegaConfBaseException) and error.__cause__ is not None:
        error = error.__cause__
    key = getattr(error, "full_key", "")
    if key:
        return f"{key}: {first_line(error)}"
    return " ".join(str(error).split("\nConfig search path")[0].split())
