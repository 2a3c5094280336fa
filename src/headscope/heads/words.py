"""What a model learned, over many texts: the words that add most to each class, for each head too.

Of each text the log-odds of its likeliest class against the runner-up are split into words, and
into what passes through each head at them (`headscope.heads.contributions`): the very numbers that
the page shows of the text. A word's part counts for the first class and, with the opposite sign,
for the second; with any number of classes, for the likeliest alone, against its absence.

Shape letters: N texts, T tokens of a text, L layers, H heads of each, P = 1 + L H parts.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from tokenizers import Encoding
from torch import nn

from headscope.data.batching import Batch
from headscope.heads.capture import texts_apart
from headscope.heads.contributions import split_likeliest
from headscope.model.objective import MultiLabel, Reading


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
    """

    row: int
    pair: tuple[int, int]
    log_odds: float
    tokens: Float[np.ndarray, "T P"]
    heads: tuple[int, ...]


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
            yield TextParts(row, (first, second), log_odds, own, counts)
        if time.perf_counter() - start > seconds:
            return


def words_of(encoding: Encoding, parts: Sequence[str], lowercase: bool) -> list[str]:
    """Return the word that each token is of: tokens of one word have it whole."""
    words = []
    tokens = zip(encoding.tokens, encoding.sequence_ids, encoding.word_ids, strict=True)
    for token, part, word in tokens:
        own = ""
        if part is not None and word is not None:
            own = parts[part][slice(*(encoding.word_to_chars(word, part) or (0, 0)))].strip()
        words.append((own.lower() if lowercase else own) or token)
    return words


def word_table(
    found: Sequence[TextParts], words: Sequence[Sequence[str]], heads: Sequence[str]
) -> pd.DataFrame:
    """Return what each word adds to each class over all texts.

    Args:
        found: the parts of texts.
        words: the word of each token of each of these texts.
        heads: the names of the L H heads.

    Returns:
        One row for each class and word that occurs in a text that is held for or against it, by
        falling sum: `class` (its number), `word`, `sum` and `mean` over the texts in which it
        occurs, in nats, their number `texts`, the row of the text in which it adds or takes most as
        `example`, and what passes through each head, in a column of its name.
    """
    lengths = [len(text.tokens) for text in found]
    values = np.concatenate([text.tokens for text in found])  # [tokens, P]
    frame = pd.DataFrame(np.concatenate([values, -values]), columns=["sum", *heads])
    pairs = np.array([text.pair for text in found])  # [N, 2]
    frame["class"] = np.concatenate([np.repeat(pairs[:, side], lengths) for side in (0, 1)])
    frame["word"] = 2 * [word for own in words for word in own]
    frame["example"] = np.tile(np.repeat([text.row for text in found], lengths), 2)
    keys = ["class", "word"]
    by_text = frame[frame["class"] >= 0].groupby([*keys, "example"], sort=False).sum().reset_index()
    by_text = by_text.sort_values("sum", key=abs, ascending=False, kind="stable")
    groups = by_text.groupby(keys, sort=False)
    first = {"sum": groups["sum"].sum(), "mean": groups["sum"].mean(), "texts": groups.size()}
    table = pd.DataFrame(first).assign(example=groups["example"].first()).join(groups[heads].sum())
    return table.reset_index().sort_values(["class", "sum"], ascending=[True, False])
