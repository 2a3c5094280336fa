"""How much longer a tokenizer.json may make a text: one of somebody else could fill the memory."""

import base64
from typing import Any

from pydantic_core import from_json

MOST_GROWTH = 40  # XLM-R: 36 x 1.1
# Spaces around a character; a letter a byte; a mark before each piece: of many steps.
FACTORS = {"BertNormalizer": 3, "ByteLevel": 4, "Metaspace": 1.1}
MOST_NAME = 256  # characters of a name that stands for any unknown token, or around each text
NAMES = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")


def check_growth(content: str) -> None:
    """Raise a ValueError if a tokenizer.json makes texts much longer before it splits them.

    A normalizer or pre-tokenizer multiplies the length by at most its factor. Unicode's own forms
    are not counted: what they have made once they leave as it is.
    """
    parts = from_json(content)
    growth = 1.0
    for name in ("normalizer", "pre_tokenizer"):
        growth *= _growth(parts.get(name) or {})
    if growth > MOST_GROWTH:
        raise ValueError(
            f"its normalizer could make a text {growth:.0f} times as long, "
            f"expected at most {MOST_GROWTH} times"
        )
    around = parts.get("post_processor") or {}
    if any(_uses(around, side, text) > 1 for side in ("single", "pair") for text in ("A", "B")):
        raise ValueError("its post_processor repeats a text")
    names = [parts["model"].get(name) for name in NAMES]
    if max(map(_longest, [around, *names])) > MOST_NAME:
        raise ValueError(f"a special token has more than {MOST_NAME} characters")


def _uses(around: dict[str, Any], side: str, text: str) -> int:
    """Return how often a post-processor's template has a text."""
    steps = around.get("processors") or []
    own: int = sum(piece.get("Sequence", {}).get("id") == text for piece in around.get(side) or [])
    return max([own, *(_uses(step, side, text) for step in steps)])


def _longest(part: Any) -> int:
    """Return the length of the longest text within a value of JSON."""
    if isinstance(part, str):
        return len(part)
    members = part.values() if isinstance(part, dict) else part
    longest = 0
    for member in members if isinstance(part, dict | list) else ():
        longest = max(longest, _longest(member))
    return longest


def _growth(part: dict[str, Any]) -> float:
    """Return how many times as long a text can become."""
    kind = part.get("type")
    steps = part.get("normalizers") or part.get("pretokenizers") or []
    growth = 1.0
    for step in steps:
        growth *= _growth(step)
    if kind == "Replace":
        text = part["pattern"].get("String")  # a regular expression may match between letters
        added = len(part["content"])
        return max(1.0, added / len(text)) if text else 1.0 + added
    if kind == "Prepend":
        return 1.0 + len(part["prepend"])
    if kind == "Precompiled":
        charsmap = base64.b64decode(part["precompiled_charsmap"])
        trie = int.from_bytes(charsmap[:4], "little")
        replacements = charsmap[4 + trie :].decode("utf-8", "replace").split("\0")
        return max(1.0, *map(len, replacements))
    return growth * FACTORS.get(str(kind), 1)
