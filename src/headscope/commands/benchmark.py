"""benchmark(config): one suite of measurements, as tables on the screen and as a dated page."""

import importlib
import sys
from pathlib import Path

import torch
from rich.console import Console

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
        tables: list[Table] = suite.measure(config, device, lambda doing: status.update(doing))
    for table in tables:
        console.print(table.on_screen())
    if config.page:
        command = "python scripts/benchmark.py " + " ".join(sys.argv[1:])
        path = write_page(Path(config.folder), config.suite, device.type, command, machine, tables)
        console.print(f"written to {path}", highlight=False)
    return tables


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: got cuda, but torch finds no CUDA GPU here; takes cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
