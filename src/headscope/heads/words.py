"""What a model learned, over many texts: the words that add most to each class, for each head too.

Of each text the log-odds of its likeliest class against the runner-up are split into words, and
into what passes through each head at them (`headscope.heads.contributions`): the very numbers that
the page shows of the text. A word's part counts for the first class and, with the opposite sign,
for the second; with any number of classes, for the likeliest alone, against its absence.

Shape letters: N texts, T tokens of a text, L layers, H heads of each, P = 1 + L H parts.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy import stats
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.data.units import Word
from headscope.heads.capture import texts_apart
from headscope.heads.contributions import split_likeliest
from headscope.model.objective import MultiLabel, Reading
from headscope.record.words import certain


@dataclass(frozen=True)
class TextParts:
    """The log-odds of one text's likeliest class, and their parts.

    Attributes:
        row: which text.
        pair: the likeliest class and the runner-up; -1 for the absence of the class.
        log_odds: of the first against the second.
        tokens: what each token adds, and what passes through each head at its position, layer
            after layer.
        heads: how many each layer has.
        logits: of the model.
    """

    row: int
    pair: tuple[int, int]
    log_odds: float
    tokens: Float[np.ndarray, "T P"]
    heads: tuple[int, ...]
    logits: Float[Tensor, " C"]


def split_texts(
    model: nn.Module,
    batches: Iterable[Batch],
    reading: Reading,
    seconds: float = float("inf"),
) -> Iterator[TextParts]:
    """Yield the parts of each text; after `seconds` no further batch is started."""
    start = time.perf_counter()
    for batch in texts_apart(model, batches):
        B, T = batch.token_ids.shape
        parts = split_likeliest(model, batch, reading)
        heads = [F.pad(of_layer, (0, 0, 0, T - of_layer.shape[2])) for of_layer in parts.heads]
        through = [of_layer[..., 0].transpose(1, 2) for of_layer in heads]  # of each [B, T, H]
        tokens = torch.cat([parts.words, *through], dim=2).float().numpy()  # [B, T, P]
        pairs = parts.logits.argsort(dim=1, descending=True, stable=True)[:, :2]
        if isinstance(reading.objective, MultiLabel):
            pairs = F.pad(pairs[:, :1], (0, 1), value=-1)
        counts = tuple(of_layer.shape[1] for of_layer in parts.heads)
        padding = batch.key_padding_mask
        lengths = [T] * B if padding is None else (~padding).sum(dim=1).tolist()
        for text, row in enumerate(batch.rows.tolist()):
            first, second = pairs[text].tolist()
            log_odds = float(parts.totals[text, 0])
            own = tokens[text, : lengths[text]]
            yield TextParts(row, (first, second), log_odds, own, counts, parts.logits[text])
        if time.perf_counter() - start > seconds:
            return


def word_table(
    found: Sequence[TextParts], words: Sequence[Sequence[Word]], heads: Sequence[str]
) -> pd.DataFrame:
    """Return what each word adds to each class, the mean over the texts in which it occurs.

    Args:
        found: the parts of texts.
        words: the words of each of these texts; signs are left out.
        heads: the names of the L H heads.

    Returns:
        One row for each class and word that occurs in a text that is held for or against it:
        `class` (its number), `word`, `mean` in nats, `interval` (half of its 95 % interval,
        t * s / sqrt(n); NaN for one text), `n` texts, the row of the text in which it adds or takes
        most as `example`, and the mean of what passes through each head, in a column of its name.
        By falling `record.words.certain`: the words that surely add most come first.
    """
    columns = ["mean", *heads]
    tables = [_of_text(text, own, columns) for text, own in zip(found, words, strict=True)]
    pairs = [(text.row, *text.pair) for text in found]
    by_text = pd.concat(tables, keys=pairs, names=["example", "first", "second"])
    by_text = by_text.reset_index()
    against = by_text.assign(**{name: -by_text[name] for name in columns})
    sides = [
        by_text.rename(columns={"first": "class"}),
        against.rename(columns={"second": "class"}),
    ]
    both = pd.concat(sides, join="inner")
    both = both[both["class"] >= 0].sort_values("mean", key=abs, ascending=False, kind="stable")
    groups = both.groupby(["class", "word"], sort=False)
    n = groups.size()
    error = groups["mean"].std() / np.sqrt(n)
    interval = error * stats.t.ppf(0.975, (n - 1).clip(lower=1))
    numbers = {"mean": groups["mean"].mean(), "interval": interval, "n": n}
    table = pd.DataFrame(numbers).assign(example=groups["example"].first())
    table = table.join(groups[list(heads)].mean()).reset_index()
    table["certain"] = pd.concat([certain(own) for _, own in table.groupby("class")])
    order = ["class", "certain", "mean"]
    return table.sort_values(order, ascending=[True, False, False]).drop(columns="certain")


def _of_text(text: TextParts, words: Sequence[Word], columns: Sequence[str]) -> pd.DataFrame:
    """Return the parts of the different words of a text, without signs."""
    words = [word for word in words if re.search(r"\w", word.name)]
    until = np.cumsum(np.pad(text.tokens, ((1, 0), (0, 0))), axis=0, dtype=np.float64)
    ends = [word.end for word in words]
    starts = [word.start for word in words]
    parts = pd.DataFrame(until[ends] - until[starts], columns=columns)
    return parts.groupby(pd.Index([word.name for word in words], name="word"), sort=False).sum()


class MeanContributions(NamedTuple):
    """Means over texts of what `split_likeliest` finds.

    Attributes:
        against: what the likeliest class is held against.
        texts: their number.
        heads: through each head of each layer.
        past: past each layer.
        biases: added before the attention of each layer, and after the last.
    """

    against: str
    texts: int
    heads: list[list[float]]
    past: list[float]
    biases: list[float]


def mean_contributions(
    model: nn.Module, batches: Iterable[Batch], reading: Reading
) -> MeanContributions:
    """Return the means over texts of what `split_likeliest` finds."""
    of_batches = []
    for batch in texts_apart(model, batches):
        parts = split_likeliest(model, batch, reading)
        heads = [of_layer.sum(dim=(2, 3)) for of_layer in parts.heads]  # [B, H] each
        of_batches.append((*heads, parts.past[..., 0], parts.biases[..., 0]))
    *layers, past, biases = (torch.cat(part) for part in zip(*of_batches, strict=True))
    return MeanContributions(
        "its absence" if isinstance(reading.objective, MultiLabel) else "the runner-up",
        len(biases),
        [of_layer.mean(dim=0).tolist() for of_layer in layers],
        past.mean(dim=0).tolist(),
        biases.mean(dim=0).tolist(),
    )
