"""Are new texts still like the old ones? Of two csv files that `headscope predict` wrote.

    headscope predict run=outputs/first input=september.csv output=old.csv min_confidence=0
    headscope predict run=outputs/first input=october.csv output=new.csv min_confidence=0
    python examples/drift.py old.csv new.csv --text text

Why: a run answers whatever it reads, so nobody notices that its texts have become others. Compared
are shares of texts: of the unfamiliar ones, which `min_confidence=0` marks, of each class, and of
those with a word. p is that of Fisher's exact test, twice the smaller tail, adjusted for all shares
together (Benjamini and Hochberg 1995): where nothing has changed, any p of at most 0.05 is printed
with probability 0.05. The old texts must be new to the run too, such as its test file: what it was
trained on it knows better. For one label a text. For embeddings, reports over time and alarms take
evidently.
"""

import argparse

import numpy as np
import pandas as pd
from scipy import stats

LEAST_TEXTS = 5  # that have a word which is compared
ALPHA = 0.05


def read(path: str, text: str) -> pd.DataFrame:
    """Return for each text, a row, whether it is unfamiliar, of each class, and has each word."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    own = table.columns[table.columns.get_loc("prediction") + 1 :]
    shares = table[[name for name in own if name.startswith("probability_")]].astype(float)
    classes = shares.idxmax(axis=1).str.replace("probability_", "class ", n=1)
    words = table[text].str.lower().str.findall(r"\w+").map(set)
    sets = [{"word " + word for word in found} for found in words]
    for found, label, why in zip(sets, classes, table["abstained"], strict=True):
        found |= {label, "unfamiliar"} if why == "unfamiliar" else {label}
    return pd.Series(sets, name="measure")


def compare(old: pd.Series, new: pd.Series) -> pd.DataFrame:
    """Return a row for each share, the surest change first."""
    counts = pd.concat([each.explode().value_counts() for each in (old, new)], axis=1)
    counts = counts.fillna(0).astype(int)
    is_rare = counts.index.str.startswith("word ") & (counts.sum(axis=1) < LEAST_TEXTS)
    before, now = counts[~is_rare].to_numpy().T
    sizes = (len(old) + len(new), before + now, len(new))
    tails = stats.hypergeom.cdf(now, *sizes), stats.hypergeom.sf(now - 1, *sizes)
    p = stats.false_discovery_control(np.minimum(1, 2 * np.minimum(*tails)))
    shares = {"old": before / len(old), "new": now / len(new), "adjusted p": p}
    return pd.DataFrame(shares, counts[~is_rare].index).sort_values("adjusted p", kind="stable")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--text", default="text", help="column with the text")
    given = parser.parse_args()
    found = compare(read(given.old, given.text), read(given.new, given.text))
    is_word = found.index.str.startswith("word ")
    print(found[~is_word | (found["adjusted p"] <= ALPHA)].round(4).to_string())
