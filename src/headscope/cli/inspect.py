"""inspect(config): maps and numbers of every head for one text."""

import time
from pathlib import Path

from rich.console import Console
from torch.utils.tensorboard import SummaryWriter

from headscope.cli.inspect_model import inspect_model, print_next
from headscope.ground.errors import LivePageError, warn
from headscope.ground.files import new_folder
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.heads.capture import readout_position
from headscope.heads.integrations.lightning_callback import write_output
from headscope.heads.show import HeadView, head_view
from headscope.heads.step import (
    Probe,
    ProbeOutput,
    head_report,
    make_probe,
    new_recorder,
    run_probe,
)
from headscope.live.page import live_html, recorded_step
from headscope.record.schema import Arrays
from headscope.runs.prediction import best_device
from headscope.runs.run import Run, load_run
from headscope.runs.texts import typed_texts
from headscope.settings.commands import InspectConfig
from headscope.tab.page import write_page
from headscope.tab.summaries import add_summary, marker_summary

# Of a run's record: which heads matter.
KNOWN = {
    "effects",
    "answer",
    "answer/details",
    "roles",
    "roles/score",
    "numbers/loss_zeroed/mean",
    "numbers/loss_zeroed/error",
}


def inspect(config: InspectConfig, console: Console | None = None) -> Path:
    """Write page and record of a text and return the page's path.

    Where the run folder cannot be written, the page goes to the current directory, and a note says
    that the record is not kept.
    """
    if config.model is not None:
        return inspect_model(config, console)
    console = terminal(console)
    run = load_run(str(config.run))
    texts = typed_texts(run, config.text, config.text_pair)
    readout = readout_position(run.model)
    probe = make_probe(run.tokenizer, texts, None, config.max_tokens, run.evidence, readout)
    run.model.to(best_device(config.accelerator))
    with Bar(console, "ablating heads"):
        output = run_probe(
            run.model, probe, run.labels, run.objective, run.temperature, with_ablations=True
        )
    effects = recorded_step(run, KNOWN.__contains__)
    folder = run.folder / "inspect" / time.strftime("%Y-%m-%d_%H-%M-%S")
    if run.is_writable:
        folder = new_folder(folder)
    place = folder if run.is_writable else Path(f"{run.folder.name}_{folder.name}")
    path = Path(config.output or f"{place}.html")
    notes = {
        "run": str(run.folder),
        "model": f"layers: {len(output.layers)}, heads: {sum(map(len, output.maps))}",
        "shown": f"{len(output.text.tokens)} tokens",
    }
    view = head_view(output, None, notes, effects)
    try:
        with Bar(console, "writing the page"):
            write_page(path, live_html(run, texts, shown=view.text))
        kind = "; type another text on it"
    except LivePageError as error:
        view.save(path)
        kind = f"; of this text alone: {error}"
    try:
        _record_text(run, folder, probe, output, view, effects)
    except OSError as error:
        warn(f"the record of this text for TensorBoard is not kept: {error}")
    shares = sorted(output.probabilities.items(), key=lambda item: -item[1])[:5]
    likeliest = ", ".join(f"{name} {share:.3f}" for name, share in shares)
    show_line(console, f"{len(output.text.tokens)} tokens; prediction: {likeliest}")
    show_line(console, str(output.explanation))
    show_line(console, f"page:       {path}{kind}")
    print_next(console, run.folder, "")
    return path


def _record_text(
    run: Run, folder: Path, probe: Probe, output: ProbeOutput, view: HeadView, effects: Arrays
) -> None:
    """Write the record of a text, for TensorBoard."""
    with SummaryWriter(str(folder)) as writer:
        write_output(writer, "text", output, run.config.inspection.max_tokens, 0)
        add_summary(writer, marker_summary(), 0)
    notes = {"dropout": "off", "precision": "32-true"}
    recorder = new_recorder(folder, [probe], run.labels, run.config.inspection, notes)
    recorder.index.best = 0 if effects else None
    recorder.write(0, head_report([output], view.numbers) | effects)
