"""A tokenizer trained on the training texts alone, and kept under a name made from them."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from headscope.data.cache import content_key
from headscope.data.config import TokenizerConfig
from headscope.data.letters import CHARACTERS, KATAKANA
from headscope.errors import ConfigError
from headscope.extension import called, is_import_path, resolve
from headscope.files import write_whole

PADDING, UNKNOWN, CLASS, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
RECIPE = 2  # raise it when the code below trains otherwise, so that cached tokenizers are made anew
SUDACHI_READS = 8_000  # characters at once, of four bytes at most: it takes 49,149 bytes
SPECIAL_TOKENS = [PADDING, UNKNOWN, CLASS, SEPARATOR, MASK]  # padding first: its id must be 0


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


def trained_tokenizer(texts: Iterable[str], config: TokenizerConfig, max_length: int, cache: Path) -> Tokenizer:
    """Return a tokenizer for these texts, from the cache if the same was trained before and by headscope's own code.

    Every text becomes `[CLS] text [SEP]`, a pair `[CLS] text [SEP] text [SEP]`; longer ones are cut to max_length.

    Args:
        texts: gone through twice, once for their name and once to train, so no iterator; none of them is kept, only
            how often each word occurs, which is all that training needs.
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
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return load_tokenizer(path, config.segmenter)


def train_tokenizer(texts: Iterator[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer of words, or byte-level BPE, WordPiece or Unigram.

    (Sennrich et al. 2016, bytes as in GPT-2; Schuster and Nakajima 2012; Kudo 2018.) All read text through Unicode's
    NFKC first, which makes full-width and half-width forms one.

    Raises:
        ConfigError: if Unigram's vocabulary is too small for the characters of the texts.
    """
    tokenizer, trainer = {"words": _words, "bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram}[config.kind](
        config
    )
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if config.lowercase else [])]
    if config.kind == "wordpiece":  # each ideograph is a word of its own, as BERT has it: Chinese has no spaces
        steps.append(normalizers.BertNormalizer(strip_accents=False, lowercase=False))
    tokenizer.normalizer = normalizers.Sequence(steps)
    try:
        tokenizer.train_from_iterator(texts, trainer)
    except Exception as error:  # `tokenizers` raises nothing more precise
        if "not large enough" not in str(error):
            raise
        raise ConfigError(
            f"tokenizer.vocab_size: got {config.vocab_size}, takes more than the texts have different characters "
            f"if tokenizer.kind is {config.kind}; raise it, or take tokenizer=bpe, which reads bytes"
        ) from error
    return _finished(tokenizer)


def _finished(tokenizer: Tokenizer) -> Tokenizer:
    """Let each text become `[CLS] text [SEP]`, and a pair `[CLS] text [SEP] text [SEP]`."""
    class_id, separator_id = tokenizer.token_to_id(CLASS), tokenizer.token_to_id(SEPARATOR)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLASS} $A {SEPARATOR}",
        pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
        special_tokens=[(CLASS, class_id), (SEPARATOR, separator_id)],
    )
    return with_literal_text(tokenizer)


def _own_tokenizer(texts: Iterator[str], config: TokenizerConfig) -> Tokenizer:
    """Return what a function of the user's makes of the texts; tokenizer.json must be able to hold all of it."""
    where = f"tokenizer.kind={config.kind}"
    tokenizer = called("tokenizer.kind", config.kind, resolve("tokenizer.kind", config.kind), texts, config)
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigError(f"{where}: returned a {type(tokenizer).__name__}; takes a tokenizers.Tokenizer")
    missing = [token for token in (PADDING, UNKNOWN, CLASS, SEPARATOR) if tokenizer.token_to_id(token) is None]
    if missing or tokenizer.token_to_id(PADDING) != 0:
        raise ConfigError(
            f"{where}: takes a vocabulary with {', '.join(SPECIAL_TOKENS[:4])}, of which {PADDING} is id 0"
        )
    try:
        return with_literal_text(Tokenizer.from_str(_finished(tokenizer).to_str()))
    except Exception as error:  # `tokenizers` raises nothing more precise
        raise ConfigError(f"{where}: cannot be kept in a tokenizer.json, such as parts in Python: {error}") from error


def _words(config: TokenizerConfig) -> tuple[Tokenizer, trainers.Trainer]:
    """Words and signs; in Chinese, Japanese and Korean each character, but for runs of Katakana, which are words."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = _cut_at_signs() if config.segmenter is None else _segmented()
    return tokenizer, trainers.WordLevelTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )


def _cut_at_signs() -> pre_tokenizers.PreTokenizer:
    letters = rf"[[\w\p{{M}}]&&[^{CHARACTERS}{KATAKANA}]]+"
    pieces = Regex(rf"[{CHARACTERS}]|[{KATAKANA}]+|{letters}|.")
    return pre_tokenizers.Sequence([_without_spaces(), pre_tokenizers.Split(pieces, "isolated")])


def _without_spaces() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(r"\s+"), "removed")


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
    return pre_tokenizers.Sequence([_without_spaces(), pieces, words])


def _bpe(config: TokenizerConfig) -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return (
        tokenizer,
        trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            min_frequency=config.min_frequency,
            special_tokens=SPECIAL_TOKENS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # every byte has a token: nothing is ever unknown
            show_progress=False,
        ),
    )


def _wordpiece(config: TokenizerConfig) -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )


def _unigram(config: TokenizerConfig) -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.Unigram())
    # Brackets stand alone, else "[SEP]" in a text would be found in the vocabulary, which holds the special tokens.
    brackets = pre_tokenizers.Split(Regex(r"[\[\]]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), brackets])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=config.vocab_size, special_tokens=SPECIAL_TOKENS, unk_token=UNKNOWN, show_progress=False
    )
