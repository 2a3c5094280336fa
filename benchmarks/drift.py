"""How often `headscope drift` finds what was planted, and how often it finds something where nothing was.

    python benchmarks/drift.py licenses --foreign other.csv            # 5 to 10 minutes on one core
    python benchmarks/drift.py reviews.csv --foreign other.csv --new mails.csv

Half of the texts train a run (small, without one class where there are three or more); of the other half 200 draws of 300
texts are compared with the run's own validation and test texts, and with as many others of that half. Then 25 draws each have
a share of their texts replaced: by a class that the run has not seen (or the texts of --new), by texts with a product's name
in place of a frequent word, by texts in another language (--foreign), by texts of one class. Prints a table:
the number of draws in which drift was found, by which measure first.
"""

import tempfile
from argparse import ArgumentParser
from collections import Counter

import numpy as np
import pandas as pd
from rich.console import Console

from headscope.data.columns import text_rows
from headscope.data.rows import read_rows
from headscope.data.source import load_source
from headscope.results.drift import Observed, changes, observe
from headscope.runs.run import load_run
from headscope.runs.texts import own_corpus
from headscope.settings.checks import override
from headscope.settings.config import DataConfig, TrainConfig
from headscope.training.train import train

SIZE, DRAWS, PLANTED_DRAWS = 300, 200, 25
MOST = 1500  # texts of either half
SHARES = (0.05, 0.1, 0.2)
SMALL = {
    "model.d_model": 32,
    "model.feedforward_size": 64,
    "baseline": False,
    "inspection.enabled": False,
}
ALPHA, MIN_CHANGE = 0.05, 0.02


def joined(parts: list[Observed]) -> Observed:
    """Return the texts of several sets in one."""
    words = []
    start = 0
    for part in parts:
        places = pd.Series(np.arange(len(part.measures)), part.measures.index)
        words.append(pd.Series(part.words.to_numpy(), places[part.words.index].to_numpy() + start))
        start += len(part.measures)
    return Observed(
        pd.concat([part.measures for part in parts], ignore_index=True), pd.concat(words)
    )


def drawn(texts: Observed, rows: np.ndarray) -> Observed:
    """Return some texts by their numbers."""
    is_one = np.zeros(len(texts.measures), bool)
    is_one[rows] = True
    return joined([texts.only(is_one)])


def found(reference: Observed, texts: Observed, min_change: float = MIN_CHANGE) -> list[str]:
    """Return the measures that have drifted, the surest first."""
    table = changes(reference, {"": texts}, ALPHA)
    table = table[~table["measure"].str.startswith("word: ")].sort_values("p", kind="stable")
    change = (table["value"] - table["reference"]).abs()
    names: list[str] = table["measure"][
        (table["adjusted p"] <= ALPHA) & (change >= min_change)
    ].tolist()
    return names


def main() -> None:
    """Train, draw and print."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--foreign", required=True)
    parser.add_argument("--new")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = pd.DataFrame([*load_source(DataConfig(path=given.data))["train"]])
    rows = rows.drop_duplicates("text").sample(frac=1, random_state=0).reset_index(drop=True)
    rows["label"] = rows["label"].astype(str)
    new = rows.iloc[:0]
    if given.new is None:
        unseen = rows["label"].value_counts().index[3]
        new = rows[rows["label"] == unseen]
        rows = rows[rows["label"] != unseen].reset_index(drop=True)
    rows = rows[: 2 * MOST]
    half = len(rows) // 2
    with tempfile.TemporaryDirectory() as folder:
        rows[:half].to_json(f"{folder}/train.jsonl", orient="records", lines=True)
        paths = {"name": "run", "outputs_dir": folder, "data.path": f"{folder}/train.jsonl"}
        train(override(TrainConfig(), paths | SMALL), Console(stderr=True))
        run = load_run(f"{folder}/run")
        splits = own_corpus(run).splits
        own = [row for role in ("validation", "test") for row in text_rows(splits[role])]
    reference = observe(run, own, None)
    others = rows[half:].reset_index(drop=True)
    texts = [*others["text"]]
    pool = observe(run, [(text,) for text in texts], None)
    print(
        f"{given.data}: {half} texts train and choose, {len(own)} of them are the reference; {len(pool.measures)} others"
    )
    kinds: Counter[str] = Counter()
    for _ in range(DRAWS):
        order = rng.permutation(len(texts))
        here = drawn(pool, order[:SIZE])
        other = drawn(pool, order[SIZE : SIZE + len(own)])
        for name, before in {"own texts": reference, "others of the half": other}.items():
            measures = found(before, here)
            kinds[name] += bool(measures)
            kinds.update(f"{name}: {measure}" for measure in measures)
    print(
        f"no drift, {DRAWS} draws of {SIZE} texts, alpha={ALPHA}: false alarms {dict(kinds)}",
        flush=True,
    )
    frequent = Counter(
        word
        for text in texts
        for word in {*text.lower().split()}
        if word.isalpha() and len(word) > 4
    )
    word = frequent.most_common(1)[0][0]
    named = [text.lower().replace(word, "zorbatron") for text in texts if word in text.lower()]
    if given.new is not None:
        new = pd.DataFrame([*read_rows(given.new)])
    rarest = others["label"].value_counts().index[-1 if others["label"].nunique() < 4 else 2]
    planted = {
        "new class": [*new["text"][:400]],
        f"{word} -> zorbatron": named[:400],
        "another language": [str(row["text"]) for row in read_rows(given.foreign)][:400],
        f"more of class {rarest}": [*others["text"][others["label"] == rarest]][:400],
    }
    for name, more in planted.items():
        more_texts = observe(run, [(text,) for text in more], None)
        for share in SHARES:
            count = 0
            first: Counter[str] = Counter()
            for _ in range(PLANTED_DRAWS):
                number = round(share * SIZE)
                rows_more = rng.choice(len(more), number, replace=number > len(more))
                rest = rng.choice(len(texts), SIZE - number, replace=False)
                measures = found(
                    reference, joined([drawn(pool, rest), drawn(more_texts, rows_more)])
                )
                count += bool(measures)
                first.update(measures[:1])
            print(
                f"{name:28} {share:4.0%}: {count} of {PLANTED_DRAWS}",
                dict(first.most_common(3)),
                flush=True,
            )


if __name__ == "__main__":
    main()
