"""What a token says about the classes before anything is learned, counted in the training texts.

What an n-gram g of a token (`headscope.data.ngrams`) says about a class c is naive Bayes' log-count
ratio (Wang and Manning 2012, Baselines and Bigrams, section 2.1), weighted by how rare it is
(Salton and Buckley 1988, Term-Weighting Approaches in Automatic Text Retrieval):

    r_gc = s_g ln((p_gc / sum_h p_hc) / (q_gc / sum_h q_hc)),
    s_g = (1 + ln((1 + N) / (1 + n_g))) / 5.

p_gc counts the training texts of class c with g and q_gc those of other classes, both plus 1; n_g
of N training texts have g.

**A training text never sees its own label.** A rare n-gram points at the class of the very text
that is learned. So training texts are dealt into folds, near-duplicates into one, and the evidence
of a text is counted in the other folds alone (cross-fitting; the cure for the leak of target
encoding: Micci-Barreca 2001). That of other texts has all counts. `TextDataModule` deals the folds,
`headscope.model.classifier.TokenEvidence` reads the counts without a text's own.

**What is not read counts too.** A text beyond max_length ends in several [SEP], a quarter of its
tokens at most, and each has the n-grams of a section of what stands there and after it, scaled down
by `headscope.model.classifier.TokenEvidence`; pairs of texts have no rest.

Letters: N texts, W distinct words, n known n-grams, C classes, K folds, M n-grams of a batch.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix
from torch import Tensor

from headscope.data.ngrams import (
    NO_KEY,
    context_keys,
    numbers_of,
    ranges,
    tokens_of_words,
    word_keys,
)
from headscope.data.units import is_character, normal_form, sections
from headscope.ground.arrays import cached_arrays
from headscope.ground.files import digest

MIN_TEXTS = 2  # an n-gram of one training text says nothing about others
# N-grams of characters overlap: what is rare among them repeats what a longer word says.
MIN_TEXTS_OF_CHARACTERS = 4
MAX_NGRAMS = 2**18  # the most frequent, by training texts
MAX_WEIGHTS = 2**25  # n-grams times classes: all tables of ratios need 1.5 GB
FOLDS = 10
SMOOTHING = 1.0
SCALE = 5.0
# Raise it when others are extracted, chosen or counted, so that saved ones are not misread.
RECIPE = "2"
TOKENS_AT_ONCE = 100_000
NO_WORD = -1  # of special tokens


class Ngrams(NamedTuple):
    """The known n-grams of B texts of T positions: M of them, in any order."""

    ids: Int[Tensor, " M"]
    places: Int[Tensor, " M"]  # which of the B * T positions each is at, counted row by row
    folds: Int[Tensor, " B"]  # whose counts a text must not see; -1 where it may see all

    def repeated(self, times: int, length: int) -> "Ngrams":
        """Return the n-grams of the batch repeated `times`, of texts of `length` positions."""
        positions = len(self.folds) * length
        shift = positions * torch.arange(times, device=self.ids.device)[:, None]
        return Ngrams(
            self.ids.repeat(times), (self.places + shift).flatten(), self.folds.repeat(times)
        )


class Vocabulary:
    """The distinct words of some texts, numbered in the order of their first places."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._pieces: dict[str, int] = {}

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self._words)

    def number(self, piece: str) -> int:
        """Return the number of the word in a piece of text: NFKC, lower case, stripped."""
        if piece not in self._pieces:
            word = normal_form(piece).strip()
            new = len(self._words)
            self._pieces[piece] = self._words.setdefault(word, new) if word else NO_WORD
        return self._pieces[piece]


@dataclass(frozen=True)
class WordTexts:
    """The words of N texts, token by token, before the last token those that are not read."""

    words: list[str]  # the distinct ones, [W]
    word_ids: np.ndarray  # which of them each token is, end to end; -1 at special tokens
    starts: np.ndarray  # [N + 1], where each text begins
    read: np.ndarray | None = None  # [N], the tokens of each text that are read; None: all

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text that are read, [N]."""
        return np.diff(self.starts) if self.read is None else self.read


@dataclass(frozen=True)
class NgramTexts:
    """The known n-grams of N texts, collected at each token when a batch asks for them."""

    texts: WordTexts
    context_ngrams: np.ndarray  # [tokens, 2], of two words and of three characters, or -1
    ngrams_of_words: np.ndarray  # of each word itself and of its characters, end to end
    word_starts: np.ndarray  # [W + 2], where each word's begin; last those of special tokens: none
    folds: np.ndarray  # [N], the fold whose counts each text must not see, or -1

    def of(self, rows: Sequence[int] | np.ndarray, length: int | None = None) -> Ngrams:
        """Return the n-grams of a batch of rows, padded to `length`, by default the longest.

        Those of what is not read are at the last tokens.
        """
        rows = np.asarray(rows)
        starts = self.texts.starts[rows]
        counts = self.texts.starts[rows + 1] - starts
        tokens = ranges(starts, counts)
        lengths = self.texts.lengths[rows]
        first = np.arange(len(lengths)) * (length or lengths.max())
        carriers = sections(lengths, counts - lengths)
        places = np.repeat(first, counts) + tokens_of_words(lengths, counts, carriers)
        words = self.texts.word_ids[tokens]
        begin = self.word_starts[:-1][words]
        counts = self.word_starts[1:][words] - begin
        context = self.context_ngrams[tokens].ravel()
        ids = [self.ngrams_of_words[ranges(begin, counts)], context[context >= 0]]
        where = [np.repeat(places, counts), np.repeat(places, 2)[context >= 0]]
        return Ngrams(
            torch.from_numpy(np.concatenate(ids).astype(np.int64)),
            torch.from_numpy(np.concatenate(where)),
            torch.from_numpy(self.folds[rows]),
        )

    def by_text(self, rows: np.ndarray, num_ngrams: int) -> csc_matrix:
        """Return which n-grams each of some texts has, [rows, n] of bool."""
        evidence = self.of(rows)
        longest = self.texts.lengths[rows].max()
        text = evidence.places.numpy() // longest
        found = (np.ones(len(text), bool), (text, evidence.ids.numpy()))
        repeated = coo_matrix(found, (len(rows), num_ngrams))
        repeated.has_canonical_format = True  # or it would be sorted: most of the time
        has_ngram: csc_matrix = repeated.tocsr().tocsc()
        has_ngram.sum_duplicates()
        return has_ngram


class _Keys(NamedTuple):
    """The n-grams of some texts by key, a hash of 64 bits."""

    of_words: np.ndarray  # of each word itself and of its character n-grams, end to end
    word_starts: np.ndarray  # [W + 2], where each word's begin; last those of special tokens
    context: np.ndarray  # [tokens, 2], of two words and of three characters that end there
    of_characters: np.ndarray  # those of `context` that are characters alone


def _keys(texts: WordTexts) -> _Keys:
    of_words, starts = word_keys(texts.words)
    # The last one, at -1, is that of special tokens.
    words = np.append(of_words[starts[:-1]], NO_KEY)[texts.word_ids]
    is_sign = np.array([*map(is_character, texts.words), False])[texts.word_ids]
    context = context_keys(words, is_sign)
    pairs = context[1:, 0][is_sign[1:] & is_sign[:-1]]
    of_characters = np.unique(np.concatenate([pairs, context[:, 1]]))
    return _Keys(of_words, np.append(starts, starts[-1]), context, of_characters)


@dataclass(frozen=True)
class KnownNgrams:
    """Which n-grams are known: sorted by key, [n] of uint64."""

    keys: np.ndarray

    def __len__(self) -> int:
        """Return the number of known n-grams."""
        return len(self.keys)

    def find(
        self, texts: WordTexts, folds: np.ndarray | None = None, keys: _Keys | None = None
    ) -> NgramTexts:
        """Return the known n-grams of texts; `folds` are those of training texts."""
        keys = keys or _keys(texts)
        ngrams = numbers_of(keys.of_words, self.keys)
        is_known = ngrams >= 0
        starts = np.concatenate([[0], np.cumsum(is_known)])[keys.word_starts]
        if folds is None:
            folds = np.full(len(texts.starts) - 1, -1, np.int64)
        context = numbers_of(keys.context, self.keys)
        return NgramTexts(texts, context, ngrams[is_known], starts, folds)

    def tensor(self) -> Int[Tensor, " n"]:
        """Return the keys as a file holds them."""
        return torch.from_numpy(self.keys.view(np.int64))

    @classmethod
    def of(cls, keys: Int[Tensor, " n"]) -> "KnownNgrams":
        """Return the vocabulary of a file's keys; ValueError unless they are sorted."""
        numbers = keys.numpy().view(np.uint64)
        if not (numbers[1:] > numbers[:-1]).all():
            raise ValueError("expected sorted keys of n-grams")
        return cls(numbers)


def known_ngrams(
    texts: WordTexts,
    most: int = MAX_NGRAMS,
    keys: _Keys | None = None,
    groups: np.ndarray | None = None,
) -> KnownNgrams:
    """Return the n-grams of two training texts or more (of characters: four), the most frequent.

    Those of few `groups` [N], such as a customer's name, are left out: training counts them without
    the group, which leaves nothing or the opposite, and the network would misread what all counts
    say of a known customer.
    """
    keys = keys or _keys(texts)
    distinct = np.unique(np.concatenate([keys.of_words, keys.context.ravel()]))
    distinct = distinct[distinct != NO_KEY]
    of_texts = KnownNgrams(distinct).find(texts, keys=keys)
    counts, of_groups = _counts(of_texts, len(distinct), groups)
    counts[(of_groups < FOLDS) & (counts >= 2 * of_groups)] = 0
    is_of_characters = np.isin(distinct, keys.of_characters)
    chosen = np.flatnonzero(
        counts >= np.where(is_of_characters, MIN_TEXTS_OF_CHARACTERS, MIN_TEXTS)
    )
    chosen = chosen[np.argsort(-counts[chosen], kind="stable")[:most]]
    return KnownNgrams(distinct[np.sort(chosen)])


def _counts(
    texts: NgramTexts, num_ngrams: int, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts and the groups with each n-gram, [n] each; by default texts are groups."""
    counts = np.zeros(num_ngrams, np.int64)
    if groups is None:
        for rows in _chunks(np.arange(len(texts.folds)), texts.texts):
            counts += np.diff(texts.by_text(rows, num_ngrams).indptr)
        return counts, counts
    of_groups = np.zeros(num_ngrams, np.int64)
    last = np.full(num_ngrams, -1)
    for rows in _chunks(np.argsort(groups, kind="stable"), texts.texts):
        has_ngram = texts.by_text(rows, num_ngrams)  # [rows, n], each column's rows in order
        of_rows = np.diff(has_ngram.indptr)
        counts += of_rows
        ngrams = np.repeat(np.arange(num_ngrams), of_rows)
        group = groups[rows[has_ngram.indices]]
        is_next = (ngrams[1:] != ngrams[:-1]) | (group[1:] != group[:-1])
        is_new = np.append(True, is_next) & (last[ngrams] != group)  # a chunk may begin within one
        of_groups += np.bincount(ngrams[is_new], minlength=num_ngrams)
        last[ngrams] = group
    return counts, of_groups


def cached_ngrams(
    texts: WordTexts,
    known: KnownNgrams | None,
    most: int,
    cache: Path,
    groups: np.ndarray | None = None,
) -> tuple[KnownNgrams, NgramTexts]:
    """Return the known n-grams of texts, by default their own (`known_ngrams`), from the cache."""

    def find() -> dict[str, np.ndarray]:
        keys = _keys(texts)
        chosen = known or known_ngrams(texts, most, keys, groups)
        found = chosen.find(texts, keys=keys)
        ngrams = {"context": found.context_ngrams, "of_words": found.ngrams_of_words}
        return {"known": chosen.keys.view(np.int64), "starts": found.word_starts, **ngrams}

    given: list[Any] = [f"{most}"] if known is None else [known.keys]
    given += [] if groups is None else [groups]
    of_texts = (json.dumps(texts.words), texts.word_ids, texts.starts)
    name = digest([RECIPE, *given, *of_texts]).hex()
    arrays = cached_arrays(cache / "ngrams" / f"{name}.safetensors", find)
    folds = np.full(len(texts.starts) - 1, -1, np.int64)
    ngrams = NgramTexts(texts, arrays["context"], arrays["of_words"], arrays["starts"], folds)
    return KnownNgrams(arrays["known"].view(np.uint64)), ngrams


def _chunks(rows: np.ndarray, texts: WordTexts) -> Iterator[np.ndarray]:
    """Yield some of the rows at a time, of about TOKENS_AT_ONCE tokens."""
    tokens = np.cumsum(np.diff(texts.starts)[rows])
    cuts = np.flatnonzero(np.diff(tokens // TOKENS_AT_ONCE)) + 1
    return (some for some in np.split(rows, cuts) if len(some))


def assign_folds(groups: np.ndarray, count: int = FOLDS, seed: int = 0) -> np.ndarray:
    """Return a fold for each training text, [N] of 0 to K - 1; near-duplicates share one.

    The same for the same groups, so that a resumed run counts what it has counted.
    """
    _, numbers = np.unique(groups, return_inverse=True)
    return (np.random.default_rng(seed).permutation(numbers.max() + 1) % count)[numbers]


def cached_ratios(
    texts: NgramTexts, classes: np.ndarray, num_ngrams: int, cache: Path
) -> np.ndarray:
    """Return `log_count_ratios`, from the cache."""
    words = (texts.texts.word_ids, texts.texts.starts, texts.folds, classes)
    ngrams = (texts.context_ngrams, texts.ngrams_of_words, texts.word_starts)
    name = digest([f"{RECIPE} {num_ngrams}", *words, *ngrams]).hex()
    return cached_arrays(
        cache / "ngrams" / f"{name}.safetensors",
        lambda: {"ratios": log_count_ratios(texts, classes, num_ngrams)},
    )["ratios"]


def log_count_ratios(texts: NgramTexts, classes: np.ndarray, num_ngrams: int) -> np.ndarray:
    """Return each n-gram's log-count ratios, [K + 1, n, C]: without each fold, last with all texts.

    `classes` are [N, C], True where a training text has a class; num_ngrams is n.
    """
    N, C = classes.shape
    classes_and_any = csr_matrix(np.hstack([classes, np.ones((N, 1), bool)]), dtype=np.float32)
    counts = []  # of each fold the texts with an n-gram, [n, C + 1]; sparse, or they need gigabytes
    for fold in range(FOLDS):
        counts.append(csr_matrix((num_ngrams, C + 1), dtype=np.float32))
        for rows in _chunks(np.flatnonzero(texts.folds == fold), texts.texts):
            has_ngram = texts.by_text(rows, num_ngrams).astype(np.float32)
            counts[fold] += has_ngram.T @ classes_and_any[rows]
    total = sum(counts[1:], counts[0]).toarray()  # [n, C + 1]
    num_texts = total[:, -1:]  # [n, 1]
    scale = (1 + np.log((1 + N) / (1 + num_texts))) / SCALE  # s, [n, 1]

    def write_log_ratios(counts: np.ndarray, ratios: np.ndarray) -> None:
        np.add(counts[:, :-1], SMOOTHING, out=ratios)
        outside = counts[:, -1:] - counts[:, :-1] + SMOOTHING
        for table in (ratios, outside):
            table /= table.sum(axis=0, dtype=np.float64).astype(np.float32)
            np.log(table, out=table)
        ratios -= outside
        ratios *= scale

    ratios = np.empty((FOLDS + 1, num_ngrams, C), np.float32)
    for fold in range(FOLDS):
        write_log_ratios(total - counts[fold].toarray(), ratios[fold])
    write_log_ratios(total, ratios[-1])
    return ratios
