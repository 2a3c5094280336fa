"""How many heads are enough: an order from one half of the texts, its accuracy on the other half.

Heads outside a set are ablated to zero. The order is that of forward selection: the next head is
the one that lowers the mean loss of the first half most. More than MOST_GREEDY heads, which would
take A (A + 1) / 2 sets, are in the order of the loss increase when each is ablated alone.

Shape letters: A heads of all layers, N texts that choose, M other texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Head = tuple[str, int]
MOST_GREEDY = 16  # heads
MARGIN = 0.01  # fewer heads are enough where accuracy is at most this much lower
# From heads, all others ablated, and whether the other texts are run as well, to losses in nats and
# whether each text's class is right.
Run = Callable[[Sequence[Head], bool], Float[np.ndarray, "N 2"]]


@dataclass(frozen=True)
class HeadSets:
    """What the first heads of an order do alone.

    Attributes:
        order: the heads, the most useful first.
        sizes: numbers of heads that were tried, from 0 to all.
        correct: [sizes, M], 1 where that many heads alone give the right class of another text.
        enough: the smallest of `sizes` that is within MARGIN of all heads, on texts that chose.
    """

    order: list[Head]
    sizes: list[int]
    correct: Float[np.ndarray, "sizes M"]
    enough: int


def head_sets(increases: Mapping[Head, float], num_choosing: int, run: Run) -> HeadSets:
    """Order the heads by the first texts, and score the first ones alone on the others.

    `increases` are the loss increases of each head alone over the texts that choose, which `run`
    has first.
    """
    order = sorted(increases, key=lambda head: -increases[head])
    if len(order) <= MOST_GREEDY:
        order = _forward_selection(order, run)
    sizes = tried_sizes(len(order))
    correct = np.stack([run(order[:size], True)[:, 1] for size in sizes])
    chosen = correct[:, :num_choosing].mean(axis=1)
    enough = sizes[int((chosen >= chosen[-1] - MARGIN).argmax())]
    return HeadSets(order, sizes, correct[:, num_choosing:], enough)


def tried_sizes(A: int) -> list[int]:
    """Return the numbers of heads that are tried: all up to MOST_GREEDY, then powers of two."""
    powers = [2**power for power in range(A.bit_length())]
    return sorted({0, A, *powers} if A > MOST_GREEDY else range(A + 1))


def num_runs(A: int) -> int:
    """Return how often `head_sets` runs some texts."""
    chosen = A * (A + 1) // 2 if A <= MOST_GREEDY else 0
    return chosen + len(tried_sizes(A))


def _forward_selection(heads: Sequence[Head], run: Run) -> list[Head]:
    order: list[Head] = []
    rest = list(heads)
    while rest:
        losses = [run([*order, head], False)[:, 0].mean() for head in rest]
        order.append(rest.pop(int(np.argmin(losses))))
    return order
