"""How a token is shown to a person: as the letters that it stands for, never as bytes or markup."""

import unicodedata

from tokenizers import Encoding, Tokenizer

from headscope.data.tokenizer import SPECIAL_TOKENS

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡"}
WORD_START = "▁"  # Unigram's sign for a space; it puts one before each text too, which has no letter of its own


def visible(text: str) -> str:
    """Return the text with spaces, line breaks and control characters as signs, and directions' controls named."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in VISIBLE:
        return VISIBLE[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))  # the control pictures: U+0000 is shown as U+2400
    if unicodedata.category(character) in ("Cf", "Cc", "Cs", "Zl", "Zp"):
        return f"<U+{ord(character):04X}>"  # such as the override that turns the rest of a line around
    return character


def shown_tokens(tokenizer: Tokenizer, encoding: Encoding, texts: tuple[str, ...]) -> list[str]:
    """Return how each token of an encoding is shown: the piece of the text it was made from.

    Tokens that share a character (a byte-level tokenizer splits a rare one into its bytes) get its number: 鬱₁, 鬱₂.

    Args:
        tokenizer: what made the encoding.
        encoding: the tokens of one text or pair.
        texts: that text, or the two of the pair.
    """
    shown: list[str] = []
    repeats = 1
    previous: tuple[int, int, int | None] = (0, 0, None)
    for token, (start, end), sequence in zip(encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True):
        end = start if token == WORD_START else end
        repeats = repeats + 1 if (start, end, sequence) == previous and end > start else 1
        if repeats == 2:
            shown[-1] += "₁"
        previous = (start, end, sequence)
        shown.append(
            _shown(token, texts, start, end, sequence) + (str(repeats).translate(SUBSCRIPTS) if repeats > 1 else "")
        )
    return shown


def _shown(token: str, texts: tuple[str, ...], start: int, end: int, sequence: int | None) -> str:
    if sequence is None and token in SPECIAL_TOKENS:
        return token
    return "␣" if token == WORD_START else visible(texts[sequence or 0][start:end] or token)
