"""One run, in a process of its own: its threads are its own, and so is what it does to the random numbers.

    python -m headscope.benchmark.accuracy.one_run '{"kind": "tfidf", "config": {...}, "chosen": null}'

The last line that it prints is JSON: a `Result`, or {"error": "..."} for what the user can mend.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from datasets import disable_progress_bars
from omegaconf import OmegaConf

from headscope.benchmark.accuracy.choosing import best_of
from headscope.benchmark.accuracy.fast_text import EPOCHS, LEARNING_RATES, FastText, write_lines
from headscope.benchmark.accuracy.result import Result, shown_scores, sizes_of_splits
from headscope.data.corpus import load_corpus
from headscope.errors import UserError
from headscope.training.baseline import fitted, is_without_spaces
from headscope.training.config import TrainConfig
from headscope.training.folder import best_device, load_run
from headscope.training.logits import split_logits
from headscope.training.run import train
from headscope.training.run_data import data_of
from headscope.training.scoring import scores

STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # of C


def counted_words(config: TrainConfig, chosen: str | None) -> Result:
    """Run TF-IDF and logistic regression, with the C whose validation accuracy is best."""
    begun = time.perf_counter()
    corpus = load_corpus(config.data)
    candidates = {f"C = {C:g}": partial(fitted, corpus.splits["train"], C) for C in STRENGTHS}
    return best_of(candidates, chosen, corpus, time.perf_counter() - begun)


def fast_text(config: TrainConfig, chosen: str | None) -> Result:
    """Run fastText, with the epochs and the learning rate whose validation accuracy is best."""
    begun = time.perf_counter()
    corpus = load_corpus(config.data)
    train = corpus.splits["train"]
    by_characters = is_without_spaces(train)
    with tempfile.TemporaryDirectory(prefix="headscope-fasttext-") as folder:
        file = Path(folder) / "train.txt"
        write_lines(file, train, by_characters, config.seed)
        make = partial(FastText, file, len(corpus.labels), by_characters)
        candidates = {
            f"{epochs} epochs, learning rate {rate:g}": partial(make, epochs, rate, config.seed)
            for epochs, rate in product(EPOCHS, LEARNING_RATES)
        }
        return best_of(candidates, chosen, corpus, time.perf_counter() - begun)


def training(config: TrainConfig, chosen: str | None) -> Result:
    """Train as scripts/train.py does, and score the validation split too by the weights that it kept."""
    report = train(config)
    begun = time.perf_counter()
    run = load_run(report.folder)
    data = data_of(run)
    validation = scores(*split_logits(run.model, data.loader("validation"), best_device(config.trainer.accelerator)))
    shutil.rmtree(report.folder / "checkpoints")  # several times the size of the weights, and of no more use
    facts = report.facts_of_training
    return Result(
        scores=shown_scores(report.test, validation),
        seconds=report.seconds["everything"] + time.perf_counter() - begun,
        choosing_seconds=0.0,
        parameters=facts["parameters"],
        chosen=f"step {facts['kept step']} of {facts['steps']}",
        detail=f"{facts['precision']} on {facts['device']}",
        texts=sizes_of_splits(data.corpus),
        classes=len(report.labels),
    )


KINDS: dict[str, Callable[[TrainConfig, str | None], Result]] = {
    "tfidf": counted_words,
    "fasttext": fast_text,
    "training": training,
}


def answer(work: Mapping[str, Any]) -> dict[str, Any]:
    """Do what is described, and return the result, or the error that the user can mend, as JSON has it.

    Args:
        work: kind, the settings of a training (of which kinds but training take the data and the seed), and what was
            chosen already, if anything.
    """
    disable_progress_bars()
    config: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TrainConfig), work["config"]))
    try:
        return asdict(KINDS[work["kind"]](config, work["chosen"]))
    except UserError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))
