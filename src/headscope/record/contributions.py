"""The contributions to the answer of one text as the record keeps them, and as a sentence.

A contribution is what a part of the model adds to the logit of an answer, in nats: +1 nat
multiplies the odds by 2.7 (`headscope.heads.contributions` computes them). Shape letters: L layers,
H heads, K keys, N tokens that are kept for each head. Needs numpy alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscope.record.schema import Arrays

TOKENS_KEPT = 5
HEADS_NAMED = 3
MEMBERS = ("heads", "keys", "by_key", "feedforward", "constant")  # below nats/ in a step


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of heads, feed-forward blocks and bias to an answer, in nats."""

    answer: str  # such as "Copyleft", or "Copyleft against Permissive"
    tokens: Sequence[str]
    heads: np.ndarray  # [L, H]
    keys: np.ndarray  # [L, H, N]: first positions of the tokens that contribute most through a head
    by_key: np.ndarray  # [L, H, N]: contributions from all positions of such a token
    feedforward: np.ndarray  # [L]
    constant: float  # the bias: independent of the input

    @property
    def total(self) -> float:
        """Return the sum of all contributions."""
        return float(self.heads.sum() + self.feedforward.sum() + self.constant)

    def sentence(self) -> str:
        """Name the heads that contribute most, with their main token; then the sums of all else."""
        order = np.argsort(-np.abs(self.heads), axis=None, kind="stable")[:HEADS_NAMED]
        parts: list[str] = []
        for place in order.tolist():
            layer, head = divmod(place, self.heads.shape[1])
            amount = signed(self.heads[layer, head])
            if not parts:
                amount = f"contributes {amount} nats to {self.answer}"
            parts.append(f"layer {layer} head {head} {amount}{self._source(layer, head)}")
        if num_others := self.heads.size - len(order):
            others = f"{num_others} heads" if num_others > 1 else "head"
            rest = self.heads.sum() - self.heads.flat[order].sum()
            parts.append(f"the other {others} {signed(rest)}")
        bias = "all that is not attention"
        if self.keys.shape[-1]:
            parts.append(f"feed-forward blocks {signed(self.feedforward.sum())}")
            bias = "bias (input-independent)"
        parts.append(f"{bias} {signed(self.constant)}")
        return f"{'; '.join(parts)}; total {signed(self.total)}"

    def _source(self, layer: int, head: int) -> str:
        """Name the token that contributes most through a head, if its sign is that of the head."""
        if not self.keys.shape[-1]:  # unknown
            return ""
        total = self.heads[layer, head]
        shares = self.by_key[layer, head] / total if total else np.zeros(1)
        place = shares.argmax()
        token = self.tokens[self.keys[layer, head, place]]
        if shares[place] > 0.5:
            return f', mostly from "{token}"'
        if shares[place] > 0:
            return f', {signed(self.by_key[layer, head, place])} from "{token}"'
        return ""

    def line(self, layer: int, head: int) -> str:
        """Return the contribution of one head and its main tokens."""
        keys = zip(self.keys[layer, head], self.by_key[layer, head], strict=True)
        tokens = ", ".join(f'"{self.tokens[key]}" {signed(value)}' for key, value in keys)
        return f"contributes {signed(self.heads[layer, head])} nats to {self.answer}: {tokens}"

    def arrays(self) -> Arrays:
        """Return the arrays as the record keeps them."""
        arrays = {f"nats/{name}": np.asarray(getattr(self, name), np.float32) for name in MEMBERS}
        return arrays | {"nats/keys": self.keys.astype(np.int32)}


def strongest_tokens(
    answer: str,
    tokens: Sequence[str],
    heads: np.ndarray,
    by_key: np.ndarray,
    feedforward: np.ndarray,
    constant: np.ndarray | float,
) -> Contributions:
    """Keep, of the contributions [L, H, K] from every key, the tokens with the largest.

    Positions of the same token are summed.
    """
    _, first, place = np.unique(np.array(tokens), return_index=True, return_inverse=True)
    sums = by_key @ (place[:, None] == np.arange(len(first)))  # [L, H, distinct tokens]
    order = np.argsort(-np.abs(sums), axis=-1, kind="stable")[..., :TOKENS_KEPT]  # [L, H, N]
    largest = np.take_along_axis(sums, order, axis=-1)
    return Contributions(answer, tokens, heads, first[order], largest, feedforward, float(constant))


def notes_of(contributions: Contributions | None) -> dict[str, str]:
    """Return the note on a page about a text's contributions."""
    return {} if contributions is None else {"contributions": contributions.sentence()}


def signed(value: float | np.floating[Any]) -> str:
    """Return a number with its sign, to two digits where it is small: +3.1, -0.25."""
    number = float(value)
    digits = 1 if abs(number) >= 0.995 else 2
    return f"{round(number, digits) + 0.0:+.{digits}f}"
