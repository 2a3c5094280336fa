"""How a configuration class is written: each field says what it is and which values it takes.

`headscope.config` has the classes, dataclasses whose fields are made by `setting`:

    @dataclass
    class OptimizerConfig:
        learning_rate: float = setting(1e-3, "peak learning rate", above=0)

Hydra checks keys and types against these classes; `problems` checks the values. The same is asked of a config.yaml
that is read again. Nothing here imports torch, so a mistake is answered in a fraction of a second.
"""

import io
import math
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headscope.errors import ConfigError, RunError, first_line, os_message, shown
from headscope.files import TRY_ANOTHER, read_yaml_text, reading

MOST = (
    10**9
)  # of whole numbers that have no bound of their own: beyond it are slips, and what 64 bits cannot hold


@dataclass(frozen=True)
class Rule:
    """What a setting means, and which values it takes: bounds (`above` and `below` leave them out) or choices."""

    meaning: str
    minimum: int | float | None = None
    maximum: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    choices: tuple[str, ...] = ()

    def takes(self) -> str:
        """Say in words which values are taken; empty where any value of the type is."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        bounds = [
            (self.minimum, "at least"), (self.above, "more than"), (self.maximum, "at most"), (self.below, "less than"),
        ]  # fmt: skip
        return " and ".join(f"{word} {bound}" for bound, word in bounds if bound is not None)

    def refuses(self, value: Any) -> str:
        """Say what is taken instead of `value`; empty if it fits. None fits: whether it may be is said by the type."""
        if isinstance(value, list):
            return next(filter(None, map(self.refuses, value)), "")
        if value is None or (self.choices and value in self.choices):
            return ""
        if isinstance(value, str):
            has_bad = re.search(
                "[\0\ud800-\udfff]", value
            )  # what was no UTF-8 on the command line is a surrogate
            return self.takes() or (
                "text in UTF-8, without a character of code 0" if has_bad else ""
            )
        if isinstance(value, float) and not math.isfinite(value):
            return f"a finite number {self.takes()}".strip()
        most = MOST if self.maximum is None and isinstance(value, int) else self.maximum
        fits = (
            (self.minimum is None or value >= self.minimum)
            and (most is None or value <= most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        return "" if fits else self.takes() if value <= MOST else f"at most {most}"


def setting(default: Any, meaning: str, **bounds: Any) -> Any:
    """Make a dataclass field with its meaning and its bounds (see `Rule`). A list or class is made anew."""
    metadata = {"rule": Rule(meaning, **bounds)}
    if isinstance(default, type | list):
        make = default if isinstance(default, type) else partial(copy, default)
        return field(default_factory=make, metadata=metadata)
    return field(default=default, metadata=metadata)


def described(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Rule]]:
    """Walk a configuration: (full key, value, rule) of every setting, groups opened."""
    for entry in fields(config):
        key, value = f"{prefix}{entry.name}", getattr(config, entry.name)
        if is_dataclass(value):
            yield from described(value, f"{key}.")
        else:
            yield key, value, entry.metadata["rule"]


def problems(config: Any, methods: tuple[str, ...] = ("conflicts", "absent")) -> Iterator[str]:
    """Say everything that is wrong with the values of `config`, one line each.

    A class may add rules that span several keys in a method `conflicts()`, and what is not there on this machine, such
    as a file, in a method `absent()`; both yield (key, sentence).
    """
    refused = set()
    for key, value, rule in described(config):
        if takes := rule.refuses(value):
            refused.add(key)
            yield f"{key}: got {shown(repr(value), 200)}, takes {takes} ({rule.meaning})"

    def found(group: Any, prefix: str) -> Iterator[str]:
        for entry in fields(group):
            if is_dataclass(value := getattr(group, entry.name)):
                yield from found(value, f"{prefix}{entry.name}.")
        for method in methods:
            if hasattr(group, method):
                for key, sentence in getattr(group, method)():
                    if f"{prefix}{key}" not in refused:
                        yield f"{prefix}{key}: {sentence}"

    yield from found(config, "")


def check(config: Any) -> None:
    """Raise a ConfigError that names every wrong value at once; return if there is none."""
    try:
        found = list(problems(config))
    except OSError as error:  # such as for a name that no file system can hold
        raise ConfigError(os_message(error)) from error
    if found:
        raise ConfigError("\n".join(found))


def structured(config: Any) -> DictConfig:
    """Return a configuration as OmegaConf has it, in which `${` in a text stays what it is."""

    def literal(value: Any) -> Any:
        if is_dataclass(value):
            return replace(
                value,
                **{entry.name: literal(getattr(value, entry.name)) for entry in fields(value)},
            )  # type: ignore[type-var]
        if isinstance(value, list):
            return [*map(literal, value)]
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value

    found: DictConfig = OmegaConf.structured(literal(config))
    return found


def read_config(path: Path, kind: type) -> Any:
    """Return the configuration, of class `kind`, that a run's config.yaml holds, checked like a command line.

    Files that it names, such as the texts, may be gone.

    Raises:
        RunError: if there is none, or a key, a type or a value does not fit this version.
    """
    if not path.parent.is_dir() or not path.exists():
        raise RunError(
            f"run={path.parent}: no {path.name} there; takes a folder that `headscope train` has written"
        )
    text = read_yaml_text(path)
    with reading(path):
        content = OmegaConf.load(io.StringIO(text))
        if not isinstance(content, DictConfig):
            raise ValueError("takes keys with their values")
        groups = [entry.name for entry in fields(kind) if is_dataclass(entry.type)]
        if groups and groups[-1] not in content:  # others may be younger than the file
            raise ValueError(
                f"is cut off: it has no {next(name for name in groups if name not in content)}"
            )
        try:
            config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), content))
            wrong = list(problems(config, ("conflicts",)))
        except OmegaConfBaseException as error:
            wrong = [
                f"{error.full_key}: {first_line(error)}" if error.full_key else first_line(error)
            ]
    if wrong:
        raise RunError(
            f"run={path.parent}: {path.name} does not fit this version of headscope: {'; '.join(wrong)}; {TRY_ANOTHER}"
        )
    return config
