"""Why a text is given a class: its log-odds as a sum over words and biases.

For every layer they are a sum again: what passes through its heads, what goes past them, and the
biases above.

The numbers are of the very probabilities beside them: of logits that are divided by the
temperature. +1 multiplies the odds of a class against another by e = 2.7.
`headscope.heads.contributions` computes them. Shape letters: L layers, H heads, T tokens, K classes
that are kept. Needs numpy alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headscope.record.schema import Arrays

CLASSES_KEPT = 8  # in a record, of the likeliest
MOST_MISSED = 1e-4  # beyond it a sum is not called exact
WORDS_NAMED = 8
HEADS_NAMED = 4  # of each layer


@dataclass(frozen=True, eq=False)
class Explanation:
    """The log-odds of a class as a sum: of words and biases, and once more for every layer.

    log_odds = sum(words) + biases + miss, and for each layer l
    log_odds = sum(heads[l]) + past[l] + sum(biases_by_layer[l + 1 :]) + miss.

    The arrays that end in `_of` have a column for each of the K classes: what the parts add to that
    class's logit. Of two columns the difference is what they add to the log-odds.

    Attributes:
        label: the class that is explained.
        against: the class that it is held against; None where a text may have several labels: the
            log-odds are then those of the class against its absence.
        probabilities: of each class, by name.
        tokens: of the text, as people read them.
        classes: names of the K classes.
        words_of: of each token's own vectors.
        heads_of: through each head of each layer from each position; NaN where a layer has fewer.
        past_of: past each layer, in the residual stream.
        biases_of: added before the attention of each layer, and after the last.
        log_odds_of: the logits, divided by the temperature.
        unknown: the module that is not the sum of its parts, where the miss is not 0.
        empty: the log-odds of an empty text; None if unknown.
    """

    label: str
    against: str | None
    probabilities: dict[str, float]
    tokens: Sequence[str]
    classes: Sequence[str]
    words_of: Float[np.ndarray, "T K"]
    heads_of: Float[np.ndarray, "L H T K"]
    past_of: Float[np.ndarray, "L K"]
    biases_of: Float[np.ndarray, "layers_and_1 K"]
    log_odds_of: Float[np.ndarray, " K"]
    unknown: str = ""
    empty: float | None = None

    def toward(self, part: Float[np.ndarray, "*N K"]) -> Float[np.ndarray, "*N"]:
        """Return what a part adds to the log-odds of `label` against `against`."""
        of_label: np.ndarray = part[..., self.classes.index(self.label)]
        if self.against is None:
            return np.asarray(of_label)
        return np.asarray(of_label - part[..., self.classes.index(self.against)])

    @property
    def words(self) -> Float[np.ndarray, " T"]:
        """The contribution of each token."""
        return self.toward(self.words_of)

    @property
    def heads(self) -> Float[np.ndarray, "L H T"]:
        """What passes through each head of each layer from each position."""
        return self.toward(self.heads_of)

    @property
    def past(self) -> Float[np.ndarray, " L"]:
        """What goes past each layer, in the residual stream."""
        return self.toward(self.past_of)

    @property
    def biases_by_layer(self) -> Float[np.ndarray, " layers_and_1"]:
        """Biases that are added before the attention of each layer, and after the last."""
        return self.toward(self.biases_of)

    @property
    def biases(self) -> float:
        """The sum of all biases, as this text's gates pass them on."""
        return float(self.biases_by_layer.sum())

    @property
    def log_odds(self) -> float:
        """The log of p / p' of the two classes, or of p / (1 - p)."""
        return float(self.toward(self.log_odds_of))

    @property
    def miss(self) -> float:
        """What of the log-odds is in no part: rounding, or `unknown`."""
        return self.log_odds - float(self.words.sum()) - self.biases

    def ranked_words(self) -> list[tuple[str, float]]:
        """Return each word and its contribution, the largest first; equal words as one."""
        sums = dict.fromkeys(self.tokens, 0.0)
        for token, value in zip(self.tokens, self.words.tolist(), strict=True):
            sums[token] += value
        return sorted(sums.items(), key=lambda item: -abs(item[1]))

    def word_line(self, count: int = WORDS_NAMED) -> str:
        """Return the words that add most, such as `proprietary +2.6; under -0.41`."""
        return "; ".join(f"{token} {signed(value)}" for token, value in self.ranked_words()[:count])

    def __str__(self) -> str:
        """Return the class, the words that add most to it, and for each layer its heads."""
        against = "its absence"
        if self.against is not None:
            against = f"{self.against} {self.probabilities[self.against]:.4f}"
        biases = f"biases: {signed(self.biases)}"
        if self.empty is not None:
            biases += f" (an empty text has log-odds of {signed(self.empty)})"
        lines = [
            f"{self.label} {self.probabilities[self.label]:.4f} against {against}: "
            f"log-odds {signed(self.log_odds)}",
            f"words: {self.word_line()}; all {signed(float(self.words.sum()))}",
            biases,
        ]
        if abs(self.miss) > MOST_MISSED:
            lines.append(f"not attributed: {signed(self.miss)}, by {self.unknown}")
        lines += [self._layer_line(layer) for layer in range(len(self.heads))]
        return "\n".join(lines)

    def _layer_line(self, layer: int) -> str:
        """Return what passes through the heads of a layer, past them, and the biases above."""
        heads = self.heads[layer].sum(axis=-1)  # [H]
        heads = heads[~np.isnan(heads)]
        order = np.argsort(-np.abs(heads), kind="stable")
        named = [f"head {head} {signed(heads[head])}" for head in order[:HEADS_NAMED].tolist()]
        if len(heads) > HEADS_NAMED:
            rest = heads[order[HEADS_NAMED:]]
            named.append(f"{len(rest)} other heads {signed(float(rest.sum()))}")
        above = float(self.biases_by_layer[layer + 1 :].sum())
        parts = [*named, f"past {signed(self.past[layer])}", f"biases above {signed(above)}"]
        return f"layer {layer}: {'; '.join(parts)}"

    def arrays(self) -> Arrays:
        """Return the arrays as a record has them; the first classes are the two of `shown`."""
        number_of = {name: number for number, name in enumerate(self.probabilities)}
        pair = [number_of[self.label], -1 if self.against is None else number_of[self.against]]
        arrays = {
            "classes": np.array([number_of[name] for name in self.classes], np.int32),
            "shown": np.array(pair, np.int32),
            "words": self.words_of.astype(np.float32),
            "heads": self.heads_of.astype(np.float32),
            "past": self.past_of.astype(np.float32),
            "biases": self.biases_of.astype(np.float32),
            "log_odds": self.log_odds_of.astype(np.float32),
        }
        return {f"contributions/{name}": array for name, array in arrays.items()}


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign, to two digits: +3.14, -0.25; 0.00."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]
