"""inspect(config): every head's map and numbers for one text, into TensorBoard and a self-contained HTML file."""

import time
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch.utils.tensorboard import SummaryWriter

from headscope.commands.config import InspectConfig
from headscope.data.labels import cell_labels
from headscope.errors import ConfigError, listed
from headscope.inspection.attribution import ONLY_FIRST
from headscope.inspection.measures import Summary
from headscope.inspection.record import label_text
from headscope.tensorboard.marker import marker_summary
from headscope.tensorboard.page import PageText, page, write_page
from headscope.training.closing import write_labelled
from headscope.training.folder import Run, best_device, load_run
from headscope.training.heads import write_numbers, write_reading
from headscope.training.probes import Probe, Reading, make_probe, read_probe, shortened
from headscope.training.recording import keep_readings, new_recorder
from headscope.training.text_report import head_numbers, page_text, reading_numbers


def inspect(config: InspectConfig, console: Console | None = None) -> Path:
    """Write maps and numbers of a text and return the HTML file's path."""
    console = console or Console()
    run = load_run(Path(config.run))
    probe = make_probe(run.tokenizer, _texts(config, run), _label(config, run), config.max_tokens, run.evidence)
    device = best_device(config.accelerator)
    reading = read_probe(run.model.to(device), probe, run.labels, device, run.objective, run.temperature)
    summary = reading_numbers(reading)
    numbers = head_numbers(summary, reading, probe.segments)
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    path = Path(config.output) if config.output else run.folder / "inspect" / f"{stamp}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    layers = [f"layer {number}" for number in range(len(reading.maps))]
    write_page(path, page("Attention heads", layers, run.labels, [_on_the_page(run, probe, reading, numbers)]))
    writer = SummaryWriter(run.folder / "inspect" / stamp)
    shown = shortened(probe, reading, run.config.inspection.max_tokens)  # the page has all; a picture would be huge
    write_reading(writer, "text", *shown, 0, config.font)
    write_labelled(writer, "text", *shown, 0, config.font)
    write_numbers(writer, summary, 0)
    writer._get_file_writer().add_summary(marker_summary(), 0)
    writer.close()
    _record(run, probe, reading, summary, run.folder / "inspect" / stamp)
    _show(console, probe, reading, numbers)
    console.print(f"page:       {escape(str(path))}", highlight=False, soft_wrap=True)
    console.print(
        f"now look:   [bold]tensorboard --logdir {escape(str(run.folder))}[/]", highlight=False, soft_wrap=True
    )
    return path


def _record(run: Run, probe: Probe, reading: Reading, summary: Summary, folder: Path) -> None:
    """Keep the maps beside the event file, for the Heads tab."""
    settings = replace(run.config.inspection, max_tokens=len(probe.tokens))
    recorder = new_recorder(folder, [probe], run.labels, settings, {"dropout": "off", "precision": "32-true"})
    keep_readings(recorder, 0, [reading], summary)


def _texts(config: InspectConfig, run: Run) -> tuple[str, ...]:
    wants_pair = run.config.data.text_pair_column is not None
    if wants_pair != (config.text_pair is not None):
        needed = "pairs of texts, so it must be given" if wants_pair else "single texts, so it takes none"
        raise ConfigError(f"text_pair: {run.folder} was trained on {needed}")
    text = config.text or ""
    return (text,) if config.text_pair is None else (text, config.text_pair)


def _label(config: InspectConfig, run: Run) -> str | None:
    """Return the label as predictions are written, several of them in the order of the classes.

    Raises:
        ConfigError: for a label that is none of the run's classes.
    """
    if config.label is None:
        return None
    separator, multi_label = run.config.data.label_separator, run.config.data.multi_label
    found = cell_labels(config.label, separator) if multi_label else [config.label]
    unknown = [label for label in found if label not in run.labels]
    if unknown:
        takes = f"any of these, with {separator!r} between them" if multi_label else "one of these"
        raise ConfigError(
            f"label: {run.folder} knows no class {', '.join(map(repr, unknown))}; takes {takes}: {listed(run.labels)}"
        )
    return label_text(sorted(set(found), key=run.labels.index)) if multi_label else config.label


def _on_the_page(run: Run, probe: Probe, reading: Reading, numbers: list[list[dict[str, float]]]) -> PageText:
    model = run.config.model
    notes = {
        "run": str(run.folder),
        "model": f"{model.num_layers} layers, {model.num_heads} heads, width {model.d_model}",
        "shown": f"{len(probe.tokens)} tokens",
    }
    return page_text("text", probe, reading, numbers, notes)


def _show(console: Console, probe: Probe, reading: Reading, numbers: list[list[dict[str, float]]]) -> None:
    shares = sorted(reading.probabilities.items(), key=lambda item: -item[1])[:5]
    listed = ", ".join(f"{name} {share:.3f}" for name, share in shares)
    console.print(f"{len(probe.tokens)} tokens; prediction: {listed}", highlight=False, markup=False, soft_wrap=True)
    said = reading.spoken.sentence() if reading.spoken is not None else f"nats: {ONLY_FIRST}"
    console.print(said, highlight=False, markup=False, soft_wrap=True)
    # On a screen of 80 columns as well; the page has all.
    names = [name for name in numbers[0][0] if name != "last" or len(numbers[0][0]) < 10]
    room = 1 if len(names) < 9 else 0
    title = "numbers of each head for this text"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, room, 0, 0))
    for heading in ("layer", "head", *names):
        table.add_column(heading.replace("_", " "), justify="right")
    for layer, heads in enumerate(numbers):
        for head, values in enumerate(heads):
            table.add_row(str(layer), str(head), *(f"{values[name]:.3f}" for name in names))
    console.print(table)
