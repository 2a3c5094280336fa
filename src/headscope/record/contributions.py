"""The contributions to the answer of one text as the record keeps them, and as a sentence. Needs numpy alone.

A contribution is what a part of the model adds to the logit of an answer, in nats: +1 nat multiplies the odds by
2.7 (`headscope.heads.contributions` computes them). Shape letters: L layers, H heads, K keys, N tokens that are kept
for each head.
"""

from collections.abc import Mapping, Sequence
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
        named = [divmod(int(place), self.heads.shape[1]) for place in order]
        parts: list[str] = []
        for layer, head in named:
            amount = signed(self.heads[layer, head])
            if not parts:
                amount = f"contributes {amount} nats to {self.answer}"
            parts.append(f"layer {layer} head {head} {amount}{self._source(layer, head)}")
        if num_others := self.heads.size - len(order):
            rest = self.heads.sum() - self.heads.flat[order].sum()
            others = f"{num_others} heads" if num_others > 1 else "head"
            parts.append(f"the other {others} {signed(rest)}")
        if self.keys.shape[-1]:
            parts.append(f"feed-forward blocks {signed(self.feedforward.sum())}")
            parts.append(f"bias (input-independent) {signed(self.constant)}")
        else:
            parts.append(f"all that is not attention {signed(self.constant)}")
        return f"{'; '.join(parts)}; total {signed(self.total)}"

    def _source(self, layer: int, head: int) -> str:
        """Name the token that contributes most through a head, if its sign is that of the head."""
        if not self.keys.shape[-1]:  # unknown
            return ""
        total = self.heads[layer, head]
        by_key = self.by_key[layer, head]
        place = int((by_key * np.sign(total)).argmax())
        token = self.tokens[self.keys[layer, head, place]]
        if by_key[place] * np.sign(total) > abs(total) / 2:
            return f', mostly from "{token}"'
        if by_key[place] * np.sign(total) > 0:
            return f', {signed(by_key[place])} from "{token}"'
        return ""

    def line(self, layer: int, head: int) -> str:
        """Return the contribution of one head and its main tokens."""
        keys = zip(self.keys[layer, head], self.by_key[layer, head], strict=True)
        tokens = ", ".join(f'"{self.tokens[key]}" {signed(value)}' for key, value in keys)
        return f"contributes {signed(self.heads[layer, head])} nats to {self.answer}: {tokens}"

    def arrays(self) -> Arrays:
        """Return the arrays as the record keeps them."""
        arrays = {f"nats/{name}": np.asarray(getattr(self, name)) for name in MEMBERS}
        kinds = {"nats/keys": np.int32}
        return {name: array.astype(kinds.get(name, np.float32)) for name, array in arrays.items()}


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


def recorded_contributions(
    arrays: Mapping[str, np.ndarray], answer: str, tokens: Sequence[str]
) -> Contributions | None:
    """Return the contributions of a recorded text; None where the record has none."""
    if "nats/heads" not in arrays:
        return None
    heads, keys, by_key, feedforward, bias = (arrays[f"nats/{name}"] for name in MEMBERS)
    return Contributions(answer, tokens, heads, keys, by_key, feedforward, float(bias))


def notes_of(contributions: Contributions | None) -> dict[str, str]:
    """Return the note on a page about a text's contributions."""
    return {} if contributions is None else {"contributions": contributions.sentence()}


def signed(value: float | np.floating[Any]) -> str:
    """Return a number with its sign, to two digits where it is small: +3.1, -0.25."""
    number = float(value)
    digits = 1 if abs(number) >= 0.995 else 2
    return f"{round(number, digits) + 0.0:+.{digits}f}"
