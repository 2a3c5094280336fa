"""Sentences made by a recipe, who.json: who helped whom? Counts of words and n-grams do not tell.

Two names stand in each, {0} who helped and {1}, in either order. Whether a name's particle marks
the helper depends on the verb, which stands apart from it: both must be read together.
"""

import itertools
import json
import random
from pathlib import Path
from typing import Any

Rows = dict[str, list[dict[str, str]]]


def japanese(config: Any) -> Rows:
    """Return every sentence of the Japanese recipe, in an order drawn once."""
    return _made(config, "japanese")


def english(config: Any) -> Rows:
    """Return every sentence of the English recipe, in an order drawn once."""
    return _made(config, "english")


def _made(config: Any, language: str) -> Rows:
    recipe = json.loads(Path(__file__).with_name("who.json").read_text(encoding="utf-8"))[language]
    parts = (recipe["sentences"], recipe["between"], recipe["ends"])
    rows = [
        {config.text_column: sentence.format(*pair, word) + end, config.label_column: pair[0]}
        for sentence, word, end in itertools.product(*parts)
        for pair in itertools.permutations(recipe["names"], 2)
    ]
    random.Random(0).shuffle(rows)
    return {config.train_split: rows}
