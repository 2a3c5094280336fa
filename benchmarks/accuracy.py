"""How well texts are classified, beside TF-IDF + logistic regression and fastText, on one split of each data set.

    python benchmarks/accuracy.py > docs/benchmarks/accuracy.md   # licence texts: about 15 minutes on one core
    python benchmarks/accuracy.py licenses reviews.csv --seeds 3 model=small trainer.max_epochs=8
    python benchmarks/accuracy.py reviews.csv experiment=minilm model.path=<checkpoint>

Prints a table for each data set: accuracy and macro-F1 in percent, the mean over seeds 0, 1, 2 ... and its standard
deviation. Data sets are ready groups of configs/data, files, folders or Hub ids; arguments with an equals sign are
overrides of scripts/train.py. What peers can be told (C; epochs and learning rate) is chosen by validation accuracy.
fastText is left out where it is not installed (`pip install -c constraints.txt -e .[benchmark]`).
"""

import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product, starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars

from headscope.commands.evaluate import data_of
from headscope.data.columns import numbers, row_texts
from headscope.data.corpus import Corpus
from headscope.training.baseline import fitted, is_without_spaces
from headscope.training.folder import best_device, load_run
from headscope.training.predict import split_logits
from headscope.training.scores import Scores, scores
from side_by_side import ROOT, count, parser_of, print_page, run_folder, table

COLUMNS = (
    "", "test accuracy", "test macro-F1", "validation accuracy", "validation macro-F1", "seeds", "seconds",
    "chosen by validation",
)  # fmt: skip
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # of C, the inverse of the penalty
EPOCHS, LEARNING_RATES = (5, 25, 50), (0.1, 0.5, 1.0)  # of fastText
SIGN, LABEL = re.compile(r"[^\w\s]"), "__label__"
Classifier = Callable[[Dataset], Scores]  # what was fitted scores a split


class Result(NamedTuple):
    """What one seed of one classifier came to."""

    test: Scores
    validation: Scores
    seconds: float
    chosen: str


def main() -> None:
    """Train and score, data set by data set, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=count, default=5, help="how many, from 0 on: %(default)s by default")
    parser.add_argument("--skip-fasttext", action="store_true", help="leave its nine fits a data set out")
    parser.add_argument("words", nargs="*", help="data sets (licenses by default) and overrides of scripts/train.py")
    options = parser.parse_intermixed_args()
    overrides = [word for word in options.words if "=" in word]
    sets = [word for word in options.words if "=" not in word] or ["licenses"]
    disable_progress_bars()
    parts = [part for data in sets for part in page_of(data, options.seeds, overrides, options.skip_fasttext)]
    print_page(
        "Accuracy",
        torch.device("cpu"),
        *parts,
        f"headscope: train.py as it comes{', ' if overrides else ''}{' '.join(overrides)}. Percent: mean over seeds ± "
        "standard deviation over seeds (n - 1), which tells how far another seed may lie, not how far other texts "
        "would. The split is the same for all rows and seeds. Seconds: from the texts to the scores, of a peer without "
        "those of what was not chosen.",
    )


def page_of(data: str, seeds: int, overrides: list[str], skip_fasttext: bool = False) -> Iterator[str]:
    """Yield the heading and the table of a data set."""
    ours, corpora = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            result, corpus = trained(Path(folder) / f"seed_{seed}", source(data), f"seed={seed}", *overrides)
            ours.append(result)
            corpora.append(corpus)
        corpus = corpora[0]  # the same for all: seeds leave the split alone
        found = {"TF-IDF + logistic regression": [counted_words(corpus)], "headscope": ours}
        if not skip_fasttext and fasttext() is not None:
            found["fastText"] = fast_text(corpus, seeds, Path(folder))
    sizes = " / ".join(f"{len(corpus.splits[role]):,}" for role in ("train", "validation", "test"))
    yield f"## {Path(data).stem}: {sizes} texts of train / validation / test, {len(corpus.labels)} classes"
    yield table(COLUMNS, [row(name, results) for name, results in found.items()])


def source(data: str) -> str:
    """Return the override for a ready group, or else for a file, folder or Hub id."""
    path = Path(data).expanduser()
    if not path.exists() and list(ROOT.glob(f"**/configs/data/{data}.yaml")):
        return f"data={data}"
    return f"data.path={path.resolve() if path.exists() else data}"


def trained(folder: Path, *overrides: str) -> tuple[Result, Corpus]:
    """Train as a user does; score validation too, by the weights that were kept, and return the texts."""
    run = load_run(run_folder(folder, "inspection.enabled=false", *overrides))
    if run.config.data.multi_label:
        raise SystemExit("error: data.multi_label=true: takes sets of one label a text, as the peers do")
    data, device = data_of(run), best_device(run.config.trainer.accelerator)
    test, validation = (
        scores(*split_logits(run.model, data.loader(split), device)) for split in ("test", "validation")
    )
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    facts = metrics["training"]
    kept = f"step {facts['kept step']} of {facts['steps']}"
    return Result(test, validation, metrics["seconds"]["everything"], kept), data.corpus


def counted_words(corpus: Corpus) -> Result:
    """Return what TF-IDF and logistic regression came to, with the C that is best in validation."""

    def fit(strength: float) -> Classifier:
        return fitted(corpus.splits["train"], strength).scores

    return best_of({f"C = {strength:g}": partial(fit, strength) for strength in STRENGTHS}, corpus)


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
    return Result(test, validation, seconds + time.perf_counter() - begun, words)


def fast_text(corpus: Corpus, seeds: int, folder: Path) -> list[Result]:
    """Return what fastText came to (Joulin et al. 2016, arXiv:1607.01759): words and pairs of words, on one thread.

    Epochs and learning rate are chosen by seed 0, and the other seeds take them.
    """
    train = corpus.splits["train"]
    by_characters = is_without_spaces(train)

    def fit(seed: int, epochs: int, rate: float) -> Classifier:
        file = folder / "train.txt"
        shuffled = train.shuffle(seed=seed, keep_in_memory=True)  # it takes them as they come
        rows = zip(numbers(shuffled, "label"), lines(shuffled, by_characters), strict=True)
        file.write_text("".join(f"{LABEL}{label} {line}\n" for label, line in rows), encoding="utf-8")
        settings = {"epoch": epochs, "lr": rate, "wordNgrams": 2, "seed": seed, "thread": 1, "verbose": 0}
        model = fasttext().train_supervised(str(file), label=LABEL, **settings)
        return lambda split: fast_text_scores(model, split, len(corpus.labels), by_characters)

    choices = {f"{epochs} epochs, rate {rate:g}": (epochs, rate) for epochs, rate in product(EPOCHS, LEARNING_RATES)}
    results: list[Result] = []
    for seed in range(seeds):
        left = choices if not results else {results[0].chosen: choices[results[0].chosen]}
        results.append(best_of({words: partial(fit, seed, *choice) for words, choice in left.items()}, corpus))
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
    return scores(torch.from_numpy(np.log(probabilities)).float(), torch.from_numpy(numbers(split, "label")))


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
        *(
            percent(getattr(getattr(result, split), score) for result in results)
            for split in ("test", "validation")
            for score in ("accuracy", "macro_f1")
        ),
        str(len(results)),
        f"{statistics.fmean(result.seconds for result in results):.0f}",
        "; ".join(dict.fromkeys(result.chosen for result in results)),
    )


def percent(shares: Iterable[float]) -> str:
    """Return the mean in percent, and the standard deviation where there are several."""
    found = [100 * share for share in shares]
    spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    return f"{statistics.fmean(found):.1f}{spread}"


if __name__ == "__main__":
    main()
