"""How a configuration class is written: each field says what it is and which values it takes.

`headscope.config` has the classes, dataclasses whose fields are made by `setting`:

    @dataclass
    class OptimizerConfig:
        learning_rate: float = setting(1e-3, "peak learning rate", above=0)

Hydra checks keys and types against these classes; `problems` checks the values. Nothing here imports
torch, so a mistake is answered in a fraction of a second.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any

from headscope.errors import ConfigError


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
        return " and ".join(f"{word} {bound:g}" for bound, word in bounds if bound is not None)

    def accepts(self, value: Any) -> bool:
        """Tell whether `value` fits. None fits: whether a field may be None is said by its type."""
        if value is None or self.choices:
            return value is None or value in self.choices
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


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


def problems(config: Any, prefix: str = "") -> Iterator[str]:
    """Say everything that is wrong with the values of `config`, one line each.

    A class may add rules that span several keys in a method `conflicts()`, which yields (key, sentence).
    """
    for key, value, rule in described(config, prefix):
        if not rule.accepts(value):
            yield f"{key}: got {value!r}, takes {rule.takes()} ({rule.meaning})"

    def conflicts(group: Any, prefix: str) -> Iterator[str]:
        for entry in fields(group):
            if is_dataclass(value := getattr(group, entry.name)):
                yield from conflicts(value, f"{prefix}{entry.name}.")
        if hasattr(group, "conflicts"):
            yield from (f"{prefix}{key}: {sentence}" for key, sentence in group.conflicts())

    yield from conflicts(config, prefix)


def check(config: Any) -> None:
    """Raise a ConfigError that names every wrong value at once; return if there is none."""
    if found := list(problems(config)):
        raise ConfigError("\n".join(found))
