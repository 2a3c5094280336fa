"""Token ids of many texts, end to end in one array."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding


@dataclass(frozen=True)
class EncodedTexts:
    """The token ids of N texts.

    Attributes:
        ids: all texts' ids, one after the other.
        starts: [N + 1], where each text begins; the last is where all end.
        segments: for pairs, 0 or 1 beside each id.
        num_cut: how many texts were longer than max_length.
    """

    ids: np.ndarray
    starts: np.ndarray
    segments: np.ndarray | None
    num_cut: int

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
