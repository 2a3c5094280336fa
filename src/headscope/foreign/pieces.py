"""Words of a text whose tokenizer, one in Python, says no places of its tokens.

Families mark in the token where a word goes on: `d@@ og` (BERTweet, PhoBERT, CTRL), `d og</w>`
(XLM, FlauBERT, BioGPT), `d ##og` (WordPiece), `▁d og` (SentencePiece), or each character is a
token, spaces too (CANINE, ByT5).
"""

from collections.abc import Sequence

from headscope.data.tokenizer import word_units
from headscope.data.units import WORD_START, Word, visible

OPEN = "@@"  # the next piece belongs to it
END = "</w>"
JOINED = "##"
MARKS = (JOINED, OPEN, END)


def read_pieces(tokens: Sequence[str], special: Sequence[int]) -> tuple[list[str], list[Word]]:
    """Return the tokens as a person reads them, and the words and signs that they make up.

    A word is what `headscope.data.units.Units` takes for one; special tokens are in none.
    """
    text = ""
    places = []
    for letters, is_joined in _pieces(tokens, special):
        text += "" if is_joined else " "
        places.append((len(text), len(text) + len(letters)))
        text += letters
    numbers = word_units().of(text)
    words: list[Word] = []
    last: int | None = None  # the unit before; -1 of a space, which goes with the word after it
    for at, (start, end) in enumerate(places):
        if special[at]:
            last = None
            continue
        joins = last == -1 or (start < end and last == numbers[start])
        first = words.pop().start if joins else at
        name = text[places[first][0] : end].strip() or tokens[at]
        words.append(Word(visible(name), first, at + 1))
        last = numbers[end - 1] if start < end else -1
    shown = [visible(text[start:end] or " ") for start, end in places]
    return shown, words


def _pieces(tokens: Sequence[str], special: Sequence[int]) -> list[tuple[str, bool]]:
    """Return the letters of each token, and whether they follow those before without a space."""
    words = [token for token, is_special in zip(tokens, special, strict=True) if not is_special]
    has_starts = any(token.startswith(WORD_START) for token in words)
    has_ends = any(token.endswith(END) for token in words)
    are_characters = " " in words
    pieces = []
    is_open = False
    for token, is_special in zip(tokens, special, strict=True):
        letters = token.strip()
        is_joined = is_open or (has_starts and not token.startswith(WORD_START))
        if not is_special and letters not in MARKS:  # which a text may have
            is_joined |= letters.startswith(JOINED)
            letters = letters.removeprefix(JOINED).removeprefix(WORD_START)
            letters = letters.removesuffix(OPEN).removesuffix(END)
        pieces.append((letters, is_joined and not is_special))
        is_open = are_characters or token.endswith(OPEN) or (has_ends and not token.endswith(END))
        is_open = is_open and not is_special
    return pieces
