"""What is best with few labelled texts: 100, 250, 500 ... of a data set, three draws of each.

    python benchmarks/few_texts.py reviews/ --encoder path/to/MiniLM    # 2 minutes a draw, one core
    python benchmarks/few_texts.py reviews/ --encoder path/to/MiniLM --sizes 250 --methods SetFit

Training texts are drawn at random; validation and test are those of the data set, whole.
Prints a table: accuracy and macro-F1 on test in percent, the mean over draws, and seconds, from
texts to scores.
What is there to choose (C, the epoch) is chosen on validation.

    TF-IDF                    and logistic regression, C by validation accuracy
    fastText                  epochs and learning rate by validation accuracy
    from scratch              headscope as it comes
    frozen layers and heads   experiment=pretrained: heads of our own on the encoder's layers
    averages                  the same, trained with averages in place of attention
    one network               the same with model.members=1 model.features_layer=3
    fine-tuned                experiment=minilm: the whole encoder
    embeddings                the mean of the encoder's last layer, and logistic regression
    SetFit                    Tunstall et al. 2022, arXiv:2209.11055, where it is installed

Results are kept in --folder, one file each, and what is there is not computed again. Words with an
equals sign are overrides for headscope.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import DatasetDict, disable_progress_bars
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from accuracy import Result, counted_words, fast_text
from headscope.data.columns import row_texts
from headscope.data.corpus import Corpus, load_corpus
from headscope.results.baseline import STRENGTHS
from headscope.settings.config import DataConfig
from side_by_side import count, parser_of, table

SIZES = (100, 250, 500, 1_000, 2_000, 4_000)
Scored = tuple[float, float, float]  # accuracy and macro-F1 of test, seconds
ONE = ("model.members=1", "model.features_layer=3")
SETTINGS = {
    "from scratch": [],
    "frozen layers and heads": ["experiment=pretrained", "model.features={}", "control=uniform"],
    "one network": ["experiment=pretrained", "model.features={}", *ONE],
    "fine-tuned": ["experiment=minilm", "model.path={}"],
}


def main() -> None:
    """Train and score what is not there yet, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path, help="a folder that `data=files` reads")
    parser.add_argument("--encoder", type=Path, required=True, help="a folder of transformers")
    parser.add_argument("--sizes", type=count, nargs="+", default=SIZES, help="training texts")
    parser.add_argument("--draws", type=count, default=3, help="%(default)s by default")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS][:-1])
    parser.add_argument("--folder", type=Path, default=Path("few_texts"), help="of the results")
    parser.add_argument("overrides", nargs="*", help="of `headscope train`")
    options = parser.parse_intermixed_args()
    disable_progress_bars()
    corpus = load_corpus(DataConfig(path=str(options.data.resolve())))
    rows = []
    for size in options.sizes:
        row = [f"{min(size, len(corpus.splits['train'])):,}"]
        for method in options.methods:
            found = [scored(options, corpus, method, size, draw) for draw in range(options.draws)]
            accuracy, macro_f1, seconds = map(statistics.fmean, zip(*found, strict=True))
            row.append(f"{100 * accuracy:.1f} / {100 * macro_f1:.1f}; {seconds:.0f} s")
        rows.append(row)
        print(*row, sep=" | ", file=sys.stderr, flush=True)
    print(table(["training texts", *options.methods], rows))


def scored(options: Namespace, corpus: Corpus, method: str, size: int, draw: int) -> Scored:
    """Return the scores of one draw, from the folder of results if they are there."""
    folder = options.folder / f"{size}_{draw}"
    path = folder / f"{method.replace(' ', '_')}.json"
    if not path.exists():
        train = corpus.splits["train"]
        rows = sorted(np.random.default_rng(draw).permutation(len(train))[:size])
        drawn = replace(corpus, splits=DatasetDict(corpus.splits, train=train.select(rows)))
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(METHODS[method](options, drawn, folder)))
    accuracy, macro_f1, seconds = json.loads(path.read_text())
    return accuracy, macro_f1, seconds


def ours(method: str, options: Namespace, corpus: Corpus, folder: Path) -> Scored:
    """Train headscope once, and return the scores of the run."""
    metrics = trained(method, options, corpus, folder)
    seconds = metrics["seconds"]["everything"] - metrics["seconds"].get("control", 0.0)
    return metrics["test"]["accuracy"], metrics["test"]["macro_f1"], seconds


def averages(options: Namespace, corpus: Corpus, folder: Path) -> Scored:
    """Return the scores of the network trained with averages in place of attention."""
    metrics = trained("frozen layers and heads", options, corpus, folder)
    scores = metrics["control"]
    return scores["accuracy"], scores["macro_f1"], metrics["seconds"]["control"]


def trained(method: str, options: Namespace, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Return the metrics of a run, which is trained if it is not there."""
    name = method.replace(" ", "_")
    if not (folder / name / "metrics.json").exists():
        shutil.rmtree(folder / name, ignore_errors=True)
        data = folder / "data"
        data.mkdir(exist_ok=True)
        for role, split in corpus.splits.items():
            rows = split.to_pandas()
            rows["label"] = [corpus.labels[label] for label in rows["label"]]
            rows.to_csv(data / f"{role}.csv", index=False)
        words = [word.format(options.encoder.resolve()) for word in SETTINGS[method]]
        words += ["data=files", f"data.path={data}", f"outputs_dir={folder}", f"name={name}"]
        words += ["inspection=off", "baseline=false", "trainer.progress=false"]
        command = [sys.executable, "-m", "headscope", "train", *words, *options.overrides]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return json.loads((folder / name / "metrics.json").read_text())  # type: ignore[no-any-return]


def peer(
    fit: Callable[[Corpus], Result], options: Namespace, corpus: Corpus, folder: Path
) -> Scored:
    """Return the scores of a classifier of words."""
    found = fit(corpus)
    return found.test["accuracy"], found.test["macro_f1"], found.seconds


def embedded(options: Namespace, corpus: Corpus, folder: Path) -> Scored:
    """Return the scores of sentence embeddings: the encoder's mean hidden state."""
    start = time.perf_counter()
    splits = corpus.splits.items()
    vectors = {role: means(options.encoder, (*row_texts(split),)) for role, split in splits}
    labels = {role: np.array(each["label"]) for role, each in corpus.splits.items()}

    def fit(strength: float) -> LogisticRegression:
        regression = LogisticRegression(C=strength, max_iter=2000)
        return regression.fit(vectors["train"], labels["train"])

    fits = map(fit, STRENGTHS)
    best = max(fits, key=lambda each: each.score(vectors["validation"], labels["validation"]))
    predicted = best.predict(vectors["test"])
    return scores_of(labels["test"], predicted, time.perf_counter() - start)


@cache
def means(encoder: Path, texts: tuple[str, ...]) -> np.ndarray:
    """Return the mean hidden state of each text [N, D], of length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModel.from_pretrained(encoder).eval()
    parts = []
    for at in range(0, len(texts), 64):
        inputs = tokenizer(
            list(texts[at : at + 64]),
            padding=True,
            truncation=True,
            max_length=128,
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state  # [B, T, D]
        mask = inputs["attention_mask"][..., None]  # [B, T, 1]
        mean = (states * mask).sum(dim=1) / mask.sum(dim=1)
        parts.append(torch.nn.functional.normalize(mean).numpy())
    return np.concatenate(parts)


def contrasted(options: Namespace, corpus: Corpus, folder: Path) -> Scored:
    """Return the scores of SetFit, by its own defaults (20 iterations)."""
    from setfit import SetFitModel, Trainer, TrainingArguments

    start = time.perf_counter()
    model = SetFitModel.from_pretrained(str(options.encoder))
    arguments = TrainingArguments(
        output_dir=str(folder / "setfit"), num_iterations=20, num_epochs=1, report_to="none"
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=corpus.splits["train"])
    trainer.train()
    test = corpus.splits["test"]
    predicted = np.array(model.predict(list(row_texts(test))))
    return scores_of(np.array(test["label"]), predicted, time.perf_counter() - start)


def scores_of(labels: np.ndarray, predicted: np.ndarray, seconds: float) -> Scored:
    """Return accuracy and macro-F1 of predictions, and the seconds."""
    macro_f1 = float(f1_score(labels, predicted, average="macro"))
    return float((labels == predicted).mean()), macro_f1, seconds


METHODS: dict[str, Callable[[Namespace, Corpus, Path], Scored]] = {
    "TF-IDF": partial(peer, counted_words),
    "fastText": partial(peer, lambda corpus: fast_text(corpus, seeds=1)[0]),
    **{method: partial(ours, method) for method in SETTINGS},
    "averages": averages,
    "embeddings": embedded,
    "SetFit": contrasted,
}

if __name__ == "__main__":
    main()
