"""Why a text is given a class: what each head adds from each token to each class's logit.

The numbers are in nats, and of the very probabilities beside them: of logits that are divided by
the temperature. +1 nat multiplies the odds of a class against another by 2.7.
`headscope.heads.contributions` computes them. Shape letters: L layers, H heads, T tokens, C classes
that are kept. Needs numpy alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headscope.record.schema import Arrays

CLASSES_KEPT = 8  # in a record, of the likeliest
WORDS_NAMED = 8
HEADS_NAMED = 8


@dataclass(frozen=True, eq=False)
class Explanation:
    """The log-odds of a class as a sum over heads and tokens, feed-forward blocks and a bias.

    Of two columns of `contributions`, `feedforward` and `bias`, the sum of the differences is the
    log-odds of one class against the other. Where a text may have several labels, the sum of a
    column is the log-odds of that class against its absence.

    Attributes:
        label: the class that is explained.
        against: the class that it is held against; None where a text may have several labels.
        probabilities: of each class, by name.
        tokens: of the text, as people read them.
        classes: names of the C classes of the arrays: all of them for a model of headscope; else
            those that were asked for.
        contributions: from each token through each head; NaN where a layer has fewer heads.
        feedforward: of each layer; 0 where there is none, or where it cannot be told apart.
        bias: what does not depend on the text through attention.
        error: how far the sum is from the log-odds, where it is by integrated gradients; None where
            it is exact.
    """

    label: str
    against: str | None
    probabilities: dict[str, float]
    tokens: Sequence[str]
    classes: Sequence[str]
    contributions: Float[np.ndarray, "L H T C"]
    feedforward: Float[np.ndarray, "L C"]
    bias: Float[np.ndarray, " C"]
    error: float | None = None

    def toward(self, part: Float[np.ndarray, "*N C"]) -> Float[np.ndarray, "*N"]:
        """Return what a part adds to the log-odds of `label` against `against`."""
        of_label: np.ndarray = part[..., self.classes.index(self.label)]
        if self.against is None:
            return of_label
        return np.asarray(of_label - part[..., self.classes.index(self.against)])

    def heads(self) -> Float[np.ndarray, "L H"]:
        """Return what each head adds to the log-odds, from all tokens."""
        return np.asarray(self.toward(self.contributions).sum(axis=-1))

    def words(self) -> list[tuple[str, float]]:
        """Return what each token adds through all heads, the largest first; equal ones as one."""
        of_places = np.nansum(self.toward(self.contributions), axis=(0, 1))  # [T]
        sums = dict.fromkeys(self.tokens, 0.0)
        for token, nats in zip(self.tokens, of_places.tolist(), strict=True):
            sums[token] += nats
        return sorted(sums.items(), key=lambda item: -abs(item[1]))

    @property
    def log_odds(self) -> float:
        """The sum of all parts: log p / p' of the two classes, or log p / (1 - p)."""
        parts = (self.contributions, self.feedforward, self.bias)
        return float(sum(np.nansum(self.toward(part)) for part in parts))

    def word_line(self, count: int = WORDS_NAMED) -> str:
        """Return the words that add most, such as `proprietary +2.6; under -0.41`."""
        return "; ".join(f"{token} {signed(nats)}" for token, nats in self.words()[:count])

    def __str__(self) -> str:
        """Return the class, then what adds most to it: words over all heads, heads, the rest."""
        against = "its absence"
        if self.against is not None:
            against = f"{self.against} {self.probabilities[self.against]:.4f}"
        heads = self.heads()
        order = np.argsort(-np.abs(heads), axis=None, kind="stable")  # NaN comes last
        named = []
        for place in order[:HEADS_NAMED].tolist():
            layer, head = divmod(place, heads.shape[1])
            if not np.isnan(heads[layer, head]):
                named.append(f"layer {layer} head {head} {signed(heads[layer, head])}")
        if others := int((~np.isnan(heads)).sum()) - len(named):
            rest = np.nansum(heads.flat[order[HEADS_NAMED:]])
            named.append(f"{others} more {signed(rest)}")
        exact = "" if self.error is None else f" up to {self.error:.2g} (integrated gradients)"
        lines = [
            f"{self.label} {self.probabilities[self.label]:.4f} against {against}, in nats",
            f"words: {self.word_line()}",
            f"heads: {'; '.join(named)}",
            f"bias: {signed(float(self.toward(self.bias)))}",
            f"sum of all: {signed(self.log_odds)}, the log-odds{exact}",
        ]
        if self.feedforward.any():
            lines.insert(3, f"feed-forward: {signed(float(self.toward(self.feedforward).sum()))}")
        return "\n".join(lines)

    def arrays(self, label: str | None = None) -> Arrays:
        """Return the arrays as a record has them, for the likeliest classes and the true one."""
        logits = np.nansum(self.contributions, axis=(0, 1, 2)) + self.feedforward.sum(axis=0)
        order = np.argsort(-(logits + self.bias), kind="stable")
        shown = {self.label, self.against, label}
        kept = [
            place
            for rank, place in enumerate(order.tolist())
            if rank < CLASSES_KEPT or self.classes[place] in shown
        ]
        number_of = {name: number for number, name in enumerate(self.probabilities)}
        pair = [number_of[self.label], -1 if self.against is None else number_of[self.against]]
        arrays = {
            "classes": np.array([number_of[self.classes[place]] for place in kept], np.int32),
            "shown": np.array(pair, np.int32),
            "tokens": self.contributions[..., kept].astype(np.float32),
            "feedforward": self.feedforward[:, kept].astype(np.float32),
            "bias": self.bias[kept].astype(np.float32),
        }
        if self.error is not None:
            arrays["error"] = np.array(self.error, np.float32)
        return {f"contributions/{name}": array for name, array in arrays.items()}


def signed(value: float, digits: int | None = None) -> str:
    """Return a number with its sign, to two digits where it is small: +3.1, -0.25; 0.00."""
    if digits is None:
        digits = 1 if abs(value) >= 0.995 else 2
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]
