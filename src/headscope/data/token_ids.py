"""Token ids of many texts, end to end in one array, and the words that the tokens show."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Encoding, Tokenizer

from headscope.data.evidence import NO_UNIT, EvidenceTexts, EvidenceVocabulary, Units, WordTexts


@dataclass(frozen=True)
class EncodedTexts:
    """The token ids of N texts.

    Attributes:
        ids: all texts' ids, one after the other.
        starts: [N + 1], where each text begins; the last is where all end.
        segments: for pairs, 0 or 1 beside each id.
        num_cut: how many texts were longer than max_length.
        words: the word that each token shows, where they are asked for.
        evidence: the known n-grams of each token, where the model reads them.
    """

    ids: np.ndarray
    starts: np.ndarray
    segments: np.ndarray | None
    num_cut: int
    words: WordTexts | None = None
    evidence: EvidenceTexts | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, [N]."""
        return np.diff(self.starts)


def joined(encodings: Sequence[Encoding], pairs: bool) -> EncodedTexts:
    """Join what a tokenizer gave for some texts, or for some pairs of texts."""
    ids = _end_to_end((encoding.ids for encoding in encodings), "i")
    segments = _end_to_end((encoding.type_ids for encoding in encodings), "B") if pairs else None
    starts = np.cumsum([0, *map(len, encodings)], dtype=np.int64)
    return EncodedTexts(ids, starts, segments, sum(bool(encoding.overflowing) for encoding in encodings))


def _end_to_end(lists: Iterable[list[int]], code: str) -> np.ndarray:
    """Return all numbers in one array, int32 for the code "i" and uint8 for "B"."""
    numbers = array(code)
    for some in lists:
        numbers.fromlist(some)  # twice as fast as NumPy, which looks at every number first to find a type
    return np.array(numbers)


def units_of(encodings: Sequence[Encoding], texts: Sequence[tuple[str, ...]], units: Units) -> np.ndarray:
    """Return the number of the word that each token shows, end to end; -1 at special tokens.

    Args:
        encodings: with offsets, which `encode_batch_fast` leaves out.
        texts: what was encoded, single texts or pairs.
        units: takes in the words that are new.
    """
    numbers = array("i")
    for encoding, parts in zip(encodings, texts, strict=True):
        numbers.fromlist(
            [
                NO_UNIT if part is None else units.number(parts[part][start:end])
                for (start, end), part in zip(encoding.offsets, encoding.sequence_ids, strict=True)
            ]
        )
    return np.array(numbers)


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]], vocabulary: EvidenceVocabulary | None = None
) -> EncodedTexts:
    """Return the token ids of single texts or of pairs and, with a vocabulary, each token's known n-grams."""
    is_pair = len(texts[0]) == 2
    given = list(texts) if is_pair else [text for (text,) in texts]
    if vocabulary is None:
        return joined(tokenizer.encode_batch_fast(given), is_pair)
    encodings, units = tokenizer.encode_batch(given), Units()
    ids = joined(encodings, is_pair)
    words = WordTexts(units.words, units_of(encodings, texts, units), ids.starts)
    return replace(ids, words=words, evidence=vocabulary.find(words))
