"""Small data and small configurations for trainings that take seconds."""

import csv
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.data.config import DataConfig, TokenizerConfig
from headscope.inspection.config import InspectionConfig
from headscope.model.config import ModelConfig
from headscope.training.config import OptimizerConfig, TrainConfig, TrainerConfig

GOOD, BAD = ["lovely", "bright", "warm", "kind", "happy"], ["awful", "dark", "cold", "cruel", "sad"]
FILLER = ["the", "a", "film", "book", "day", "it", "was", "and", "very", "quite", "rather", "so", "in", "of", "with"]


def write_reviews(path: Path, rows: int = 240) -> Path:
    """Write a csv file of made-up reviews that a small model learns: the label is told by one word among filler."""
    rng = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(rows):
            words = rng.choices(FILLER, k=rng.randint(3, 17))
            words.insert(rng.randrange(len(words)), rng.choice(GOOD if number % 2 else BAD))
            writer.writerow([" ".join(words), "good" if number % 2 else "bad"])
    return path


@pytest.fixture
def small_config(tmp_path: Path) -> Callable[..., TrainConfig]:
    """Return a maker of configurations whose trainings take about two seconds."""

    def make(name: str = "run", **trainer: object) -> TrainConfig:
        path = tmp_path / "reviews.csv"
        if not path.exists():
            write_reviews(path)
        return TrainConfig(
            name=name,
            outputs_dir=str(tmp_path / "outputs"),
            baseline=False,
            data=DataConfig(path=str(path), max_length=32, tokens_per_batch=256, cache_dir=str(tmp_path / "cache")),
            tokenizer=TokenizerConfig(vocab_size=300),
            model=ModelConfig(d_model=12, num_heads=3, num_layers=2, feedforward_size=24, dropout=0.1),
            optimizer=OptimizerConfig(learning_rate=1e-2),
            trainer=TrainerConfig(**({"max_epochs": 3, "accelerator": "cpu"} | trainer)),
            inspection=InspectionConfig(num_probes=2, max_tokens=16),
        )

    return make
