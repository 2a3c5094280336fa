"""The n-grams of tokens, each as a key of 64 bits; numpy alone: an export has a copy of this file.

To each token belong its word, the character 3- and 4-grams within it (whose ends are marked, as in
Bojanowski et al. 2017, Enriching Word Vectors with Subword Information, section 3.2), the pair with
the word before, and for characters of Chinese, Japanese and Korean the three that end there.

A key is FNV-1a (Fowler, Noll and Vo, draft-eastlake-fnv) over code points in place of bytes:

    h = 0xcbf29ce484222325;  for each code point c:  h = (h xor c) 0x100000001b3 mod 2^64

An n-gram within a word begins with a code point 0, so that "the" within "other" is no word. The
page has the same in JavaScript (pages/static/evidence.js).

Letters: W words, T tokens.
"""

from collections.abc import Sequence

import numpy as np

OFFSET = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
WITHIN = np.uint64(int(OFFSET) * int(PRIME) % 2**64)  # of n-grams within a word: a code point 0
SIZES = (3, 4)  # of character n-grams, the marked ends counted
NO_KEY = np.uint64(0)  # of a special token


def tokens_of_words(read: np.ndarray, counts: np.ndarray, carriers: np.ndarray) -> np.ndarray:
    """Return which token of its text each word counts at, end to end.

    Args:
        read: the tokens of each text that are read, [N].
        counts: the words of each text, the last of them that of [SEP], [N].
        carriers: how many of its last tokens carry what is not read, [N].
    """
    left = counts - read
    ends = np.maximum(carriers, 1)
    past = ranges(ends - read, counts)  # from the first token that carries the rest
    section = past * np.repeat(ends, counts) // np.repeat(left + ends, counts)
    return np.repeat(read - ends, counts) + np.where(past < 0, past, section)


def word_keys(words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of words and of the distinct n-grams within them, end to end.

    Returns:
        keys, uint64: of each word its own first; those of word w from starts[w] to starts[w + 1].
        starts: [W + 1].
    """
    W = len(words)
    marked = [f"<{word}>" for word in words]
    text = "".join(marked).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(text, "<u4").astype(np.uint64)
    lengths = np.array([*map(len, marked)], np.int64)
    begins = np.cumsum(lengths) - lengths
    keys = [_word_keys(codes, begins + 1, lengths - 2)]
    owners = [np.arange(W)]
    for size in SIZES:
        counts = np.where(lengths > size, lengths - size + 1, 0)  # none is the whole marked word
        at = ranges(begins, counts)
        ngrams = np.full(len(at), WITHIN)
        for step in range(size):
            ngrams = (ngrams ^ codes[at + step]) * PRIME
        keys.append(ngrams)
        owners.append(np.repeat(np.arange(W), counts))
    all_keys = np.concatenate(keys)
    owner = np.concatenate(owners)
    _, distinct = np.unique(all_keys ^ (owner.astype(np.uint64) * OFFSET), return_index=True)
    distinct.sort()
    order = distinct[np.argsort(owner[distinct], kind="stable")]
    return all_keys[order], np.searchsorted(owner[order], np.arange(W + 1))


def _word_keys(codes: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the key of each word: the code points of all words of a length are taken at once."""
    keys = np.full(len(begins), OFFSET)
    order = np.argsort(-lengths, kind="stable")
    longer = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)))
    for step, count in enumerate(longer):
        of = order[:count]  # words of more than `step` code points
        keys[of] = (keys[of] ^ codes[begins[of] + step]) * PRIME
    return keys


def context_keys(words: np.ndarray, are_characters: np.ndarray) -> np.ndarray:
    """Return the keys of the two words and of the three characters that end at each token, [T, 2].

    Args:
        words: the key of each token's word, NO_KEY at special tokens, which nothing reaches across.
        are_characters: whether each is one character.
    """
    context = np.full((len(words), 2), NO_KEY)
    pairs = joint_keys(words[:-1], words[1:])
    is_pair = (words[1:] != NO_KEY) & (words[:-1] != NO_KEY)
    context[1:, 0] = np.where(is_pair, pairs, NO_KEY)
    is_three = are_characters[2:] & are_characters[1:-1] & are_characters[:-2]
    context[2:, 1] = np.where(is_three, joint_keys(pairs[:-1], words[2:]), NO_KEY)
    return context


def joint_keys(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the key of each two n-grams in this order."""
    mixed: np.ndarray = (first ^ (first >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + second
    mixed = mixed ^ (mixed >> np.uint64(32))
    return mixed * np.uint64(0xD6E8FEB86659FD93)


def numbers_of(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the place of each key among the known ones, which are sorted; -1 where it is not."""
    numbers = np.searchsorted(known, keys)
    is_known = np.append(known, ~NO_KEY)[numbers] == keys
    return np.where(is_known, numbers, -1).astype(np.int32)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return start, start + 1, ... of each range, end to end."""
    ends = np.cumsum(lengths)
    shifts = starts - (ends - lengths)
    return np.repeat(shifts, lengths) + np.arange(lengths.sum())
