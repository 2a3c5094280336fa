"""What a token says about the classes before anything is learned, counted in the training texts.

To each token belong n-grams: its word, the pair with the word before, the runs of 3 and 4 letters within it (whose ends
are marked, as in Bojanowski et al. 2017, Enriching Word Vectors with Subword Information, section 3.2), and for
characters of Chinese, Japanese and Korean the run of three that ends there. What an n-gram g says about a class c is
naive Bayes' log-count ratio (Wang and Manning 2012, Baselines and Bigrams, section 2.1), weighted by how rare it is
(Salton and Buckley 1988, Term-Weighting Approaches in Automatic Text Retrieval):

    r_gc = s_g ln((p_gc / sum_h p_hc) / (q_gc / sum_h q_hc)),    s_g = (1 + ln((1 + N) / (1 + n_g))) / 5.

p_gc counts the training texts of class c with g and q_gc all others, both plus 1; n_g of N training texts have g.

**A training text must not be told its own label.** A rare n-gram points at the class of the very text that is learned.
So training texts are dealt into folds, near-duplicates into one, and what a text is told is counted in the other folds
alone (cross-fitting; the cure for the leak of target encoding: Micci-Barreca 2001). Other texts are told all counts.

Letters: N texts, U units (different words), n known n-grams, C classes, K folds, M n-grams of a batch.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix
from torch import Tensor

from headscope.data.tokenizer import is_character
from headscope.files import check_is_file, reading, write_atomic

RUNS = (3, 4)  # letters of a run within a word, its marked ends counted
FEWEST_TEXTS = 2  # an n-gram of one training text says nothing about others
FEWEST_OF_CHARACTERS = (
    4  # runs of characters overlap: what is rare among them repeats what a longer word says
)
MOST = 2**18  # known n-grams: those that most training texts have
FOLDS = 10
SMOOTHING = 1.0
SCALE = 5.0
RECIPE = "1"  # raise it when other n-grams are found, so that kept vocabularies are not misread
TEXTS_AT_ONCE = 1_000
NO_WORD = -1  # of special tokens


class Evidence(NamedTuple):
    """The known n-grams of B texts of T positions: M of them, in any order.

    Attributes:
        ids: numbers of the n-grams.
        places: at which of the B * T positions each stands, counted row by row.
        folds: of each text, the fold whose counts it must not see; -1 where it may see all.
    """

    ids: Int[Tensor, " M"]
    places: Int[Tensor, " M"]
    folds: Int[Tensor, " B"]

    def repeated(self, times: int, length: int) -> "Evidence":
        """Return the n-grams of the batch put `times` below itself, of texts of `length` positions."""
        shift = torch.arange(times, device=self.ids.device)[:, None] * (len(self.folds) * length)
        return Evidence(
            self.ids.repeat(times), (self.places + shift).flatten(), self.folds.repeat(times)
        )


class Vocabulary:
    """The different words of some texts, each with its number, in the order in which they were met."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers = {"": NO_WORD}
        self._of_pieces: dict[str, int] = {}

    def number(self, piece: str) -> int:
        """Return the number of the word that a piece of a text shows: in NFKC, lower case, without space around it."""
        found = self._of_pieces.get(piece)
        if found is None:
            word = unicodedata.normalize("NFKC", piece).lower().strip()
            found = self._of_pieces[piece] = self._numbers.setdefault(word, len(self.words))
            if found == len(self.words):
                self.words.append(word)
        return found


@dataclass(frozen=True)
class WordTexts:
    """The words of N texts, token by token.

    Attributes:
        words: the different ones.
        units: which of them each token is, end to end; -1 at special tokens.
        starts: [N + 1], where each text begins.
    """

    words: list[str]
    units: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class EvidenceTexts:
    """The known n-grams of N texts, found at each token when a batch asks for them.

    Attributes:
        units: of each token, end to end; -1 at special tokens.
        chains: [tokens, 2], the known n-gram of two words and of three characters that ends there, or -1.
        of_unit: the known n-grams of each unit, end to end: the word and its runs of letters.
        unit_starts: [U + 1], where each unit's begin.
        folds: [N], the fold whose counts each text must not see, or -1.
    """

    units: np.ndarray
    chains: np.ndarray
    of_unit: np.ndarray
    unit_starts: np.ndarray
    folds: np.ndarray

    def of(
        self, rows: Sequence[int] | np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int
    ) -> Evidence:
        """Return the n-grams of some rows, whose tokens begin at `starts`, in a batch of `width` positions."""
        tokens = _ranges(starts, lengths)
        places = _ranges(np.arange(len(lengths)) * width, lengths)
        units = self.units[tokens]
        is_word = units >= 0
        begin, end = self.unit_starts[units[is_word]], self.unit_starts[units[is_word] + 1]
        chains = self.chains[tokens].ravel()
        ids = np.concatenate([self.of_unit[_ranges(begin, end - begin)], chains[chains >= 0]])
        where = np.concatenate(
            [np.repeat(places[is_word], end - begin), np.repeat(places, 2)[chains >= 0]]
        )
        return Evidence(*map(torch.from_numpy, (ids.astype(np.int64), where, self.folds[rows])))


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return start, start + 1, ... of each range, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


class _Keys(NamedTuple):
    """N-grams by key, a hash of 64 bits: those of each unit, and of each token those with its neighbours."""

    words: np.ndarray  # [U]
    runs: np.ndarray  # of all units, end to end
    run_starts: np.ndarray  # [U + 1]
    chains: np.ndarray  # [tokens, 2]; 0 where there is none
    of_characters: np.ndarray  # [tokens, 2], True where a chain is one of characters


def _keys(texts: WordTexts) -> _Keys:
    def key(text: str) -> int:
        return int.from_bytes(
            blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
        )

    def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return a key for two n-grams in this order: the first mixed by an odd factor and a shift, then the second."""
        mixed: np.ndarray = (first ^ (first >> np.uint64(29))) * np.uint64(
            0x9E3779B97F4A7C15
        ) + second
        mixed = mixed ^ (mixed >> np.uint64(32))
        return mixed * np.uint64(0xD6E8FEB86659FD93)

    def character_ngrams(word: str) -> list[str]:
        """Return the different runs of letters of a word, its ends marked; a character by itself has none."""
        marked = f"<{word}>"
        found = {
            marked[start : start + size] for size in RUNS for start in range(len(marked) - size + 1)
        }
        return sorted(found - {marked}) if len(word) > 1 else []

    words = np.array([key(f"word {word}") for word in texts.words], dtype=np.uint64)
    runs = [[key(f"run {run}") for run in character_ngrams(word)] for word in texts.words]
    is_sign = np.array([is_character(word) for word in texts.words], dtype=bool)
    chains = np.zeros((len(texts.units), 2), np.uint64)
    of_characters = np.zeros(chains.shape, bool)
    if len(words):
        units = texts.units
        has_two = (units[1:] >= 0) & (
            units[:-1] >= 0
        )  # a special token stands between texts, and no pair across it
        pairs = joined(words[units[:-1]], words[units[1:]])
        chains[1:, 0] = np.where(has_two, pairs, 0)
        signs = is_sign[units] & (units >= 0)
        has_three = signs[2:] & signs[1:-1] & signs[:-2] & has_two[1:] & has_two[:-1]
        chains[2:, 1] = np.where(has_three, joined(pairs[:-1], words[units[2:]]), 0)
        of_characters[1:, 0], of_characters[2:, 1] = has_two & signs[1:] & signs[:-1], has_three
    flat = np.array([key for found in runs for key in found], dtype=np.uint64)
    return _Keys(
        words, flat, np.cumsum([0, *map(len, runs)], dtype=np.int64), chains, of_characters
    )


@dataclass(frozen=True)
class EvidenceVocabulary:
    """Which n-grams are known: sorted by key, [n] of uint64."""

    keys: np.ndarray

    def __len__(self) -> int:
        """Return how many n-grams are known."""
        return len(self.keys)

    def find(self, texts: WordTexts, folds: np.ndarray | None = None) -> EvidenceTexts:
        """Return the known n-grams of texts; `folds` are those of training texts."""
        keys = _keys(texts)
        words, runs, chains = (self._numbers(part) for part in (keys.words, keys.runs, keys.chains))
        lengths = np.diff(keys.run_starts) + 1
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        of_unit = np.empty(starts[-1], np.int32)
        of_unit[starts[:-1]] = words
        of_unit[_ranges(starts[:-1] + 1, lengths - 1)] = runs
        known = of_unit >= 0
        starts = np.concatenate([[0], np.cumsum(known)])[starts]
        if folds is None:
            folds = np.full(len(texts.starts) - 1, -1, np.int64)
        return EvidenceTexts(texts.units, chains, of_unit[known], starts, folds)

    def _numbers(self, keys: np.ndarray) -> np.ndarray:
        """Return the number of each key, -1 where it is unknown."""
        if not len(self.keys):
            return np.full(keys.shape, -1, np.int32)
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[found] == keys, found, -1).astype(np.int32)

    def save(self, path: Path) -> None:
        """Write evidence.safetensors."""
        content = {"keys": self.keys.view(np.int64)}
        write_atomic(path, lambda temporary: save_file(content, temporary, {"recipe": RECIPE}))


def load_evidence(path: Path) -> EvidenceVocabulary:
    """Read evidence.safetensors; RunError if the file is not one, or one of a version that finds other n-grams."""
    with reading(path):
        check_is_file(path)
        with safe_open(path, "numpy") as file:
            recipe, keys = (file.metadata() or {}).get("recipe"), file.get_tensor("keys")
        if recipe != RECIPE:
            raise ValueError("its n-grams are those of another version of headscope")
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise ValueError("does not hold n-grams")
        keys = keys.view(np.uint64)
        if not (keys[1:] > keys[:-1]).all():
            raise ValueError("does not hold n-grams: its keys are not sorted")
    return EvidenceVocabulary(keys)


def known_ngrams(texts: WordTexts) -> EvidenceVocabulary:
    """Return the n-grams that stand in two training texts or more, at most 262,144 of them, the most frequent ones.

    Runs of characters must stand in four.
    """
    keys = _keys(texts)

    def keys_of(row: int) -> np.ndarray:
        """Return the keys of a text's n-grams, each once."""
        part = slice(texts.starts[row], texts.starts[row + 1])
        units = np.unique(texts.units[part])
        units = units[units >= 0]
        begin = keys.run_starts[units]
        runs = keys.runs[_ranges(begin, keys.run_starts[units + 1] - begin)]
        return np.unique(np.concatenate([keys.words[units], runs, keys.chains[part].ravel()]))

    N, counted, waiting = len(texts.starts) - 1, (np.zeros(0, np.uint64), np.zeros(0, np.int64)), []
    for start in range(0, N, TEXTS_AT_ONCE):
        some = [keys_of(row) for row in range(start, min(start + TEXTS_AT_ONCE, N))]
        waiting.append(np.unique(np.concatenate(some), return_counts=True))
        if sum(len(keys) for keys, _ in waiting) > len(
            counted[0]
        ):  # adding each at once would take quadratic time
            counted, waiting = merge_counts([counted, *waiting]), []
    found, counts = merge_counts([counted, *waiting])
    counts[found == 0] = 0  # no n-gram
    of_characters = np.isin(found, np.unique(keys.chains[keys.of_characters]))
    chosen = np.flatnonzero(counts >= np.where(of_characters, FEWEST_OF_CHARACTERS, FEWEST_TEXTS))
    chosen = chosen[np.argsort(-counts[chosen], kind="stable")[:MOST]]
    return EvidenceVocabulary(found[np.sort(chosen)])


def merge_counts(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return all keys, each once, and the sums of their counts."""
    keys, places = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    return keys, np.bincount(
        places, np.concatenate([counts for _, counts in parts]), len(keys)
    ).astype(np.int64)


def assign_folds(groups: np.ndarray) -> np.ndarray:
    """Return a fold for each training text, [N] of 0 to K - 1: near-duplicates, of one group, are in one.

    The same for the same groups, so that a run that goes on counts what it has counted.
    """
    _, numbers = np.unique(groups, return_inverse=True)
    return (np.random.default_rng(0).permutation(numbers.max() + 1) % FOLDS)[numbers]


def log_count_ratios(
    texts: EvidenceTexts, starts: np.ndarray, classes: np.ndarray, num_ngrams: int
) -> np.ndarray:
    """Return what each n-gram says about each class, [K + 1, n, C]: without each fold, and last with all texts.

    Args:
        texts: the training texts, with their folds.
        starts: [N + 1], where each text's tokens begin.
        classes: [N, C], True where a text has a class.
        num_ngrams: n.
    """
    N, C = classes.shape
    marks = np.hstack([classes, np.ones((N, 1), bool)]).astype(
        np.float32
    )  # the last column is of any class
    by_fold = csr_matrix(
        (FOLDS * (C + 1), num_ngrams), dtype=np.float32
    )  # texts of each fold and class, or any class
    for first in range(0, N, TEXTS_AT_ONCE):
        rows = np.arange(first, min(first + TEXTS_AT_ONCE, N))
        lengths = np.diff(starts)[rows]
        found = texts.of(rows, starts[rows], lengths, width := int(lengths.max()))
        where = found.places.numpy() // width, found.ids.numpy()
        present = csr_matrix(
            (np.ones(len(found.ids), bool), where), (len(rows), num_ngrams)
        ).astype(np.float32)
        in_fold = np.zeros((len(rows), FOLDS, C + 1), np.float32)
        in_fold[np.arange(len(rows)), texts.folds[rows]] = marks[rows]
        by_fold = by_fold + csr_matrix(in_fold.reshape(len(rows), -1)).T @ present
    counts = [by_fold[fold * (C + 1) : (fold + 1) * (C + 1)] for fold in range(FOLDS)]
    everything = sum(counts).toarray().T  # [n, C + 1]
    scale = (1 + np.log((1 + N) / (1 + everything[:, -1:]))) / SCALE  # s, [n, 1]

    def log_ratios(counts: np.ndarray) -> np.ndarray:
        inside, outside = counts[:, :-1] + SMOOTHING, counts[:, -1:] - counts[:, :-1] + SMOOTHING
        ratios: np.ndarray = scale * (
            np.log(inside / inside.sum(axis=0)) - np.log(outside / outside.sum(axis=0))
        )
        return ratios

    ratios = np.empty((FOLDS + 1, num_ngrams, C), np.float32)
    for fold, count in enumerate(counts):
        ratios[fold] = log_ratios(everything - count.toarray().T)
    ratios[-1] = log_ratios(everything)
    return ratios
