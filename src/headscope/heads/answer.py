"""The answer: what a few heads keep of the accuracy, and what plain averages in their place cost.

Written once; terminal, tab and page show it as it is. Every change of accuracy is paired over the
same texts; its 95 % interval is `paired_interval`, as that of every other two accuracies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from headscope.heads.effects import INCONCLUSIVE, MATTERS, NO_EFFECT, Head, HeadSets
from headscope.record.explanation import layer_titles, signed

SMALL = 0.02  # a change of accuracy within two points has no effect
WIDE = 0.2  # an interval this wide tells no number of heads
MOST_NAMED = 3  # heads


@dataclass(frozen=True)
class AccuracyChange:
    """The accuracy before and after a change of the model, and the interval of the difference."""

    before: float
    after: float
    low: float
    high: float

    @property
    def state(self) -> str:
        """MATTERS if the interval excludes 0, NO_EFFECT if it lies within SMALL of it."""
        if self.low > 0 or self.high < 0:
            return MATTERS
        return NO_EFFECT if max(-self.low, self.high) <= SMALL else INCONCLUSIVE

    def interval(self) -> str:
        """Return the interval in points."""
        return f"{_plain(self.low)} to {_plain(self.high)}"


def accuracy_change(
    before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"]
) -> AccuracyChange:
    """Compare two models on the same texts: 1 where a text is classified correctly, else 0."""
    gained = int((after > before).sum())
    lost = int((after < before).sum())
    interval = paired_interval(gained, lost, len(before))
    return AccuracyChange(float(before.mean()), float(after.mean()), *interval)


def paired_interval(gained: int, lost: int, texts: int) -> tuple[float, float]:
    """Return the 95 % score interval of (gained - lost) / texts, which has a width also for 0 of n.

    (Tango 1998, Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design.) `gained` texts were wrong before, `lost` are wrong now.
    """
    return _lower_end(gained, lost, texts), -_lower_end(lost, gained, texts)


def _lower_end(gained: int, lost: int, texts: int) -> float:
    """Return the difference below the measured one that a score test just does not reject."""
    z = float(norm.ppf(0.975))

    def excess(difference: float) -> float:
        a = 2 * texts
        b = (a - gained + lost) * difference - gained - lost
        c = -lost * difference * (1 - difference)
        share = (max(0.0, b * b - 4 * a * c) ** 0.5 - b) / (2 * a)  # of texts lost, if it were so
        variance = max(0.0, texts * (2 * share + difference * (1 - difference)))
        return gained - lost - texts * difference - z * float(variance**0.5)

    measured = (gained - lost) / texts
    return -1.0 if lost == texts else float(brentq(excess, -1.0, measured - 1e-9))


def answer(
    whole: Float[np.ndarray, " N"],
    averaged: Float[np.ndarray, " N"],
    sets: HeadSets,
    layers: Sequence[str],
) -> tuple[str, str]:
    """Return the answer, and a line of details.

    `whole` is 1 for each text that the model classifies correctly, else 0; `averaged` the same with
    plain averages in place of every map.
    """
    N = len(whole)
    right = int(whole.sum())
    accuracy = binomtest(right, N).proportion_ci(0.95, "wilson")
    details = (
        f"{N} texts, {N - sets.correct.shape[1]} of which chose the order of the heads; accuracy on"
        f" all {_percent(right / N)} % ({_percent(accuracy.low)} to {_percent(accuracy.high)});"
        " intervals are 95 %, paired over the texts; an ablated head gives zero, an average weighs"
        " all keys alike, nothing is retrained"
    )
    return f"{_heads(sets, layers)} {_averages(accuracy_change(averaged, whole))}", details


def _heads(sets: HeadSets, layers: Sequence[str]) -> str:
    """Tell what the fewest heads that are enough keep, if heads are shown to help at all."""
    none, *_, every = sets.correct
    gain = accuracy_change(none, every)
    if gain.low <= 0:
        claim = {
            MATTERS: "Heads lower the accuracy",
            NO_EFFECT: "Heads are not shown to help",
            INCONCLUSIVE: "Too few texts to tell whether heads help",
        }[gain.state]
        return (
            f"{claim}: on {len(every)} other texts accuracy is {_percent(gain.after)} % with all"
            f" and {_percent(gain.before)} % without any ({gain.interval()} points)."
        )
    size = sets.sizes[sets.place]
    change = accuracy_change(every, sets.correct[sets.place])
    if change.high - change.low > WIDE:
        return (
            f"Too few texts to tell how many heads are enough: on {len(every)} other texts accuracy"
            f" is {_percent(gain.after)} % with all and {_percent(gain.before)} % without any"
            f" ({gain.interval()} points)."
        )
    without = f", without heads {_percent(gain.before)} %" if size else ""
    return (
        f"On {len(every)} other texts {_subject(sets.order[:size], layers)}"
        f" {_percent(change.after)} of {_percent(change.before)} % ({change.interval()} points)"
        f"{without}."
    )


def kept(sets: HeadSets, averaged: Float[np.ndarray, " M"]) -> list[AccuracyChange]:
    """Return the accuracy with all heads on the other texts, and what each change makes of it.

    The changes: no head, the few alone, none at all, and plain averages as maps, which `averaged`
    has of each text.
    """
    every = sets.correct[-1]
    changed = [sets.correct[0], sets.correct[sets.place], every, averaged]
    return [accuracy_change(every, each) for each in changed]


def _subject(heads: Sequence[Head], layers: Sequence[str]) -> str:
    """Return the heads with their verb; of one layer they have numbers alone."""
    if not heads:
        return "the network without heads keeps"
    titles = dict(zip(layers, layer_titles(layers), strict=True))
    names = [f"{titles[layer]} head {head}" for layer, head in heads]
    prefix = ""
    if len(layers) == 1:
        names = [str(head) for _, head in heads]
        prefix = "head " if len(heads) == 1 else "heads "
    if len(names) > MOST_NAMED:
        names[MOST_NAMED:] = [f"{len(names) - MOST_NAMED} more"]
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{prefix}{listed} alone {'keeps' if len(heads) == 1 else 'keep'}"


def _averages(cost: AccuracyChange) -> str:
    """Tell what plain averages in place of every map cost."""
    if cost.state == INCONCLUSIVE:
        return (
            "Too few texts to tell what replacing attention by plain averages costs"
            f" ({cost.interval()} points)."
        )
    price = f"{_plain(cost.after - cost.before)} points ({cost.interval()})"
    if cost.state == NO_EFFECT:
        price = f"nothing measurable ({cost.interval()} points)"
    return f"Replacing attention by plain averages costs {price}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _plain(share: float) -> str:
    return points(share).removeprefix("+")


def points(share: float) -> str:
    """Return a difference of shares in percentage points, with the minus sign of a sentence."""
    return signed(100 * share, 1).replace("-", "\N{MINUS SIGN}")
