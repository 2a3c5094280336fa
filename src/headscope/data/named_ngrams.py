"""The n-grams of one text by name: a hash forgets what it was made of, so the text is taken apart once more."""

from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from headscope.data.letters import WORD
from headscope.data.ngrams import HASHES, KINDS, LETTERS, WORDS, NgramVocabulary, as_read

# Every name is a text of one n-gram.
_whole = HashingVectorizer(n_features=HASHES, analyzer=lambda name: [name], alternate_sign=False, norm=None)


def names(vocabulary: NgramVocabulary, text: str) -> dict[int, str]:
    """Return number -> name of the known n-grams of a text: words as they are, letters as `shown_letters` has them.

    Where two n-grams of the text have one hash, and so one weight, both are named.
    """
    read = as_read(text)
    found: dict[int, str] = {}
    offset = 0
    for kind, parts in zip(KINDS, (_words(read), _letters(read)), strict=True):
        known = vocabulary.hashes[kind]
        for name, hashed in zip(parts, _hashes(parts), strict=True):
            place = int(np.searchsorted(known, hashed))
            if place < len(known) and known[place] == hashed:
                number, shown = offset + place, name if kind == "words" else shown_letters(name)
                found[number] = f"{found[number]} or {shown}" if number in found else shown
        offset += len(known)
    return found


def shown_letters(run: str) -> str:
    """Return a run of letters as dictionaries write parts of words: un-, -able, -ita-."""
    if run == " ":
        return "(any word)"
    front, back = ("" if run.startswith(" ") else "-"), ("" if run.endswith(" ") else "-")
    return f"{front}{run.strip()}{back}"


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(WORDS.build_analyzer()(text)))


def _letters(text: str) -> list[str]:
    read = LETTERS.build_analyzer()
    words = dict.fromkeys(CountVectorizer(token_pattern=WORD).build_analyzer()(text))
    return list(dict.fromkeys(run for word in words for run in read(word)))


def _hashes(names: Sequence[str]) -> Iterator[int]:
    return iter(_whole.transform(names).indices.tolist()) if names else iter(())
