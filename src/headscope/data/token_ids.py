"""Token ids of many texts, end to end in one array."""

from collections.abc import Sequence
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
    ids = np.concatenate([encoding.ids for encoding in encodings]).astype(np.int32)
    segments = np.concatenate([encoding.type_ids for encoding in encodings]).astype(np.uint8) if pairs else None
    starts = np.cumsum([0, *(len(encoding.ids) for encoding in encodings)], dtype=np.int64)
    return EncodedTexts(ids, starts, segments, sum(bool(encoding.overflowing) for encoding in encodings))
