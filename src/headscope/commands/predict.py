"""predict(config): labels and probabilities for the texts of a file of any size, in the file's order."""

from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer
from torch import Tensor

from headscope.commands.config import PredictConfig
from headscope.commands.rows import Row, read_rows, row_writer
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.token_ids import joined
from headscope.errors import DataError
from headscope.model.classifier import TextClassifier
from headscope.training.folder import Run, best_device, load_run
from headscope.training.logits import split_logits

ROWS_AT_ONCE = 4096  # sorted by length among themselves, which saves most of the padding


def predict(config: PredictConfig) -> int:
    """Write the input's rows with the columns prediction and one probability for each class; return how many.

    Raises:
        DataError: if the input cannot be read or lacks the column with the text; no output is left then.
    """
    run = load_run(Path(config.run))
    device = best_device(config.accelerator)
    run.model.to(device)
    columns = _columns(config, run)
    rows = read_rows(config.input, config.format, columns[0])
    done = 0
    console = Console(stderr=True)
    look = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    with (
        row_writer(config.output) as write,
        Progress(*look, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=None)
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            texts = [_texts(row, columns, config.input, done + number) for number, row in enumerate(chunk, start=1)]
            probabilities = chunk_probabilities(run.model, run.tokenizer, texts, config.tokens_per_batch, device)
            for row, shares in zip(chunk, probabilities.tolist(), strict=True):
                write(labelled(row, shares, run.labels))
            done += len(chunk)
            progress.update(task, completed=done)
    if config.output != "-":
        console.print(f"{done} texts labelled: {config.output}", highlight=False, markup=False, soft_wrap=True)
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


def labelled(row: Row, probabilities: list[float], labels: list[str]) -> Row:
    """Return the row with the likeliest class and every class's probability, rounded to 6 digits."""
    best = max(range(len(labels)), key=probabilities.__getitem__)
    shares = {f"probability_{label}": round(share, 6) for label, share in zip(labels, probabilities, strict=True)}
    return {**row, "prediction": labels[best], **shares}


def chunk_probabilities(
    model: TextClassifier,
    tokenizer: Tokenizer,
    texts: list[tuple[str, ...]],
    tokens_per_batch: int,
    device: torch.device,
) -> Tensor:
    """Return [N, C] probabilities in the order of the texts, computed in batches of like length."""
    encodings = tokenizer.encode_batch_fast([text[0] if len(text) == 1 else text for text in texts])
    encoded = joined(encodings, pairs=len(texts[0]) == 2)
    batches = BatchLoader(TextBatches(encoded), TokenBudgetSampler(encoded.lengths, tokens_per_batch))
    logits, _ = split_logits(model, batches, device)
    return logits.softmax(dim=-1)
