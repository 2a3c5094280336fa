"""Which answer a text gets, or why none. Needs numpy alone, since an export has a copy of it.

Shape letters: N texts, C classes, M tokens of all texts together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-6  # by which another runtime's probabilities may differ


@dataclass(frozen=True)
class AnswerRule:
    """From the probabilities of a text's classes to its answer, or a reason to abstain.

    Attributes:
        least: of each class the probability from which it is answered.
        costs: [C, C + 1], what an answer (column) costs where a class (row) is given; last column:
            what abstaining costs. None: the likeliest class is the answer.
        most_excess: answered up to this expected cost above that of abstaining; None: always.
    """

    least: Sequence[float]
    costs: Sequence[Sequence[float]] | None = None
    most_excess: float | None = None

    def choose(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return of probabilities [N, C] the class [N], and its cost above abstaining [N].

        The class is argmin_c sum_k p_k cost_kc (Elkan 2001, The Foundations of Cost-Sensitive
        Learning, equation 1), without costs argmax_c p_c.
        """
        if self.costs is None:
            return shares.argmax(axis=1), np.zeros(len(shares))
        expected = shares @ np.array(self.costs)  # [N, C + 1]
        chosen = expected[:, :-1].argmin(axis=1)
        return chosen, expected[np.arange(len(shares)), chosen] - expected[:, -1]

    def answer(self, shares: np.ndarray, is_unfamiliar: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Return the class of each text [N], and why it is no answer; "" where it is one."""
        chosen, excess = self.choose(shares)
        confidence = shares[np.arange(len(shares)), chosen]
        why = np.full(len(shares), "", dtype=object)
        if self.most_excess is not None:
            why[excess > self.most_excess + ROUNDING] = "cost"
        why[confidence < np.array(self.least)[chosen] - ROUNDING] = "confidence"
        why[is_unfamiliar] = "unfamiliar"
        return chosen, why.tolist()


def share_of_unknown(
    ids: np.ndarray, starts: np.ndarray, ends: Sequence[int], unknown: Sequence[int]
) -> np.ndarray:
    """Return each text's share of unknown tokens, those at its ends left out; 1 of an empty text.

    `ids` [M] are the tokens of all texts, `starts` [N + 1] where each text starts and the last one
    stops, `ends` the ids of an empty text, `unknown` those of unknown tokens.
    """
    is_word = ~np.isin(ids, ends)
    words, unknowns = (
        np.diff(np.append(0, np.cumsum(marks))[starts])
        for marks in (is_word, np.isin(ids, unknown))
    )
    share: np.ndarray = np.where(words > 0, unknowns / np.maximum(words, 1), 1.0)
    return share
