"""fastText's classifier: the mean of the vectors of words and pairs of words, and a softmax.

Joulin et al. 2016, Bag of Tricks for Efficient Text Classification (arXiv:1607.01759). Texts are lower-cased and signs
set apart, as fastText's own tutorial does (https://fasttext.cc/docs/en/supervised-tutorial.html).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from headscope.data.columns import numbers, row_texts
from headscope.errors import ConfigError
from headscope.training.scoring import Scores, scores

EPOCHS, LEARNING_RATES = (5, 25, 50), (0.1, 0.5, 1.0)
LABEL = "__label__"
MISSING = "fastText is not installed: `pip install -c constraints.txt -e .[benchmark]`"
SIGN = re.compile(r"[^\w\s]")


class FastText:
    """A classifier trained on a file of lines, on one thread, so that a seed gives the same one again.

    Args:
        file: what `write_lines` wrote.
        num_classes: how many there are, of which a file may lack some.
        by_characters: read every character as a word, for text without spaces.
        epochs: passes over the file.
        learning_rate: at the start; it falls to 0.
        seed: of the vectors that it begins with.

    Raises:
        ConfigError: if fastText is not installed.
    """

    def __init__(
        self, file: Path, num_classes: int, by_characters: bool, epochs: int, learning_rate: float, seed: int
    ) -> None:
        self.num_classes, self.by_characters = num_classes, by_characters
        settings = {"epoch": epochs, "lr": learning_rate, "wordNgrams": 2, "seed": seed, "thread": 1}
        self.model = fasttext().train_supervised(str(file), label=LABEL, verbose=0, **settings)

    @property
    def name(self) -> str:
        """What it reads."""
        unit = "characters" if self.by_characters else "words"
        return f"fastText on {unit} and pairs of {unit}, lower-cased, on one thread"

    @property
    def parameters(self) -> int:
        """Vectors of words, of the places that pairs are hashed to (most of them never used), and of classes."""
        return int((len(self.model.words) + self.model.bucket + len(self.model.labels)) * self.model.dim)

    def scores(self, split: Dataset) -> Scores:
        """Return the scores of a split."""
        probabilities = np.full((len(split), self.num_classes), 1e-12)
        for row, line in enumerate(lines(split, self.by_characters)):
            # The object beneath: its wrapper in Python asks numpy for an array without a copy, which numpy 2 refuses.
            for probability, label in self.model.f.predict(line + "\n", -1, 0.0, "strict"):
                probabilities[row, int(label.removeprefix(LABEL))] = max(probability, 1e-12)
        logits = torch.from_numpy(np.log(probabilities)).float()
        return scores(logits, torch.from_numpy(numbers(split, "label")))


def write_lines(file: Path, split: Dataset, by_characters: bool, seed: int) -> None:
    """Write a line `__label__<class> text` for each row, shuffled by the seed: fastText takes them as they come."""
    split = split.shuffle(seed=seed, keep_in_memory=True)
    with file.open("w", encoding="utf-8") as target:
        for label, line in zip(numbers(split, "label"), lines(split, by_characters), strict=True):
            target.write(f"{LABEL}{label} {line}\n")


def lines(split: Dataset, by_characters: bool) -> Iterator[str]:
    """Yield each row's text on one line: lower-cased, signs (or all characters) set apart by spaces."""
    for text in row_texts(split):
        # A word of the text that begins with __label__ would be taken for a class.
        text = SIGN.sub(r" \g<0> ", text.lower()).replace(LABEL, "label")
        yield " ".join("".join(text.split()) if by_characters else text.split())


def fasttext() -> Any:
    """Return the package fasttext.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import fasttext as installed
    except ImportError as error:
        raise ConfigError(MISSING) from error
    return installed
