"""Counted n-grams of words and of letters, as fastText reads them: what the bag beside the encoder weighs.

Words and pairs of neighbours (Joulin et al. 2017, Bag of Tricks for Efficient Text Classification, section 2), and runs
of 1 to 4 letters within words, whose ends are marked (Bojanowski et al. 2017, Enriching Word Vectors with Subword
Information, section 3.2). Each is known by a hash of it (Weinberger et al. 2009, Feature Hashing for Large Scale
Multitask Learning), so that no list of strings is kept. In Chinese or Japanese, where a "word" is all that stands
between two signs, the letters do the work. Texts are read in their form NFKC (Unicode Standard Annex 15), in which the
wide letters and digits of Japanese are the plain ones and halved kana are whole.

A text's value of an n-gram that it has n times, of N training texts in df, is

    v = (1 + ln n) (1 + ln((1 + N) / (1 + df))),

and the values of a text's words, and those of its letters, are scaled to length 1 (Salton and Buckley 1988,
Term-Weighting Approaches in Automatic Text Retrieval).
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.preprocessing import normalize

from headscope.data.letters import WORD
from headscope.data.ngram_rows import NgramRows
from headscope.files import write_whole

KINDS = ("words", "letters")
HASHES = 2**22  # of each kind; of 200,000 n-grams about one in twenty shares its hash with another
MOST = 2**17  # of each kind: those that most training texts have
FEWEST_TEXTS = 2  # an n-gram of one training text says nothing about others
TEXTS_AT_ONCE = 4_000
RECIPE = "3"  # raise it when values change, so that cached ones are made anew and kept ones are not misread

WORDS = HashingVectorizer(
    n_features=HASHES, ngram_range=(1, 2), token_pattern=WORD, alternate_sign=False, norm=None, dtype=np.float32
)
LETTERS = HashingVectorizer(
    n_features=HASHES, ngram_range=(1, 4), analyzer="char_wb", alternate_sign=False, norm=None, dtype=np.float32
)


@dataclass(frozen=True)
class NgramVocabulary:
    """Which n-grams are known, and in how many training texts each stands.

    Attributes:
        hashes: kind -> hashes of the known n-grams, growing; words' are numbered before letters'.
        idf: kind -> 1 + ln((1 + N) / (1 + df)) of each.
    """

    hashes: dict[str, np.ndarray]
    idf: dict[str, np.ndarray]

    def __len__(self) -> int:
        """Return how many n-grams are known."""
        return sum(map(len, self.hashes.values()))

    def rows(self, texts: Sequence[str]) -> NgramRows:
        """Return the known n-grams of texts, with their values; a pair is one text of two lines."""
        found = []
        for kind, counts in counted(texts).items():
            known = counts[:, self.hashes[kind]]
            known.data = (1 + np.log(known.data)) * self.idf[kind][known.indices]
            found.append(normalize(known, copy=False) if known.shape[1] else known)  # it takes one column at least
        joined = hstack(found, format="csr", dtype=np.float32)
        joined.sort_indices()  # else their order, and the last digits of sums, would depend on the texts beside
        return NgramRows(joined.indices, joined.data, joined.indptr.astype(np.int64))

    def key(self) -> str:
        """Return a name that changes with what is known."""
        arrays = [part[kind] for part in (self.hashes, self.idf) for kind in KINDS]
        return hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=16).hexdigest()

    def save(self, path: Path) -> None:
        """Write ngrams.safetensors."""
        arrays = {f"{kind}/hashes": self.hashes[kind] for kind in KINDS}
        arrays |= {f"{kind}/idf": self.idf[kind] for kind in KINDS}
        write_whole(path, lambda temporary: save_file(arrays, temporary, {"recipe": RECIPE}))


def load_ngrams(path: Path) -> NgramVocabulary:
    """Read ngrams.safetensors.

    Raises:
        ValueError: if the file is not one, or one of a version that counted in another way.
    """
    try:
        with safe_open(path, "numpy") as file:
            recipe = (file.metadata() or {}).get("recipe")
            hashes, idf = ({kind: file.get_tensor(f"{kind}/{part}") for kind in KINDS} for part in ("hashes", "idf"))
    except SafetensorError as error:
        raise ValueError(f"{path}: does not hold n-grams: {error}") from error
    if recipe != RECIPE:
        raise ValueError(f"{path}: its n-grams were counted by another version of headscope; train again")
    for kind in KINDS:
        known = hashes[kind]
        if known.shape != idf[kind].shape or known.ndim != 1 or not ((known >= 0) & (known < HASHES)).all():
            raise ValueError(f"{path}: does not hold n-grams: hashes of {kind} do not fit")
    return NgramVocabulary(hashes, idf)


def known_ngrams(texts: Iterable[str]) -> NgramVocabulary:
    """Return the n-grams that stand in two training texts or more, at most 131,072 of words and as many of letters."""
    total, present = 0, {kind: np.zeros(HASHES, dtype=np.int64) for kind in KINDS}
    for some in _in_steps(texts):
        total += len(some)
        for kind, counts in counted(some).items():
            present[kind] += np.bincount(counts.indices, minlength=HASHES)
    hashes = {kind: _most_frequent(found) for kind, found in present.items()}
    idf = {kind: (1 + np.log((1 + total) / (1 + present[kind][hashes[kind]]))).astype(np.float32) for kind in KINDS}
    return NgramVocabulary(hashes, idf)


def _in_steps(texts: Iterable[str]) -> Iterator[list[str]]:
    left = iter(texts)
    while some := list(islice(left, TEXTS_AT_ONCE)):
        yield some


def _most_frequent(texts_with: np.ndarray) -> np.ndarray:
    """Return the hashes that the most texts have, in order; of equals the smaller ones."""
    found = np.flatnonzero(texts_with >= FEWEST_TEXTS)
    chosen = found[np.argsort(-texts_with[found], kind="stable")[:MOST]]
    return np.sort(chosen).astype(np.int32)


def as_read(text: str) -> str:
    """Return a text in the form NFKC, in which its n-grams are found."""
    return unicodedata.normalize("NFKC", text)


def counted(texts: Sequence[str]) -> dict[str, csr_matrix]:
    """Return, for each kind, how often each text has each hash, [N, HASHES].

    A word's letters are hashed once however often it occurs: the counts of the texts' words, times the counts of the
    words' letters.
    """
    texts = list(map(as_read, texts))
    words = CountVectorizer(token_pattern=WORD, dtype=np.float32)
    try:
        occurrences = words.fit_transform(texts)
    except ValueError:  # not one word in any text
        return {kind: csr_matrix((len(texts), HASHES), dtype=np.float32) for kind in KINDS}
    letters = LETTERS.transform(words.get_feature_names_out())
    return {"words": WORDS.transform(texts), "letters": (occurrences @ letters).tocsr()}
