"""Token ids of many texts in one array, and batches of texts of like length within a token budget.

Shape letters: N texts of a split, B texts of a batch, T tokens of its longest, C classes.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, starmap
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Num
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, Dataset, Sampler

from headscope.data.evidence import (
    NO_WORD,
    KnownNgrams,
    Ngrams,
    NgramTexts,
    Vocabulary,
    WordTexts,
)
from headscope.data.ngrams import ranges
from headscope.data.units import ReadText, read_texts
from headscope.ground.errors import panics_as_errors

Part = TypeVar("Part", bound=tuple[Any, ...])
# Tokens. Texts whose lengths fall into one bucket are mixed anew in each epoch. Padded to its end,
# batches have few shapes: a CPU's bfloat16 products are compiled anew for each shape.
BUCKET = 8
CHARACTERS_AT_A_TIME = 2**17  # that are tokenized


@dataclass(frozen=True)
class EncodedTexts:
    """The token ids of N texts."""

    ids: np.ndarray  # of all texts, one after the other
    starts: np.ndarray  # [N + 1], where each text begins; the last is where all end
    segments: np.ndarray | None  # for pairs, 0 or 1 beside each id
    num_cut: int  # texts longer than max_length
    words: WordTexts | None = None  # the word that each token shows, where they are asked for
    evidence: NgramTexts | None = None  # where the model reads it
    features: np.ndarray | None = None  # beside each id a frozen encoder's hidden state

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, [N]."""
        return np.diff(self.starts)


def encode_rows(
    tokenizer: Tokenizer, rows: Sequence[tuple[str, ...]], vocabulary: Vocabulary | None = None
) -> EncodedTexts:
    """Return the token ids of texts or pairs and, with a vocabulary, the word of each token."""
    is_pair = len(rows[0]) == 2
    num_cut = 0
    lengths = []
    ids = array("i")
    segments = array("B")
    words = array("i")
    word_counts = []
    for text in _few_at_a_time(tokenizer, rows, vocabulary is not None):
        num_cut += bool(text.encoding.overflowing)
        lengths.append(len(text.encoding))
        ids.fromlist(text.ids)  # twice as fast as NumPy
        if is_pair:
            segments.fromlist(text.encoding.type_ids)
        if vocabulary is not None:
            words.extend(
                NO_WORD if piece is None else vocabulary.number(piece) for piece in text.pieces()
            )
            word_counts.append(len(text.encoding) + len(text.rest))
    starts = np.cumsum([0, *lengths], dtype=np.int64)
    of_words = np.cumsum([0, *word_counts], dtype=np.int64)
    return EncodedTexts(
        np.array(ids),
        starts,
        np.array(segments) if is_pair else None,
        num_cut,
        None
        if vocabulary is None
        else WordTexts(vocabulary.words, np.array(words), of_words, np.diff(starts)),
    )


def _few_at_a_time(
    tokenizer: Tokenizer, rows: Sequence[tuple[str, ...]], has_words: bool
) -> Iterator[ReadText]:
    """Yield texts or pairs as a network reads them.

    A long text takes a hundred bytes and more a letter, so few are held at a time.
    """
    ends = np.cumsum([sum(map(len, parts)) for parts in rows]) // CHARACTERS_AT_A_TIME
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(rows)]
    for some in starmap(slice, pairwise(cuts)):
        with panics_as_errors():
            texts = read_texts(tokenizer, rows[some], counts_rest=has_words, has_places=has_words)
        yield from texts


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[tuple[str, ...]],
    evidence: KnownNgrams | None = None,
) -> EncodedTexts:
    """Return the token ids of texts or pairs and, with `evidence`, each token's known n-grams."""
    encoded = encode_rows(tokenizer, texts, None if evidence is None else Vocabulary())
    if evidence is None or encoded.words is None:
        return encoded
    return replace(encoded, evidence=evidence.find(encoded.words))


class Batch(NamedTuple):
    """B texts, padded to the longest of them.

    A label is the class of a text, -1 where it is unknown; or, where a text has any number of
    them, 1 at the classes that it has and 0 at the others.
    """

    token_ids: Int[Tensor, "B T"]  # 0 at padding
    key_padding_mask: Bool[Tensor, "B T"] | None  # True at padding; None without any: faster
    segment_ids: Int[Tensor, "B T"] | None  # for pairs, which text a token belongs to
    labels: Int[Tensor, "B *C"]
    rows: Int[Tensor, " B"]  # place of each text in its split
    evidence: Ngrams | None = None  # where the model reads it
    features: Float[Tensor, "B T F"] | None = None  # hidden states of a frozen encoder, if known

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the network is called with."""
        known: tuple[Any, ...] = () if self.evidence is None else (self.evidence,)
        if self.features is not None:
            known = (self.evidence, self.features)
        return self.token_ids, self.key_padding_mask, self.segment_ids, *known


def moved(part: Part, device: torch.device) -> Part:
    """Return a batch, or a part of one, on a device."""
    on_device: Part = tree_map_only(Tensor, lambda tensor: tensor.to(device), part)
    return on_device


class TokenBudgetSampler(Sampler[list[int]]):
    """Yield lists of rows whose texts, padded to their bucket's end, fill at most tokens_per_batch.

    A longer text is a batch of its own. Texts are sorted by bucket, shuffled within each, cut into
    batches, and the batches shuffled, in the same way for the same seed and epoch. The cuts depend
    on lengths and shares alone, so every epoch has as many batches.

    Several processes take a batch each in every round. The batches of a round are neighbours in
    length, so that none waits long for another. In training, batches that fill no round are left
    out, others in each epoch.

    Args:
        lengths: tokens of each text.
        tokens_per_batch: the budget, padding included.
        seed: of the order; None keeps texts of a length in their own order and the short ones
            first.
        rank: which batch of a round this process takes.
        world_size: N, how many processes share the batches.
        passes: how often an epoch goes over the texts, each time in another order.
        shares: with a seed, draw each text in proportion to this; None: each comes once in a pass.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        tokens_per_batch: int,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        passes: int = 1,
        shares: np.ndarray | None = None,
    ) -> None:
        self.buckets = -(-lengths // BUCKET)  # rounded up
        # How often each text is to come in a pass.
        self.expected = None if shares is None else shares * (len(shares) / shares.sum())
        self.seed = seed
        self.epoch = 0
        self.rank = rank
        self.world_size = world_size
        self.passes = passes
        self.cuts = [0]  # where a batch begins among the texts by growing length
        start = 0
        # Wherever the draw of a pass begins, no place has a longer text than at its end.
        longest = self.buckets[self._drawn(np.argsort(self.buckets, kind="stable"), 1.0)] * BUCKET
        for row, length in enumerate(longest):
            if row > start and (row - start + 1) * length > tokens_per_batch:
                self.cuts.append(start := row)
        self.cuts.append(len(lengths))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order is drawn next; Lightning calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of this process in an epoch."""
        whole, rest = divmod(len(self.cuts) - 1, self.world_size)
        return self.passes * (whole + (self.seed is None and self.rank < rest))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's batches of the epoch."""
        for number in range(self.epoch * self.passes, (self.epoch + 1) * self.passes):
            yield from self._of_pass(number)

    def _of_pass(self, number: int) -> Iterator[list[int]]:
        count = len(self.cuts) - 1
        if self.seed is None:
            rows = np.argsort(self.buckets, kind="stable")
            mine: Iterable[int] = range(self.rank, count, self.world_size)
        else:
            random = np.random.default_rng([self.seed, number])
            rows = self._shuffled(np.arange(len(self.buckets)), random)
            if self.expected is not None:
                rows = self._shuffled(self._drawn(rows, random.random()), random)  # copies apart
            drawn = np.random.default_rng([number, self.seed]).permutation(count)
            whole = np.sort(drawn[count % self.world_size :])  # as many as fill their rounds
            rounds = whole.reshape(-1, self.world_size)
            mine = [random.permutation(each)[self.rank] for each in random.permutation(rounds)]
        for cut in mine:
            yield rows[self.cuts[cut] : self.cuts[cut + 1]].tolist()

    def _drawn(self, rows: np.ndarray, offset: float) -> np.ndarray:
        """Return as many rows, each as often as expected, rounded up or down.

        Each row has a stretch as long as it is expected on a line from 0 to N; the row at `offset`
        is drawn, and at each point 1 further on (systematic sampling, Madow and Madow 1944).
        """
        if self.expected is None:
            return rows
        ends = self.expected[rows].cumsum()
        places = np.searchsorted(ends, np.arange(len(rows)) + offset)
        return rows[np.minimum(places, len(rows) - 1)]

    def _shuffled(self, rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return rows by growing bucket, in random order within each."""
        return rows[np.lexsort([random.random(len(rows)), self.buckets[rows]])]


def by_length(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield rows of batches of at most tokens_per_batch positions, longest texts first.

    Nothing is drawn, as it is in training, so there is hardly any padding. A text that is longer
    than that is a batch of its own.
    """
    order: list[int] = np.argsort(-lengths, kind="stable").tolist()
    start = 0
    while start < len(order):
        count = max(1, tokens_per_batch // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count


class TextBatches(Dataset[Batch]):
    """Encoded texts with their labels, if known, a whole batch at a time: `batches[[3, 1, 4]]`.

    Texts are padded to the longest of the batch or, with `multiple`, to the next multiple of that
    many tokens, but not beyond the longest text of all.
    """

    def __init__(
        self, texts: EncodedTexts, labels: np.ndarray | None = None, multiple: int = 1
    ) -> None:
        self.texts = texts
        self.multiple = multiple
        self.labels = np.full(len(texts.lengths), -1) if labels is None else labels

    def __getitem__(self, rows: list[int]) -> Batch:
        """Return the texts of these rows, padded."""
        texts = self.texts
        starts = texts.starts[rows]
        lengths = texts.lengths[rows]
        tokens = ranges(starts, lengths)
        longest = int(-(-lengths.max() // self.multiple) * self.multiple)
        longest = min(longest, int(texts.lengths.max()))
        padding = np.arange(longest) >= lengths[:, None]  # [B, T]

        def padded(flat: np.ndarray, kind: type = np.int64) -> Num[Tensor, "B T *F"]:
            table = np.zeros((*padding.shape, *flat.shape[1:]), kind)
            table[~padding] = flat[tokens]
            return torch.from_numpy(table)

        return Batch(
            padded(texts.ids),
            torch.from_numpy(padding) if padding.any() else None,
            None if texts.segments is None else padded(texts.segments),
            torch.from_numpy(self.labels[rows]),
            torch.tensor(rows),
            None if texts.evidence is None else texts.evidence.of(rows, longest),
            features=None if texts.features is None else padded(texts.features, np.float32),
        )


class BatchLoader(DataLoader[Batch]):
    """Yield the sampler's batches; a stopped epoch resumes where it was."""

    def __init__(self, batches: TextBatches, sampler: TokenBudgetSampler) -> None:
        # batch_size=None: an item is a whole batch already, so nothing is left to collate.
        super().__init__(batches, sampler=sampler, batch_size=None)
        self.done = self.skip = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """Yield the batches of the sampler's epoch, or what a stopped one left of them."""
        self.done = self.skip
        self.skip = 0
        for rows in islice(self.sampler, self.done, None):
            self.done += 1
            yield self.dataset[rows]

    def state_dict(self) -> dict[str, int]:
        """Return how many batches of the epoch are done, for Lightning's checkpoint."""
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Skip the batches that are done, none if the whole epoch is; Lightning calls this."""
        self.skip = state["done"] % len(self)
