"""The ready sets of a group, such as data=licenses: an unknown one is told, also where Hydra would pass it over."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from headscope.errors import ConfigError

OPTIONAL = "optional "  # as Hydra marks a group that may be left out


def check_groups(arguments: Iterable[str], configs: Path, name: str) -> None:
    """Refuse a group's set that there is not.

    Args:
        arguments: of the command line.
        configs: folder of the configuration files.
        name: of the script's configuration file.

    Raises:
        ConfigError: with the sets that there are.
    """
    groups = set(_groups(configs / f"{name}.yaml"))
    for argument in arguments:
        group, _, value = argument.partition("=")
        known = ready_sets(configs / group) if group in groups else []
        for given in map(str.strip, value.split(",") if known else []):
            if given[:1].isalnum() and "(" not in value and given not in [*known, "null"]:
                raise ConfigError(unknown_set(group, given, known))


def _groups(path: Path) -> Iterator[str]:
    """Yield the groups that a configuration file is made of."""
    for entry in OmegaConf.load(path).defaults:
        if isinstance(entry, DictConfig):
            yield from (str(key).removeprefix(OPTIONAL) for key in entry)


def ready_sets(group: Path) -> list[str]:
    """Return the names of a group's sets."""
    return sorted(path.stem for path in group.glob("*.yaml"))


def unknown_set(group: str, given: str, known: Sequence[str]) -> str:
    """Say that there is no such set, and which there are."""
    close = difflib.get_close_matches(given, known, n=1)
    hint = f"did you mean {group}={close[0]}? " if close else ""
    return f"{group}: got {given!r}; {hint}takes one of {', '.join(known)}"
