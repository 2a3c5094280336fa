"""Sentences made by a recipe: who helped whom? Counts of words and n-grams do not tell.

Two names stand in each, in either order. Whether a name's particle marks the helper depends on the
verb, which stands apart from it: the word after the name and the verb must be read together.
"""

import itertools
import random

from headscope.settings.config import DataConfig

Rows = dict[str, list[dict[str, str]]]
SEED = 0

JAPANESE_NAMES = ["ミカ", "ケン", "ユイ", "リク"]
JAPANESE = [  # {0} helped {1}
    "{0}は{1}に{2}手を貸した",
    "{1}に{0}は{2}手を貸した",
    "{1}は{0}に{2}助けられた",
    "{0}に{1}は{2}助けられた",
]
JAPANESE_BETWEEN = ["昨日", "駅で", "雨の中", "帰りに", "そっと", "また"]
JAPANESE_ENDS = ["。", "という。", "そうだ。", "と聞いた。", "らしい。", "のを見た。"]

ENGLISH_NAMES = ["Ann", "Ben", "Eve", "Tom"]
ENGLISH = [
    "{0} {2} was a help to {1}",
    "to {1} {0} {2} was a help",
    "{1} {2} was grateful to {0}",
    "to {0} {1} {2} was grateful",
]
ENGLISH_BETWEEN = ["yesterday", "at school", "in the rain", "as ever", "I hear", "again"]
ENGLISH_ENDS = ["", " they say", " it seems", " we saw", " last week", " once more"]


def japanese(config: DataConfig) -> Rows:
    """Return every sentence of the Japanese recipe."""
    return _made(config, JAPANESE_NAMES, JAPANESE, JAPANESE_BETWEEN, JAPANESE_ENDS)


def english(config: DataConfig) -> Rows:
    """Return every sentence of the English recipe."""
    return _made(config, ENGLISH_NAMES, ENGLISH, ENGLISH_BETWEEN, ENGLISH_ENDS)


def _made(
    config: DataConfig, names: list[str], frames: list[str], between: list[str], ends: list[str]
) -> Rows:
    pairs = itertools.permutations(names, 2)
    rows = [
        {config.text_column: frame.format(*pair, word) + end, config.label_column: pair[0]}
        for frame, word, end, pair in itertools.product(frames, between, ends, pairs)
    ]
    random.Random(SEED).shuffle(rows)
    return {config.train_split: rows}
