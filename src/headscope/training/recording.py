"""What a run records of its heads during training: which texts are shown, and the callback."""

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from torch import nn

from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import RunError
from headscope.heads.capture import readout_position
from headscope.heads.lightning_callback import HeadLogger
from headscope.heads.step import Probe, make_probe
from headscope.heads.study import special_tokens
from headscope.model.objective import Objective
from headscope.record.schema import RUN_NOTE, RecordError, label_text
from headscope.record.writer import HeadRecorder
from headscope.runs.setup import Setup
from headscope.runs.texts import texts_and_labels
from headscope.settings.config import InspectionConfig
from headscope.training.module import ClassifierModule, chosen_precision


def build_head_logger(
    setup: Setup, folder: Path, data: TextDataModule, module: ClassifierModule
) -> HeadLogger:
    """Return the callback that records probe texts and measures during training."""
    config = setup.config
    labels = data.corpus.labels
    probes = choose_probes(data, config.inspection, module.model, module.objective)
    # Maps are made outside of Lightning's context for mixed precision, in the weights' own type.
    notes = {
        "precision": "32-true",
        "dropout": "off",
        "trained in": chosen_precision(config),
        RUN_NOTE: setup.identity(),
    }
    texts = [replace(probe.text, name=f"probe_{place}") for place, probe in enumerate(probes)]
    try:  # it continues the record of a resumed run
        recorder = HeadRecorder(folder, texts, labels, notes)
    except RecordError as error:
        raise RunError(
            f"resume={folder}: heads/{error}; move the folder heads away, or remove it"
        ) from error

    special = special_tokens(data.tokenizer)
    return HeadLogger(probes, special, module.objective, config.inspection, recorder)


def choose_probes(
    data: TextDataModule, config: InspectionConfig, model: nn.Module, objective: Objective
) -> list[Probe]:
    """Return the configured texts, or long validation texts that fit, the classes in turn."""
    readout = readout_position(model)

    def probe(texts: tuple[str, ...], label: str | None, max_tokens: int | None = None) -> Probe:
        return make_probe(data.tokenizer, texts, label, max_tokens, data.evidence, readout)

    if config.probes:  # as long as the model reads them
        return [probe((text,), None) for text in config.probes]
    split = data.corpus.splits["validation"]
    labels = data.labels("validation")
    lengths = data.encoded["validation"].lengths
    # The longest that fit come first; where none fits, the shortest, which are then cut.
    is_too_long = lengths > config.max_tokens
    order = np.lexsort([np.abs(lengths - config.max_tokens), is_too_long])
    rows = _classes_in_turn(order, labels)[: config.num_probes]
    chosen = texts_and_labels(split.select(rows), objective, data.corpus.labels)
    return [
        probe(text, label_text(name), config.max_tokens) for text, name in zip(*chosen, strict=True)
    ]


def _classes_in_turn(rows: np.ndarray, labels: np.ndarray) -> list[int]:
    """Return each class's first row before any class's second; rows without a class last."""
    members = labels.astype(bool)
    if labels.ndim == 1:
        members = labels[:, None] == np.unique(labels)
    by_class = [rows[is_member[rows]].tolist() for is_member in members.T]  # members is [N, C]
    in_turn = [row for turn in zip_longest(*by_class) for row in turn if row is not None]
    return list(dict.fromkeys([*in_turn, *rows.tolist()]))
