"""What a network reads of a text, and which of its tokens are one word, as people read it.

An export has a copy of this file, and the page the same rules: pages/static/units.js.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tokenizers import Encoding, Tokenizer, normalizers

OfToken = TypeVar("OfToken")
# The rest of a longer text is not read, which would take minutes.
MOST_CHARACTERS = 100_000
CHARACTERS_PER_TOKEN = 64
REST = "the rest of the text"  # as the last tokens are named where what is not read counts
NORMAL_FORM = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])

# Scripts that are read a character at a time: Hiragana, Chinese characters and Hangul. A run of
# Katakana is a word, most often a foreign one.
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
CHARACTERS = f"\u3041-\u309f{HAN}\uac00-\ud7af"
CHARACTER = re.compile(f"[{CHARACTERS}]")
KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
KANA = "\u3041-\u309f\u30a1-\u30fa\uff66-\uff9d"
THAI = "\u0e01-\u0e4e"
UNSPACED = f"[{KANA}{KATAKANA}{HAN}{THAI}]"  # words of which have no space between them
# The first whose letters occur in a text; BudouX (budoux.readthedocs.io) knows where its words end.
LANGUAGES = {"ja": f"[{KANA}]", "zh-hans": f"[{HAN}]", "th": f"[{THAI}]"}
# A letter is what Python's `\w` matches, or a mark (Unicode category M) of the basic plane: in
# Devanagari, Thai and other scripts a vowel is often a mark on its consonant. Variation selectors
# (0xFE00 to 0xFE0F), as after the digit of a keycap, are no letters.
MARKS = "".join(
    chr(code) for code in range(0x300, 0xFE00) if unicodedata.category(chr(code)) in ("Mn", "Mc")
)  # within [...]
# What holds together: letters and digits, with apostrophes inside (don't) and the points of a
# number (3.14); a flag; any other sign with its variants, and those joined to it (a family).
LETTER = rf"[\w{MARKS}]"
# What NFKC joins to the letter before, and `tokenizers` leaves out of its token's place: marks,
# vowels and finals of Hangul, half-width voice marks.
JOINED = f"[{MARKS}\u1160-\u11ff\uff9e\uff9f]"
VARIANTS = "[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
UNIT = (
    f"{LETTER}+(?:(?:['’]|(?<=[0-9])[.,](?=[0-9])){LETTER}+)*|"
    f"[\U0001f1e6-\U0001f1ff]{{2}}|.{VARIANTS}(?:\u200d.{VARIANTS})*"
)
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
WORD_START = "▁"  # a space in an encoder's Unigram; also before a text, where it has no letter
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡"}
# How far before and behind a place of a text each table of BudouX looks.
LOOKS = {
    **{"UW1": (-3, -2), "UW2": (-2, -1), "UW3": (-1, 0), "UW4": (0, 1), "UW5": (1, 2)},
    **{"UW6": (2, 3), "BW1": (-2, 0), "BW2": (-1, 1), "BW3": (0, 2)},
    **{"TW1": (-3, 0), "TW2": (-2, 1), "TW3": (-1, 2), "TW4": (0, 3)},
}
Tables = Mapping[str, Mapping[str, int]]  # scores of letters, by where they stand


class Word(NamedTuple):
    """A word of a text, as it is written, and its tokens [start, end)."""

    name: str
    start: int
    end: int


class ReadText:
    """A text or pair as a network reads it.

    With `counts_rest`, for a network that reads n-grams, a text's last tokens carry what is not
    read. Of a pair nothing is carried, nor by a tokenizer without a last special token, where it
    would count.

    Attributes:
        encoding: its tokens.
        parts: the text, or both.
        offsets: where each token is in its part, with all that is joined to its letters.
        rest: the tokens that are carried: where each is, and in which part.
        carriers: how many of the last tokens carry them.
    """

    def __init__(
        self, encoding: Encoding, parts: tuple[str, ...], counts_rest: bool = False
    ) -> None:
        self.encoding = encoding
        self.parts = parts
        self._starts = self._starts_of_tokens()
        self.offsets = self._whole(encoding)
        self.rest: list[tuple[tuple[int, int], int]] = []
        self.carriers = 0
        is_single = encoding.n_sequences == 1 and len(encoding) > 0
        if counts_rest and is_single and encoding.sequence_ids[-1] is None:
            self.rest = [
                (place, side)
                for part in encoding.overflowing
                for place, side in zip(self._whole(part), part.sequence_ids, strict=True)
                if side is not None
            ]
            self.carriers = sections(len(encoding), len(self.rest))

    def _starts_of_tokens(self) -> set[tuple[int | None, int]] | None:
        """Return where tokens begin, in which part; None for a text in which nothing is joined."""
        if not any(re.search(JOINED, part) for part in self.parts):
            return None
        return {
            (side, start)
            for part in (self.encoding, *self.encoding.overflowing)
            for (start, _), side in zip(part.offsets, part.sequence_ids, strict=True)
        }

    def _whole(self, encoding: Encoding) -> list[tuple[int, int]]:
        """Return the places of tokens, each up to the next one where what lies between is joined.

        Else é, written as e and a mark, would be shown and counted as e.
        """
        if self._starts is None:
            return encoding.offsets
        places = []
        for (start, end), side in zip(encoding.offsets, encoding.sequence_ids, strict=True):
            if side is not None and start < end:
                text = self.parts[side]
                while (side, end) not in self._starts and re.match(JOINED, text[end : end + 1]):
                    end += 1
            places.append((start, end))
        return places

    def carried(self, of_tokens: list[OfToken]) -> list[OfToken]:
        """Return what each token is, those that carry the rest as the last one."""
        if self.carriers == 0:
            return of_tokens
        return of_tokens[: -self.carriers] + of_tokens[-1:] * self.carriers

    @property
    def ids(self) -> list[int]:
        """The ids of the tokens."""
        return self.carried(self.encoding.ids)

    @property
    def sides(self) -> list[int | None]:
        """Which part each token is of; None of special tokens."""
        return self.carried(self.encoding.sequence_ids)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each token's letters are in its part, without spaces; (0, 0) of special ones."""
        places = []
        tokens = zip(self.encoding.tokens, self.offsets, self.encoding.sequence_ids, strict=True)
        for token, (start, end), side in tokens:
            if side is None:
                places.append((0, 0))
                continue
            piece = self.parts[side][start:end]
            if token == WORD_START and piece not in SPACES:  # before a text it has no letter
                piece = ""
            start += len(piece) - len(piece.lstrip(SPACES))
            places.append((start, start + len(piece.strip(SPACES))))
        return self.carried(places)

    def pieces(self) -> Iterator[str | None]:
        """Yield the letters of every token, the rest before the last; None of special ones."""
        tokens: list[Any] = [*zip(self.offsets, self.encoding.sequence_ids, strict=True)]
        tokens[-1:-1] = self.rest
        for (start, end), side in tokens:
            yield None if side is None else self.parts[side][start:end]


def read_texts(
    tokenizer: Tokenizer,
    rows: Sequence[tuple[str, ...]],
    counts_rest: bool = False,
    has_places: bool = True,
) -> list[ReadText]:
    """Return texts or pairs as a network reads them, faster where no token has a place."""
    if tokenizer.truncation is not None:
        most = tokenizer.truncation["max_length"]
        rows = [tuple(beginning(text, most) for text in parts) for parts in rows]
    given: Any = [parts if len(parts) == 2 else parts[0] for parts in rows]
    encode = tokenizer.encode_batch if has_places else tokenizer.encode_batch_fast
    return [
        ReadText(encoding, parts, counts_rest)
        for encoding, parts in zip(encode(given), rows, strict=True)
    ]


def beginning(text: str, max_length: int) -> str:
    """Return a text, a very long one cut after a word (if it has spaces)."""
    most = max(MOST_CHARACTERS, CHARACTERS_PER_TOKEN * max_length)
    if len(text) <= most:
        return text
    words = text[:most].rsplit(maxsplit=1)
    if len(words) == 2 and len(words[0]) > most // 2:
        return words[0]
    return text[:most]


def sections(read: Any, left: Any) -> Any:
    """Return how many of a text's last tokens carry its rest, a section each; of arrays too.

    One for every 8 tokens that are left, and at most a quarter of those that are read.
    """
    most = read // 4 + (read < 4)
    count = -(-left // 8)
    return count - (count > most) * (count - most)


class Phrases:
    """A model of BudouX: a phrase begins where the scores of the letters around are half of all."""

    def __init__(self, model: Tables) -> None:
        self.tables = [(*LOOKS[name], scores) for name, scores in model.items()]
        self.half = sum(sum(scores.values()) for scores in model.values()) / 2

    def begins_at(self, text: str, at: int) -> bool:
        """Tell whether a phrase begins at a place of a text."""
        score = 0
        for first, last, scores in self.tables:
            if at + first >= 0 and at + last <= len(text):
                score += scores.get(text[at + first : at + last], 0)
        return score > self.half


class Units:
    """Which characters, and which tokens, make up a word.

    Args:
        models: of BudouX, by language: of Japanese it cuts phrases, of Chinese and Thai words.
    """

    def __init__(self, models: Mapping[str, Tables]) -> None:
        self.models = models
        self.phrases = {language: Phrases(model) for language, model in models.items()}

    def of(self, text: str) -> list[int]:
        """Return for each character the number of the word, or of the sign, that it belongs to.

        Words without spaces between them are cut by BudouX, in the first of LANGUAGES that the text
        has letters of; it cuts no word of other letters, and no letter from what is joined to it.
        """
        language = next((it for it, letters in LANGUAGES.items() if re.search(letters, text)), "")
        phrases = self.phrases.get(language)

        def is_cut(at: int) -> bool:
            if phrases is None or re.match(JOINED, text[at]):
                return False
            is_unspaced = re.search(UNSPACED, text[at - 1 : at + 1])
            return bool(is_unspaced and phrases.begins_at(text, at))

        numbers: list[int] = []
        number = -1
        for unit in re.finditer(UNIT, text, re.DOTALL):
            for place in range(*unit.span()):
                number += place == unit.start() or is_cut(place)
                numbers.append(number)
        return numbers

    def words_of(self, text: ReadText) -> list[Word]:
        """Return the words and signs of a text or pair, in order; special tokens are in none.

        But the last ones are a word, the rest of the text, where they carry it. Tokens of one word
        are neighbours whose nearest letters are of one word of `of`. A space that is a token of its
        own goes with the word after it.
        """
        tokens = list(zip(text.places, text.sides, strict=True))
        ends = [0] * len(text.parts)  # only what is read counts, here and in the page
        for (_, end), side in tokens:
            if side is not None:
                ends[side] = max(ends[side], end)
        units = [self.of(part[:end]) for part, end in zip(text.parts, ends, strict=True)]
        words: list[Word] = []
        last: tuple[int | None, int | None] = (None, None)  # of the token before: its part and unit
        for token, ((start, end), side) in enumerate(tokens):
            if side is not None:
                is_after_space = last == (side, None)
                joins = is_after_space or (start < end and last == (side, units[side][start]))
                first = words.pop().start if joins else token
                name = text.parts[side][tokens[first][0][0] : end] or text.encoding.tokens[token]
                words.append(Word(visible(name), first, token + 1))
            last = (side, units[side][end - 1] if side is not None and start < end else None)
        if text.carriers:
            words.append(Word(REST, len(tokens) - text.carriers, len(tokens)))
        return words


def is_character(word: str) -> bool:
    """Tell whether a word is one character of a script without spaces."""
    return CHARACTER.fullmatch(word) is not None


def normal_form(text: str) -> str:
    """Return NFKC and the lower case of each code point by itself, as tokens have it.

    Python's own reads the letters around a Σ (ΟΔΟΣ becomes οδοσ here), and both change with its
    version of Unicode.
    """
    if text.isascii():  # the same, and five times as fast
        return text.lower()
    normal: str = NORMAL_FORM.normalize_str(text)
    return normal


def visible(text: str) -> str:
    """Return a text with signs for whitespace and control characters."""
    return "".join(map(_sign, text))


def _sign(character: str) -> str:
    if character in VISIBLE:
        return VISIBLE[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))  # the control pictures: U+0000 is shown as U+2400
    return f"<U+{ord(character):04X}>" if is_hidden(character) else character


def is_hidden(character: str) -> bool:
    """Tell whether a character is no picture, such as the override that reverses a line."""
    return unicodedata.category(character) in ("Cf", "Cc", "Cs", "Zl", "Zp")
