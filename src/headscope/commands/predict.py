"""predict(config): labels and probabilities for the texts of a file of any size, in the file's order.

The file is taken in windows of a few thousand rows. A window's texts are sorted by length among themselves, which
saves most of the padding, and while the network reads one window, another thread cuts the next one into tokens.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from headscope.commands.config import PredictConfig
from headscope.commands.rows import Row, read_rows, row_writer
from headscope.data.batching import TextBatches
from headscope.data.token_ids import EncodedTexts, encode_texts
from headscope.errors import DataError
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Objective
from headscope.training.folder import Run, best_device, load_run
from headscope.training.logits import split_logits

ROWS_AT_ONCE = 4096  # with batches of 2048 positions, 1.5% of them are padding; four times as many rows save 1% more
CHARACTERS_AT_ONCE = 16_000_000  # a window of long texts has fewer rows, so that its memory is bounded too
# On a CPU a hidden layer of 8192 positions no longer fits the cache, and each batch waits for fresh pages.
TOKENS_PER_BATCH = {"cpu": 2048}
# Said at a terminal, where it would otherwise look as if nothing happened.
TYPING = {
    "lines": "reads standard input, one text a line, ended by Ctrl-D (for a file: input=...)",
    "csv": "reads standard input as csv, ended by Ctrl-D (for a file: input=...)",
    "jsonl": "reads standard input, one JSON object a line, ended by Ctrl-D (for a file: input=...)",
}
Texts = list[tuple[str, ...]]  # of each row, one text or a pair


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the columns prediction and one probability for each class; return how many.

    Where a text has any number of labels, prediction is a list of them; in a csv file they are joined as in the data.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left then.
    """
    run = load_run(Path(config.run))
    device = best_device(config.accelerator)
    positions = config.tokens_per_batch or TOKENS_PER_BATCH.get(device.type, 65536)
    precision = torch.bfloat16 if config.precision == "bf16-mixed" else torch.float32
    columns = _columns(config, run)
    join = run.config.data.label_separator.join if Path(config.output).suffix == ".csv" else None

    def label(texts: EncodedTexts) -> Tensor:
        return probabilities(run.model, texts, positions, device, precision, run.objective, run.temperature)

    rows = read_rows(config.input, config.format, columns[0])
    done = 0
    console = Console(stderr=True)
    is_typed = config.input == "-" and sys.stdin.isatty()
    if is_typed:
        console.print(TYPING.get(config.format, TYPING["lines"]), highlight=False, markup=False, soft_wrap=True)
    look = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    with (
        ThreadPoolExecutor(max_workers=1) as pool,
        row_writer(config.output) as write,
        Progress(*look, console=console, disable=is_typed or not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)
        windows = _windows(rows, columns, config.input)
        for window, texts in _ahead(windows, lambda texts: encode_texts(run.tokenizer, texts, run.evidence), pool):
            for row in labelled(window, label(texts), run.labels, run.objective, join):
                write(row)
            done += len(window)
            progress.update(task, completed=done)
    if config.output != "-":
        console.print(f"{done} texts labelled: {config.output}", highlight=False, markup=False, soft_wrap=True)
    elif done == 0:
        console.print("0 texts", highlight=False)
    return done


def _columns(config: PredictConfig, run: Run) -> list[str]:
    data = run.config.data
    pair = config.text_pair_column or data.text_pair_column
    return [config.text_column or data.text_column, *([pair] if data.text_pair_column and pair else [])]


def _texts(row: Row, columns: list[str], source: str, number: int) -> tuple[str, ...]:
    missing = [column for column in columns if not isinstance(row.get(column), str)]
    if missing:
        raise DataError(
            f"{source}, row {number}: no text in column {missing[0]!r}; it has {', '.join(map(str, row))} "
            "(name the column with text_column=...)"
        )
    return tuple(row[column] for column in columns)


def _windows(rows: Iterator[Row], columns: list[str], source: str) -> Iterator[tuple[list[Row], Texts]]:
    """Yield the rows, some thousands at once, each with its text or pair of texts."""
    window: list[Row] = []
    texts: Texts = []
    characters = 0
    for number, row in enumerate(rows, start=1):
        window.append(row)
        texts.append(_texts(row, columns, source, number))
        characters += sum(map(len, texts[-1]))
        if len(window) == ROWS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield window, texts
            window, texts, characters = [], [], 0
    if window:
        yield window, texts


def _ahead(
    windows: Iterator[tuple[list[Row], Texts]], encode: Callable[[Texts], EncodedTexts], pool: ThreadPoolExecutor
) -> Iterator[tuple[list[Row], EncodedTexts]]:
    """Yield each window with its token ids, made by the pool while whoever asks is busy with the window before.

    Only cutting into tokens is left to the other thread, which the tokenizer does without Python's lock. Rows are read
    in this one: a thread that waits for standard input could not be stopped by Ctrl-C.
    """
    before: tuple[list[Row], Future[EncodedTexts]] | None = None
    for window, texts in windows:
        coming = window, pool.submit(encode, texts)
        if before is not None:
            yield before[0], before[1].result()
        before = coming
    if before is not None:
        yield before[0], before[1].result()


def probabilities(
    model: TextClassifier,
    texts: EncodedTexts,
    tokens_per_batch: int,
    device: torch.device,
    precision: torch.dtype = torch.float32,
    objective: Objective = ONE_CLASS,
    temperature: float = 1.0,
) -> Tensor:
    """Return [N, C] probabilities in the order of the texts, computed in batches of like length.

    Logits are divided by the temperature, in float64, so that a text keeps its label.
    """
    batches = TextBatches(texts)
    ordered = (batches[rows] for rows in by_length(texts.lengths, tokens_per_batch))
    logits, _ = split_logits(model, ordered, device, precision)
    return objective.probabilities(logits.double() / temperature)


def by_length(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield lists of rows, the longest texts first, that padded to their longest fill at most tokens_per_batch.

    Training's batches mix texts whose lengths differ by up to 8, so that they differ from epoch to epoch; here nothing
    is drawn, and the padding that this would cost is saved. A text longer than the budget is a batch of its own.
    """
    order: list[int] = np.argsort(-lengths, kind="stable").tolist()
    start = 0
    while start < len(order):
        count = max(1, tokens_per_batch // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count


def labelled(
    rows: list[Row],
    shares: Tensor,
    labels: list[str],
    objective: Objective = ONE_CLASS,
    join: Callable[[list[str]], str] | None = None,
) -> Iterator[Row]:
    """Yield the rows with what each is given and every class's probability, rounded to 6 digits."""
    names = [f"probability_{label}" for label in labels]
    rounded = shares.double().numpy().round(6).tolist()
    answers = objective.names(objective.given(shares), labels)
    for row, answer, values in zip(rows, answers, rounded, strict=True):
        if join is not None and isinstance(answer, list):
            answer = join(answer)
        yield {**row, "prediction": answer, **dict(zip(names, values, strict=True))}
