"""Small data and configurations for trainings of a second or two, and runs that are trained once for all workers."""

import csv
import io
import json
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import jaxtyping
import pytest
import torch
from filelock import FileLock
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bert_family import write_checkpoint
from headscope.ground.signals import Stopped
from headscope.results.metrics import Results
from headscope.runs.folder import (
    METRICS,
    MODEL,
    PRIVATE,
    WEIGHTS,
    digest_of,
    save_json,
    write_tensors,
)
from headscope.settings.checks import override
from headscope.settings.config import (
    DataConfig,
    InspectionConfig,
    ModelConfig,
    OptimizerConfig,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
)
from headscope.training.resume import LAST
from headscope.training.train import train

GOOD, BAD = ["lovely", "bright", "warm", "kind", "happy"], ["awful", "dark", "cold", "cruel", "sad"]
FILLER = "the a film book day it was and very quite rather so in of with".split()  # noqa: SIM905
DETERMINERS = "the a one this that my our his her no".split()  # noqa: SIM905
NAMES = ["cat", "dog", "owl", "fox", "bee", "ant"]
KINDS = {"food": ["soup", "bread"], "place": ["garden", "terrace"], "staff": ["waiter", "cook"]}
HOSTILE = '<script>alert(1)</script> "quoted" | **bold**'
Rows = list[dict[str, Any]]
Made = TypeVar("Made")


def reviews(rows: int = 240) -> Rows:
    """Return made-up reviews that a small model learns: the label is told by one word among filler."""
    rng, found = random.Random(0), []
    for number in range(rows):
        words = rng.choices(FILLER, k=rng.randint(3, 17))
        words.insert(rng.randrange(len(words)), rng.choice(GOOD if number % 2 else BAD))
        found.append({"text": " ".join(words), "label": "good" if number % 2 else "bad"})
    return found


def pairs(each: int = 120) -> Rows:
    """Return pairs of texts whose label is whether both name the same animal: neither text alone tells it."""
    combinations, rng = list(product(DETERMINERS, NAMES, DETERMINERS, NAMES)), random.Random(0)
    same = rng.sample([words for words in combinations if words[1] == words[3]], each)
    other = rng.sample([words for words in combinations if words[1] != words[3]], each)
    found = [
        {"text": f"{a} {first}", "other": f"{b} {second}", "label": str(first == second)}
        for a, first, b, second in same + other
    ]
    rng.shuffle(found)
    return found


def comments(rows: int = 320, seed: int = 0) -> Rows:
    """Return texts whose labels are each told by one word among filler; an eighth of them has no label."""
    draw, found = random.Random(seed), []
    for number in range(rows):
        labels = [label for place, label in enumerate(KINDS) if number >> place & 1]
        words = draw.choices(FILLER, k=draw.randint(3, 9)) + [
            draw.choice(KINDS[label]) for label in labels
        ]
        draw.shuffle(words)
        found.append({"text": " ".join(words), "label": labels})
    return found


def write(path: Path, rows: Rows) -> str:
    """Write rows as csv, or as lines of JSON, and return the path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return str(path)


def configured(
    folder: Path, rows: Rows | None = None, name: str = "run", **trainer: object
) -> TrainConfig:
    """Return a small configuration of a run on these rows, all of whose files lie in the folder."""
    rows = rows or reviews()
    is_pair, is_multi = "other" in rows[0], isinstance(rows[0]["label"], list)
    path = folder / ("rows.jsonl" if is_multi else "reviews.csv")
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(path, rows)
    data = DataConfig(
        path=str(path), max_length=32, tokens_per_batch=256, cache_dir=str(folder / "cache")
    )
    return TrainConfig(
        name=name,
        outputs_dir=str(folder / "outputs"),
        baseline=False,
        data=replace(data, text_pair_column="other" if is_pair else None, multi_label=is_multi),
        tokenizer=TokenizerConfig(vocab_size=300),
        model=ModelConfig(d_model=12, num_heads=3, num_layers=2, feedforward_size=24, dropout=0.1),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        trainer=TrainerConfig(
            **({"max_epochs": 3, "epoch_steps": 1, "accelerator": "cpu"} | trainer)
        ),
        inspection=InspectionConfig(num_probes=2, max_tokens=16),
    )


def plain(folder: Path) -> TrainConfig:
    """Return the configuration of a run that learns, and records everything."""
    config = configured(folder, max_epochs=4)
    changes = {"baseline": True, "inspection.every": 7, "inspection.ablation_texts": 24}
    return override(config, changes)


def mistaken(folder: Path) -> TrainConfig:
    """Return one that makes mistakes: two steps, and no word that counting knows already."""
    rows = [row | {"text": row["text"].replace("film", HOSTILE)} for row in reviews()]
    config = configured(folder, rows, max_steps=2)
    return override(config, {"model.evidence": False, "inspection.max_tokens": 5})


def of_pairs(folder: Path) -> TrainConfig:
    """Return one of an epoch on pairs."""
    return configured(folder, pairs(), max_epochs=1)


def any_classes(folder: Path) -> TrainConfig:
    """Return one that learns texts with any number of labels."""
    config = configured(folder, comments(), max_epochs=12)
    return override(config, {"baseline": True, "inspection.ablation_texts": 24})


@dataclass
class Trained:
    """A run that many tests read and none writes to, what its training returned, and what it printed."""

    report: Results
    screen: str

    @property
    def folder(self) -> Path:
        return self.report.folder

    def copy(self, place: Path) -> Path:
        """Copy the run with its texts, for tests that write, and return the folder of the copy."""
        base = self.folder.parents[1]
        shutil.copytree(base, place / "copy")
        folder = place / "copy" / self.folder.relative_to(base)

        def moved(metadata: dict[str, str]) -> dict[str, str]:
            settings = json.loads(metadata["settings"])
            for key in ("path", "validation_path", "test_path", "cache_dir"):
                given = settings["data"][key]
                settings["data"][key] = given and given.replace(str(base), str(place / "copy"))
            return metadata | {"settings": json.dumps(settings)}

        edit_model(folder, moved)
        checkpoint = torch.load(folder / LAST, weights_only=True)
        checkpoint["setup"]["metadata"] = moved(checkpoint["setup"]["metadata"])
        torch.save(checkpoint, folder / LAST)
        return folder


def edit_model(
    folder: Path, change: Callable[[dict[str, str]], dict[str, str]], **tensors: torch.Tensor
) -> None:
    """Change the metadata of model.safetensors, and some tensors, as whoever made the run could."""
    path = folder / WEIGHTS
    with safe_open(path, "pt") as file:
        metadata = change(file.metadata())
    content = load_file(path) | tensors
    digest = digest_of(content, metadata)
    write_tensors(path, content, metadata)
    write_tensors(folder / PRIVATE, load_file(folder / PRIVATE), {MODEL: digest})
    if (folder / METRICS).exists():
        metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        save_json(folder / METRICS, metrics | {MODEL: digest})


def weights_of(folder: Path) -> dict[str, bytes]:
    """Return the tensors of model.safetensors, whose settings may have other names and paths."""
    tensors = load_file(folder / "model.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """Return what is made in an empty folder by the first worker that asks for it; the other waits, and reads it."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    kept = base / name / "made.pickle"
    with FileLock(base / f"{name}.lock"):
        if not kept.exists():
            shutil.rmtree(base / name, ignore_errors=True)  # what was left as it failed
            made = make(base / name)
            kept.write_bytes(pickle.dumps(made))
    found: Made = pickle.loads(kept.read_bytes())
    return found


def trained(make: Callable[[Path], TrainConfig], folder: Path) -> Trained:
    """Train a run. All shapes are checked in one of these runs, which takes three times as long as without."""
    output = io.StringIO()
    jaxtyping.config.update("jaxtyping_disable", make is not mistaken)
    report = train(make(folder), Console(file=output, width=200))
    jaxtyping.config.update("jaxtyping_disable", False)
    return Trained(report, output.getvalue())


def from_checkpoint(
    folder: Path, family: str = "bert", rows: Rows | None = None, **model: Any
) -> TrainConfig:
    """Return a configuration of a run of one epoch that begins with a tiny checkpoint in `folder / "checkpoint"`."""
    config = configured(folder, rows, max_epochs=1)
    texts = [row[key] for row in rows or reviews() for key in ("text", "other") if key in row]
    checkpoint = write_checkpoint(folder / "checkpoint", family, texts)
    return replace(
        config, model=ModelConfig(**{"path": str(checkpoint), "evidence": False, **model})
    )


def events_of(folder: Path) -> EventAccumulator:
    """Return all that a run has written for TensorBoard."""
    sizes = {"images": 0, "scalars": 0, "tensors": 0}
    return EventAccumulator(str(folder), size_guidance=sizes).Reload()


def changed(config: TrainConfig, key: str, value: object) -> TrainConfig:
    """Return a configuration with one key changed, such as "model.num_heads"."""
    group, _, name = key.rpartition(".")
    if not group:
        return replace(config, **{name: value})  # type: ignore[arg-type]
    return replace(config, **{group: replace(getattr(config, group), **{name: value})})


def unbroken_and_resumed(
    config: TrainConfig, checkpoint: Path, interrupt_at: Callable[..., None]
) -> tuple[Results, Results]:
    """Train without a break; and stopped after two steps, resumed without the checkpoint."""
    expected = train(config)
    broken = replace(config, name="broken")
    interrupt_at(2, signal.SIGTERM)
    with pytest.raises(Stopped):
        train(broken)
    shutil.rmtree(checkpoint)
    assert expected is not None
    folder = Path(broken.outputs_dir) / "broken"
    found = train(replace(expected.config, name="broken", resume=str(folder)))
    assert found is not None
    return expected, found
