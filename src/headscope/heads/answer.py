"""The answer: what each head is worth and whether it matters where heads look, in two sentences.

Written once; terminal, tab and page show it as it is. All changes are of accuracy, paired over the
same texts: with b texts right that were wrong and c wrong that were right, of n, the interval is
that of Agresti and Min (2005, Simple improved confidence intervals for comparing matched
proportions), Wald's with half a text added to each of the four cells. It covers the true change
with 95 % confidence, for all heads together (Bonferroni).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from headscope.heads.sets import HeadPair, HeadSets
from headscope.record.contributions import signed

Head = tuple[str, int]
MARGIN = 0.01  # a change of accuracy within one point does not count
MUCH = 0.05  # a fall of accuracy by more is no "nearly"
MOST_SINGLE = 2  # heads that are told one by one


@dataclass(frozen=True)
class AccuracyChange:
    """The accuracy before and after a change of the model, and the interval of the difference."""

    before: float
    after: float
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def is_small(self) -> bool:
        """Whether the whole interval lies within MARGIN."""
        return self.low >= -MARGIN and self.high <= MARGIN

    def interval(self) -> str:
        """Return the interval in points."""
        return f"{points(self.low)} to {points(self.high)}"


def accuracy_change(
    before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"], num_tests: int = 1
) -> AccuracyChange:
    """Compare two models on the same texts: 1 where a text is classified correctly, else 0."""
    n = len(before)
    gained = float((after > before).sum()) + 0.5
    lost = float((after < before).sum()) + 0.5
    center = (gained - lost) / (n + 2)
    error = ((gained + lost - (gained - lost) ** 2 / (n + 2)) ** 0.5) / (n + 2)
    margin = float(norm.ppf(1 - 0.05 / (2 * num_tests))) * error
    low = max(-1.0, center - margin)
    high = min(1.0, center + margin)
    return AccuracyChange(float(before.mean()), float(after.mean()), low, high)


def answer(
    whole: Float[np.ndarray, " N"],
    without: Mapping[Head, Float[np.ndarray, " N"]],
    uniform: Float[np.ndarray, " N"],
    sets: HeadSets | None = None,
    are_alike: bool = False,
) -> tuple[str, str]:
    """Return the answer, and a line of details: texts, accuracy, intervals.

    Args:
        whole: 1 for each text that the model classifies correctly, else 0.
        without: the same with each head ablated to zero.
        uniform: the same with plain averages in place of every map.
        sets: of heads, on the same texts.
        are_alike: whether the model gives all texts the same class.
    """
    N = len(whole)
    counted = f"{N} validation texts"
    has_sets = sets is not None and len(without) > MOST_SINGLE
    if has_sets:  # all that is said is of the texts that did not choose the sets
        whole = whole[1::2]
        uniform = uniform[1::2]
        M = len(whole)
        counted += f", of which {N - M} chose the sets of heads; on the other {M}"
    error = accuracy_change(np.zeros(len(whole)), whole)
    details = (
        f"{counted}{'' if has_sets else ':'} accuracy {_percent(error.after)} % (95 % interval"
        f" {_percent(max(0.0, error.low))} to {_percent(error.high)})"
    )
    if sets is not None:
        details += f", without any head {_percent(float(sets.accuracy[0]))} %"
    details += "; changes are paired over the texts"
    if not has_sets:
        details += ", intervals hold for all heads together"
    details += (
        "; an ablated head gives zero, an average weighs all keys alike, nothing is retrained"
    )
    if are_alike:
        warning = (
            f"Warning: the model gives all {N} texts the same class, so no head can be seen to"
            " matter; compare the number of texts of each class, and train longer."
        )
        return warning, details
    if sets is not None and sets.pairs:
        details += f"; {_stand_in(sets.pairs[0], _names(list(without)))}"
    if sets is not None and has_sets:
        heads = _enough(sets, _names(list(without)))
    else:
        changes = {
            head: accuracy_change(whole, each, len(without)) for head, each in without.items()
        }
        heads = _single(changes, sets)
    return f"{heads} {_looking(accuracy_change(whole, uniform))}", details


def _single(changes: Mapping[Head, AccuracyChange], sets: HeadSets | None) -> str:
    """Tell the heads one by one, the largest change first; of many heads, the first alone."""
    names = _names(list(changes))
    order = sorted(changes, key=lambda head: -abs(changes[head].after - changes[head].before))
    matter = [head for head in order if changes[head].matters]
    A = len(changes)
    ablated = "when ablated alone"
    if len(matter) == A:
        subject = {1: "The one head matters", 2: "Both heads matter"}.get(
            A, f"All {A} heads matter"
        )
    elif matter:
        subject = f"{len(matter)} of {A} heads matter{'s' * (len(matter) == 1)} {ablated}"
    else:
        few = {
            1: "The one head is not shown to matter",
            2: f"Neither head is shown to matter {ablated}",
        }
        subject = few.get(A, f"None of {A} heads is shown to matter {ablated}")
        if sets is not None and sets.pairs:
            subject += ", since one can replace the other"
    first, *others = order[:MOST_SINGLE]
    change = changes[first]
    line = (
        f"{subject}: without {names[first]} accuracy {_moves(change)} (95 % interval of the change"
        f" {change.interval()} points)"
    )
    for head in others:
        change = changes[head]
        line += f", without {names[head]} it is {_percent(change.after)} % ({change.interval()})"
    if not matter and sets is not None and A > 1:
        line += f"; without any head {_percent(float(sets.accuracy[0]))} %"
    return line + "."


def _enough(sets: HeadSets, names: Mapping[Head, str]) -> str:
    """Tell how many heads are within a point of all, by the texts that chose them."""
    A = len(sets.order)
    near = [size for size in range(A + 1) if sets.chosen[size] >= sets.chosen[A] - MARGIN]
    count = near[0]
    if count == A:
        tried = [size for size in range(A) if np.isfinite(sets.chosen[size])]
        change = accuracy_change(sets.correct[A], sets.correct[tried[-1]])
        subject = f"It takes all {A} heads: with the best {tried[-1]} alone accuracy is"
        if change.high >= 0:
            subject = (
                f"It may take all {A} heads: on the texts that chose, fewer were over a point less"
                f" accurate; on the others accuracy with the best {tried[-1]} alone is"
            )
    else:
        change = accuracy_change(sets.correct[A], sets.correct[count])
        verb = "is" if count == 1 else "are"
        none = "No head is needed"
        if change.high < 0 and change.before - change.after > MUCH:
            verb += " not"
            none = "Heads are needed"
        elif change.high < 0:  # lower beyond chance, on the texts that did not choose them
            verb += " nearly"
            none = "Hardly any head is needed"
        elif change.low < -2 * MUCH:  # too few texts to tell
            verb = "may be"
            none = "Perhaps no head is needed"
        *listed, last = [names[head] for head in sets.order[:count][:3]] or [""]
        if count > 3:
            listed.append(last)
            last = f"{count - 3} more"
        both = f"{', '.join(listed)} and {last}" if listed else last
        with_them = f"with {both} alone" if count else "without any"
        number = count or "None"
        subject = f"{number} of {A} heads {verb} enough: {with_them} accuracy is"
        if count == 0:
            subject = f"{none}: {with_them} accuracy is"
    return (
        f"{subject} {_percent(change.after)} %, with all heads {_percent(change.before)} % "
        f"(95 % interval of the difference {change.interval()} points)."
    )


def _stand_in(pair: HeadPair, names: Mapping[Head, str]) -> str:
    """Tell two heads of which either can replace the other."""
    one, other = (names[head] for head in pair.heads)
    first, second = (_signed(increase, 2) for increase in pair.alone)
    return (
        f"{one} and {other} stand in for each other: ablating both changes the loss by"
        f" {_signed(pair.both, 2)} nats, either alone by {first} and {second}"
    )


def _looking(change: AccuracyChange) -> str:
    averages = "with plain averages put in place of every trained map"
    interval = f"(95 % interval of the change {change.interval()} points)"
    if change.matters:
        return f"Where they look matters: {averages} accuracy {_moves(change)} {interval}."
    accuracy = f"accuracy is {_percent(change.after)} % instead of {_percent(change.before)} %"
    if change.is_small:
        return f"Where they look does not matter: {averages} {accuracy} {interval}."
    return f"Where they look is not shown to matter: {averages} {accuracy} {interval}."


def _moves(change: AccuracyChange) -> str:
    before = _percent(change.before)
    after = _percent(change.after)
    if before == after:
        return f"stays at {after} %"
    verb = "falls" if change.after < change.before else "rises"
    return f"{verb} from {before} to {after} %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def points(share: float) -> str:
    """Return a difference of shares in percentage points, with the minus sign of a sentence."""
    return _signed(100 * share, 1)


def _signed(value: float, digits: int) -> str:
    return signed(value, digits).replace("-", "\N{MINUS SIGN}")


def _names(heads: Sequence[Head]) -> dict[Head, str]:
    """Return what heads are called: by number alone where there is one layer."""
    layers = list(dict.fromkeys(layer for layer, _ in heads))
    if len(layers) == 1:
        return {head: f"head {head[1]}" for head in heads}
    return {head: f"layer {layers.index(head[0])} head {head[1]}" for head in heads}
