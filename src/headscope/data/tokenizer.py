"""Tokenizers, trained on the training texts, and how tokens are shown."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import budoux
import tokenizers
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from headscope.data.units import (
    CHARACTERS,
    KATAKANA,
    WORD_START,
    ReadText,
    Units,
    beginning,
    visible,
)
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

UNHEARD = "\ue000 \U0001f95a"  # of a private area, and an egg
MOST_SPECIAL = 16  # tokens around a text or pair


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


def shown_tokens(text: ReadText) -> list[str]:
    """Return for each token of a text or pair the piece of the text that it was made from.

    Tokens that share a character (a byte-level tokenizer splits a rare one into its bytes) are
    numbered: 鬱₁, 鬱₂.
    """
    tokens: list[str] = []
    repeats = 1
    previous: tuple[int, int, int | None] = (0, 0, None)
    encoding = text.encoding
    for token, (start, end), side in zip(
        encoding.tokens, text.offsets, encoding.sequence_ids, strict=True
    ):
        end = start if token == WORD_START else end
        is_repeated = (start, end, side) == previous and end > start
        repeats = repeats + 1 if is_repeated else 1
        if repeats == 2:
            tokens[-1] += "₁"
        previous = (start, end, side)
        if side is None and token in SPECIAL_TOKENS:
            piece = token
        elif token == WORD_START:
            piece = "␣"
        else:
            piece = visible(text.parts[side or 0][start:end] or token)
        tokens.append(piece + (str(repeats).translate(SUBSCRIPTS) if repeats > 1 else ""))
    return text.carried(tokens)


def unknown_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the tokens that stand for what a tokenizer does not know."""
    ids = [tokenizer.token_to_id(token) for token in UNKNOWN_TOKENS]
    return [number for number in ids if number is not None]


@cache
def word_units() -> Units:
    """Return what knows the words of a text, with the models of BudouX."""
    japanese = budoux.load_default_japanese_parser()
    chinese = budoux.load_default_simplified_chinese_parser()
    thai = budoux.load_default_thai_parser()
    return Units({"ja": japanese.model, "zh-hans": chinese.model, "th": thai.model})
