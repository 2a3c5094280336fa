"""Tokenizers, trained on the training texts; how tokens are shown, and which make up a word."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import budoux
import tokenizers
from tokenizers import (
    Encoding,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from headscope.data.ngrams import CHARACTERS, HAN, beginning, unread, with_rest
from headscope.ground.files import cached, digest
from headscope.ground.growth import check_growth
from headscope.ground.mecab import (
    read_tokenizer_json,
    write_tokenizer_json,
)
from headscope.settings.config import TokenizerConfig

PADDING = "[PAD]"
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
UNKNOWN = "[UNK]"
CLASS = "[CLS]"
SEPARATOR = "[SEP]"
MASK = "[MASK]"
SPECIAL_TOKENS = [PADDING, UNKNOWN, CLASS, SEPARATOR, MASK]  # padding first: its id must be 0
RECIPE = 2  # raise it when the code below trains differently, so that no cached one is used

# A letter is what Python's `\w` matches, or a mark (Unicode category M) of the basic plane: in
# Devanagari, Thai and other scripts a vowel is often a mark on its consonant. Variation selectors
# (0xFE00 to 0xFE0F), as after the digit of a keycap, are no letters.
MARKS = "".join(
    chr(code) for code in range(0x300, 0xFE00) if unicodedata.category(chr(code)) in ("Mn", "Mc")
)  # within [...]

KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
NORMAL_FORM = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])

UNHEARD = "\ue000 \U0001f95a"  # of a private area, and an egg
MOST_SPECIAL = 16  # tokens around a text or pair
REST = "the rest of the text"  # as the last tokens are named where what is not read counts


def normal_form(text: str) -> str:
    """Return NFKC and the lower case of each code point by itself, as tokens have it.

    Python's own reads the letters around a Σ (ΟΔΟΣ becomes οδοσ here), and both change with its
    version of Unicode.
    """
    if text.isascii():  # the same, and five times as fast
        return text.lower()
    normal: str = NORMAL_FORM.normalize_str(text)
    return normal


def tokenizer_of(content: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json's content, which does not pad.

    Raises:
        ValueError: if it is not one, or one that makes texts much longer.
    """
    try:
        check_growth(content)
        tokenizer = with_literal_text(read_tokenizer_json(content))
        if max(map(tokenizer.num_special_tokens_to_add, (False, True))) > MOST_SPECIAL:
            raise ValueError(f"expected at most {MOST_SPECIAL} special tokens around a text")
        tokenizer.no_padding()
        tokenizer.encode(UNHEARD)  # fails where the vocabulary lacks the unknown token
    except Exception as error:  # `tokenizers` raises nothing more precise
        raise ValueError(f"is not a tokenizer.json: {error}") from error
    return tokenizer


def copied(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy, whose truncation can be changed."""
    return with_literal_text(read_tokenizer_json(write_tokenizer_json(tokenizer)))


def with_literal_text(tokenizer: Tokenizer) -> Tokenizer:
    """Read the letters "[SEP]" in a text as letters. No file keeps this setting."""
    tokenizer.encode_special_tokens = True
    return tokenizer


def trained_tokenizer(
    texts: Iterable[str], config: TokenizerConfig, max_length: int, cache: Path
) -> Tokenizer:
    """Return a tokenizer for these texts, from the cache if the same was trained before.

    A text becomes `[CLS] text [SEP]`, a pair `[CLS] text [SEP] text [SEP]`, truncated to max_length
    tokens. `texts` is iterated twice, for the cache's key and to train, so it is no iterator.
    """
    settings = f"{RECIPE} {tokenizers.__version__} {config} {max_length}"
    path = cache / "tokenizers" / f"{digest(chain([settings], texts)).hex()}.json"

    def write(temporary: Path) -> None:
        tokenizer = train_tokenizer((beginning(text, max_length) for text in texts), config)
        tokenizer.enable_truncation(max_length)
        # `save` raises no OSError where the disk is full.
        temporary.write_text(write_tokenizer_json(tokenizer, pretty=True), encoding="utf-8")

    return tokenizer_of(cached(path, write).read_text(encoding="utf-8"))


def train_tokenizer(texts: Iterator[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer of words, or byte-level BPE (Sennrich et al. 2016, with bytes as in GPT-2).

    Both normalize text by Unicode's NFKC, so full-width and half-width forms are equal. "Words" are
    words and signs; in Chinese, Japanese and Korean single characters, but runs of Katakana are
    words.
    """
    trainer: trainers.Trainer
    settings: dict[str, Any] = {"special_tokens": SPECIAL_TOKENS, "show_progress": False}
    settings |= {"vocab_size": config.vocab_size, "min_frequency": config.min_frequency}
    if config.kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        settings["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()  # no byte is unknown
        trainer = trainers.BpeTrainer(**settings)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = _cut_at_signs()
        trainer = trainers.WordLevelTrainer(**settings)
    lower = [normalizers.Lowercase()] if config.lowercase else []
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower])
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLASS} $A {SEPARATOR}",
        pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (CLASS, SEPARATOR)],
    )
    return with_literal_text(tokenizer)


def _cut_at_signs() -> pre_tokenizers.PreTokenizer:
    letters = rf"[[\w\p{{M}}]&&[^{CHARACTERS}{KATAKANA}]]+"
    pieces = Regex(rf"[{CHARACTERS}]|[{KATAKANA}]+|{letters}|.")
    without_spaces = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    return pre_tokenizers.Sequence([without_spaces, pre_tokenizers.Split(pieces, "isolated")])


# How a token is shown to a person: as the letters that it stands for, never as bytes or markup.

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡"}
WORD_START = "▁"  # a space in an encoder's Unigram; also before a text, where it has no letter


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


def shown_tokens(tokenizer: Tokenizer, encoding: Encoding, texts: tuple[str, ...]) -> list[str]:
    """Return for each token of a text or pair the piece of the text that it was made from.

    Tokens that share a character (a byte-level tokenizer splits a rare one into its bytes) are
    numbered: 鬱₁, 鬱₂.
    """
    tokens: list[str] = []
    repeats = 1
    previous: tuple[int, int, int | None] = (0, 0, None)
    for token, (start, end), sequence in zip(
        encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True
    ):
        end = start if token == WORD_START else end
        is_repeated = (start, end, sequence) == previous and end > start
        repeats = repeats + 1 if is_repeated else 1
        if repeats == 2:
            tokens[-1] += "₁"
        previous = (start, end, sequence)
        if sequence is None and token in SPECIAL_TOKENS:
            piece = token
        elif token == WORD_START:
            piece = "␣"
        else:
            piece = visible(texts[sequence or 0][start:end] or token)
        tokens.append(piece + (str(repeats).translate(SUBSCRIPTS) if repeats > 1 else ""))
    return tokens


def unknown_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the tokens that stand for what a tokenizer does not know."""
    ids = [tokenizer.token_to_id(token) for token in UNKNOWN_TOKENS]
    return [number for number in ids if number is not None]


# Which tokens make up a word, as people read it. The page has the same rule: pages/static/units.js.

# What holds together: letters and digits, with apostrophes inside (don't) and the points of a
# number (3.14); a flag; any other sign with its variants, and those joined to it (a family).
LETTER = rf"[\w{MARKS}]"
VARIANTS = "[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
UNIT = (
    f"{LETTER}+(?:(?:['’]|(?<=[0-9])[.,](?=[0-9])){LETTER}+)*|"
    f"[\U0001f1e6-\U0001f1ff]{{2}}|.{VARIANTS}(?:\u200d.{VARIANTS})*"
)
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
KANA = "\u3041-\u309f\u30a1-\u30fa\uff66-\uff9d"
THAI = "\u0e01-\u0e4e"
UNSPACED = f"[{KANA}{KATAKANA}{HAN}{THAI}]"  # words of which have no space between them
# The first whose letters occur in a text; BudouX (budoux.readthedocs.io) knows where its words end.
LANGUAGES = {"ja": f"[{KANA}]", "zh-hans": f"[{HAN}]", "th": f"[{THAI}]"}


class Word(NamedTuple):
    """A word of a text, as it is written, and its tokens [start, end)."""

    name: str
    start: int
    end: int


@cache
def phrase_parser(language: str) -> budoux.Parser:
    """Return BudouX's model of a language: of Japanese it cuts phrases, of Chinese words."""
    load = {
        "ja": budoux.load_default_japanese_parser,
        "zh-hans": budoux.load_default_simplified_chinese_parser,
        "th": budoux.load_default_thai_parser,
    }
    return load[language]()


def units_of(text: str) -> list[int]:
    """Return for each character the number of the word, or of the sign, that it belongs to.

    Words without spaces between them are cut by BudouX, in the first of LANGUAGES that the text
    has letters of; it cuts no word of other letters.
    """
    cuts: set[int] = set()
    language = next((it for it, letters in LANGUAGES.items() if re.search(letters, text)), None)
    if language is not None:
        ends = accumulate(map(len, phrase_parser(language).parse(text)))
        cuts = {end for end in ends if re.search(UNSPACED, text[end - 1 : end + 1])}
    numbers: list[int] = []
    number = -1
    for unit in re.finditer(UNIT, text, re.DOTALL):
        for place in range(*unit.span()):
            number += place == unit.start() or place in cuts
            numbers.append(number)
    return numbers


def token_places(encoding: Encoding, texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return where each token's letters are in its text, without spaces; (0, 0) of special ones."""
    places = []
    tokens = zip(encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True)
    for token, (start, end), side in tokens:
        if side is None:
            places.append((0, 0))
            continue
        piece = texts[side][start:end]
        if token == WORD_START and piece not in SPACES:  # before a text it has no letter
            piece = ""
        start += len(piece) - len(piece.lstrip(SPACES))
        places.append((start, start + len(piece.strip(SPACES))))
    return places


def word_spans(encoding: Encoding, texts: Sequence[str], has_rest: bool = False) -> list[Word]:
    """Return the words and signs of a text or pair, in order; special tokens are in none.

    But with `has_rest`, for a model that reads n-grams, the last ones are the rest of a cut text.

    Tokens of one word are neighbours whose nearest letters are of one word of `units_of`. A space
    that is a token of its own goes with the word after it.
    """
    places = token_places(encoding, texts)
    left = len(unread(encoding)) if has_rest else 0
    sides = with_rest(encoding.sequence_ids, left)
    ends = [0] * len(texts)  # what is read of each text: only that counts, here and in the page
    for (_, end), side in zip(places, sides, strict=True):
        if side is not None:
            ends[side] = max(ends[side], end)
    units = [units_of(text[:end]) for text, end in zip(texts, ends, strict=True)]
    words: list[Word] = []
    last: tuple[int | None, int | None] = (None, None)  # of the token before: its text and unit
    for token, ((start, end), side) in enumerate(zip(places, sides, strict=True)):
        if side is not None:
            is_after_space = last == (side, None)
            joins = is_after_space or (start < end and last == (side, units[side][start]))
            first = words.pop().start if joins else token
            name = texts[side][places[first][0] : end] or encoding.tokens[token]
            words.append(Word(visible(name), first, token + 1))
        last = (side, units[side][end - 1] if side is not None and start < end else None)
    if left:
        words.append(Word(REST, sides.index(None, 1), len(places)))
    return words
