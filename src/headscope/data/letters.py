r"""Which signs are letters: those that Python's `\w` counts, and the marks that belong to them.

In Devanagari, Thai and many other scripts a vowel is often a mark on its consonant (Unicode category M), which `\w`
does not count: a word would end in its middle, and words that differ by a vowel would be one.
"""

import re
import unicodedata

# Within the basic plane, where the marks of all living scripts are; as ranges, which a regular expression reads fast.
# Not among them: selectors of a sign's look (0xFE00 to 0xFE0F), as after the digit of a keycap.
_CODES = [code for code in range(0x300, 0xFE00) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
_STARTS = [code for code, before in zip(_CODES, [0, *_CODES], strict=False) if code != before + 1]
_ENDS = [code for code, after in zip(_CODES, [*_CODES[1:], 0], strict=True) if code != after - 1]

MARKS = "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(_STARTS, _ENDS, strict=True))  # within [...]
WORD = rf"\w[\w{MARKS}]*"  # a run of letters, digits and underscores, with their marks

# Scripts that are read a character at a time: Hiragana, Chinese characters and Hangul. A run of Katakana is a word,
# most often a foreign one.
CHARACTERS = "\u3041-\u309f\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_CHARACTER = re.compile(f"[{CHARACTERS}]")


def is_character(word: str) -> bool:
    """Tell whether a word is one character of a script without spaces."""
    return _CHARACTER.fullmatch(word) is not None
