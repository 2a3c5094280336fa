"""inspect(config): the page of one text, with maps and numbers of every head."""

import os
import time
from pathlib import Path

from rich.console import Console

from headscope.ground.errors import ConfigError
from headscope.ground.files import check_links, write_free
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.pages.live import text_view
from headscope.runs.prediction import best_device
from headscope.runs.run import load_run
from headscope.settings.checks import message
from headscope.settings.commands import InspectConfig


def inspect(config: InspectConfig, console: Console | None = None) -> Path:
    """Write the page of a text and return its path.

    Where the run folder cannot be written, the page goes to the current directory.
    """
    console = terminal(console)
    run = load_run(config.run)
    if config.output is None:
        check_links(run.folder)
    texts = (config.text,) if config.text_pair is None else (config.text, config.text_pair)
    is_pair = run.config.data.text_pair_column is not None
    if is_pair != (config.text_pair is not None):
        expected = f"{'a second text' if is_pair else 'null'} for run={run.folder}"
        raise ConfigError(message("text_pair", expected, config.text_pair))
    run.model.to(best_device(config.accelerator))
    with Bar(console, "ablating heads"):
        view, missing = text_view(run, texts, config.max_tokens)
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    place = run.folder / "inspect" / stamp
    if not os.access(run.folder, os.W_OK):
        place = Path(f"{run.folder.name}_{stamp}")
    free = Path(f"{place}.html")
    path = view.save(config.output) if config.output else write_free(free, view.html)
    show_line(console, str(view))
    kind = f"of this text alone: {missing}" if missing else "type another text on it"
    show_line(console, f"page:       {path}; {kind}")
    return path
