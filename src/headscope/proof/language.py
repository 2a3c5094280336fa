"""What `verify` and `trace` print, in the reader's language; ja.json has the Japanese."""

import itertools
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import budoux
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement

Translate = Callable[[str], str]
NUMBER = re.compile(r"\d+(?:,\d{3})*")
MARKS = {": ": "：", ", ": "、"}
HIRAGANA = "ぁ-ゖ"
JAPANESE = re.compile(f"[{HIRAGANA}ァ-ヺ一-龯]")
# Where a line may end beside the phrases of BudouX: after a mark, before a bracket, at a space that
# stands in no count such as 4 つ and before no particle such as torch の.
ENDS = re.compile(f"(?<=[、。：；])(?=[^、。）])|(?<=[^（])(?=（)|(?<=[^\\d] )(?=[^{HIRAGANA}\\d])")


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


def phrases(text: str) -> list[str]:
    """Return the parts of a text between which a line may end: words, in Japanese phrases."""
    if not JAPANESE.search(text):
        return re.findall(r"\S+\s*", text)
    parts = budoux.load_default_japanese_parser().parse(text)
    places = {len("".join(parts[:at])) for at in range(1, len(parts))}
    cuts = {at for at in places if re.match(f"[{HIRAGANA}][^ ]", text[at - 1 :])}
    cuts |= {found.start() for found in ENDS.finditer(text)}
    bounds = [0, *sorted(cuts - {0}), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


@dataclass(frozen=True)
class Wrapped:
    """A text of which a terminal breaks no word, unless one is wider than its place."""

    text: str

    def lines(self, width: int) -> list[str]:
        """Return the lines of a width that the phrases fill."""
        lines: list[str] = []
        for own in self.text.split("\n"):
            lines.append("")
            for phrase in phrases(own):
                if lines[-1] and cell_len((lines[-1] + phrase).rstrip()) > width:
                    lines.append("")
                lines[-1] += phrase.lstrip() if not lines[-1] else phrase
        return [line.rstrip() for line in lines]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width of the longest phrase, and of the whole."""
        words = [phrase.strip() for line in self.text.split("\n") for phrase in phrases(line)]
        least = max(map(cell_len, words), default=0)
        return Measurement(least, max(map(cell_len, self.text.split("\n"))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield "\n".join(self.lines(options.max_width))
