"""predict(config): labels and probabilities for the texts of a file of any size, in its order.

Rows are taken a few thousand at a time. Their texts are sorted by length among themselves, which
saves most of the padding, and while the network reads them, another thread tokenizes the next.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from headscope.data.batching import EncodedTexts, TextBatches, by_length
from headscope.data.rows import is_blank, joined_labels, no_column, read_rows
from headscope.ground.errors import DataError, shown
from headscope.ground.plain_rows import Row, as_text, renamed
from headscope.ground.tables import write_rows
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.heads.contributions import SPLIT_TOKENS
from headscope.record.explanation import places_of, ranked_words, word_line
from headscope.runs.abstaining import BEYOND
from headscope.runs.answering import why_abstained
from headscope.runs.prediction import best_device
from headscope.runs.rules import least_of
from headscope.runs.run import Prediction, Run, load_run
from headscope.settings.commands import PredictConfig

# With batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more.
ROWS_AT_ONCE = 4096
PREDICTION = "prediction"  # columns
REASONS = "reasons"
ABSTAINED = "abstained"
WORDS_OF_REASON = 5
Texts = tuple[str, ...]  # of a row, one text or a pair
Rows = list[tuple[Row, Texts]]
Window = tuple[Rows, EncodedTexts]  # some thousand rows, and their encoded texts


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the prediction and each class's probability; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are
    joined as in the data, or a list in JSON. Columns of the input that have these names are kept as
    input_prediction and so on. By a key of `Abstains` the prediction is empty where the column
    `abstained` has a reason: confidence or unfamiliar. With `reasons`, a column has the words that
    add most to the log-odds of the prediction against the runner-up: `Run.explain`.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left.
    """
    run = load_run(config.run)
    console = terminal(Console(stderr=True))
    least = least_of(config, run)
    if config.target_accuracy is not None:
        show_line(console, f"answers from a confidence of {least:.4f}, chosen on validation")
    columns = columns_of(config, run)
    is_typed = config.input == "-" and sys.stdin is not None and sys.stdin.isatty()
    if is_typed:  # it would seem to hang
        show_line(console, "reading standard input until Ctrl-D; for a file: input=...")
    run.model.to(best_device(config.accelerator))
    counts: Counter[str] = Counter()
    added = [PREDICTION, *map("probability_{}".format, run.labels)]
    added += [ABSTAINED] * (least is not None) + [REASONS] * config.reasons
    total = _number_of_rows(config) if config.reasons else None  # they take long
    with Bar(console, "labelling texts", total, is_hidden=is_typed) as bar:
        windows = encoded(run, read_texts(config, columns, counts))
        answers = chain.from_iterable(
            _answers(config, run, window, least, counts, bar) for window in windows
        )
        names = [*columns.values(), *added]
        write_rows(config.output, answers, names, is_sheet=config.input.endswith(".xlsx"))
    _print_notes(console, config, counts, least is not None)
    return counts["rows"]


def columns_of(config: PredictConfig, run: Run) -> dict[str, str]:
    """Return the columns with texts, by the key that names each."""
    own = run.config.data
    columns = {"text_column": config.text_column or own.text_column}
    if own.text_pair_column:
        columns["text_pair_column"] = config.text_pair_column or own.text_pair_column
    return columns


def read_texts(
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
        if any(map(is_blank, texts)):
            counts["first empty"] = counts["first empty"] if counts["empty"] else counts["rows"]
            counts["empty"] += 1
        counts["rows"] += 1
        yield row, tuple(texts)


def _number_of_rows(config: PredictConfig) -> int | None:
    """Return how many rows the input has; None of what can be read only once."""
    if not Path(config.input).is_file():
        return None
    source = (config.input, config.format, "text", config.encoding, config.separator, "")
    return sum(1 for _ in read_rows(*source))


def encoded(run: Run, rows: Iterator[tuple[Row, Texts]]) -> Iterator[Window]:
    """Yield some thousand rows with their encoded texts; the next are tokenized in the meantime."""

    def encode(some: Rows) -> Window:
        return some, run.encode([texts for _, texts in some])

    parts = iter(lambda: list(islice(rows, ROWS_AT_ONCE)), [])
    with ThreadPoolExecutor(max_workers=1) as pool:
        futures = (pool.submit(encode, part) for part in parts)
        for now, _ in pairwise(chain(futures, [None])):
            assert now is not None
            yield now.result()


def _answers(
    config: PredictConfig,
    run: Run,
    window: Window,
    least: float | None,
    counts: Counter[str],
    bar: Bar,
) -> Iterator[Row]:
    """Yield the rows of a window with what the run makes of their texts."""
    rows, texts = window
    reasons: Iterable[str] = repeat("")
    if config.reasons:  # the pass that explains has the logits, too
        logits, reasons = _explained(run, window, counts["done"], bar)
        predictions = run.answers(logits, texts)
    else:
        is_half = config.precision == "bf16-mixed"
        with torch.autocast(run.device.type, torch.bfloat16, enabled=is_half):
            predictions = run.label(texts, config.tokens_per_batch)
    whys: Iterable[str] = repeat("") if least is None else _whys(predictions, least)
    answers = zip(rows, predictions, reasons, whys, strict=False)
    for (row, _), found, reason, why in answers:
        answer: dict[str, Any] = {PREDICTION: found.labels}
        if not run.config.data.multi_label:
            answer[PREDICTION] = found.label
        elif config.output.endswith(".csv"):
            separator = run.config.data.label_separator
            answer[PREDICTION] = joined_labels(found.labels, run.labels, separator)
        shares = found.probabilities
        answer |= {f"probability_{name}": round(share, 6) for name, share in shares.items()}
        counts["unfamiliar"] += found.is_unfamiliar
        if least is not None:
            answer |= {PREDICTION: "" if why else found.label, ABSTAINED: why}
            counts["abstained"] += bool(why)
        if config.reasons:
            answer[REASONS] = reason
        yield renamed(row, answer) | answer
    counts["done"] += len(rows)
    bar.update(counts["done"], name=f"{counts['done']} texts labelled")


def _whys(predictions: Sequence[Prediction], least: float) -> Iterable[str]:
    """Return why each text gets no label; "" where it gets one."""
    confidence = np.array([max(each.probabilities.values()) for each in predictions])
    is_odd = np.array([each.is_unfamiliar for each in predictions])
    found: Iterable[str] = why_abstained(confidence, is_odd, least)
    return found


def _explained(
    run: Run, window: Window, done: int, bar: Bar
) -> tuple[Float[Tensor, "N C"], list[str]]:
    """Return each text's logits, and the words that add most, as `Run.explain` has them."""
    from headscope.heads.words import split_texts  # here: pandas takes time to import

    rows, texts = window
    lines = [""] * len(rows)
    logits = torch.zeros(len(rows), len(run.labels))
    by_rows = map(TextBatches(texts).__getitem__, by_length(texts.lengths, SPLIT_TOKENS))
    for number, found in enumerate(split_texts(run.model, by_rows, run.reading), start=1):
        logits[found.row] = found.logits
        _, parts = rows[found.row]
        places = places_of(run.words_of(parts))
        words = ranked_words(found.tokens[:, 0], places)[:WORDS_OF_REASON]
        lines[found.row] = word_line(words)
        bar.update(done + number, name=f"{done + number} texts explained")
    return logits, lines


def _print_notes(
    console: Console, config: PredictConfig, counts: Counter[str], abstains: bool
) -> None:
    """Print what the reader of the answers should know."""
    rows = counts["rows"]
    if empty := counts["empty"]:
        first = f"the first in row {counts['first empty']}"
        show_line(console, f"note: {empty} of {rows} texts are empty, {first}, so unfamiliar")
    if abstains:
        show_line(console, f"abstained on {counts['abstained']} of {rows} texts")
    if unfamiliar := counts["unfamiliar"]:
        share = f"{100 * unfamiliar / rows:.1f} %"
        beside = f"{share}; of the validation texts at most {100 * BEYOND:g} %"
        remedy = "; min_confidence=... or target_accuracy=... leaves them without a label"
        line = f"{unfamiliar} of {rows} texts are unlike those of training ({beside})"
        show_line(console, f"note: {line}{'' if abstains else remedy}")
    if config.output != "-":
        show_line(console, f"texts labelled: {rows}, in {config.output}")
    elif rows == 0:
        show_line(console, "0 texts")
