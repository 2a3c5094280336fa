"""inspect(config): maps and numbers of every head for one text, or over a sample of texts."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from torch.utils.tensorboard import SummaryWriter

from headscope.cli.inspect_model import inspect_model, print_effects, print_next
from headscope.data.columns import split_labels
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import ConfigError, DataError, LivePageError, listed, warn
from headscope.ground.files import new_folder
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.heads.capture import readout_position
from headscope.heads.integrations.lightning_callback import write_output
from headscope.heads.measures import Summary
from headscope.heads.show import head_view
from headscope.heads.step import (
    JOIN,
    Probe,
    ProbeOutput,
    head_report,
    make_probe,
    new_recorder,
    record_best,
    run_probe,
    text_numbers,
)
from headscope.heads.study import Study, special_tokens, study
from headscope.live.page import live_html, own_index, recorded_step
from headscope.record.schema import (
    FOLDER,
    INDEX,
    RUN_NOTE,
    Arrays,
    RecordError,
    Text,
    label_text,
)
from headscope.record.writer import HeadRecorder
from headscope.runs.folder import HEADS, save_json
from headscope.runs.prediction import best_device
from headscope.runs.run import Run, load_run
from headscope.runs.texts import data_of, typed_texts
from headscope.settings.commands import InspectConfig
from headscope.tab.page import write_page
from headscope.tab.summaries import add_summary, marker_summary, write_marker
from headscope.training.console import plain_table
from headscope.training.heads import choose_probes, samples

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
    """Write page and record of a text and return the page's path. Without a text, `measure`.

    Where the run folder cannot be written, the page goes to the current directory, and a note says
    that the record is not kept.
    """
    if config.model is not None:
        return inspect_model(config, console)
    if config.text is None:
        return measure(config, console)
    console = terminal(console)
    run = load_run(str(config.run))
    texts = typed_texts(run, config.text, config.text_pair)
    label = _label(config, run)
    readout = readout_position(run.model)
    probe = make_probe(run.tokenizer, texts, label, config.max_tokens, run.evidence, readout)
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
    with _noted("the record of this text for TensorBoard"):
        _record_text(run, folder, probe, output, view.numbers, effects)
    _print_text(console, output, view.numbers)
    show_line(console, f"page:       {path}{kind}")
    print_next(console, run.folder, "")
    return path


@contextmanager
def _noted(what: str) -> Iterator[None]:
    """Turn an error in writing into a note."""
    try:
        yield
    except OSError as error:
        warn(f"{what} is not kept: {error}")


def _record_text(
    run: Run, folder: Path, probe: Probe, output: ProbeOutput, numbers: Summary, effects: Arrays
) -> None:
    """Write the record of a text, for TensorBoard."""
    with SummaryWriter(str(folder)) as writer:
        write_output(writer, "text", output, run.config.inspection.max_tokens, 0)
        add_summary(writer, marker_summary(), 0)
    notes = {"dropout": "off", "precision": "32-true"}
    recorder = new_recorder(folder, [probe], run.labels, run.config.inspection, notes)
    recorder.index.best = 0 if effects else None
    recorder.write(0, head_report([output], numbers) | effects)


def _label(config: InspectConfig, run: Run) -> str | None:
    """Return the label as predictions are written, several of them in the order of the classes."""
    if config.label is None:
        return None
    data = run.config.data
    labels = [config.label]
    if data.multi_label:
        labels = split_labels(config.label, data.label_separator)
    if unknown := [label for label in labels if label not in run.labels]:
        got = ", ".join(map(repr, unknown))
        raise ConfigError(f"label: expected one of {listed(run.labels)}, got {got}")
    return label_text([label for label in run.labels if label in labels])


def _print_text(console: Console, output: ProbeOutput, summary: Summary) -> None:
    shares = sorted(output.probabilities.items(), key=lambda item: -item[1])[:5]
    likeliest = ", ".join(f"{name} {share:.3f}" for name, share in shares)
    show_line(console, f"{len(output.text.tokens)} tokens; prediction: {likeliest}")
    show_line(console, str(output.explanation))
    numbers = text_numbers(output, summary)
    names = [name.split("/")[1] for name in numbers]
    values = np.stack([numbers[f"numbers/{name}/mean"] for name in names], axis=-1)  # [L, H, N]
    rows = [
        [layer, head, *(f"{value:.3f}" for value in values[layer, head])]
        for layer, head in np.ndindex(values.shape[:2])
    ]
    show_line(console, "numbers of each head for this text")
    headings = ["layer", "head", *(name.replace("_", "\n") for name in names)]
    console.print(plain_table([], headings, rows))


def measure(config: InspectConfig, console: Console | None = None) -> Path:
    """Study a sample of the validation texts, add it to the run's record, return heads.json's path.

    Raises:
        RunError, DataError: if the run or its data cannot be read.
    """
    console = terminal(console)
    run = load_run(str(config.run))
    run.model.to(best_device(config.accelerator))
    data = data_of(run)
    count = min(config.texts, len(data.labels("validation")))
    if count < 2:
        raise DataError(f"texts: expected 2 validation texts or more, got {count}")
    chooses, others = samples(run.config, data, count // 2, 2)
    with Bar(console, f"measuring every head on {2 * (count // 2)} texts") as bar:
        special = special_tokens(run.tokenizer)
        found = study(run.model, chooses, others, special, run.objective, bar.update)
    path = run.folder / HEADS
    print_effects(console, found)
    with _noted("this study"):
        save_json(path, _content(found))
        also = ", and in the record of the run" if _record_study(run, data, found) else ""
        show_line(console, f"kept in:    {path}{also}")
    print_next(console, run.folder)
    return path


def _record_study(run: Run, data: TextDataModule, study: Study) -> bool:
    """Add the study to the best step; return False if that step was thinned out.

    A run without a record gets one, unless it has no probes.
    """
    step = run.chosen.step
    inspection = run.config.inspection
    try:
        index = own_index(run)
        probes = [_probe_of(text, run) for text in index.texts]
        recorder = HeadRecorder(
            run.folder, index.texts, index.classes, index.budget, notes=index.notes
        )
    except RecordError:
        (run.folder / FOLDER / INDEX).unlink(missing_ok=True)
        probes = choose_probes(data, inspection, run.model, run.objective)
        if not probes:
            return False
        notes = {"dropout": "off", RUN_NOTE: run.setup.identity()}
        recorder = new_recorder(run.folder, probes, run.labels, inspection, notes)
        outputs = [
            run_probe(run.model, probe, run.labels, run.objective, run.temperature)
            for probe in probes
        ]
        recorder.write(step, head_report(outputs, study.numbers))
        write_marker(run.folder)
    return record_best(recorder, step, run.model, probes, run.objective, run.temperature, study)


def _probe_of(text: Text, run: Run) -> Probe:
    """Return a recorded text as it was encoded."""
    texts = (text.text,) if text.segments is None else tuple(text.text.split(JOIN))
    count = len(text.tokens)
    return make_probe(run.tokenizer, texts, text.label, count, run.evidence, text.readout)


def _content(study: Study) -> dict[str, object]:
    """Return heads.json: layer -> head -> measure -> [mean, error], and what is of all heads."""
    heads = {
        f"layer {number}": [
            {name: [means[head], errors[head]] for name, (means, errors) in measures.items()}
            for head in range(len(measures["loss_zeroed"][0]))
        ]
        for number, measures in enumerate(study.numbers.values())
    }
    sets = study.facts()
    return {"answer": study.answer, "texts": study.texts, "heads": heads, "sets": sets}
