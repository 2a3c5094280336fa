"""Why a text is given a class: its log-odds as one table of heads and words that adds up both ways.

The numbers are of the very probabilities beside them: of logits that are divided by the
temperature. +1 multiplies the odds of a class against another by e = 2.7.
`headscope.heads.contributions` computes them. Shape letters: L layers, H heads, T tokens, Q
queries, K classes that are kept. Needs numpy alone.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
from jaxtyping import Float

from headscope.record.schema import Arrays

CLASSES_KEPT = 8  # in a record, of the likeliest
MOST_MISSED = 1e-4  # beyond it a sum is not called exact
WORDS_NAMED = 8
HEADS_NAMED = 8  # of all layers, fewer if these hold
MOST_HELD = 0.9  # of the sizes of all heads
TABLE_WIDTH = 79
NAME_WIDTH = 16
NUMBER_WIDTH = 8
WORD_WIDTH = 12
Place = tuple[int, int]  # of a head: its layer and number


@dataclass(frozen=True, eq=False)
class KnownCells:
    """What heads share of each token, then of the biases: computed once for those asked for."""

    compute: Callable[[Sequence[Place]], Float[np.ndarray, "N T_and_1 K"]]
    known: dict[Place, Float[np.ndarray, "T_and_1 K"]] = field(default_factory=dict)

    def __call__(self, heads: Sequence[Place]) -> list[Float[np.ndarray, "T_and_1 K"]]:
        """Return those of some heads."""
        if new := [head for head in heads if head not in self.known]:
            self.known.update(zip(new, self.compute(new), strict=True))
        return [self.known[head] for head in heads]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The log-odds of a class as a sum of words and biases, and each of these over all heads.

    log_odds = sum(words) + biases + miss
    words    = sum over layers and heads of heads + past
    biases   = sum over layers and heads of head_biases + past_biases

    The arrays that end in `_of` have a column for each of the K classes: what the parts add to that
    class's logit less that of the last class. Of two columns the difference is what they add to the
    log-odds. Where a text may have several labels they are of the logits themselves.

    Attributes:
        label: the class that is explained.
        against: the class that it is held against; None where a text may have several labels: the
            log-odds are then those of the class against its absence.
        probabilities: of each class, by name.
        tokens: of the text, as people read them.
        classes: names of the K classes.
        words_of: of each token's own vectors.
        biases_of: of all biases together.
        totals_of: each head's share of all tokens and biases: heads share alike what passes several
            of them. NaN where a layer has fewer heads, here and below.
        cells_of: of some heads the share of each token, then of the biases, as this text's gates
            pass them on; `heads_of` and `head_biases_of` are those of all, when first read.
        past_of: of each token what passes through no head. Where [CLS] is read it is 0, but for
            [CLS].
        past_biases_of: of the biases what passes through no head.
        through_of: all that passes through each head, whole for each head that it passes.
        maps: what passes through each head from each position at each query, to the log-odds of
            `label` against `against`; its sum is that of `through`. NaN where a layer attends to
            something else than the T tokens.
        log_odds_of: of each class against the last one, of logits divided by the temperature.
        layers: names of the L layers, which are observed; NaN in all heads of one is unknown.
        unobserved_of: of `past_of` and `past_biases_of` together, what passes through attention
            that is not observed, such as one that is written by hand.
        unknown: the module that is not the sum of its parts, where the miss is not 0.
        empty: the log-odds of an empty text; None if unknown.
        spans: the words and signs of the text, each its name and its tokens [start, end); those in
            none are the start and end of the text, as [CLS]. None: each token is a word.
    """

    label: str
    against: str | None
    probabilities: dict[str, float]
    tokens: Sequence[str]
    classes: Sequence[str]
    words_of: Float[np.ndarray, "T K"]
    biases_of: Float[np.ndarray, " K"]
    totals_of: Float[np.ndarray, "L H K"]
    cells_of: KnownCells
    past_of: Float[np.ndarray, "T K"]
    past_biases_of: Float[np.ndarray, " K"]
    through_of: Float[np.ndarray, "L H K"]
    maps: Float[np.ndarray, "L H Q T"]
    log_odds_of: Float[np.ndarray, " K"]
    layers: Sequence[str]
    unobserved_of: Float[np.ndarray, " K"]
    unknown: str = ""
    empty: float | None = None
    spans: Sequence[tuple[str, int, int]] | None = None

    def of_layers(self, names: Sequence[str]) -> "Explanation":
        """Return the same sum over the heads of some layers; the others' parts count as past."""
        rows = [list(self.layers).index(name) for name in names]
        left_out = [place for place in self.known_heads() if place[0] not in rows]
        cells = sum(self.cells_of(left_out), np.zeros((len(self.tokens) + 1, len(self.classes))))
        return replace(
            self,
            layers=list(names),
            totals_of=self.totals_of[rows],
            cells_of=KnownCells(
                lambda heads: np.stack(self.cells_of([(rows[at], head) for at, head in heads]))
            ),
            through_of=self.through_of[rows],
            maps=self.maps[rows],
            past_of=self.past_of + cells[:-1],
            past_biases_of=self.past_biases_of + cells[-1],
            unobserved_of=self.unobserved_of + cells.sum(axis=0),
        )

    def known_heads(self) -> list[Place]:
        """Return the heads that are there and known."""
        known = ~np.isnan(self.totals_of[..., 0])
        return [place for place in np.ndindex(*known.shape) if known[place]]

    def toward(self, part: Float[np.ndarray, "*N K"]) -> Float[np.ndarray, "*N"]:
        """Return what a part adds to the log-odds of `label` against `against`."""
        of_label: np.ndarray = part[..., self.classes.index(self.label)]
        if self.against is None:
            return np.asarray(of_label)
        return np.asarray(of_label - part[..., self.classes.index(self.against)])

    @property
    def heads_of(self) -> Float[np.ndarray, "L H T K"]:
        """Each head's share of each token."""
        return self._all_cells[:, :, :-1]

    @property
    def head_biases_of(self) -> Float[np.ndarray, "L H K"]:
        """Each head's share of the biases."""
        return self._all_cells[:, :, -1]

    @cached_property
    def _all_cells(self) -> Float[np.ndarray, "L H T_and_1 K"]:
        L, H, K = self.totals_of.shape
        cells = np.full((L, H, len(self.tokens) + 1, K), np.nan)
        heads = self.known_heads()
        for place, own in zip(heads, self.cells_of(heads), strict=True):
            cells[place] = own
        return cells

    @property
    def words(self) -> Float[np.ndarray, " T"]:
        """The contribution of each token."""
        return self.toward(self.words_of)

    @property
    def heads(self) -> Float[np.ndarray, "L H T"]:
        """Each head's share of each token."""
        return self.toward(self.heads_of)

    @property
    def head_biases(self) -> Float[np.ndarray, "L H"]:
        """Each head's share of the biases."""
        return self.toward(self.head_biases_of)

    @property
    def past(self) -> Float[np.ndarray, " T"]:
        """Of each token what passes through no head."""
        return self.toward(self.past_of)

    @property
    def past_biases(self) -> float:
        """Of the biases what passes through no head."""
        return float(self.toward(self.past_biases_of))

    @property
    def through(self) -> Float[np.ndarray, "L H"]:
        """All that passes through each head."""
        return self.toward(self.through_of)

    def map(self, layer: int, head: int) -> Float[np.ndarray, "Q T"]:
        """Return what passes through a head from each position (column) at each query (row)."""
        return self.maps[layer, head]  # type: ignore[no-any-return]

    @property
    def biases(self) -> float:
        """The sum of all biases, as this text's gates pass them on."""
        return float(self.toward(self.biases_of))

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
        return ranked_words(self.words, self.places())

    def places(self) -> dict[str, list[int]]:
        """Return the tokens of each word, wherever it stands."""
        spans = self.spans
        if spans is None:
            spans = [(token, at, at + 1) for at, token in enumerate(self.tokens)]
        return places_of(spans)

    def ends(self) -> list[int]:
        """Return the tokens of no word: the start and end of the text."""
        words = {*chain.from_iterable(self.places().values())}
        return [at for at in range(len(self.tokens)) if at not in words]

    def word_line(self, count: int = WORDS_NAMED) -> str:
        """Return the words that add most, such as `proprietary +2.6; under -0.41`."""
        return word_line(self.ranked_words()[:count])

    def __str__(self) -> str:
        """Return the class, the words that add most to it, and the table of heads and words."""
        against = "its absence"
        if self.against is not None:
            against = f"{self.against} {self.probabilities[self.against]:.4f}"
        share = abs(self.biases / self.log_odds) if self.log_odds else 0.0
        biases = f"biases: {signed(self.biases)} ({share:.2f} of the log-odds in size"
        if self.empty is not None:
            biases += f"; an empty text has log-odds of {signed(self.empty)}"
        ends = self.ends()
        words = [*filter(None, [self.word_line()])]
        words.append(f"all {signed(float(np.delete(self.words, ends).sum()))}")
        lines = [
            f"{self.label} {self.probabilities[self.label]:.4f} against {against}: "
            f"log-odds {signed(self.log_odds)}",
            f"words: {'; '.join(words)}",
        ]
        if ends:
            lines.append(f"start and end of the text: {signed(float(self.words[ends].sum()))}")
        lines.append(f"{biases})")
        if not abs(self.miss) <= MOST_MISSED:  # NaN too
            lines.append(f"not attributed: {signed(self.miss)}, by {self.unknown}")
        if unobserved := float(self.toward(self.unobserved_of)):
            lines.append(
                f"attention that is not observed: {signed(unobserved)}, of past every head"
            )
        return "\n".join([*lines, *_aligned(self._table())])

    def _table(self) -> list[list[str]]:
        """Return heads by words, the largest first: names, words, other words, biases, sums."""
        words = self._words_that_fit()
        of_words = self.places()
        ends = self.ends()
        places = [of_words[word] for word in words]
        chosen = [*ends, *chain.from_iterable(places)]

        def cells(name: str, parts: Float[np.ndarray, " T_and_1"]) -> list[str]:
            columns = [parts[of_word].sum() for of_word in places]
            others = np.delete(parts[:-1], chosen).sum()
            of_ends = [parts[ends].sum()] if ends else []
            return [name, *map(signed, [*columns, others, *of_ends, parts[-1], parts.sum()])]

        last = ["others", *(["ends"] if ends else []), "biases", "sum"]
        rows = [["", *map(_clipped, words), *last]]
        rows += [cells(*row) for row in self._rows()]
        return [*rows, cells("all", np.append(self.words, self.biases))]

    def _rows(self) -> Iterator[tuple[str, Float[np.ndarray, " T_and_1"]]]:
        """Yield the heads that hold most of all, the other heads, and what passes through none."""
        sums = self.head_sums
        heads = sorted(self.known_heads(), key=lambda place: -abs(sums[place]))
        sizes = np.array([abs(sums[place]) for place in heads])
        count = 1 + int((np.cumsum(sizes) < MOST_HELD * sizes.sum()).sum())
        count = min(count, HEADS_NAMED)
        if len(heads) == count + 1:
            count += 1
        titles = layer_titles(self.layers)
        past = np.append(self.past, self.past_biases)
        rest = np.append(self.words, self.biases) - past
        for (layer, head), own in zip(heads, self.cells_of(heads[:count]), strict=False):
            cells = self.toward(own)
            rest = rest - cells
            yield f"{titles[layer]} head {head}", cells
        if others := len(heads[count:]):
            yield f"{others} other heads", rest
        yield "past every head", past

    def _words_that_fit(self) -> list[str]:
        """Return the words that add most, as many as have room in the table."""
        words: list[str] = []
        room = TABLE_WIDTH - NAME_WIDTH - 4 * NUMBER_WIDTH
        for word, _ in self.ranked_words():
            room -= max(_width(_clipped(word)) + 2, NUMBER_WIDTH)
            if room < 0:
                break
            words.append(word)
        return words

    @property
    def head_sums(self) -> Float[np.ndarray, "L H"]:
        """Each head's share of the log-odds: of all tokens and biases."""
        return self.toward(self.totals_of)

    def arrays(self) -> Arrays:
        """Return the arrays of each step of a record; the first classes are those of `shown`."""
        number_of = {name: number for number, name in enumerate(self.probabilities)}
        pair = [number_of[self.label], -1 if self.against is None else number_of[self.against]]
        arrays = {
            "classes": np.array([number_of[name] for name in self.classes], np.int32),
            "shown": np.array(pair, np.int32),
            "words": self.words_of.astype(np.float32),
            "heads": self.heads_of.astype(np.float32),
            "head_biases": self.head_biases_of.astype(np.float32),
            "past": self.past_of.astype(np.float32),
            "past_biases": self.past_biases_of.astype(np.float32),
            "biases": self.biases_of.astype(np.float32),
            "through": self.through_of.astype(np.float32),
            "log_odds": self.log_odds_of.astype(np.float32),
        }
        return {f"contributions/{name}": array for name, array in arrays.items()}

    def map_arrays(self) -> Arrays:
        """Return the maps, which pages and the best step have alone."""
        return {"contributions/maps": self.maps.astype(np.float16)}


def layer_titles(layers: Sequence[str]) -> list[str]:
    """Return what layers are called: layer 0, or network 0 of an ensemble of one layer each."""
    members = [match[1] for name in layers if (match := re.match(r"members\.(\d+)\.", name))]
    is_by_network = len({*members}) == len(layers) > 1
    kind = "network" if is_by_network else "layer"
    return [f"{kind} {number}" for number in range(len(layers))]


def head_names(layers: Sequence[str], heads: Sequence[int]) -> list[str]:
    """Return what heads are called, layer after layer; `heads` is how many each layer has."""
    titles = zip(layer_titles(layers), heads, strict=True)
    return [f"{title} head {head}" for title, count in titles for head in range(count)]


def places_of(spans: Sequence[tuple[str, int, int]]) -> dict[str, list[int]]:
    """Return the tokens of each word, wherever it stands."""
    places: dict[str, list[int]] = {}
    for name, start, end in spans:
        places.setdefault(name, []).extend(range(start, end))
    return places


def ranked_words(
    tokens: Float[np.ndarray, " T"], places: dict[str, list[int]]
) -> list[tuple[str, float]]:
    """Return each word and the sum of its tokens' contributions, the largest first."""
    sums = [(name, float(tokens[own].sum())) for name, own in places.items()]
    return sorted(sums, key=lambda item: -abs(item[1]))


def word_line(ranked: Sequence[tuple[str, float]]) -> str:
    """Return words and their contributions, such as `proprietary +2.6; under -0.41`."""
    return "; ".join(f"{name} {signed(value)}" for name, value in ranked)


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign, to two digits: +3.14, -0.25; 0.00."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(1 + (unicodedata.east_asian_width(character) in "FW") for character in text)


def _clipped(word: str) -> str:
    """Return a word that is as short as a column."""
    while _width(word) > WORD_WIDTH:
        word = f"{word[:-2]}…"
    return word


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines: names to the left, the other cells to the right of their column."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        line = name + " " * (widths[0] - _width(name))
        for cell, width in zip(cells, widths[1:], strict=True):
            line += "  " + " " * (width - _width(cell)) + cell
        lines.append(line)
    return lines
