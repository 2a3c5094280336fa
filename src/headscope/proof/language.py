"""What `verify` and `trace` print, in the reader's language; ja.json has the Japanese."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Translate = Callable[[str], str]
NUMBER = re.compile(r"\d+(?:,\d{3})*")
MARKS = {": ": "：", ", ": "、"}


def translation(language: Literal["auto", "en", "ja"]) -> Translate:
    """Return what translates a text; "auto" is the language of the environment.

    As in POSIX that is LC_ALL, else LC_MESSAGES, else LANG; any but Japanese is English.
    """
    names = [os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    own = next(filter(None, names), "")
    if language == "en" or (language == "auto" and not own.startswith("ja")):
        return str
    path = Path(__file__).with_name("ja.json")
    table: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))

    def one(text: str) -> str:
        """Return a text of the table, in which # is a number, with its numbers; else itself."""
        numbers = iter(NUMBER.findall(text))
        found = table.get(NUMBER.sub("#", text))
        return text if found is None else re.sub("#", lambda _: next(numbers), found)

    def translate(text: str) -> str:
        """Return the whole in Japanese, or part by part."""
        whole = one(text)
        parts = re.split("(: |, )", text)
        found = [one(part) for part in parts]
        if whole != text or found == parts:
            return whole
        return "".join(MARKS.get(part, part) for part in found)

    return translate
