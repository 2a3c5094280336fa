"""Tokenizers: trained on the training texts alone, or that of a checkpoint; and how a token is shown to a person."""

import json
import re
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

from headscope.config import TokenizerConfig
from headscope.errors import ConfigError
from headscope.extension import called, is_import_path, resolve
from headscope.files import content_key, write_atomic

PADDING, UNKNOWN, CLASS, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PADDING, UNKNOWN, CLASS, SEPARATOR, MASK]  # padding first: its id must be 0
RECIPE = 2  # raise it when the code below trains otherwise, so that cached tokenizers are made anew
SUDACHI_READS = 8_000  # characters at once, of four bytes at most: it takes 49,149 bytes

# Letters are what Python's `\w` counts, and the marks that belong to them: in Devanagari, Thai and
# many other scripts a vowel is often a mark on its consonant (Unicode category M), and without it a
# word would end in its middle. MARKS has those of the basic plane, as ranges, which a regular
# expression reads fast; without selectors of a sign's look (0xFE00 to 0xFE0F), as after the digit
# of a keycap.
_CODES = [code for code in range(0x300, 0xFE00) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
_STARTS = [code for code, before in zip(_CODES, [0, *_CODES], strict=False) if code != before + 1]
_ENDS = [code for code, after in zip(_CODES, [*_CODES[1:], 0], strict=True) if code != after - 1]
MARKS = "".join(
    f"{chr(start)}-{chr(end)}" for start, end in zip(_STARTS, _ENDS, strict=True)
)  # within [...]

# Scripts that are read a character at a time: Hiragana, Chinese characters and Hangul. A run of
# Katakana is a word, most often a foreign one.
CHARACTERS = "\u3041-\u309f\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"


# So many characters of a text are read, or more where so many tokens are kept that it could matter.
# What stands beyond them would be cut off in any case, after minutes of work.
MOST_CHARACTERS = 100_000
CHARACTERS_OF_TOKEN = 64


def max_characters(max_length: int) -> int:
    """Return how many characters of a text are read, where max_length tokens of it are kept."""
    return max(MOST_CHARACTERS, CHARACTERS_OF_TOKEN * max_length)


def beginning(text: str, max_length: int) -> str:
    """Return the text, a very long one without what is not read. It ends behind a word, where there are spaces."""
    most = max_characters(max_length)
    if len(text) <= most:
        return text
    words = text[:most].rsplit(maxsplit=1)
    return words[0] if len(words) == 2 and len(words[0]) > most // 2 else text[:most]


def is_character(word: str) -> bool:
    """Tell whether a word is one character of a script without spaces."""
    return re.fullmatch(f"[{CHARACTERS}]", word) is not None


def load_tokenizer(path: Path, segmenter: str | None = None) -> Tokenizer:
    """Load a tokenizer.json.

    Args:
        path: of the file.
        segmenter: what finds words, of which the file knows nothing; see `TokenizerConfig`.

    Raises:
        ValueError: if the file is not one.
        ConfigError: if the segmenter is not installed.
    """
    try:
        tokenizer = with_literal_text(Tokenizer.from_file(str(path)))
    except Exception as error:  # `tokenizers` raises nothing more precise
        raise ValueError(f"{path}: is not a tokenizer.json: {error}") from error
    if segmenter is not None:
        tokenizer.pre_tokenizer = _segmented()
    return tokenizer


def as_json(tokenizer: Tokenizer, pretty: bool = False) -> str:
    """Return the content of tokenizer.json. A segmenter, which no file can hold, is left out of it."""
    try:
        return tokenizer.to_str(pretty)
    except Exception:  # a segmenter stands in its place
        segmenter = tokenizer.pre_tokenizer
        tokenizer.pre_tokenizer = _cut_at_signs()
        try:
            return tokenizer.to_str(pretty)
        finally:
            tokenizer.pre_tokenizer = segmenter


def copied(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that does the same and can be told to cut elsewhere."""
    copy = with_literal_text(Tokenizer.from_str(as_json(tokenizer)))
    copy.pre_tokenizer = tokenizer.pre_tokenizer
    return copy


def with_literal_text(tokenizer: Tokenizer) -> Tokenizer:
    """Make the tokenizer read the letters "[SEP]" in a text as letters, not as a separator. No file keeps this."""
    tokenizer.encode_special_tokens = True
    return tokenizer


def trained_tokenizer(
    texts: Iterable[str], config: TokenizerConfig, max_length: int, cache: Path
) -> Tokenizer:
    """Return a tokenizer for these texts, from the cache if the same was trained before and by headscope's own code.

    Every text becomes `[CLS] text [SEP]`, a pair `[CLS] text [SEP] text [SEP]`; longer ones are cut
    to max_length.

    Args:
        texts: gone through twice, once for their name and once to train, so no iterator; none of
            them is kept, only how often each word occurs, which is all that training needs.
        config: what to train.
        max_length: tokens of the longest text.
        cache: where tokenizers are kept, by the name of the texts and settings.
    """
    if is_import_path(config.kind):
        tokenizer = _own_tokenizer(iter(texts), config)
        tokenizer.enable_truncation(max_length)
        return tokenizer
    settings = f"{RECIPE} {tokenizers.__version__} {config} {max_length}"
    path = cache / "tokenizers" / f"{content_key(chain([settings], texts))}.json"
    if not path.exists():
        tokenizer = train_tokenizer(iter(texts), config)
        tokenizer.enable_truncation(max_length)
        text = as_json(tokenizer, pretty=True)  # `save` raises no OSError where the disk is full
        write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return load_tokenizer(path, config.segmenter)


def train_tokenizer(texts: Iterator[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer of words, or byte-level BPE, WordPiece or Unigram.

    (Sennrich et al. 2016, bytes as in GPT-2; Schuster and Nakajima 2012; Kudo 2018.) All read text
    through Unicode's NFKC first, which makes full-width and half-width forms one. Words are words
    and signs; in Chinese, Japanese and Korean each character, but for runs of Katakana, which are
    words.

    Raises:
        ConfigError: if Unigram's vocabulary is too small for the characters of the texts.
    """
    trainer: trainers.Trainer
    settings: dict[str, Any] = {"special_tokens": SPECIAL_TOKENS, "show_progress": False}
    settings["vocab_size"] = config.vocab_size
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if config.lowercase else [])]
    if config.kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        # Brackets stand alone, else "[SEP]" in a text would be found in the vocabulary, which holds
        # the special tokens.
        brackets = pre_tokenizers.Split(Regex(r"[\[\]]"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), brackets])
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token=UNKNOWN, **settings)
    elif config.kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        bytes_ = (
            pre_tokenizers.ByteLevel.alphabet()
        )  # every byte has a token: nothing is ever unknown
        trainer = trainers.BpeTrainer(
            min_frequency=config.min_frequency, initial_alphabet=bytes_, **settings
        )
    elif config.kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(min_frequency=config.min_frequency, **settings)
        # Each ideograph is a word of its own, as BERT has it: Chinese has no spaces.
        steps.append(normalizers.BertNormalizer(strip_accents=False, lowercase=False))
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = _cut_at_signs() if config.segmenter is None else _segmented()
        trainer = trainers.WordLevelTrainer(min_frequency=config.min_frequency, **settings)
    tokenizer.normalizer = normalizers.Sequence(steps)
    try:
        tokenizer.train_from_iterator(texts, trainer)
    except Exception as error:  # `tokenizers` raises nothing more precise
        if "not large enough" not in str(error):
            raise
        raise ConfigError(
            f"tokenizer.vocab_size: got {config.vocab_size}, must exceed the number of different characters in the "
            f"texts if tokenizer.kind={config.kind}; raise it, or take tokenizer=bpe, which reads bytes"
        ) from error
    return _finished(tokenizer)


def _finished(tokenizer: Tokenizer) -> Tokenizer:
    """Let each text become `[CLS] text [SEP]`, and a pair `[CLS] text [SEP] text [SEP]`."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLASS} $A {SEPARATOR}",
        pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (CLASS, SEPARATOR)],
    )
    return with_literal_text(tokenizer)


def _own_tokenizer(texts: Iterator[str], config: TokenizerConfig) -> Tokenizer:
    """Return what a function of the user's makes of the texts; tokenizer.json must be able to hold all of it."""
    key, path = "tokenizer.kind", config.kind
    tokenizer = called(key, path, resolve(key, path), texts, config)
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigError(
            f"{key}={path}: returned a {type(tokenizer).__name__}; takes a tokenizers.Tokenizer"
        )
    needed = SPECIAL_TOKENS[:4]
    if None in map(tokenizer.token_to_id, needed) or tokenizer.token_to_id(PADDING) != 0:
        raise ConfigError(
            f"{key}={path}: takes a vocabulary with {', '.join(needed)}, of which {PADDING} is id 0"
        )
    try:
        return with_literal_text(Tokenizer.from_str(_finished(tokenizer).to_str()))
    except Exception as error:  # `tokenizers` raises nothing more precise
        reason = f"cannot be kept in a tokenizer.json, such as parts in Python: {error}"
        raise ConfigError(f"{key}={path}: {reason}") from error


WITHOUT_SPACES = pre_tokenizers.Split(Regex(r"\s+"), "removed")


def _cut_at_signs() -> pre_tokenizers.PreTokenizer:
    letters = rf"[[\w\p{{M}}]&&[^{CHARACTERS}{KATAKANA}]]+"
    pieces = Regex(rf"[{CHARACTERS}]|[{KATAKANA}]+|{letters}|.")
    return pre_tokenizers.Sequence([WITHOUT_SPACES, pre_tokenizers.Split(pieces, "isolated")])


def _segmented() -> pre_tokenizers.PreTokenizer:
    """Words as Sudachi finds them, in their shortest form (Takaoka et al. 2018, Sudachi: a Japanese Tokenizer)."""
    try:
        from sudachipy import Dictionary, SplitMode

        words = Dictionary().pre_tokenizer(SplitMode.A)
    except ImportError as error:
        raise ConfigError(
            "tokenizer.segmenter=sudachi: it is not installed; pip install 'headscope[japanese]', or take "
            "tokenizer.segmenter=null, which reads characters"
        ) from error
    pieces = pre_tokenizers.Split(Regex(f".{{1,{SUDACHI_READS}}}"), "isolated")
    return pre_tokenizers.Sequence([WITHOUT_SPACES, pieces, words])


def pretrained_tokenizer(
    folder: Path, max_length: int, vocab_size: int, path: str | None = None
) -> Tokenizer:
    """Return the tokenizer of a checkpoint's folder: of its tokenizer.json or, for BERT and its like, of vocab.txt.

    It cuts texts at max_length and pads nothing, which batches do; whatever its file says of either
    is dropped. The letters "[SEP]" in a text are letters, as everywhere in headscope.

    Args:
        folder: with tokenizer.json or vocab.txt.
        max_length: most tokens of a text, special ones included.
        vocab_size: rows of the checkpoint's table of token vectors.
        path: folder or Hub id that the user gave, to name in a message; the folder if None.

    Raises:
        ConfigError: if there is none that can be read, or it marks no start and end of a text, or
            has ids beyond the table.
    """
    if (folder / "tokenizer.json").is_file():
        try:
            tokenizer = load_tokenizer(folder / "tokenizer.json")
        except ValueError as error:
            raise ConfigError(f"model.path: {error}") from error
    elif (folder / "vocab.txt").is_file():
        tokenizer = _wordpiece_of_checkpoint(folder)
    else:
        raise ConfigError(
            f"model.path: {path or folder} has neither tokenizer.json nor vocab.txt, which are the tokenizers that can "
            'be read. Make the first of another form: python -c "from transformers import AutoModel, AutoTokenizer; '
            f"[kind.from_pretrained('{path or folder}').save_pretrained('converted') for kind in "
            '(AutoModel, AutoTokenizer)]", then model.path=converted'
        )
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= vocab_size:
        raise ConfigError(
            f"model.path: the tokenizer in {folder} has ids up to {largest}, and the encoder knows {vocab_size} "
            "tokens; they are not of one checkpoint"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    if sum(tokenizer.encode("").special_tokens_mask) < 2:
        raise ConfigError(
            f"model.path: the tokenizer in {folder} puts no token such as {CLASS} before a text and none after it"
        )
    return tokenizer


def _wordpiece_of_checkpoint(folder: Path) -> Tokenizer:
    """Return BERT's own tokenizer: words and signs apart, then the longest pieces (Devlin et al. 2019, section 3).

    Where tokenizer_config.json does not say how texts are cleaned, they are lower-cased, as by
    `transformers`.
    """
    file, path = folder / "vocab.txt", folder / "tokenizer_config.json"
    try:
        vocabulary = models.WordPiece.read_file(str(file))
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
        around = [(token, vocabulary[token]) for token in (SEPARATOR, CLASS)]
    except Exception as error:  # `tokenizers` raises nothing more precise; a KeyError where a special token is missing
        raise ConfigError(f"model.path: {file} is not a vocabulary of BERT's: {error}") from error
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: where texts are lower-cased
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(*around)
    tokenizer.add_special_tokens([token for token in SPECIAL_TOKENS if token in vocabulary])
    return with_literal_text(tokenizer)


# How a token is shown to a person: as the letters that it stands for, never as bytes or markup.

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡"}
WORD_START = "▁"  # Unigram's sign for a space; it puts one before each text too, which has no letter of its own


def visible(text: str) -> str:
    """Return the text with spaces, line breaks and control characters as signs, and directions' controls named."""

    def sign(character: str) -> str:
        if character in VISIBLE:
            return VISIBLE[character]
        if ord(character) < 0x20:
            return chr(0x2400 + ord(character))  # the control pictures: U+0000 is shown as U+2400
        if unicodedata.category(character) in ("Cf", "Cc", "Cs", "Zl", "Zp"):
            return f"<U+{ord(character):04X}>"  # such as the override that turns the rest of a line around
        return character

    return "".join(map(sign, text))


def shown_tokens(tokenizer: Tokenizer, encoding: Encoding, texts: tuple[str, ...]) -> list[str]:
    """Return how each token of an encoding is shown: the piece of the text it was made from.

    Tokens that share a character (a byte-level tokenizer splits a rare one into its bytes) get its
    number: 鬱₁, 鬱₂.

    Args:
        tokenizer: what made the encoding.
        encoding: the tokens of one text or pair.
        texts: that text, or the two of the pair.
    """
    shown: list[str] = []
    repeats = 1
    previous: tuple[int, int, int | None] = (0, 0, None)
    for token, (start, end), sequence in zip(
        encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True
    ):
        end = start if token == WORD_START else end
        repeats = repeats + 1 if (start, end, sequence) == previous and end > start else 1
        if repeats == 2:
            shown[-1] += "₁"
        previous = (start, end, sequence)
        if sequence is None and token in SPECIAL_TOKENS:
            piece = token
        else:
            piece = (
                "␣" if token == WORD_START else visible(texts[sequence or 0][start:end] or token)
            )
        shown.append(piece + (str(repeats).translate(SUBSCRIPTS) if repeats > 1 else ""))
    return shown
