"""From a checkpoint over a training to a folder for `transformers`, by their command lines."""

import csv
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from bert_family import write_checkpoint
from headscope.run import load_temperature

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_transformers_gives_the_probabilities_that_predict_gives(
    script: Command, tmp_path: Path
) -> None:
    folder, rng = tmp_path, random.Random(0)
    words = [
        "the",
        "a",
        "film",
        "book",
        "day",
        "it",
        "was",
        "and",
        "very",
        "quite",
        "rather",
        "so",
        "in",
        "of",
    ]
    texts = [" ".join(rng.choices(words, k=rng.randint(3, 17))) for _ in range(120)]
    with (folder / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((text, "ab"[len(text) % 2]) for text in texts)]
        )
    write_checkpoint(folder / "checkpoint", "roberta", texts)
    tuned = folder / "run"
    options = ["model.pooling=pooler", "inspection=off", "baseline=false", "data.max_length=24"]
    options += ["trainer.max_epochs=1", "trainer.accelerator=cpu", f"outputs_dir={folder}"]
    paths = [f"model.path={folder / 'checkpoint'}", f"data.path={folder / 'texts.csv'}"]
    script("train", "experiment=minilm", "data=files", "name=run", *options, *paths)
    texts = [
        "the film was quite rather so",
        "a",
        "it was a day of books, with rain in it",
        "the day " * 40,
    ]
    done = script("export", f"run={tuned}", f"output={tmp_path / 'exported'}")
    assert f"from_pretrained('{tmp_path / 'exported'}')" in done.stdout
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "exported"
    ).eval()
    with torch.no_grad():
        logits = model(
            **tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        ).logits
    # Exported are logits, which predict divides by it.
    found = (logits / load_temperature(tuned)).softmax(dim=-1)
    rows = [
        json.loads(line)
        for line in script("predict", f"run={tuned}", stdin="\n".join(texts)).stdout.splitlines()
    ]
    expected = [
        [row[f"probability_{label}"] for label in model.config.id2label.values()] for row in rows
    ]
    assert found.tolist() == [pytest.approx(shares, abs=2e-6) for shares in expected]
    again = script("export", f"run={tuned}", f"output={tmp_path / 'exported'}", code=2)
    assert again.stderr.startswith("error: output: expected a folder")
