"""`headscope inspect model=...`: which heads matter in any transformers sequence classifier."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from headscope.cli.compare_models import compare, load_classifier, studied
from headscope.data.columns import class_names, numbers, text_rows
from headscope.data.corpus import read_split
from headscope.data.source import load_source
from headscope.ground.errors import ConfigError, listed
from headscope.ground.files import write_free
from headscope.ground.terminal import show_line, terminal
from headscope.heads.integrations.sequence_classifier import (
    SequenceClassifier,
    TextOrPair,
)
from headscope.model.objective import MultiLabel
from headscope.pages.show import head_view, with_page
from headscope.record.schema import JOIN
from headscope.results.console import show_heads
from headscope.runs.prediction import best_device
from headscope.settings.commands import InspectConfig, OtherDataConfig
from headscope.settings.config import DataConfig

FOLDER = Path("outputs/inspect")


def inspect_model(config: InspectConfig, console: Console | None = None) -> Path:
    """Write the page of a text and return its path.

    Labelled texts rank the heads; without a text the first of them is shown.
    """
    assert config.model is not None
    console = terminal(console)
    classifier = load_classifier(config.model, config.max_tokens)
    classifier.to(best_device(config.accelerator))
    if config.classes is not None:
        if len(config.classes) != len(classifier.labels):
            C = len(classifier.labels)
            raise ConfigError(f"classes: expected {C} names, got {listed(config.classes)}")
        classifier.labels = config.classes
    study = None
    texts: list[TextOrPair] = []
    if config.data is not None:
        texts, labels = labelled(config, config.data, classifier)
        study = studied(console, config.model, classifier, texts, labels)
        if config.against is not None:
            compare(console, config, classifier, texts, labels)
    shown = texts[0] if config.text is None else config.text
    if config.text is not None and config.text_pair is not None:
        shown = (config.text, config.text_pair)
    probe = classifier.probe(shown)
    output = classifier.output(probe)
    notes = {"model": config.model} | classifier.notes_on(shown, probe, output)
    name = re.sub(r"[^\w.-]+", "_", Path(config.model).name) or "model"
    stem = f"{name}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    view = with_page(head_view(output, study, notes))
    free = FOLDER / f"{stem}.html"
    path = view.save(config.output) if config.output else write_free(free, view.html)
    show_line(console, f"text: {JOIN.join(shown) if isinstance(shown, tuple) else shown}")
    show_line(console, str(view))
    if "shown" in notes:
        show_line(console, f"read: {notes['shown']}")
    for name, note in output.notes.items():
        show_line(console, f"{name}: {note}")
    if study is not None:
        show_line(console, study.details)
        show_heads(console, study.loss_increases(), page="on the page")
    show_line(console, f"page:       {path}")
    return path


def labelled(
    config: InspectConfig, data: OtherDataConfig, classifier: SequenceClassifier
) -> tuple[list[TextOrPair], list[Any]]:
    """Return a sample of labelled texts, always the same, and the numbers of their classes."""
    has_several = isinstance(classifier.objective, MultiLabel)
    data = replace(data.like(DataConfig()), multi_label=has_several)
    source = load_source(data)
    name = next(iter(source)) if len(source) == 1 else str(data.test_split)
    split = read_split(source, name, data)
    names = _names_in_data(classifier, class_names(source[name], split.labels, data))
    known = split.with_labels(names, data)
    count = min(config.texts, data.limit or config.texts)
    rows = np.sort(np.random.default_rng(0).permutation(len(known))[:count])
    chosen = known.select(rows)
    texts = [text if len(text) == 2 else text[0] for text in text_rows(chosen)]
    return texts, numbers(chosen, "label").astype(float).tolist()  # [1.0, 0.0] has one meaning


def _names_in_data(classifier: SequenceClassifier, given: list[str]) -> list[str]:
    """Return what labelled data call the classes: the model's own names, or numbers from 0 on."""
    own = classifier.labels
    numbers = [str(number) for number in range(len(own))]
    if {*given} <= {*own}:
        return own
    if {*given} <= {*numbers}:
        return numbers
    raise ConfigError(
        f"classes: the data have the labels {listed(given)}, the model the classes {listed(own)}; "
        "give the data's names in the order of the model's: classes=[...]"
    )
