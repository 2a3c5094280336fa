"""What help reads once is what Hydra reads each time."""

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from headscope.commands import quick_help


def test_each_configuration_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, list[str]]] = []

    def read(loader: object, config_name: str | None, overrides: list[str]) -> tuple[str | None, list[str]]:
        asked.append((config_name, overrides))
        return config_name, overrides

    monkeypatch.setattr(ConfigLoaderImpl, quick_help.METHOD, read)
    quick_help.read_configurations_once()
    loader = object.__new__(ConfigLoaderImpl)
    again = [getattr(loader, quick_help.METHOD)(name, ["a=1"]) for name in ("train", "train", "verify")]
    assert again == [("train", ["a=1"]), ("train", ["a=1"]), ("verify", ["a=1"])]
    assert asked == [("train", ["a=1"]), ("verify", ["a=1"])]


def test_another_release_of_hydra_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ConfigLoaderImpl, quick_help.METHOD)
    quick_help.read_configurations_once()
    assert not hasattr(ConfigLoaderImpl, quick_help.METHOD)
