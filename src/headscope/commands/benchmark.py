"""benchmark(config): one suite of measurements, as tables on the screen and as a page."""

import datetime
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.machine import describe
from headscope.benchmark.page import Table, write_page
from headscope.errors import ConfigError

MODULES = {
    "train": "training",
    "predict": "predicting",
    "memory": "memory",
    "pipeline": "pipeline",
    "inspection": "inspecting",
    "startup": "startup",
    "scaling": "scaling",
    "accuracy": "accuracy.suite",
}


def benchmark(config: BenchmarkConfig, console: Console | None = None) -> list[Table]:
    """Measure one suite, show its tables, and write its page.

    Raises:
        ConfigError: if there is no such device, or a package that a peer needs is missing.
    """
    console, device = console or Console(), _device(config.device)
    machine = describe(device)
    suite = importlib.import_module(f"headscope.benchmark.{MODULES[config.suite]}")
    with console.status("measuring") as status:
        tables: list[Table] = suite.measure(config, device, lambda doing: status.update(escape(doing)))
    for table in tables:
        console.print(table.on_screen())
    if config.page:
        path = _write(config, device, machine, tables)
        console.print(f"written to {path}", highlight=False, markup=False)
    return tables


def _write(config: BenchmarkConfig, device: torch.device, machine: Mapping[str, str], tables: Sequence[Table]) -> Path:
    """Write <date>-<suite>-<device>.md; the page of accuracy has one name, under which README and others find it."""
    date = datetime.datetime.now(datetime.UTC).date()
    usual = config.suite if config.suite == "accuracy" else f"{date}-{config.suite}-{device.type}"
    path = Path(config.folder) / f"{config.page_name or usual}.md"
    title = config.title or f"{config.suite}, {device.type}"
    command = ["python", "scripts/benchmark.py", *sys.argv[1:]]
    write_page(path, f"{title}, {date}", command, machine, tables)
    return path


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: got cuda, but torch finds no CUDA GPU here; takes cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
