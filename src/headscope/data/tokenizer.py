"""A tokenizer trained on the training texts alone, and kept under a name made from them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from headscope.data.cache import content_key, write_whole
from headscope.data.config import TokenizerConfig

PADDING, UNKNOWN, CLASS, SEPARATOR, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PADDING, UNKNOWN, CLASS, SEPARATOR, MASK]  # padding first: its id must be 0


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer.json.

    Raises:
        ValueError: if the file is not one.
    """
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # `tokenizers` raises nothing more precise
        raise ValueError(f"{path}: is not a tokenizer.json: {error}") from error


def trained_tokenizer(texts: Iterable[str], config: TokenizerConfig, max_length: int, cache: Path) -> Tokenizer:
    """Return a tokenizer for these texts, from the cache if the same was trained before.

    Every text becomes `[CLS] text [SEP]`, a pair `[CLS] text [SEP] text [SEP]`; longer ones are cut to max_length.
    """
    settings = f"{tokenizers.__version__} {config} {max_length}"
    path = cache / "tokenizers" / f"{content_key([settings, *texts])}.json"
    if not path.exists():
        tokenizer = train_tokenizer(iter(texts), config)
        tokenizer.enable_truncation(max_length)
        write_whole(path, lambda temporary: tokenizer.save(str(temporary)))
    return load_tokenizer(path)


def train_tokenizer(texts: Iterator[str], config: TokenizerConfig) -> Tokenizer:
    """Train byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2), WordPiece (Schuster and Nakajima 2012) or Unigram
    (Kudo 2018). All read text through Unicode's NFKC first, which makes full-width and half-width forms one.
    """  # noqa: D205
    tokenizer, trainer = {"bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram}[config.kind](config)
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if config.lowercase else [])]
    if config.kind == "wordpiece":  # each ideograph is a word of its own, as BERT has it: Chinese has no spaces
        steps.append(normalizers.BertNormalizer(strip_accents=False, lowercase=False))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.train_from_iterator(texts, trainer)
    class_id, separator_id = tokenizer.token_to_id(CLASS), tokenizer.token_to_id(SEPARATOR)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLASS} $A {SEPARATOR}",
        pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
        special_tokens=[(CLASS, class_id), (SEPARATOR, separator_id)],
    )
    # A text may contain the letters "[SEP]": they must be read as letters, not as a separator.
    tokenizer.encode_special_tokens = True
    return tokenizer


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
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=config.vocab_size, special_tokens=SPECIAL_TOKENS, unk_token=UNKNOWN, show_progress=False
    )
