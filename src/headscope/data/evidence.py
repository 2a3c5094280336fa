"""What a token says about the classes before anything is learned, counted in the training texts.

To each token belong n-grams: its word, the pair with the word before, the runs of 3 and 4 letters
within it (whose ends are marked, as in Bojanowski et al. 2017, Enriching Word Vectors with Subword
Information, section 3.2), and for characters of Chinese, Japanese and Korean the run of three that
ends there. What an n-gram g says about a class c is naive Bayes' log-count ratio (Wang and Manning
2012, Baselines and Bigrams, section 2.1), weighted by how rare it is (Salton and Buckley 1988,
Term-Weighting Approaches in Automatic Text Retrieval):

    r_gc = s_g ln((p_gc / sum_h p_hc) / (q_gc / sum_h q_hc)),    s_g = (1 + ln((1 + N) / (1 + n_g)))
    / 5.

p_gc counts the training texts of class c with g and q_gc all others, both plus 1; n_g of N training
texts have g.

**A training text never sees its own label.** A rare n-gram points at the class of the very text
that is learned. So training texts are dealt into folds, near-duplicates into one, and the evidence
of a text is counted in the other folds alone (cross-fitting; the cure for the leak of target
encoding: Micci-Barreca 2001). That of other texts has all counts.

Letters: N texts, W different words, n known n-grams, C classes, K folds, M n-grams of a batch.
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
MIN_TEXTS = 2  # an n-gram of one training text says nothing about others
# Runs of characters overlap: what is rare among them repeats what a longer word says.
MIN_TEXTS_OF_CHARACTERS = 4
MAX_NGRAMS = 2**18  # those that most training texts have
FOLDS = 10
SMOOTHING = 1.0
SCALE = 5.0
RECIPE = "1"  # raise it when other n-grams are found, so that saved vocabularies are not misread
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
        """Return the n-grams of the batch repeated `times`, of texts of `length` positions."""
        shift = torch.arange(times, device=self.ids.device)[:, None] * (len(self.folds) * length)
        return Evidence(
            self.ids.repeat(times), (self.places + shift).flatten(), self.folds.repeat(times)
        )


class Vocabulary:
    """The different words of some texts, numbered in the order of their first places."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers = {"": NO_WORD}
        self._of_pieces: dict[str, int] = {}

    def number(self, piece: str) -> int:
        """Return the number of the word in a piece of text: NFKC, lower case, stripped."""
        number = self._of_pieces.get(piece)
        if number is None:
            word = unicodedata.normalize("NFKC", piece).lower().strip()
            number = self._numbers.setdefault(word, len(self.words))
            self._of_pieces[piece] = number
            if number == len(self.words):
                self.words.append(word)
        return number


@dataclass(frozen=True)
class WordTexts:
    """The words of N texts, token by token.

    Attributes:
        words: the different ones, [W].
        word_ids: which of them each token is, end to end; -1 at special tokens.
        starts: [N + 1], where each text begins.
    """

    words: list[str]
    word_ids: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class EvidenceTexts:
    """The known n-grams of N texts, found at each token when a batch asks for them.

    Attributes:
        word_ids: of each token, end to end; -1 at special tokens.
        context_ngrams: [tokens, 2], the known n-gram of two words and of three characters that ends
            there, or -1.
        ngrams_of_words: the known n-grams of each word, end to end: itself and its runs of letters.
        word_starts: [W + 1], where each word's begin.
        folds: [N], the fold whose counts each text must not see, or -1.
    """

    word_ids: np.ndarray
    context_ngrams: np.ndarray
    ngrams_of_words: np.ndarray
    word_starts: np.ndarray
    folds: np.ndarray

    def of(
        self, rows: Sequence[int] | np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int
    ) -> Evidence:
        """Return the n-grams of rows, whose tokens begin at `starts`, in a batch of `width`."""
        tokens = _ranges(starts, lengths)
        places = _ranges(np.arange(len(lengths)) * width, lengths)
        is_word = self.word_ids[tokens] >= 0
        words = self.word_ids[tokens][is_word]
        begin = self.word_starts[words]
        counts = self.word_starts[words + 1] - begin
        context = self.context_ngrams[tokens].ravel()
        ids = [self.ngrams_of_words[_ranges(begin, counts)], context[context >= 0]]
        where = [np.repeat(places[is_word], counts), np.repeat(places, 2)[context >= 0]]
        return Evidence(
            torch.from_numpy(np.concatenate(ids).astype(np.int64)),
            torch.from_numpy(np.concatenate(where)),
            torch.from_numpy(self.folds[rows]),
        )


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return start, start + 1, ... of each range, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


class _Keys(NamedTuple):
    """N-grams by key, a hash of 64 bits: of each word, and of each token with its neighbours."""

    words: np.ndarray  # [W]
    runs: np.ndarray  # of all words, end to end
    run_starts: np.ndarray  # [W + 1]
    context: np.ndarray  # [tokens, 2]; 0 where there is none
    is_of_characters: np.ndarray  # [tokens, 2], True where a context n-gram is one of characters


def _keys(texts: WordTexts) -> _Keys:
    words = np.array([_key(f"word {word}") for word in texts.words], dtype=np.uint64)
    runs = [[_key(f"run {run}") for run in character_ngrams(word)] for word in texts.words]
    run_starts = np.cumsum([0, *map(len, runs)], dtype=np.int64)
    flat = np.array([key for keys in runs for key in keys], dtype=np.uint64)
    context = np.zeros((len(texts.word_ids), 2), np.uint64)
    is_of_characters = np.zeros(context.shape, bool)
    if len(words):
        ids = texts.word_ids
        is_word = ids >= 0
        # A special token stands between texts, and no pair reaches across it.
        has_two = is_word[1:] & is_word[:-1]
        pairs = _joint_key(words[ids[:-1]], words[ids[1:]])
        context[1:, 0] = np.where(has_two, pairs, 0)
        is_sign = np.array([is_character(word) for word in texts.words], dtype=bool)[ids] & is_word
        of_two = is_sign[1:] & is_sign[:-1]
        of_three = is_sign[2:] & is_sign[1:-1] & is_sign[:-2]
        context[2:, 1] = np.where(of_three, _joint_key(pairs[:-1], words[ids[2:]]), 0)
        is_of_characters[1:, 0] = of_two
        is_of_characters[2:, 1] = of_three
    return _Keys(words, flat, run_starts, context, is_of_characters)


def _key(text: str) -> int:
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def _joint_key(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return a key for two n-grams in this order."""
    mixed: np.ndarray = (first ^ (first >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + second
    mixed = mixed ^ (mixed >> np.uint64(32))
    return mixed * np.uint64(0xD6E8FEB86659FD93)


def character_ngrams(word: str) -> list[str]:
    """Return the different runs of letters of a word, its ends marked; one character has none."""
    if len(word) < 2:
        return []
    marked = f"<{word}>"
    runs = {
        marked[start : start + size] for size in RUNS for start in range(len(marked) - size + 1)
    }
    return sorted(runs - {marked})


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
        lengths = np.diff(keys.run_starts) + 1  # the word and its runs
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ngrams = np.empty(starts[-1], np.int32)
        ngrams[starts[:-1]] = self._numbers(keys.words)
        ngrams[_ranges(starts[:-1] + 1, lengths - 1)] = self._numbers(keys.runs)
        is_known = ngrams >= 0
        starts = np.concatenate([[0], np.cumsum(is_known)])[starts]
        if folds is None:
            folds = np.full(len(texts.starts) - 1, -1, np.int64)
        context = self._numbers(keys.context)
        return EvidenceTexts(texts.word_ids, context, ngrams[is_known], starts, folds)

    def _numbers(self, keys: np.ndarray) -> np.ndarray:
        """Return the number of each key, -1 where it is unknown."""
        if not len(self.keys):
            return np.full(keys.shape, -1, np.int32)
        numbers = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[numbers] == keys, numbers, -1).astype(np.int32)

    def save(self, path: Path) -> None:
        """Write evidence.safetensors."""
        content = {"keys": self.keys.view(np.int64)}
        write_atomic(path, lambda temporary: save_file(content, temporary, {"recipe": RECIPE}))


def load_evidence(path: Path) -> EvidenceVocabulary:
    """Read evidence.safetensors; RunError for another file, or one with other n-grams."""
    with reading(path):
        check_is_file(path)
        with safe_open(path, "numpy") as file:
            recipe = (file.metadata() or {}).get("recipe")
            keys = file.get_tensor("keys")
        if recipe != RECIPE:
            raise ValueError("its n-grams are those of another version of headscope")
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise ValueError("does not hold n-grams")
        keys = keys.view(np.uint64)
        if not (keys[1:] > keys[:-1]).all():
            raise ValueError("does not hold n-grams: its keys are not sorted")
    return EvidenceVocabulary(keys)


def known_ngrams(texts: WordTexts) -> EvidenceVocabulary:
    """Return the n-grams of two training texts or more, at most 262,144, the most frequent ones.

    Runs of characters must stand in four.
    """
    keys = _keys(texts)

    def ngram_keys(row: int) -> np.ndarray:
        """Return the keys of a text's n-grams, each once."""
        tokens = slice(texts.starts[row], texts.starts[row + 1])
        words = np.unique(texts.word_ids[tokens])
        words = words[words >= 0]
        begin = keys.run_starts[words]
        runs = keys.runs[_ranges(begin, keys.run_starts[words + 1] - begin)]
        return np.unique(np.concatenate([keys.words[words], runs, keys.context[tokens].ravel()]))

    num_texts = len(texts.starts) - 1
    totals = (
        np.zeros(0, np.uint64),
        np.zeros(0, np.int64),
    )  # keys, and the number of texts with each
    pending: list[tuple[np.ndarray, np.ndarray]] = []
    for start in range(0, num_texts, TEXTS_AT_ONCE):
        rows = range(start, min(start + TEXTS_AT_ONCE, num_texts))
        some = np.concatenate([ngram_keys(row) for row in rows])
        pending.append(np.unique(some, return_counts=True))
        if sum(len(part) for part, _ in pending) > len(totals[0]):
            totals = merge_counts([totals, *pending])  # sorts all keys, so it is done rarely
            pending = []
    known, counts = merge_counts([totals, *pending])
    counts[known == 0] = 0  # no n-gram
    of_characters = np.isin(known, np.unique(keys.context[keys.is_of_characters]))
    fewest = np.where(of_characters, MIN_TEXTS_OF_CHARACTERS, MIN_TEXTS)
    chosen = np.flatnonzero(counts >= fewest)
    chosen = chosen[np.argsort(-counts[chosen], kind="stable")[:MAX_NGRAMS]]
    return EvidenceVocabulary(known[np.sort(chosen)])


def merge_counts(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return all keys, each once, and the sums of their counts."""
    keys, places = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    counts = np.bincount(places, np.concatenate([counts for _, counts in parts]), len(keys))
    return keys, counts.astype(np.int64)


def assign_folds(groups: np.ndarray) -> np.ndarray:
    """Return a fold for each training text, [N] of 0 to K - 1; near-duplicates share one.

    The same for the same groups, so that a resumed run counts what it has counted.
    """
    _, numbers = np.unique(groups, return_inverse=True)
    return (np.random.default_rng(0).permutation(numbers.max() + 1) % FOLDS)[numbers]


def log_count_ratios(
    texts: EvidenceTexts, starts: np.ndarray, classes: np.ndarray, num_ngrams: int
) -> np.ndarray:
    """Return each n-gram's log-count ratios, [K + 1, n, C]: without each fold, last with all texts.

    Args:
        texts: the training texts, with their folds.
        starts: [N + 1], where each text's tokens begin.
        classes: [N, C], True where a text has a class.
        num_ngrams: n.
    """
    N, C = classes.shape
    any_class = np.ones((N, 1), bool)
    marks = np.hstack([classes, any_class]).astype(np.float32)
    totals = csr_matrix((FOLDS * (C + 1), num_ngrams), dtype=np.float32)  # by fold and class
    for first in range(0, N, TEXTS_AT_ONCE):
        rows = np.arange(first, min(first + TEXTS_AT_ONCE, N))
        lengths = np.diff(starts)[rows]
        width = int(lengths.max())
        evidence = texts.of(rows, starts[rows], lengths, width)
        where = (evidence.places.numpy() // width, evidence.ids.numpy())
        has_ngram = csr_matrix((np.ones(len(evidence.ids), bool), where), (len(rows), num_ngrams))
        in_fold = np.zeros((len(rows), FOLDS, C + 1), np.float32)
        in_fold[np.arange(len(rows)), texts.folds[rows]] = marks[rows]
        by_text = csr_matrix(in_fold.reshape(len(rows), -1))
        totals = totals + by_text.T @ has_ngram.astype(np.float32)
    counts = [totals[fold * (C + 1) : (fold + 1) * (C + 1)] for fold in range(FOLDS)]
    everything = sum(counts).toarray().T  # [n, C + 1]
    scale = (1 + np.log((1 + N) / (1 + everything[:, -1:]))) / SCALE  # s, [n, 1]

    def log_ratios(counts: np.ndarray) -> np.ndarray:
        inside = counts[:, :-1] + SMOOTHING
        outside = counts[:, -1:] - counts[:, :-1] + SMOOTHING
        log_inside = np.log(inside / inside.sum(axis=0))
        ratios: np.ndarray = scale * (log_inside - np.log(outside / outside.sum(axis=0)))
        return ratios

    ratios = np.empty((FOLDS + 1, num_ngrams, C), np.float32)
    for fold, count in enumerate(counts):
        ratios[fold] = log_ratios(everything - count.toarray().T)
    ratios[-1] = log_ratios(everything)
    return ratios
