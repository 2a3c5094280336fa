"""How much longer a tokenizer.json may make a text: one of somebody else could fill the memory."""

import base64
import math
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json
from tokenizers import normalizers

# SigLIP's: spaces replaced by two regular expressions (2 x 2), a charsmap (4), Metaspace (1.1).
MOST_GROWTH = 20
MOST_STEPS = 32  # of the normalizer and the pre-tokenizer, each of which reads the whole text
# Spaces around a character; a letter a byte; a mark before each piece: of many steps.
FACTORS = {"BertNormalizer": 3, "ByteLevel": 4, "Metaspace": 1.1}
MOST_NAME = 256  # characters of a name that stands for any unknown token, or around each text
MOST_WORD = 256  # characters of a word that WordPiece cuts, in a time of their square; BERT: 100
NAMES = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
MOST_REPLACED = 40  # characters that a charsmap may make of one, such as the 18 of U+FDFA
# Letters and signs that texts consist of: all below the squares of Katakana, Chinese, Hangul.
EVERYDAY = [
    chr(code) for code in (*range(32, 0x3200), *range(0x4E00, 0xA000), *range(0xAC00, 0xD7A4))
]
BETWEEN = "\ue000"  # of a private area: no charsmap has it


def check_growth(content: str) -> None:
    """Raise a ValueError if a tokenizer.json makes texts much longer before it splits them.

    A normalizer or pre-tokenizer multiplies the length by at most its factor. Unicode's own forms
    are not counted: what they have made once they leave as it is.
    """
    parts = from_json(content)
    steps = [step for name in ("normalizer", "pre_tokenizer") for step in _steps(parts.get(name))]
    if len(steps) > MOST_STEPS:
        raise ValueError(f"expected at most {MOST_STEPS} steps before its model, got {len(steps)}")
    growth = math.prod(map(_growth, steps))
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
    if parts["model"].get("max_input_chars_per_word", 0) > MOST_WORD:
        raise ValueError(f"max_input_chars_per_word: expected at most {MOST_WORD}")


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


def _steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or pre-tokenizer, those within a sequence one by one."""
    if part is None:
        return
    within = part.get("normalizers") or part.get("pretokenizers")
    if within is None:
        yield part
    for step in within or ():
        yield from _steps(step)


def _growth(part: dict[str, Any]) -> float:
    """Return how many times as long a step can make a text."""
    kind = part.get("type")
    if kind == "Replace":
        text = part["pattern"].get("String")  # a regular expression may match between letters
        added = len(part["content"])
        return max(1.0, added / len(text)) if text else 1.0 + added
    if kind == "Prepend":
        return 1.0 + len(part["prepend"])
    if kind == "Precompiled":
        return _growth_of_charsmap(base64.b64decode(part["precompiled_charsmap"]))
    return FACTORS.get(str(kind), 1)


def _growth_of_charsmap(charsmap: bytes) -> float:
    """Return what is made of the everyday letter that grows most, or of any that grows too much."""
    trie = int.from_bytes(charsmap[:4], "little")
    longest = max(map(len, charsmap[4 + trie :].decode("utf-8", "replace").split("\0")))
    made = normalizers.Precompiled(charsmap).normalize_str(BETWEEN.join(EVERYDAY)).split(BETWEEN)
    if longest > MOST_REPLACED or len(made) != len(EVERYDAY):
        return max(longest, MOST_REPLACED)
    return max(map(len, made))
