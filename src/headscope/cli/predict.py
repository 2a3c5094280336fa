"""predict(config): labels and probabilities for the texts of a file of any size, in its order.

Rows are taken a few thousand at a time. Their texts are sorted by length among themselves, which
saves most of the padding, and while the network reads them, another thread tokenizes the next.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, pairwise

import torch
from rich.console import Console
from torch import Tensor

from headscope.data.batching import EncodedTexts, encode_texts
from headscope.data.rows import Row, as_text, is_blank, no_column, read_rows
from headscope.ground.errors import ConfigError, DataError, RunError, shown
from headscope.ground.tables import write_rows
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.model.objective import ONE_CLASS, Objective
from headscope.runs.abstaining import chosen_confidence, reasons_to_abstain
from headscope.runs.prediction import best_device, probabilities
from headscope.runs.run import TOKENS_PER_BATCH, Run, load_run
from headscope.settings.commands import PredictConfig

# With batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more.
ROWS_AT_ONCE = 4096
REASONS = "reasons"  # columns
ABSTAINED = "abstained"
WORDS_OF_REASON = 5
Texts = tuple[str, ...]  # of a row, one text or a pair
Window = list[tuple[Row, Texts]]


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the prediction and each class's probability; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are
    joined as in the data. Columns of the input that have these names are kept as input_prediction
    and so on. With `min_confidence` or `target_accuracy` the prediction is empty where the column
    `abstained` has a reason: confidence, or unfamiliar. With `reasons`, a column has the words that
    add most to the log-odds of the prediction against the runner-up: `Run.explain`.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left.
    """
    run = load_run(config.run)
    least = _least_confidence(config, run)
    data = run.config.data
    columns = {"text_column": config.text_column or data.text_column}
    if data.text_pair_column:
        columns["text_pair_column"] = config.text_pair_column or data.text_pair_column
    console = terminal(Console(stderr=True))
    is_typed = config.input == "-" and sys.stdin is not None and sys.stdin.isatty()
    if is_typed:  # it would seem to hang
        show_line(console, "reading standard input until Ctrl-D; for a file: input=...")
    counts: Counter[str] = Counter()
    added = added_columns(run.labels) + [ABSTAINED] * (least is not None)
    added += [REASONS] * config.reasons
    with Bar(console, "labelling texts", is_hidden=is_typed) as bar:
        windows = encoded(run, _rows(config, columns, counts))
        answers = chain.from_iterable(
            _answers(config, run, *window, least, counts, bar) for window in windows
        )
        write_rows(config.output, answers, [*columns.values(), *added])
    _print_notes(console, config, counts, least)
    return counts["rows"]


def _rows(
    config: PredictConfig, columns: Mapping[str, str], counts: Counter[str]
) -> Iterator[tuple[Row, Texts]]:
    """Yield each row of the input with its text or pair of texts."""
    source = (config.input, config.format, columns["text_column"])
    for row in read_rows(*source, config.encoding, config.separator, keys=""):
        where = f"{config.input}, row {counts['rows']}"
        texts = []
        for key, column in columns.items():
            if column not in row:
                raise DataError(f"{where}: {no_column(column, key, list(row), keys='')}")
            text = as_text(row[column])
            if text is None:
                raise DataError(f"{where}: {column!r} holds {shown(row[column])}, not text")
            texts.append(text)
        counts["rows"] += 1
        counts["empty"] += any(map(is_blank, texts))
        yield row, tuple(texts)


def encoded(run: Run, rows: Iterator[tuple[Row, Texts]]) -> Iterator[tuple[Window, EncodedTexts]]:
    """Yield some thousand rows with their encoded texts; the next are tokenized in the meantime."""

    def encode(window: Window) -> tuple[Window, EncodedTexts]:
        return window, encode_texts(run.tokenizer, [texts for _, texts in window], run.evidence)

    windows = iter(lambda: list(islice(rows, ROWS_AT_ONCE)), [])
    with ThreadPoolExecutor(max_workers=1) as pool:
        futures = (pool.submit(encode, window) for window in windows)
        for now, _ in pairwise(chain(futures, [None])):
            assert now is not None
            yield now.result()


def _answers(
    config: PredictConfig,
    run: Run,
    window: Window,
    texts: EncodedTexts,
    least: float | None,
    counts: Counter[str],
    bar: Bar,
) -> Iterator[Row]:
    """Yield the rows of a window with what the run makes of their texts."""
    device = best_device(config.accelerator)
    shares = probabilities(
        run.model,
        texts,
        config.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, 65536),
        device,
        torch.bfloat16 if config.precision == "bf16-mixed" else torch.float32,
        run.objective,
        run.temperature,
    )
    if not shares.isfinite().all():
        raise RunError(f"run={run.folder}: its weights are damaged: probabilities are NaN")
    is_unfamiliar = run.is_unfamiliar(texts)
    counts["unfamiliar"] += int(is_unfamiliar.sum())
    more: dict[str, Sequence[str]] = {}
    if least is not None:
        confidence = shares.max(dim=-1).values.numpy()
        more[ABSTAINED] = reasons_to_abstain(confidence, is_unfamiliar, least)
        counts["abstained"] += sum(map(bool, more[ABSTAINED]))
    if config.reasons:
        pairs = zip(window, shares, strict=True)
        more[REASONS] = [_reason(run, texts, each) for (_, texts), each in pairs]
    join = run.config.data.label_separator.join if config.output.endswith(".csv") else None
    rows = [row for row, _ in window]
    yield from labelled(rows, shares, run.labels, run.objective, join, more)
    counts["done"] += len(rows)
    bar.update(counts["done"], name=f"{counts['done']} texts labelled")


def _reason(run: Run, texts: Texts, shares: Tensor) -> str:
    """Return the words that add most to the likeliest class of a text, such as `good +1.2`."""
    text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    likeliest = run.labels[int(shares.argmax())]
    return run.explain(text, likeliest).word_line(WORDS_OF_REASON)


def _print_notes(
    console: Console, config: PredictConfig, counts: Counter[str], least: float | None
) -> None:
    """Print what the reader of the answers should know."""
    rows = counts["rows"]
    if empty := counts["empty"]:
        note = f"note: {empty} of {rows} texts are empty; they get the prediction for no text"
        show_line(console, note)
    unfamiliar = counts["unfamiliar"]
    if least is not None:
        abstained = f"abstained on {counts['abstained']} of {rows} texts"
        show_line(console, f"{abstained}, {unfamiliar} of them unfamiliar")
    elif unfamiliar:
        remedy = "min_confidence=... or target_accuracy=... leaves them without a label"
        are = "texts are unlike those of training"
        show_line(console, f"note: {unfamiliar} of {rows} {are}; {remedy}")
    if config.output != "-":
        show_line(console, f"texts labelled: {rows}, in {config.output}")
    elif rows == 0:
        show_line(console, "0 texts")


def _least_confidence(config: PredictConfig, run: Run) -> float | None:
    """Return the probability below which a text gets no label; None if all get one."""
    if config.min_confidence is None and config.target_accuracy is None:
        return None
    key = "min_confidence" if config.target_accuracy is None else "target_accuracy"
    if run.config.data.multi_label:
        raise ConfigError(f"{key}: expected a run with one label a text; {run.folder} has several")
    if config.target_accuracy is None:
        return config.min_confidence
    if run.chosen.curve is None:
        raise RunError(f"run={run.folder}: did not finish; give min_confidence=...")
    return chosen_confidence(run.chosen.curve, config.target_accuracy)


def added_columns(labels: list[str]) -> list[str]:
    """Return the names of the columns that every row is given."""
    return ["prediction", *(f"probability_{label}" for label in labels)]


def labelled(
    rows: Iterable[Row],
    shares: Tensor,
    labels: list[str],
    objective: Objective = ONE_CLASS,
    join: Callable[[list[str]], str] | None = None,
    more: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Row]:
    """Yield the rows with prediction, probabilities, rounded to 6 digits, and more columns."""
    names = added_columns(labels)
    more = more or {}
    rounded = shares.double().numpy().round(6).tolist()
    predictions = objective.names(objective.predicted(shares), labels)
    for number, row in enumerate(rows):
        prediction = predictions[number]
        if join is not None and isinstance(prediction, list):
            prediction = join(prediction)
        others = {name: column[number] for name, column in more.items()}
        if others.get(ABSTAINED):
            prediction = ""
        answer = dict(zip(names, [prediction, *rounded[number]], strict=True)) | others
        yield _renamed(row, answer) | answer


def _renamed(row: Row, answer: Row) -> Row:
    """Return the row with another name, input_..., for each column that the answer has too."""

    def free(name: str) -> str:
        while name in answer or name in row:
            name = f"input_{name}"
        return name

    return {free(name) if name in answer else name: value for name, value in row.items()}
