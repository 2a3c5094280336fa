"""Words of a text that a tokenizer in Python cut into pieces, which says no places of its tokens.

Families mark in the token itself where a word goes on:

    d@@ og         the next piece belongs to it: BERTweet, PhoBERT, CTRL (Sennrich et al. 2016)
    d og</w>       it ends here: XLM, FlauBERT, BioGPT
    d ##og         it goes on: WordPiece
    ▁d og          it begins: SentencePiece, as of BARTpho and Marian
    d o g          each character is a token, spaces too: CANINE, ByT5
"""

from collections.abc import Sequence
from typing import NamedTuple

from headscope.data.tokenizer import WORD_START, Word, units_of, visible

OPEN = "@@"
END = "</w>"
JOINED = "##"


class _Piece(NamedTuple):
    """The letters of a token, and whether they follow those before without a space."""

    letters: str
    is_joined: bool


def read_pieces(
    tokens: Sequence[str], special: Sequence[bool | int]
) -> tuple[list[str], list[Word]]:
    """Return the tokens as a person reads them, and the words and signs that they make up.

    A word is what `headscope.data.tokenizer.units_of` takes for one; special tokens are in none.
    """
    pieces = _pieces([None if it else token for token, it in zip(tokens, special, strict=True)])
    text = ""
    spans = []
    for piece in pieces:
        text += "" if piece is not None and piece.is_joined else " "
        letters = "" if piece is None else piece.letters
        spans.append((len(text), len(text) + len(letters)))
        text += letters
    units = units_of(text)
    words: list[Word] = []
    last: int | None = None  # the unit before; -1 of a space, which goes with the word after it
    for at, (piece, (start, end)) in enumerate(zip(pieces, spans, strict=True)):
        if piece is not None:
            is_one = last == -1 or (start < end and last == units[start])
            first = words.pop().start if is_one else at
            name = visible(text[spans[first][0] : end].strip() or tokens[at])
            words.append(Word(name, first, at + 1))
        last = None if piece is None else units[end - 1] if start < end else -1
    shown = [
        token if piece is None else visible(piece.letters or " ")
        for token, piece in zip(tokens, pieces, strict=True)
    ]
    return shown, words


def _pieces(tokens: Sequence[str | None]) -> list[_Piece | None]:
    """Return the piece of each token; None of special ones."""
    known = [token for token in tokens if token is not None]
    are_characters = " " in known
    has_starts = any(token.startswith(WORD_START) for token in known)
    has_ends = any(token.endswith(END) for token in known)
    pieces: list[_Piece | None] = []
    is_open = False
    for token in tokens:
        if token is None:
            pieces.append(None)
            is_open = False
            continue
        letters = token.strip()
        is_joined = is_open or (has_starts and not token.startswith(WORD_START))
        if letters not in (OPEN, END, JOINED):  # a text may have these
            is_joined |= letters.startswith(JOINED)
            letters = letters.removeprefix(JOINED).removeprefix(WORD_START)
            letters = letters.removesuffix(OPEN).removesuffix(END)
        pieces.append(_Piece(letters, is_joined))
        is_open = are_characters or token.endswith(OPEN) or (has_ends and not token.endswith(END))
    return pieces
