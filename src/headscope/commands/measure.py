"""measure(config): what every head of a finished run does, and what depends on it, over some validation texts."""

import json
from functools import partial
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from headscope.commands.config import InspectConfig
from headscope.data.batching import TextBatches
from headscope.data.datamodule import TextDataModule
from headscope.inspection.faithfulness import BINS
from headscope.inspection.record import FOLDER, INDEX, RecordError, read_index
from headscope.inspection.recorder import HeadRecorder
from headscope.tensorboard.marker import write_marker
from headscope.training.closing import beyond_the_usual
from headscope.training.folder import Run, best_device, load_run
from headscope.training.kept import HEADS, save_json
from headscope.training.probes import choose_probes, read_probe
from headscope.training.recording import keep_readings, new_recorder, numbers_of
from headscope.training.run_data import data_of
from headscope.training.study import Study, causes, sample, special_tokens

# Those that fit on a screen of 80 columns; heads.json and the Heads tab have all.
SHOWN = {
    "what it looks at": (
        "entropy_share",
        "mean_distance",
        "self",
        "previous",
        "next",
        "first",
        "separator",
        "crossing",
    ),
    "what depends on it": (
        "nats",
        "loss_zeroed",
        "accuracy_zeroed",
        "gate_gradient",
        "comprehensiveness",
        "sufficiency",
    ),
}


def measure(config: InspectConfig, console: Console | None = None) -> Path:
    """Study a sample of the validation texts, add it to the run's record, and return the path of heads.json.

    Raises:
        RunError, DataError: if the run or its data cannot be read.
    """
    console = console or Console()
    run = load_run(Path(config.run))
    device = best_device(config.accelerator)
    run.model.to(device)
    data = data_of(run)
    batches = TextBatches(data.encoded["validation"], data.labels("validation"))
    texts = sample(batches, config.texts, run.config.data.tokens_per_batch, run.config.seed)
    with _progress(console) as progress:
        task = progress.add_task(
            f"measuring every head on {sum(len(batch.labels) for batch in texts)} texts", total=None
        )
        watch = partial(progress.track, task_id=task)
        study = causes(run.model, texts, special_tokens(run.tokenizer), BINS, run.objective, watch)
    path = run.folder / HEADS
    save_json(path, _content(study))
    recorded = ", and in the run's record" if _record(run, data, study, device) else ""
    _show(console, study)
    console.print(f"kept in:    {escape(str(path))}{recorded}", highlight=False, soft_wrap=True)
    look = f"now look:   [bold]tensorboard --logdir {escape(str(run.folder))}[/], tab Heads"
    console.print(look, highlight=False, soft_wrap=True)
    return path


def _progress(console: Console) -> Progress:
    """Return a line with the time left, as soon as it can be told; it is gone at the end."""
    look = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeRemainingColumn())
    return Progress(*look, console=console, transient=True)


def _record(run: Run, data: TextDataModule, study: Study, device: torch.device) -> bool:
    """Add the study to the step whose weights were kept; make a record if the run has none, unless it has no probes.

    Returns:
        Whether the record has it now: a step may have been thinned out.
    """
    step = _kept_step(run)
    try:
        index = read_index(run.folder / FOLDER)
        recorder = HeadRecorder(run.folder, index.texts, index.classes, index.budget, notes=index.notes)
    except RecordError:
        (run.folder / FOLDER / INDEX).unlink(missing_ok=True)
        probes = choose_probes(data, run.config.inspection, run.objective)
        if not probes:
            return False
        recorder = new_recorder(run.folder, probes, run.labels, run.config.inspection, {"dropout": "off"})
        readings = [read_probe(run.model, probe, run.labels, device, run.objective) for probe in probes]
        keep_readings(recorder, step, readings, study.numbers)
        write_marker(run.folder)
    recorder.index.notes["causes"] = f"measured at step {step}, whose weights were kept, on {study.texts} texts"
    return recorder.amend(step, numbers_of(beyond_the_usual(study)), study.extra())


def _kept_step(run: Run) -> int:
    """Return the step whose weights were kept; the last one known where a run was stopped or is an older one."""
    path = run.folder / "metrics.json"
    if path.exists():
        training = json.loads(path.read_text(encoding="utf-8"))["training"]
        return int(training.get("kept step", training["steps"]))
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
        "texts": study.texts,
        "heads": heads,
        "choosers": choosers,
        "likeness": {
            "heads": [f"{layer} {head}" for layer, head in study.likeness.heads],
            "divergence": study.likeness.divergence.tolist(),
        },
    }


def _show(console: Console, study: Study) -> None:
    for title, names in SHOWN.items():
        known = [name for name in names if name in next(iter(study.numbers.values()))]
        room = 0 if "crossing" in known else 1  # pairs have one column more
        table = Table(title=f"every head, over {study.texts} validation texts: {title}", title_justify="left",
                      box=box.SIMPLE_HEAD, padding=(0, room, 0, 0))  # fmt: skip
        for heading in ("layer", "head", *known):
            table.add_column(heading.replace("_", " "), justify="right")
        for layer, measures in enumerate(study.numbers.values()):
            for head in range(len(measures["entropy"][0])):
                table.add_row(str(layer), str(head), *(f"{measures[name][0][head]:.3f}" for name in known))
        console.print(table)
    if study.faithfulness is not None:
        found = ", ".join(
            f"{name} {measures['comprehensiveness'][0]:.3f}" for name, measures in study.faithfulness.choosers.items()
        )
        console.print(
            "comprehensiveness: how far the predicted class's probability falls without the tokens pointed at\n"
            f"of other choosers of tokens: {found}", highlight=False,
        )  # fmt: skip
