"""evaluate(config): score a finished run, on its own splits or on other data."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from datasets import Dataset
from rich.console import Console
from torch import Tensor

from headscope.config import DataConfig, EvaluateConfig
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.data.columns import numbers
from headscope.data.corpus import Corpus, load_corpus, load_split
from headscope.data.datamodule import TextDataModule
from headscope.data.encoded import encode
from headscope.errors import ConfigError, DataError, RunError, listed
from headscope.files import cache_folder, content_key
from headscope.training.folder import Run, best_device, facts_of_data, load_run, save_json, training_fact
from headscope.training.predict import split_logits
from headscope.training.scores import Calibration, Scores, scores
from headscope.training.screen import show_confusion, show_scores


def evaluate(config: EvaluateConfig, console: Console | None = None) -> Scores:
    """Print the scores and keep them in the run folder as evaluations/<data>-<split>.json."""
    console = console or Console()
    run = load_run(Path(config.run))
    dataset, split = _texts(config, run)
    if len(dataset) == 0:
        raise DataError(f"split {split} has no texts")
    data = config.data or run.config.data
    logits, targets = split_logits(
        run.model,
        _batches(run, dataset, data.cache_dir, run.config.data.tokens_per_batch),
        best_device(config.accelerator),
    )
    found = scores(logits, targets, run.objective)
    calibration = _calibration(run, split, logits, targets)
    name = f"{Path(data.path).stem}-{split}"
    kept = _place(run.folder / "evaluations", name, data.path)
    step = training_fact(run.folder, "kept step")
    facts = {"path": data.path, "split": split, "step": step, "texts": len(dataset), "labels": run.labels}
    save_json(kept, {**facts, **asdict(found), "calibration": calibration.content() if calibration else None})
    tempered = calibration.row(split) if calibration else {}
    learned = ", which it was trained on" if config.data is None and split == "train" else ""
    show_scores(console, f"{name}, {len(dataset)} texts{learned}", {str(run.folder): found, **tempered})
    show_confusion(console, run.labels, found)
    console.print(f"kept in {kept}", highlight=False, soft_wrap=True)
    return found


def _place(folder: Path, name: str, data_path: str) -> Path:
    """Return where scores are kept: under another name where those of other data of the same name are."""
    path = folder / f"{name}.json"
    if path.is_file() and json.loads(path.read_text(encoding="utf-8"))["path"] != data_path:
        return folder / f"{name}-{content_key([data_path])[:6]}.json"
    return path


def _calibration(run: Run, split: str, logits: Tensor, targets: Tensor) -> Calibration | None:
    """Return what the run's temperature does to the split; None where a text has any number of labels."""
    if run.config.data.multi_label:
        return None
    return Calibration(run.temperature, {}).with_split(split, logits, targets)


def _texts(config: EvaluateConfig, run: Run) -> tuple[Dataset, str]:
    """Return the texts, and the name of their split. Other data has as many labels a text as the run was trained on."""
    multi_label = run.config.data.multi_label
    if config.data is not None:
        if config.data.multi_label and not multi_label:
            raise ConfigError(f"data.multi_label: {run.folder} was trained on texts of one label each; leave it out")
        _check_columns(config.data, run)
        return load_split(replace(config.data, multi_label=multi_label), config.split, run.labels)
    split, corpus = config.split or "test", load_corpus(run.config.data)
    check_own(corpus, run)
    return corpus.splits[split], split


def _check_columns(data: DataConfig, run: Run) -> None:
    """Refuse pairs where the model was trained on single texts, and the other way around."""
    pairs = run.config.data.text_pair_column
    if pairs and not data.text_pair_column:
        raise ConfigError(
            f"data.text_pair_column: {run.folder} was trained on pairs of texts; name the column with the second"
        )
    if data.text_pair_column and not pairs:
        raise ConfigError(f"data.text_pair_column: {run.folder} was trained on single texts; leave it out")


def _batches(run: Run, dataset: Dataset, cache_dir: str | None, tokens_per_batch: int) -> BatchLoader:
    encoded = encode(run.tokenizer, dataset, cache_folder(cache_dir), with_words=run.evidence is not None)
    if encoded.words is not None and run.evidence is not None:
        encoded = replace(encoded, evidence=run.evidence.find(encoded.words))
    sampler = TokenBudgetSampler(encoded.lengths, tokens_per_batch)
    return BatchLoader(TextBatches(encoded, numbers(dataset, "label")), sampler)


def data_of(run: Run) -> TextDataModule:
    """Return the splits that a run was trained, chosen and tested on, with its tokenizer and n-grams.

    Raises:
        DataError: if the data are gone.
        RunError: if they have other labels now.
    """
    config = run.config
    data = TextDataModule(config.data, config.tokenizer, config.seed, run.tokenizer, run.evidence or False)
    check_own(data.corpus, run)
    return data


def check_own(corpus: Corpus, run: Run) -> None:
    """Raise a RunError if a run's own data are others now: of other labels, or cut into splits of other sizes.

    A cut of other texts is another cut: what the model learned may be in its test split now.
    """
    if corpus.labels != run.labels:
        raise RunError(
            f"run={run.folder}: was trained on the labels {listed(run.labels)}, and {run.config.data.path} now has "
            f"{listed(corpus.labels)}; give it the data that it had"
        )
    facts = facts_of_data(run.folder)
    was, now = facts.get("sizes"), {role: len(split) for role, split in corpus.splits.items()}
    if was is not None and was != now and any(name.endswith("cut from train") for name in facts):
        raise RunError(
            f"run={run.folder}: {run.config.data.path} has changed: its splits had {_sizes(was)}, and would now be "
            f"{_sizes(now)}, with texts among the test that the model may have learned; give it the data that it had, "
            "or score a file of other texts: data.path=..."
        )


def _sizes(splits: Mapping[str, int]) -> str:
    return ", ".join(f"{role} {size}" for role, size in splits.items())
