"""evaluate(config): score a finished run, on its own splits or on other data."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datasets import Dataset
from rich.console import Console

from headscope.config import absolute
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.columns import numbers
from headscope.data.corpus import Corpus, digests_of_split, load_corpus, load_split
from headscope.data.datamodule import TextDataModule, encode
from headscope.errors import (
    ConfigError,
    DataError,
    RunError,
    UserWarningMessage,
    listed,
    os_message,
)
from headscope.files import cache_folder, content_key
from headscope.options import EvaluateConfig
from headscope.run import Run, best_device, load_run, read_metric, save_json, split_logits
from headscope.settings import check
from headscope.terminal import terminal
from headscope.training.console import show_confusion, show_scores
from headscope.training.resume import changed_splits
from headscope.training.scores import Calibration, Scores, scores


def evaluate(config: EvaluateConfig, console: Console | None = None) -> Scores:
    """Print the scores and keep them in the run folder as evaluations/<data>-<split>.json.

    Where that folder cannot be written, such as one that others share, a note says that they are not kept.
    """
    console, run = terminal(console), load_run(Path(config.run))
    dataset, split = _texts(config, run)
    if len(dataset) == 0:
        raise DataError(f"split {split} has no texts")
    data = config.data or run.config.data
    encoded = encode(
        run.tokenizer, dataset, cache_folder(data.cache_dir), with_words=run.evidence is not None
    )
    if encoded.words is not None and run.evidence is not None:
        encoded = replace(encoded, evidence=run.evidence.find(encoded.words))
    sampler = TokenBudgetSampler(encoded.lengths, run.config.data.tokens_per_batch)
    batches = BatchLoader(TextBatches(encoded, numbers(dataset, "label")), sampler)
    logits, targets = split_logits(run.model, batches, best_device(config.accelerator))
    found, calibration = scores(logits, targets, run.objective), None
    if not run.config.data.multi_label:
        calibration = Calibration(run.temperature, {}).with_split(split, logits, targets)
    name = f"{Path(data.path).stem}-{split}"
    tempered = calibration.row(split) if calibration else {}
    learned = ", which it was trained on" if config.data is None and split == "train" else ""
    show_scores(
        console, f"{name}, {len(dataset)} texts{learned}", {str(run.folder): found, **tempered}
    )
    show_confusion(console, run.labels, found)
    kept, path = run.folder / "evaluations" / f"{name}.json", absolute(data.path)
    if kept.is_file() and not _is_of(kept, path):  # of the same name
        kept = kept.with_name(f"{name}-{content_key([path])[:6]}.json")
    step = read_metric(run.folder, "kept step")
    facts = {
        "path": path,
        "split": split,
        "step": step,
        "texts": len(dataset),
        "labels": run.labels,
    }
    with_temperature = calibration.content() if calibration else None
    try:
        save_json(kept, {**facts, **found.content(run.labels), "calibration": with_temperature})
    except OSError as error:
        warnings.warn(
            UserWarningMessage(f"these scores are not kept: {os_message(error)}"), stacklevel=2
        )
    else:
        console.print(f"kept in {kept}", highlight=False, markup=False, soft_wrap=True)
    return found


def _is_of(kept: Path, path: str) -> bool:
    """Tell whether kept scores are of these data; those of a damaged file are of no data."""
    try:
        return bool(json.loads(kept.read_text(encoding="utf-8"))["path"] == path)
    except (ValueError, TypeError, KeyError):
        return False


def _texts(config: EvaluateConfig, run: Run) -> tuple[Dataset, str]:
    """Return the texts, and the name of their split. Other data are like the run's own, unless told otherwise."""
    own, data = run.config.data, config.data
    if data is None:
        _check_there(run)
        split, corpus = config.split or "test", load_corpus(own)
        check_own(corpus, run, [split])
        return corpus.splits[split], split
    trained = f"{run.folder} was trained on"
    if data.multi_label and not own.multi_label:
        raise ConfigError(f"data.multi_label: {trained} texts of one label each; leave it out")
    if data.text_pair_column and not own.text_pair_column:
        raise ConfigError(f"data.text_pair_column: {trained} single texts; leave it out")
    data = data.like(own)
    check(replace(config, data=data))
    return load_split(data, config.split, run.labels)


def data_of(run: Run) -> TextDataModule:
    """Return the splits that a run was trained, chosen and tested on, with its tokenizer and n-grams.

    Raises:
        DataError: if the data are gone.
        RunError: if they are others now.
    """
    _check_there(run)
    config = run.config
    data = TextDataModule(
        config.data, config.tokenizer, config.seed, run.tokenizer, run.evidence or False
    )
    check_own(data.corpus, run, [*data.corpus.splits])
    return data


def _check_there(run: Run) -> None:
    """Raise a DataError if a file that the run was trained on is not where it was."""
    for path in (run.config.data.path, run.config.data.validation_path, run.config.data.test_path):
        if path and Path(path).is_absolute() and not Path(path).exists():
            raise DataError(
                f"{path}: is gone, which run={run.folder} was trained on; if it has moved, tell the run: "
                f"headscope train resume={run.folder} data.path=..."
            )


def check_own(corpus: Corpus, run: Run, roles: Sequence[str]) -> None:
    """Raise a RunError if a run's own data are others now: of other labels, or with other texts in these splits.

    What the model learned may be in its test split now.
    """
    path = run.config.data.path
    if corpus.labels != run.labels:
        raise RunError(
            f"run={run.folder}: was trained on the labels {listed(run.labels)}, and {path} now has "
            f"{listed(corpus.labels)}; give it the data that it had"
        )
    if changed := changed_splits(
        run.folder, {role: digests_of_split(corpus.splits[role]) for role in roles}
    ):
        raise RunError(
            f"run={run.folder}: {path} has changed: {'; '.join(changed)}, so the model may have learned these texts; "
            "give it the data that it had, or score a file of other texts: data.path=..."
        )
