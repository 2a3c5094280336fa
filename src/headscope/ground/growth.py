"""How much longer a tokenizer.json may make a text: one of somebody else could fill the memory."""

import base64
from typing import Any

from pydantic_core import from_json

MOST_GROWTH = 64  # XLM-R: 36
FACTORS = {"BertNormalizer": 3, "ByteLevel": 4}  # spaces around a character; a letter a byte


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
    if kind == "Precompiled":
        charsmap = base64.b64decode(part["precompiled_charsmap"])
        trie = int.from_bytes(charsmap[:4], "little")
        replacements = charsmap[4 + trie :].decode("utf-8", "replace").split("\0")
        return max(1.0, *map(len, replacements))
    return growth * FACTORS.get(str(kind), 1)
