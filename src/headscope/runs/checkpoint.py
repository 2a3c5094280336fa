"""A classifier of transformers as a run: what was fine-tuned elsewhere is measured unchanged."""

import json
from pathlib import Path
from typing import Any

from headscope.ground.errors import RunError
from headscope.ground.files import read_text, reading
from headscope.model.checkpoint import read_checkpoint
from headscope.model.classifier import TextClassifier
from headscope.model.families import why_not_opened
from headscope.model.opened import has_head, load_weights
from headscope.model.running import Undrawn
from headscope.runs.setup import Chosen, Setup
from headscope.settings.checks import command
from headscope.settings.config import DataConfig, ModelConfig, TrainConfig

CONFIG = "config.json"  # a run has a config.yaml


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is a model of transformers, and no run."""
    return (folder / CONFIG).is_file() and not (folder / "config.yaml").is_file()


def open_checkpoint(folder: Path) -> tuple[Setup, TextClassifier, Chosen]:
    """Return a checkpoint as our own network, with the classes of its config.json.

    No validation text has chosen anything: the temperature is 1, and no text counts as unfamiliar.
    RunError if it does not open, or has no head for classes.
    """
    with reading(folder / CONFIG):
        encoder: dict[str, Any] = json.loads(read_text(folder / CONFIG))
        names = encoder.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}  # as transformers has it
        labels = [str(name) for _, name in sorted((int(at), name) for at, name in names.items())]
        why = why_not_opened(encoder)
        if not why and not has_head(encoder, folder, len(labels)):
            why = f"it has no head for {len(labels)} classes"
    if why:
        raise RunError(
            f"run={folder}: expected a run or a classifier of transformers that opens, but {why}; "
            "look at it by headscope.show, or fine-tune it: "
            + command("headscope train", **{"model.path": folder})
        )
    checkpoint = read_checkpoint("run", str(folder))
    several = encoder.get("problem_type") == "multi_label_classification"
    config = TrainConfig(
        data=DataConfig(multi_label=several, max_length=checkpoint.max_tokens),
        model=ModelConfig(path=str(folder), evidence=False),
    )
    setup = Setup(config, labels, checkpoint.tokenizer, {}, encoder)
    with Undrawn():
        model = setup.build()
    assert isinstance(model, TextClassifier), "it opens"
    load_weights(model, encoder, folder)
    return setup, model.eval(), Chosen()
