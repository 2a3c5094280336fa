"""How well texts are classified, beside TF-IDF + logistic regression and fastText, on one split of each data set.

    python benchmarks/accuracy.py > docs/benchmarks/accuracy.md   # licence texts: about 15 minutes on one core
    python benchmarks/accuracy.py licenses reviews.csv --seeds 3 model=small trainer.max_epochs=8
    python benchmarks/accuracy.py reviews.csv experiment=minilm model.path=<checkpoint>
    python benchmarks/accuracy.py licenses control=uniform   # a row for averages in place of attention too
    python benchmarks/accuracy.py licenses --also model.num_layers=1   # a row for the same with that setting

Prints a table for each data set: accuracy and macro-F1 in percent, loss in nats and expected calibration error before
temperature, the mean over seeds 0, 1, 2 ... and its standard deviation, and the range of the temperatures. Data sets are ready groups of configs/data, files, folders or Hub ids; arguments with an equals sign are
overrides of `headscope train -m sweep=accuracy`, whose runs are kept, and gone on with, in --folder. What peers can be
told (C; epochs and learning rate) is chosen by validation accuracy. fastText is left out where it is not installed
(`pip install -c constraints.txt -e .[benchmark]`).
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from itertools import chain, product, starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from headscope.data.columns import numbers, row_texts
from headscope.data.corpus import Corpus
from headscope.results.baseline import (
    WORDS,
    Baseline,
    chosen,
    is_without_spaces,
    vectorizer,
)
from headscope.results.scores import Scores, scores
from headscope.runs.run import load_run
from headscope.runs.texts import own_corpus
from side_by_side import ROOT, count, parser_of, print_page, table

SCORES = {"accuracy": 100.0, "macro_f1": 100.0, "loss": 1.0, "calibration_error": 1.0}  # factor
SHOWN = [("test", score) for score in SCORES] + [("validation", "accuracy"), ("validation", "loss")]
COLUMNS = (
    "", "test accuracy", "macro-F1", "loss", "calibration error", "validation accuracy", "loss",
    "T", "seeds", "seconds", "chosen by validation",
)  # fmt: skip
MLP_WIDTH, MLP_EPOCHS = 256, 10
EPOCHS, LEARNING_RATES = (5, 25, 50), (0.1, 0.5, 1.0)  # of fastText
SIGN, LABEL = re.compile(r"[^\w\s]"), "__label__"
Classifier = Callable[[Dataset], Scores]  # what was fitted scores a split


class Result(NamedTuple):
    """What one seed of one classifier came to."""

    test: Mapping[str, Any]  # score -> value
    validation: Mapping[str, Any]
    seconds: float
    chosen: str
    temperature: float | None = None


def main() -> None:
    """Train and score, data set by data set, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--seeds", type=count, default=5, help="how many, from 0 on: %(default)s by default"
    )
    parser.add_argument(
        "--skip-fasttext", action="store_true", help="leave its nine fits a data set out"
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        help="an override; a row for headscope with it, beside the one without (repeatable)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where our runs are kept, to go on with; by default they are not",
    )
    parser.add_argument(
        "words",
        nargs="*",
        help="data sets (licenses by default) and overrides of `headscope train`",
    )
    options = parser.parse_intermixed_args()
    overrides = [word for word in options.words if "=" in word]
    sets = [word for word in options.words if "=" not in word] or ["licenses"]
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as gone:
        folder = options.folder or Path(gone)
        pages = [page_of(folder, data, overrides, options) for data in sets]
    print_page(
        "Accuracy",
        torch.device("cpu"),
        *chain.from_iterable(pages),
        f"headscope: as it comes{', ' if overrides else ''}{' '.join(overrides)}. Mean over seeds ± "
        "standard deviation over seeds (n - 1), which tells how far another seed may lie, not how far other texts "
        "would. The split is the same for all rows and seeds. Seconds: from the texts to the scores, of a peer without "
        "those of what was not chosen.",
    )


def page_of(folder: Path, data: str, overrides: list[str], options: Namespace) -> list[str]:
    """Return the heading and the table of a data set."""
    seeds: int = options.seeds
    runs = trained(folder / Path(data).stem, seeds, *source(data), *overrides)
    corpus = own_corpus(load_run(runs[0]))  # the same for all: seeds leave the split alone
    found = {
        "TF-IDF + logistic regression": [counted_words(corpus)],
        "TF-IDF + wide MLP": [wide_mlp(corpus)],
        "headscope": [*map(ours, runs)],
    }
    if controls := [*filter(None, map(control, runs))]:
        found["headscope, averages in place of attention"] = controls
    for override in options.also:
        place = folder / f"{Path(data).stem}-{override.replace('=', '_')}"
        others = trained(place, seeds, *source(data), *overrides, override)
        found[f"headscope, `{override}`"] = [*map(ours, others)]
    if not options.skip_fasttext and fasttext() is not None:
        found["fastText"] = fast_text(corpus, seeds)
    sizes = " / ".join(f"{len(corpus.splits[role]):,}" for role in ("train", "validation", "test"))
    heading = f"## {Path(data).stem}: {sizes} texts of train / validation / test, {len(corpus.labels)} classes"
    return [heading, table(COLUMNS, [row(name, results) for name, results in found.items()])]


def source(data: str) -> list[str]:
    """Return the overrides for a ready group, or else for a file, folder or Hub id."""
    path = Path(data).expanduser()
    if not path.exists() and list(ROOT.glob(f"**/configs/data/{data}.yaml")):
        return [f"data={data}"]
    return ["data=files", f"data.path='{path.resolve() if path.exists() else data}'"]


def trained(folder: Path, seeds: int, *overrides: str) -> list[Path]:
    """Train by the ready sweep what is not trained yet, and return the folder of each seed's run."""
    place = [
        f"outputs_dir='{folder.parent}'",
        f"name='{folder.name}'",
        f"seed=range({seeds})",
        "trainer.progress=false",
    ]
    command = [
        sys.executable,
        "-m",
        "headscope",
        "train",
        "-m",
        "sweep=accuracy",
        *place,
        *overrides,
    ]
    if code := subprocess.run(command, stdout=sys.stderr).returncode:
        raise SystemExit(code)
    runs = [
        path.parent for seed in range(seeds) for path in folder.glob(f"seed_{seed}-*/metrics.json")
    ]
    if len(runs) < seeds:
        raise SystemExit(
            f"error: {' '.join(overrides)}: takes one value of each key, as the peers do"
        )
    return runs


def ours(folder: Path) -> Result:
    """Return what a run came to, by the weights that were kept."""
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    if "micro_f1" in metrics["test"]:
        raise SystemExit(
            "error: data.multi_label=true: takes sets of one label a text, as the peers do"
        )
    kept = f"step {metrics['training']['best_step']} of {metrics['training']['steps']}"
    # Seconds of headscope alone: neither the peers' nor the control's.
    seconds = metrics["seconds"]["everything"] - metrics["seconds"].get("control", 0.0)
    temperature = metrics["calibration"]["temperature"]
    return Result(metrics["test"], metrics["validation"], seconds, kept, temperature)


def control(folder: Path) -> Result | None:
    """Return what a run's control came to; None without control=uniform."""
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    if metrics.get("control") is None:
        return None
    return Result(metrics["control"], {}, metrics["seconds"]["control"], "")


def counted_words(corpus: Corpus) -> Result:
    """Return what TF-IDF and logistic regression came to, with the terms and C that validation chose."""
    begun = time.perf_counter()
    baseline = chosen(corpus.splits["train"], corpus.splits["validation"])
    found = [scores(*baseline.logits(corpus.splits[role])) for role in ("test", "validation")]
    test, validation = (each.values() for each in found)
    words = f"{baseline.name}, C = {baseline.pipeline[-1].C:g}"
    return Result(test, validation, time.perf_counter() - begun, words)


def wide_mlp(corpus: Corpus) -> Result:
    """Return what one hidden layer of 256 on TF-IDF came to, the epoch by validation accuracy.

    Galke and Scherp 2022, Bag-of-Words vs. Graph vs. Sequence in Text Classification: their wide
    multilayer perceptron was ahead of graph networks and near to fine-tuned encoders.
    """
    begun = time.perf_counter()
    weigh = vectorizer(WORDS).fit([*row_texts(corpus.splits["train"])])
    splits = {role: corpus.splits[role] for role in ("train", "validation")}
    terms = {role: weigh.transform([*row_texts(split)]) for role, split in splits.items()}
    labels = {role: numbers(split, "label") for role, split in splits.items()}
    network = MLPClassifier(MLP_WIDTH, random_state=0)
    classes = np.arange(len(corpus.labels))
    best = (-1.0, 0, network)
    for epoch in range(1, MLP_EPOCHS + 1):
        network.partial_fit(terms["train"], labels["train"], classes=classes)
        accuracy = network.score(terms["validation"], labels["validation"])
        best = max(best, (accuracy, epoch, deepcopy(network)), key=lambda found: found[0])
    _, epoch, network = best
    chosen = f"epoch {epoch} of {MLP_EPOCHS}"
    baseline = Baseline(make_pipeline(weigh, network), "TF-IDF + wide MLP")
    found = [scores(*baseline.logits(corpus.splits[role])) for role in ("test", "validation")]
    test, validation = (each.values() for each in found)
    return Result(test, validation, time.perf_counter() - begun, chosen)


def best_of(candidates: Mapping[str, Callable[[], Classifier]], corpus: Corpus) -> Result:
    """Fit all, take the best in validation accuracy (the first of equals), and score the test by that one alone."""

    def tried(words: str, fit: Callable[[], Classifier]) -> tuple[str, Classifier, Scores, float]:
        begun = time.perf_counter()
        classifier = fit()
        found = classifier(corpus.splits["validation"])
        return words, classifier, found, time.perf_counter() - begun

    # max() keeps the best one and the one at hand, so no more than two are in memory.
    words, classifier, validation, seconds = max(
        starmap(tried, candidates.items()), key=lambda found: found[2].accuracy
    )
    begun = time.perf_counter()
    test = classifier(corpus.splits["test"])
    return Result(test.values(), validation.values(), seconds + time.perf_counter() - begun, words)


def fast_text(corpus: Corpus, seeds: int) -> list[Result]:
    """Return what fastText came to (Joulin et al. 2016, arXiv:1607.01759): words and pairs of words, on one thread.

    Epochs and learning rate are chosen by seed 0, and the other seeds take them.
    """
    train = corpus.splits["train"]
    by_characters = is_without_spaces(train)

    def fit(seed: int, epochs: int, rate: float) -> Classifier:
        shuffled = train.shuffle(seed=seed, keep_in_memory=True)  # it takes them as they come
        rows = zip(numbers(shuffled, "label"), lines(shuffled, by_characters), strict=True)
        settings = {
            "epoch": epochs,
            "lr": rate,
            "wordNgrams": 2,
            "seed": seed,
            "thread": 1,
            "verbose": 0,
        }
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.writelines(f"{LABEL}{label} {line}\n" for label, line in rows)
            file.flush()
            model = fasttext().train_supervised(file.name, label=LABEL, **settings)
        return lambda split: fast_text_scores(model, split, len(corpus.labels), by_characters)

    choices = {
        f"{epochs} epochs, rate {rate:g}": (epochs, rate)
        for epochs, rate in product(EPOCHS, LEARNING_RATES)
    }
    results: list[Result] = []
    for seed in range(seeds):
        left = choices if not results else {results[0].chosen: choices[results[0].chosen]}
        results.append(
            best_of({words: partial(fit, seed, *choice) for words, choice in left.items()}, corpus)
        )
    return results


def fasttext() -> Any:
    """Return the package fasttext, or None where it is not installed."""
    try:
        import fasttext as installed
    except ImportError:
        return None
    return installed


def fast_text_scores(model: Any, split: Dataset, num_classes: int, by_characters: bool) -> Scores:
    """Return the scores of a split."""
    probabilities = np.full((len(split), num_classes), 1e-12)
    for number, line in enumerate(lines(split, by_characters)):
        # The object beneath: its wrapper in Python asks numpy for an array without a copy, which numpy 2 refuses.
        for probability, label in model.f.predict(line + "\n", -1, 0.0, "strict"):
            probabilities[number, int(label.removeprefix(LABEL))] = max(probability, 1e-12)
    return scores(
        torch.from_numpy(np.log(probabilities)).float(), torch.from_numpy(numbers(split, "label"))
    )


def lines(split: Dataset, by_characters: bool) -> Iterator[str]:
    """Yield each text on one line: lower-cased, signs (or all characters) set apart, as fastText's tutorial does."""
    for text in row_texts(split):
        # A word of the text that begins with __label__ would be taken for a class.
        words = SIGN.sub(r" \g<0> ", text.lower()).replace(LABEL, "label").split()
        yield " ".join("".join(words) if by_characters else words)


def row(name: str, results: list[Result]) -> tuple[str, ...]:
    """Return a classifier's line."""
    return (
        name,
        *(mean([*values_of(results, split, score)], SCORES[score]) for split, score in SHOWN),
        span([result.temperature for result in results if result.temperature is not None]),
        str(len(results)),
        f"{statistics.fmean(result.seconds for result in results):.0f}",
        "; ".join(dict.fromkeys(result.chosen for result in results)),
    )


def values_of(results: list[Result], split: str, score: str) -> Iterator[float]:
    """Yield a score of each seed that has it: a control is not scored on validation."""
    for result in results:
        values: Mapping[str, Any] = getattr(result, split)
        if score in values:
            yield values[score]


def mean(values: list[float], factor: float) -> str:
    """Return the mean times a factor, and the standard deviation where there are several."""
    if not values:
        return ""
    digits = 1 if factor > 1 else 3
    scaled = [factor * value for value in values]
    spread = f" ± {statistics.stdev(scaled):.{digits}f}" if len(scaled) > 1 else ""
    return f"{statistics.fmean(scaled):.{digits}f}{spread}"


def span(temperatures: list[float]) -> str:
    """Return the lowest and the highest temperature."""
    if not temperatures:
        return ""
    return f"{min(temperatures):.2f} to {max(temperatures):.2f}"


if __name__ == "__main__":
    main()
