"""Which answer a text gets, or why none. Needs numpy alone, since an export has a copy of it.

Shape letters: N texts, C classes, M tokens of all texts together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-6  # by which another runtime's numbers may differ


@dataclass(frozen=True)
class AnswerRule:
    """From the probabilities of a text's classes to its answer, or a reason to abstain.

    Attributes:
        least: of each class the probability from which it is answered.
        costs: [C, C + 1], what an answer (column) costs where a class (row) is given, in the last
            column what abstaining costs, if there is one. None: the likeliest class is the answer.
    """

    least: Sequence[float]
    costs: Sequence[Sequence[float]] | None = None

    def answer(self, shares: np.ndarray, is_odd: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Return of probabilities [N, C] the class [N], and why it is no answer, "" where it is.

        With costs argmin_c sum_k p_k cost_kc, of the classes and abstaining (Elkan 2001, The
        Foundations of Cost-Sensitive Learning, equation 1). `is_odd` [N]: unfamiliar texts.
        """
        N, C = shares.shape
        expected = -shares
        if self.costs is not None:
            expected = shares @ np.array(self.costs)
        chosen = expected[:, :C].argmin(axis=1)
        rows = np.arange(N)
        confidence = shares[rows, chosen]
        is_unsure = confidence < np.array(self.least)[chosen] - ROUNDING
        why = np.full(N, "", dtype=object)
        for of_abstaining in expected[:, C:].T:
            why[of_abstaining < expected[rows, chosen] - ROUNDING] = "cost"
        why[is_unsure] = "confidence"
        why[is_odd] = "unfamiliar"
        return chosen, why.tolist()


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
