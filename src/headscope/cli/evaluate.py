"""evaluate(config): score a finished run, on its own splits or on other data."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datasets import Dataset
from rich.console import Console

from headscope.command_settings import EvaluateConfig
from headscope.config import absolute
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.columns import numbers
from headscope.data.corpus import Corpus, digests_of_split, load_corpus, load_split
from headscope.data.datamodule import TextDataModule, encode
from headscope.errors import ConfigError, DataError, RunError, listed, warn
from headscope.files import cache_folder, content_key
from headscope.prediction import best_device, split_logits
from headscope.run import Run, load_run
from headscope.run_folder import save_json
from headscope.terminal import Bar, show_line, terminal
from headscope.training.console import show_confusion, show_scores
from headscope.training.resume import changed_splits
from headscope.training.scores import Calibration, Scores, scores
from headscope.validation import check


def evaluate(config: EvaluateConfig, console: Console | None = None) -> Scores:
    """Print the scores and keep them in the run folder as evaluations/<data>-<split>.json.

    Those of a whole file are evaluations/<file>.json. Where that folder cannot be written, a
    warning says that they are not kept.
    """
    console = terminal(console)
    run = load_run(config.run)
    with Bar(console, "reading texts"):
        dataset, split = _texts(config, run)
    if len(dataset) == 0:
        raise DataError(f"split {split} has no texts")
    data = config.data or run.config.data
    cache = cache_folder(data.cache_dir)
    with Bar(console, "scoring"):
        encoded = encode(run.tokenizer, dataset, cache, with_words=run.evidence is not None)
        if encoded.words is not None and run.evidence is not None:
            encoded = replace(encoded, evidence=run.evidence.find(encoded.words))
        sampler = TokenBudgetSampler(encoded.lengths, run.config.data.tokens_per_batch)
        batches = BatchLoader(TextBatches(encoded, numbers(dataset, "label")), sampler)
        logits, targets = split_logits(run.model, batches, best_device(config.accelerator))
    found = scores(logits, targets, run.objective)
    shown = {str(run.folder): found}
    calibration = None
    if not run.config.data.multi_label:
        calibration = Calibration(run.temperature, {}).with_split(split, logits, targets)
        shown |= calibration.row(split)
    is_file = config.data is not None and config.split is None and Path(data.path).is_file()
    name = Path(data.path).stem + ("" if is_file else f"-{split}")  # all of a file is no split
    learned_splits = ("train", "validation") if run.config.data.train_on_validation else ("train",)
    is_learned = config.data is None and split in learned_splits
    learned = ", which it was trained on" if is_learned else ""
    show_scores(console, f"{name}, {len(dataset)} texts{learned}", shown)
    show_confusion(console, run.labels, found)
    content = {
        "path": absolute(data.path),
        "split": split,
        "step": run.chosen.step,
        "texts": len(dataset),
        "labels": run.labels,
        **found.content(run.labels),
        "calibration": calibration.content() if calibration else None,
    }
    kept = _free_name(run.folder / "evaluations" / f"{name}.json", content["path"])
    try:
        save_json(kept, content)
    except OSError as error:
        warn(f"these scores are not kept: {error}")
    else:
        show_line(console, f"kept in {kept}")
    return found


def _free_name(path: Path, data: str) -> Path:
    """Return another path where this one has the scores of other data of the same name."""
    try:
        is_own = not path.is_file() or json.loads(path.read_bytes())["path"] == data
    except (ValueError, TypeError, KeyError):  # a damaged file
        is_own = False
    return path if is_own else path.with_stem(f"{path.stem}-{content_key([data])[:6]}")


def _texts(config: EvaluateConfig, run: Run) -> tuple[Dataset, str]:
    """Return the texts, and the name of their split. Other data have the columns of the run's."""
    own = run.config.data
    data = config.data
    if data is None:
        _check_there(run)
        split = config.split or "test"
        corpus = load_corpus(own)
        _check_own(corpus, run, [split])
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
    """Return the splits that a run was trained and tested on, with its tokenizer and n-grams.

    Raises:
        DataError: if the data are gone.
        RunError: if they are others now.
    """
    _check_there(run)
    config = run.config
    data = TextDataModule(
        config.data, config.tokenizer, config.seed, run.tokenizer, run.evidence or False
    )
    _check_own(data.corpus, run, [*data.corpus.splits])
    if run.config.final is not None:
        warn(f"run={run.folder}: was trained on its validation texts too; see run={config.final}")
    return data


def own_corpus(run: Run) -> Corpus:
    """Return the texts that a run was trained and tested on; errors as in `data_of`."""
    _check_there(run)
    corpus = load_corpus(run.config.data)
    _check_own(corpus, run, [*corpus.splits])
    return corpus


def _check_there(run: Run) -> None:
    """Raise a DataError if a file that the run was trained on is not where it was."""
    data = run.config.data
    for path in (data.path, data.validation_path, data.test_path, data.drop_rows):
        if path and Path(path).is_absolute() and not Path(path).exists():
            raise DataError(
                f"{path}: is gone, which run={run.folder} was trained on; if it has moved, tell "
                f"the run: headscope train resume={run.folder} data.path=..."
            )


def _check_own(corpus: Corpus, run: Run, roles: Sequence[str]) -> None:
    """Raise a RunError if a run's own data have other labels now, or these splits other texts.

    What the model learned may be in its test split now.
    """
    path = run.config.data.path
    if corpus.labels != run.labels:
        raise RunError(
            f"run={run.folder}: was trained on the labels {listed(run.labels)}, and {path} now has "
            f"{listed(corpus.labels)}; give it the data that it had"
        )
    digests = {role: digests_of_split(corpus.splits[role]) for role in roles}
    if changed := changed_splits(run.setup.digests, digests):
        raise RunError(
            f"run={run.folder}: {path} has changed: {'; '.join(changed)}, so the model "
            "may have learned these texts; give it the data that it had, or score a file of other "
            "texts: data.path=..."
        )
