"""The page of a run on which you type a text: what it holds, from the run and from its record."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from headscope.ground.errors import LivePageError, warn
from headscope.heads.capture import headed_layers, readout_position
from headscope.heads.step import make_probe, run_probe
from headscope.pages.head_view import HeadView, head_view, with_page
from headscope.pages.pack import MB, check_supported, live_content, too_large
from headscope.pages.stored import Dtype, Storage, default_dtype
from headscope.record.explanation import layer_titles
from headscope.record.reader import is_of_heads, numbers_of, read_index, read_step
from headscope.record.schema import FOLDER, INDEX, RUN_NOTE, Arrays, PageText, RecordError
from headscope.tab.html import live_page

if TYPE_CHECKING:
    from headscope.runs.run import Run

MOST_MB = 10.0
Kind = Literal["right", "wrong", "unsure"]
# Of a run's record: which heads matter.
KNOWN = {
    "effects",
    "answer",
    "answer/details",
    "sets/heads",
    "sets/enough",
    "sets/size",
    "sets/accuracy",
    "sets/changes",
    "sets/texts",
    "roles",
    "roles/score",
    "numbers/loss_zeroed/mean",
    "numbers/loss_zeroed/error",
}


@dataclass(frozen=True)
class Example:
    """A labelled text that the page offers: `kind` says what the run makes of it."""

    kind: Kind
    label: str
    parts: Sequence[str]


def live_html(
    run: "Run",
    parts: Sequence[str] = (),
    storage: Storage | None = None,
    max_mb: float = MOST_MB,
    examples: Sequence[Example] = (),
    shown: PageText | None = None,
    report: Mapping[str, Any] | None = None,
    record: Arrays | None = None,
) -> str:
    """Return the page of a run, with these texts in its box.

    `storage` is how its weights are stored, by default in 8 bits where they are a checkpoint's.
    `shown` is what the run itself makes of them, for a browser that cannot run the network;
    `report` what the run learned over many texts (pages/report.py); `record` the best step of its
    record, which is read unless given.

    Raises:
        LivePageError: if JavaScript cannot compute what the run computes, or the page is too large.
    """
    check_supported(run)
    storage = storage or Storage(default_dtype(run))
    numbers = numbers_of(recorded_step(run) if record is None else record)
    index = page_index(run)
    name = index["notes"]["run"]
    index["notes"]["weights"] = storage.dtype
    if numbers["measures"]:
        index["notes"]["numbers"] = "of heads: over validation texts, as the run has recorded them"
    title = f"Type a text, see every head decide · run {name}: {sum(index['heads'])} heads"
    if report is not None:
        title = f"Run {name} on {report['size']:,} texts: {report['name']}"
    if "effects" in numbers["extra"]:
        index["best"] = 0
    content = live_page(
        f"{title}, {len(run.labels)} classes",
        index,
        [] if shown is None else [shown],
        numbers=numbers,
        network=live_content(run, storage, max_mb),
        report=report,
        live=_box(run, parts, storage, examples),
    )
    if (size := len(content) / MB) > max_mb:
        raise too_large(size, max_mb)
    return content


def _box(
    run: "Run", parts: Sequence[str], storage: Storage, examples: Sequence[Example]
) -> dict[str, Any]:
    """Return what the text box needs."""
    return {
        "parts": list(parts),
        "pair": run.config.data.text_pair_column is not None,
        "max_length": run.config.data.most_tokens,
        "dtype": storage.dtype,
        "change": storage.change and asdict(storage.change),
        "examples": [asdict(example) for example in examples],
    }


def text_view(
    run: "Run",
    parts: tuple[str, ...],
    max_tokens: int | None = None,
    dtype: Dtype | None = None,
    max_mb: float = MOST_MB,
) -> tuple[HeadView, str]:
    """Return every head on a text, with the page of the run; or why it is of this text alone.

    The text is cut as the run cuts it, and to max_tokens if given.
    """
    readout = readout_position(run.model)
    probe = make_probe(run.tokenizer, parts, None, max_tokens, run.evidence, readout)
    output = run_probe(run.model, probe, run.reading, with_ablations=True)
    record = recorded_step(run)
    effects = {name: array for name, array in record.items() if name in KNOWN}
    notes = {"run": run.folder.resolve().name}
    whole = len(run.read(parts).ids)
    if len(probe.text.tokens) < whole:
        notes["shown"] = (
            f"max_tokens={max_tokens} cuts the text: the run reads {whole} tokens of it"
        )
        return with_page(head_view(output, None, notes, effects)), notes["shown"]
    view = head_view(output, None, notes, effects)
    try:
        storage = Storage(dtype or default_dtype(run))
        page = live_html(run, parts, storage, max_mb, shown=view.text, record=record)
        return replace(view, html=page), ""
    except LivePageError as error:
        return with_page(view), str(error)


def page_index(run: "Run") -> dict[str, Any]:
    """Return what the page lists of a run: its heads, classes, notes, and how sure it may be."""
    layers = headed_layers(run.model)
    heads = [*layers.values()]
    notes = {
        "run": run.folder.resolve().name,
        "model": f"heads of each layer: {', '.join(map(str, heads))}",
    }
    return {
        "layers": layer_titles([*layers]),
        "heads": heads,
        "classes": run.labels,
        "steps": [{"step": 0}],
        "notes": notes,
        "curve": run.chosen.curve,  # how sure: see the prediction
        "most_unknown": run.chosen.most_unknown,
    }


def recorded_step(run: "Run") -> Arrays:
    """Return what the best step of a run's record has of the heads; {} if there is none.

    A record that is there and cannot be read, or is another run's, is a note.
    """
    try:
        index = read_index(run.folder / FOLDER)
        if index.notes.get(RUN_NOTE) != run.setup.identity():
            raise RecordError(f"{INDEX}: is the record of another run")
        for step in index.steps:
            if step.step == index.best:
                return read_step(run.folder / FOLDER / step.file, is_of_heads)
    except RecordError as error:
        if (run.folder / FOLDER).is_dir():
            warn(f"run={run.folder}: heads/{error}; what it has of the heads is left out")
    return {}
