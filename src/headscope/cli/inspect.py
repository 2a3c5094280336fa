"""What is written for one text, and what is measured over many: the maps and numbers of every head."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch.utils.tensorboard import SummaryWriter

from headscope.cli.evaluate import data_of
from headscope.cli.inspect_model import inspect_model
from headscope.data.batching import TextBatches
from headscope.data.corpus import split_labels
from headscope.data.datamodule import TextDataModule
from headscope.errors import ConfigError, listed
from headscope.heads.contributions import ONLY_FIRST
from headscope.heads.effects import EFFECT_LABELS, answer, role
from headscope.heads.faithfulness import BINS
from headscope.heads.lightning_callback import (
    keep_readings,
    new_recorder,
    record_study,
    write_numbers,
    write_reading,
)
from headscope.heads.report import (
    JOIN,
    Probe,
    ProbeOutput,
    choose_probes,
    make_probe,
    readout_position,
    run_probe,
    shortened,
)
from headscope.heads.show import ablate_each_head, head_numbers, page_text, reading_numbers
from headscope.heads.study import Study, causes, doubling_samples, special_tokens
from headscope.options import InspectConfig
from headscope.record.bounds import Shapes
from headscope.record.reader import nested, read_members
from headscope.record.schema import FOLDER, INDEX, Arrays, RecordError, Text, label_text, read_index
from headscope.record.writer import HeadRecorder
from headscope.run import HEADS, Run, best_device, load_run, read_metric, save_json
from headscope.tab.page import page, write_page
from headscope.tab.summaries import add_summary, marker_summary, write_marker
from headscope.terminal import terminal
from headscope.training.report import write_labelled

# Those that fit on a screen of 80 columns; heads.json and the Heads tab have all.
SHOWN = {
    "what it looks at": (
        *(
            "entropy_share",
            "mean_distance",
            "self",
            "previous",
            "next",
            "first",
            "separator",
            "crossing",
        ),
    ),
    "what depends on it": (
        *(
            "nats",
            "loss_zeroed",
            "accuracy_zeroed",
            "gate_gradient",
            "comprehensiveness",
            "sufficiency",
        ),
    ),
}


MOST_HEADS = 24  # in a table


def inspect(config: InspectConfig, console: Console | None = None) -> Path:
    """Write maps and numbers of a text and return the HTML file's path; without a text, `measure`."""
    if config.model is not None:
        return inspect_model(config, console)
    if config.text is None:
        return measure(config, console)
    console, run = terminal(console), load_run(Path(str(config.run)))
    probe = make_probe(
        run.tokenizer,
        _texts(config, run),
        _label(config, run),
        config.max_tokens,
        run.evidence,
        readout_position(run.model),
    )
    device = best_device(config.accelerator)
    reading = run_probe(
        run.model.to(device), probe, run.labels, device, run.objective, run.temperature
    )
    summary = reading_numbers(reading)
    numbers = head_numbers(summary, reading, probe.segments)
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    folder = run.folder / "inspect" / stamp
    path = Path(config.output) if config.output else folder.with_name(f"{stamp}.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    model = run.config.model
    notes = {
        "run": str(run.folder),
        "model": f"{model.num_layers} layers, {model.num_heads} heads, width {model.d_model}",
        "shown": f"{len(probe.tokens)} tokens",
    }
    layers = [f"layer {number}" for number in range(len(reading.maps))]
    on_the_page = page_text("text", probe, reading, numbers, notes)
    off = ablate_each_head(run.model, probe, run.objective, run.temperature)
    known = _which_matter(run)
    if known:  # the page opens with it
        mean, error = (nested(known[f"numbers/loss_zeroed/{part}"]) for part in ("mean", "error"))
        extra = {
            name: nested(found) for name, found in known.items() if not name.startswith("numbers/")
        }
        numbers_too = {**on_the_page.numbers, "loss_zeroed": mean}
        on_the_page = replace(
            on_the_page, numbers=numbers_too, errors={"loss_zeroed": error}, extra=extra
        )
    on_the_page = replace(on_the_page, arrays={**on_the_page.arrays, **off})
    write_page(path, page("Attention heads", layers, run.labels, [on_the_page]))
    writer = SummaryWriter(folder)
    shown = shortened(
        probe, reading, run.config.inspection.max_tokens
    )  # the page has all; a picture would be huge
    write_reading(writer, "text", *shown, 0, config.font)
    write_labelled(writer, "text", *shown, 0, config.font)
    write_numbers(writer, summary, 0)
    add_summary(writer, marker_summary(), 0)
    writer.close()
    # The maps, beside the event file, for the Heads tab.
    settings = replace(run.config.inspection, max_tokens=len(probe.tokens))
    recorder = new_recorder(
        folder, [probe], run.labels, settings, {"dropout": "off", "precision": "32-true"}
    )
    recorder.index.kept = 0 if known else None
    keep_readings(
        recorder,
        0,
        [reading],
        summary,
        known | {f"text_0/{name}": found for name, found in off.items()},
    )
    _show(console, probe, reading, numbers)
    _say(console, f"page:       {escape(str(path))}")
    _say(console, f"now look:   [bold]tensorboard --logdir {escape(str(run.folder))}[/]")
    return path


def _which_matter(run: Run) -> Arrays:
    """Return which heads matter as the run's record has it, of the weights that were kept; {} if that isn't known."""
    headline = "verdicts/headline"  # older records have none
    names = [*("verdicts", "verdicts/smallest", "studied", "roles", "roles/score"),
             *("numbers/loss_zeroed/mean", "numbers/loss_zeroed/error")]  # fmt: skip
    try:
        index = read_index(run.folder / FOLDER)
        files = [step.file for step in index.steps if step.step == index.kept]
        if not files:
            return {}
        check = Shapes(index.heads, len(run.labels)).check
        return read_members(
            run.folder / FOLDER / files[0],
            lambda sizes: [*names, *({headline} & {*sizes})] if {*names} <= {*sizes} else (),
            check,
        )
    except RecordError:
        return {}


def _say(console: Console, text: str, markup: bool = True) -> None:
    console.print(text, highlight=False, markup=markup, soft_wrap=True)


def _texts(config: InspectConfig, run: Run) -> tuple[str, ...]:
    wants_pair = run.config.data.text_pair_column is not None
    if wants_pair != (config.text_pair is not None):
        needed = (
            "pairs of texts, so it must be given"
            if wants_pair
            else "single texts, so it takes none"
        )
        raise ConfigError(f"text_pair: {run.folder} was trained on {needed}")
    return tuple(text for text in (config.text, config.text_pair) if text is not None)


def _label(config: InspectConfig, run: Run) -> str | None:
    """Return the label as predictions are written, several of them in the order of the classes.

    Raises:
        ConfigError: for a label that is none of the run's classes.
    """
    if config.label is None:
        return None
    separator, multi_label = run.config.data.label_separator, run.config.data.multi_label
    found = split_labels(config.label, separator) if multi_label else [config.label]
    unknown = [label for label in found if label not in run.labels]
    if unknown:
        takes = f"any of these, with {separator!r} between them" if multi_label else "one of these"
        raise ConfigError(
            f"label: {run.folder} knows no class {', '.join(map(repr, unknown))}; takes {takes}: {listed(run.labels)}"
        )
    return label_text(sorted(set(found), key=run.labels.index)) if multi_label else config.label


def _show(
    console: Console, probe: Probe, reading: ProbeOutput, numbers: list[list[dict[str, float]]]
) -> None:
    shares = sorted(reading.probabilities.items(), key=lambda item: -item[1])[:5]
    likeliest = ", ".join(f"{name} {share:.3f}" for name, share in shares)
    _say(console, f"{len(probe.tokens)} tokens; prediction: {likeliest}", markup=False)
    _say(
        console,
        reading.spoken.sentence() if reading.spoken is not None else f"nats: {ONLY_FIRST}",
        markup=False,
    )
    # On a screen of 80 columns as well; the page has all.
    names = [name for name in numbers[0][0] if name != "last" or len(numbers[0][0]) < 10]
    _show_heads(
        console, "numbers of each head for this text", names, numbers, 1 if len(names) < 9 else 0
    )


def _show_heads(
    console: Console, title: str, names: list[str], numbers: list[list[dict[str, float]]], room: int
) -> None:
    """Print a table with a line for each head of each layer; `room` is the space between columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, room, 0, 0))
    for heading in ("layer", "head", *names):
        table.add_column(heading.replace("_", " "), justify="right")
    for layer, heads in enumerate(numbers):
        for head, values in enumerate(heads):
            table.add_row(str(layer), str(head), *(f"{values[name]:.3f}" for name in names))
    console.print(table)


def measure(config: InspectConfig, console: Console | None = None) -> Path:
    """Study a sample of the validation texts, add it to the run's record, and return the path of heads.json.

    Raises:
        RunError, DataError: if the run or its data cannot be read.
    """
    console, run = terminal(console), load_run(Path(str(config.run)))
    device = best_device(config.accelerator)
    run.model.to(device)
    data = data_of(run)
    batches = TextBatches(data.encoded["validation"], data.labels("validation"))
    texts, *more = doubling_samples(
        batches, config.texts, run.config.data.tokens_per_batch, run.config.seed
    )
    # The time left is shown as soon as it can be told, and the line is gone at the end.
    look = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeRemainingColumn())
    with Progress(*look, console=console, transient=True) as progress:
        count = sum(len(batch.labels) for batch in texts)
        watch = partial(
            progress.track,
            task_id=progress.add_task(f"measuring every head on {count} texts", total=None),
        )
        study = causes(
            run.model, texts, special_tokens(run.tokenizer), BINS, run.objective, watch, more
        )
    path = run.folder / HEADS
    save_json(path, _content(study))
    recorded = ", and in the run's record" if _record_study(run, data, study, device) else ""
    _show_study(console, study)
    _say(console, f"kept in:    {escape(str(path))}{recorded}")
    _say(console, f"now look:   [bold]tensorboard --logdir {escape(str(run.folder))}[/], tab Heads")
    return path


def _record_study(run: Run, data: TextDataModule, study: Study, device: torch.device) -> bool:
    """Add the study to the step whose weights were kept; make a record if the run has none, unless it has no probes.

    Returns:
        Whether the record has it now: a step may have been thinned out.
    """
    step = _kept_step(run)
    try:
        index = read_index(run.folder / FOLDER)
        recorder = HeadRecorder(
            run.folder, index.texts, index.classes, index.budget, notes=index.notes
        )
    except RecordError:
        (run.folder / FOLDER / INDEX).unlink(missing_ok=True)
        probes = choose_probes(data, run.config.inspection, run.model, run.objective)
        if not probes:
            return False
        recorder = new_recorder(
            run.folder, probes, run.labels, run.config.inspection, {"dropout": "off"}
        )
        readings = [
            run_probe(run.model, probe, run.labels, device, run.objective) for probe in probes
        ]
        keep_readings(recorder, step, readings, study.numbers)
        write_marker(run.folder)
    probes = [_as_probe(text, run) for text in recorder.index.texts]
    without = [ablate_each_head(run.model, probe, run.objective) for probe in probes]
    return record_study(recorder, step, study, without)


def _as_probe(text: Text, run: Run) -> Probe:
    """Return a recorded text as it was encoded."""
    texts = tuple(text.text.split(JOIN)) if text.segments is not None else (text.text,)
    return make_probe(
        run.tokenizer, texts, text.label, len(text.tokens), run.evidence, text.readout
    )


def _kept_step(run: Run) -> int:
    """Return the step whose weights were kept; the last one known where a run was stopped or is an older one."""
    for fact in ("kept step", "steps"):
        if (step := read_metric(run.folder, fact)) is not None:
            return int(step)
    try:
        return read_index(run.folder / FOLDER).steps[-1].step
    except (RecordError, IndexError):
        return 0


def _content(study: Study) -> dict[str, object]:
    """Return everything in names and numbers: layer -> head -> measure -> [mean, standard error]."""
    heads = {
        f"layer {number}": [
            {name: [means[head], errors[head]] for name, (means, errors) in measures.items()}
            for head in range(len(measures["entropy"][0]))
        ]
        for number, measures in enumerate(study.numbers.values())
    }
    choosers = None if study.faithfulness is None else study.faithfulness.choosers
    return {
        "answer": answer(study.verdicts),
        "texts": study.texts,
        "heads": heads,
        "choosers": choosers,
        "likeness": {
            "heads": [f"{layer} {head}" for layer, head in study.likeness.heads],
            "divergence": study.likeness.divergence.tolist(),
        },
    }


def _show_answer(console: Console, study: Study) -> None:
    """Print which heads matter and what they do, the most important first; of many heads the first of them."""
    _say(console, answer(study.verdicts))
    layers = list(study.numbers)
    order = sorted(study.verdicts, key=lambda head: -abs(study.verdicts[head].rise))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("layer", "head", "loss without it", "error", "texts"):
        table.add_column(heading, justify="right")
    for heading in ("", "role"):
        table.add_column(heading)
    for layer, head in order[:MOST_HEADS]:
        found = study.verdicts[layer, head]
        means = {name: mean[head] for name, (mean, _) in study.numbers[layer].items()}
        name, score = role(means)
        cells = (
            f"{found.rise:+.4f}",
            f"{found.error:.4f}",
            str(found.texts),
            EFFECT_LABELS[found.verdict],
        )
        table.add_row(str(layers.index(layer)), str(head), *cells, f"{name} {score:.2f}")
    console.print(table)
    if len(order) > MOST_HEADS:
        _say(console, f"{len(order) - MOST_HEADS} more heads: in heads.json and in the Heads tab")


def _show_study(console: Console, study: Study) -> None:
    _show_answer(console, study)
    numbers = [
        [
            {name: mean[head] for name, (mean, *_) in measures.items()}
            for head in range(len(measures["entropy"][0]))
        ]
        for measures in study.numbers.values()
    ]
    for title, names in SHOWN.items():
        known = [name for name in names if name in numbers[0][0]]
        room = 0 if "crossing" in known else 1  # pairs have one column more
        _show_heads(
            console,
            f"every head, over {study.texts} validation texts: {title}",
            known,
            numbers,
            room,
        )
    if study.faithfulness is not None:
        choosers = study.faithfulness.choosers.items()
        found = ", ".join(
            f"{name} {measures['comprehensiveness'][0]:.3f}" for name, measures in choosers
        )
        console.print(
            "comprehensiveness: how far the predicted class's probability falls without the tokens pointed at\n"
            f"of other choosers of tokens: {found}", highlight=False,
        )  # fmt: skip
