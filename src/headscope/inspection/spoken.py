"""What every part of a model put for an answer: as it is said in words, and as it is recorded. Needs numpy alone.

`headscope.inspection.attribution` finds it. L layers, H heads, K keys, N tokens that are kept for each head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscope.inspection.record import Arrays

KEPT_TOKENS, NAMED_HEADS = 5, 3  # of each head; in a sentence


@dataclass(frozen=True, eq=False)
class Spoken:
    """What heads, feed-forward blocks and constant put for an answer about one text, in nats.

    Attributes:
        answer: such as "Copyleft", or "Copyleft against Permissive".
        tokens: of the text, as a person reads them.
        heads: [L, H].
        keys: [L, H, N], the tokens that a head has most of it from, the most first: the first place of each.
        by_key: [L, H, N], what it has from them, from all places where such a token stands.
        feedforward: [L].
        constant: what is there whatever the text says.
    """

    answer: str
    tokens: Sequence[str]
    heads: np.ndarray
    keys: np.ndarray
    by_key: np.ndarray
    feedforward: np.ndarray
    constant: float

    @property
    def total(self) -> float:
        """All of it together."""
        return float(self.heads.sum() + self.feedforward.sum() + self.constant)

    def sentence(self) -> str:
        """Say which heads put most and from which token, then what all others put, and what no head did."""
        order = np.argsort(-np.abs(self.heads), axis=None, kind="stable")[:NAMED_HEADS]
        first, *others = [divmod(int(place), self.heads.shape[1]) for place in order]
        begin = f"layer {first[0]} head {first[1]} put {nats(self.heads[first])} nats for {self.answer}"
        parts = [begin + self._source(first)]
        parts += [f"layer {at[0]} head {at[1]} {nats(self.heads[at])}{self._source(at)}" for at in others]
        if left := self.heads.size - len(order):
            rest = self.heads.sum() - self.heads.flat[order].sum()
            parts.append(f"the other {f'{left} heads' if left > 1 else 'head'} {nats(rest)}")
        parts.append(f"the feed-forward blocks {nats(self.feedforward.sum())}")
        parts.append(f"whatever the text says (constant) {nats(self.constant)}")
        return f"{'; '.join(parts)}; together {nats(self.total)}"

    def _source(self, at: tuple[int, int]) -> str:
        """Name the token that a head has most of it from, if one pulled the way that the head did."""
        value = self.heads[at]
        place = int((self.by_key[at] * np.sign(value)).argmax())
        token, share = self.tokens[self.keys[at][place]], self.by_key[at][place]
        if share * np.sign(value) > abs(value) / 2:
            return f', most of it from "{token}"'
        return f', {nats(share)} from "{token}"' if share * np.sign(value) > 0 else ""

    def arrays(self) -> Arrays:
        """Return the numbers as the record keeps them, below nats/."""
        keys, numbers = self.keys.astype(np.int32), (self.heads, self.by_key, self.feedforward, self.constant)
        named = zip(("heads", "by_key", "feedforward", "constant"), numbers, strict=True)
        return {"nats/keys": keys} | {f"nats/{name}": np.asarray(value, dtype=np.float32) for name, value in named}


def spoken(
    answer: str,
    tokens: Sequence[str],
    heads: np.ndarray,
    by_key: np.ndarray,
    feedforward: np.ndarray,
    constant: np.ndarray | float,
) -> Spoken:
    """Keep, of what every head [L, H] has from every key [L, H, K], the tokens that count most.

    The places where the same token stands are taken together, since a word may stand in many.
    """
    _, first, place = np.unique(np.array(tokens), return_index=True, return_inverse=True)
    sums = by_key @ (place[:, None] == np.arange(len(first)))  # [L, H, tokens that differ]
    most = np.argsort(-np.abs(sums), axis=-1, kind="stable")[..., :KEPT_TOKENS]  # [L, H, N]
    return Spoken(
        answer, tokens, heads, first[most], np.take_along_axis(sums, most, axis=-1), feedforward, float(constant)
    )


def recorded(arrays: Mapping[str, np.ndarray], answer: str, tokens: Sequence[str]) -> Spoken | None:
    """Return what `Spoken.arrays` were made of; None where a record has none."""
    if "nats/heads" not in arrays:
        return None
    heads, keys, by_key, feedforward, constant = (
        arrays[f"nats/{name}"] for name in ("heads", "keys", "by_key", "feedforward", "constant")
    )
    return Spoken(answer, tokens, heads, keys, by_key, feedforward, float(constant))


def numbers_of_head(said: Spoken | None, layer: int, head: int) -> dict[str, float]:
    """Return what a head put, as a number beside its others; nothing where it cannot be said."""
    return {} if said is None else {"nats": float(said.heads[layer, head])}


def notes_of(said: Spoken | None) -> dict[str, str]:
    """Return what a page says of a text; nothing where it cannot be said."""
    return {} if said is None else {"what spoke for it": said.sentence()}


def nats(value: float | np.floating[Any]) -> str:
    """Return a number with its sign, to two digits where it is small: +3.1, -0.25."""
    number = float(value)
    digits = 1 if abs(number) >= 0.995 else 2
    return f"{round(number, digits) + 0.0:+.{digits}f}"
