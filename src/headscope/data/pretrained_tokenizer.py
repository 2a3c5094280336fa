"""The tokenizer that a checkpoint was trained with, which its weights mean nothing without."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from headscope.data.tokenizer import CLASS, SEPARATOR, SPECIAL_TOKENS, UNKNOWN, load_tokenizer, with_literal_text
from headscope.errors import ConfigError


def pretrained_tokenizer(folder: Path, max_length: int, vocab_size: int, path: str | None = None) -> Tokenizer:
    """Return the tokenizer of a checkpoint's folder: of its tokenizer.json or, for BERT and its like, of vocab.txt.

    It cuts texts at max_length and pads nothing, which batches do; whatever its file says of either is dropped. The
    letters "[SEP]" in a text are letters, as everywhere in headscope.

    Args:
        folder: with tokenizer.json or vocab.txt.
        max_length: most tokens of a text, special ones included.
        vocab_size: rows of the checkpoint's table of token vectors.
        path: folder or Hub id that the user gave, to name in a message; the folder if None.

    Raises:
        ConfigError: if there is none that can be read, or it marks no start and end of a text, or has ids beyond the
            table.
    """
    tokenizer = _read(folder, path or str(folder))
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


def _read(folder: Path, path: str) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        try:
            return load_tokenizer(folder / "tokenizer.json")
        except ValueError as error:
            raise ConfigError(f"model.path: {error}") from error
    if (folder / "vocab.txt").is_file():
        return _wordpiece(folder)
    raise ConfigError(
        f"model.path: {path} has neither tokenizer.json nor vocab.txt, which are the tokenizers that can be read. "
        'Make the first of another form: python -c "from transformers import AutoModel, AutoTokenizer; '
        f"[kind.from_pretrained('{path}').save_pretrained('converted') for kind in (AutoModel, AutoTokenizer)]\", "
        "then model.path=converted"
    )


def _wordpiece(folder: Path) -> Tokenizer:
    """Return BERT's own tokenizer: words and signs apart, then the longest pieces (Devlin et al. 2019, section 3)."""
    try:
        vocabulary = models.WordPiece.read_file(str(folder / "vocab.txt"))
        pieces = models.WordPiece(vocabulary, unk_token=UNKNOWN)
        class_id, separator_id = vocabulary[CLASS], vocabulary[SEPARATOR]
    except Exception as error:  # `tokenizers` raises nothing more precise; a KeyError where a special token is missing
        raise ConfigError(f"model.path: {folder / 'vocab.txt'} is not a vocabulary of BERT's: {error}") from error
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer = _normalizer(folder / "tokenizer_config.json")
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing((SEPARATOR, separator_id), (CLASS, class_id))
    tokenizer.add_special_tokens([token for token in SPECIAL_TOKENS if token in vocabulary])
    return with_literal_text(tokenizer)


def _normalizer(path: Path) -> normalizers.Normalizer:
    """Return how texts are cleaned; where tokenizer_config.json does not say, as `transformers` does: lower-cased."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    return normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: where texts are lower-cased
        lowercase=settings.get("do_lower_case", True),
    )
