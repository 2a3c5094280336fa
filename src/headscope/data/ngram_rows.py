"""The known n-grams of many texts, end to end in two arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def as_one(texts: Sequence[str]) -> str:
    """Return a row's text, or both texts of a pair on lines of their own, as what counts words reads them."""
    return "\n".join(texts)


class Ngrams(NamedTuple):
    """The n-grams of B texts, end to end: M known ones.

    Attributes:
        ids: numbers of the n-grams.
        values: beside them.
        starts: where each text begins.
    """

    ids: Int[Tensor, " M"]
    values: Float[Tensor, " M"]
    starts: Int[Tensor, " B"]


@dataclass(frozen=True)
class NgramRows:
    """The known n-grams of N texts, end to end.

    Attributes:
        ids: numbers of the n-grams, int32.
        values: beside them, float32.
        starts: [N + 1], where each text begins; the last is where all end.
    """

    ids: np.ndarray
    values: np.ndarray
    starts: np.ndarray

    def of(self, rows: Sequence[int]) -> Ngrams:
        """Return the n-grams of some texts."""
        parts = [slice(self.starts[row], self.starts[row + 1]) for row in rows]
        ends = np.cumsum([0, *(part.stop - part.start for part in parts)], dtype=np.int64)
        ids = np.concatenate([self.ids[part] for part in parts]).astype(np.int64)
        values = np.concatenate([self.values[part] for part in parts])
        return Ngrams(*map(torch.from_numpy, (ids, values, ends[:-1])))
