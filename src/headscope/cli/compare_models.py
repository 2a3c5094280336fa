"""A classifier of transformers, which heads matter in it, and how two differ on the same texts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from rich.console import Console
from torch import Tensor

from headscope.ground.errors import ConfigError, first_line, listed, warn
from headscope.ground.growth import check_growth
from headscope.ground.terminal import Bar, show_line
from headscope.heads.capture import eval_mode, logits_of
from headscope.heads.contributions import explain
from headscope.heads.integrations.sequence_classifier import (
    SequenceClassifier,
    TextOrPair,
    study_texts,
)
from headscope.heads.integrations.transformers_models import NotObservedError
from headscope.heads.study import Study
from headscope.model.checkpoint import find_checkpoint
from headscope.model.objective import MultiLabel
from headscope.model.pretrained import import_transformers
from headscope.model.transformers_files import described, read_tokenizer
from headscope.record.explanation import WORDS_NAMED, signed
from headscope.results.baseline import above, differences
from headscope.results.scores import predicted_classes
from headscope.runs.prediction import best_device
from headscope.settings.commands import InspectConfig

COMPARED = 100  # texts whose words are compared


def load_classifier(path: str, max_tokens: int) -> SequenceClassifier:
    """Load a fine-tuned classifier from a folder or the Hub: safetensors alone, no code.

    Raises:
        ConfigError: if transformers is missing, or this is no trained classifier in safetensors.
    """
    transformers = import_transformers("model")
    folder = find_checkpoint("model", path)  # transformers alone would wait for a network
    try:
        described(folder)  # raises for more weights than the files hold
        model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
        tokenizer = read_tokenizer(folder)
        if backend := getattr(tokenizer, "backend_tokenizer", None):
            check_growth(backend.to_str())
        if random := sorted({*report["missing_keys"], *map(str, report["mismatched_keys"])}):
            raise ValueError(f"it was not fine-tuned: {listed(random)} would be random")
        return SequenceClassifier(model.eval(), tokenizer, max_tokens)
    except Exception as error:  # transformers raises many classes, all for the same reason
        reason = first_line(error)
        raise ConfigError(f"model: expected a sequence classifier, got {path}: {reason}") from error


def compare(
    console: Console,
    config: InspectConfig,
    ours: SequenceClassifier,
    texts: list[TextOrPair],
    labels: list[Any],
) -> None:
    """Print how two classifiers differ on the same texts: accuracy, heads that matter, words.

    A word's difference is the mean, over the texts that have it, of what it adds to the text's
    class in the one model less the other.
    """
    path = str(config.against)
    theirs = load_classifier(path, config.max_tokens)
    theirs.to(best_device(config.accelerator))
    if len(theirs.labels) != len(ours.labels):
        raise ConfigError(
            f"against: expected a classifier with {len(ours.labels)} classes, got {path} with "
            f"{len(theirs.labels)}"
        )
    theirs.labels = ours.labels
    both = (ours, theirs)
    truth = ours.batches(texts, labels)
    rows = torch.cat([batch.rows for batch in truth]).argsort()
    targets = torch.cat([batch.labels for batch in truth])[rows]
    has = ours.objective.has(targets, len(ours.labels))
    answers = [_answers(model, texts, labels) for model in both]
    show_line(console, above(path, differences(answers[0], answers[1], has)))
    study = studied(console, path, theirs, texts, labels)
    if study is not None:
        show_line(console, f"{path}: {study.answer}")
    if not isinstance(ours.objective, MultiLabel):
        words = words_apart(both, texts[:COMPARED], targets[:COMPARED].tolist())
        parts = "; ".join(f"{word} {signed(value)}" for word, value in words)
        show_line(console, f"words that add more here than in {path}: {parts}")


def studied(
    console: Console,
    path: str,
    classifier: SequenceClassifier,
    texts: list[TextOrPair],
    labels: list[Any],
) -> Study | None:
    """Return which heads of a model matter; None, and a line, if they cannot be ablated."""
    with Bar(console, f"measuring every head of {path} on {len(texts)} texts") as bar:
        try:
            return study_texts(classifier, texts, labels, bar.update)
        except NotObservedError as error:
            warn(f"{path}: {error}")
            return None


def _answers(
    model: SequenceClassifier, texts: list[TextOrPair], labels: list[Any]
) -> Bool[Tensor, "N C"]:
    """Return the classes that a model gives each text."""
    batches = model.batches(texts, labels)
    with torch.no_grad(), eval_mode(model):
        logits = torch.cat([logits_of(model, batch).cpu() for batch in batches])
    order = torch.cat([batch.rows for batch in batches]).argsort()
    return predicted_classes(model.objective, logits[order])


def words_apart(
    models: Sequence[SequenceClassifier], texts: list[TextOrPair], labels: list[int]
) -> list[tuple[str, float]]:
    """Return the words whose contributions to the given classes differ most, with the difference.

    Words are those of the text as people read it: the models may have tokenizers of their own.
    """
    differences: dict[str, list[float]] = {}
    for text, label in zip(texts, labels, strict=True):
        sums: dict[str, float] = {}
        for model, sign in zip(models, (1, -1), strict=True):
            probe = model.probe(text)
            name = model.labels[label]
            tokens = probe.text.tokens
            found = explain(model, probe.batch, tokens, model.reading, label=name)
            found = replace(found, spans=probe.text.words)
            for word, value in found.ranked_words():
                sums[word] = sums.get(word, 0.0) + sign * value
        for word, value in sums.items():
            differences.setdefault(word, []).append(value)
    means = {word: sum(values) / len(values) for word, values in differences.items()}
    return sorted(means.items(), key=lambda item: -abs(item[1]))[:WORDS_NAMED]
