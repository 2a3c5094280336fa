"""Tokenizers, trained on the training texts, and how tokens are shown."""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

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

from headscope.data.ngrams import CHARACTERS
from headscope.ground.files import digest, write_text
from headscope.settings.config import TokenizerConfig

PADDING = "[PAD]"
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

# The rest of a longer text would be truncated anyway, after minutes of work.
MOST_CHARACTERS = 100_000
CHARACTERS_PER_TOKEN = 64


def beginning(text: str, max_length: int) -> str:
    """Return a text, a very long one cut after a word (if it has spaces)."""
    most = max(MOST_CHARACTERS, CHARACTERS_PER_TOKEN * max_length)
    if len(text) <= most:
        return text
    words = text[:most].rsplit(maxsplit=1)
    if len(words) == 2 and len(words[0]) > most // 2:
        return words[0]
    return text[:most]


def normal_form(text: str) -> str:
    """Return NFKC and the lower case of each code point by itself, as tokens have it.

    Python's own reads the letters around a Σ (ΟΔΟΣ becomes οδοσ here), and both change with its
    version of Unicode.
    """
    normal: str = NORMAL_FORM.normalize_str(text)
    return normal


def tokenizer_of(content: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json's content; ValueError if it is not one."""
    try:
        return with_literal_text(Tokenizer.from_str(content))
    except Exception as error:  # `tokenizers` raises nothing more precise
        raise ValueError(f"is not a tokenizer.json: {error}") from error


def copied(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy, whose truncation can be changed."""
    return with_literal_text(Tokenizer.from_str(tokenizer.to_str()))


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
    if not path.exists():
        tokenizer = train_tokenizer((beginning(text, max_length) for text in texts), config)
        tokenizer.enable_truncation(max_length)
        # `save` raises no OSError where the disk is full.
        write_text(path, tokenizer.to_str(pretty=True))
    return tokenizer_of(path.read_text(encoding="utf-8"))


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
