"""Why a text gets no answer. Needs numpy alone, since an export has a copy of it.

Shape letters: N texts, M tokens of all texts together.
"""

from collections.abc import Sequence

import numpy as np

ROUNDING = 1e-6  # by which another runtime's numbers may differ


def why_abstained(confidence: np.ndarray, is_odd: np.ndarray, least: float) -> list[str]:
    """Return of each text [N] why it gets no answer, "" where it gets one.

    `least` is the confidence from which there is one; `is_odd` are the unfamiliar texts.
    """
    why = np.full(len(confidence), "", dtype=object)
    why[confidence < least - ROUNDING] = "confidence"
    why[is_odd] = "unfamiliar"
    reasons: list[str] = why.tolist()
    return reasons


def share_of_unknown(
    ids: np.ndarray, starts: np.ndarray, ends: Sequence[int], unknown: Sequence[int]
) -> np.ndarray:
    """Return each text's share of unknown tokens; 1 of an empty text.

    Of the tokens `ids` [M] each text has those from one of `starts` [N + 1] to the next; `ends` are
    the ids around a text, which do not count.
    """
    counts = []
    for marks in (~np.isin(ids, ends), np.isin(ids, unknown)):
        before = np.append(0, np.cumsum(marks))
        counts.append(np.diff(before[starts]))
    words, unknowns = counts
    share: np.ndarray = np.where(words > 0, unknowns / np.maximum(words, 1), 1.0)
    return share
