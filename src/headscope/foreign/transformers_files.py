"""A checkpoint as transformers reads it: where it does not open into our own network.

Also tokenizers that have no tokenizer.json, which transformers makes of other files.
"""

import inspect
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, processors
from torch import nn

from headscope.foreign.pretrained import (
    build_pretrained,
    check_kind,
    max_tokens_of,
)
from headscope.ground.errors import ConfigError, first_line, listed
from headscope.ground.growth import check_growth
from headscope.ground.mecab import cut_by_mecab, write_tokenizer_json
from headscope.model.checkpoint import Checkpoint, check_ids, without_padding
from headscope.model.families import Description
from headscope.model.others import import_transformers

# Both tokenizers are to read it alike.
SAMPLE = "東京で見た映画は、とても良かった。Ｂｅｒｔ は 2回目"
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")


def read_by_transformers(key: str, folder: Path) -> Checkpoint:
    """Return a checkpoint's config.json and its tokenizer, as transformers reads it.

    ValueError for a tokenizer in Python (but BertJapaneseTokenizer with MeCab), or one that is not
    of this model.
    """
    import_transformers(key)
    encoder, model = described(folder)
    theirs = read_tokenizer(folder)
    tokenizer = _tokenizer_of(model, theirs)
    return Checkpoint(folder, encoder, tokenizer, max_tokens_of(model, theirs))


def _tokenizer_of(model: Any, theirs: Any) -> Tokenizer:
    """Return the tokenizer in one of transformers, if its ids are those of the model."""
    tokenizer = plain_tokenizer(theirs)
    check_ids(tokenizer, model.get_input_embeddings().num_embeddings)
    return tokenizer


def why_not_trained(model: nn.Module, theirs: Any) -> str:
    """Return why model.path cannot take a model with its tokenizer; "" if it can."""
    try:
        check_kind(getattr(getattr(model, "config", None), "model_type", None))
        _tokenizer_of(model, deepcopy(theirs))
    except (AttributeError, ConfigError, NotImplementedError, ValueError) as error:
        return first_line(error) or type(error).__name__
    return ""


def read_tokenizer(folder: Path) -> Any:
    """Return a checkpoint's tokenizer as transformers reads it, and none of its code.

    ValueError without its files, in place of which transformers would make one without words, or
    for options of MeCab, which may name other files.
    """
    transformers = import_transformers("model.path")
    _check_mecab_options(folder)
    try:
        theirs: Any = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        names = {*(getattr(theirs, "vocab_files_names", None) or {}).values()}
        words = {*theirs.get_vocab()} - {*theirs.all_special_tokens}
        is_missing = not words or (names and not any((folder / name).is_file() for name in names))
    except (OSError, ValueError, TypeError, AttributeError):
        if any((folder / name).is_file() for name in TOKENIZER_FILES):
            raise
        is_missing = True
        names = {*TOKENIZER_FILES[:1]}
    if is_missing:
        raise ValueError(
            f"expected the tokenizer's files ({listed(sorted(names))}), found none; write them "
            "there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        )
    return theirs


def _check_mecab_options(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if (settings.get("mecab_kwargs") or {}).get("mecab_option"):
        raise ValueError("mecab_option: expected none, since it may name any file; leave it out")


def described(folder: Path) -> tuple[Description, Any]:
    """Return a checkpoint's config.json, and its model on the device meta, without memory.

    ValueError if the weights take more than four times the files, as those of 8 bits do.
    """
    encoder = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with torch.device("meta"):
        model = build_pretrained(encoder).model
    needed = sum(weight.nbytes for weight in model.parameters())
    held = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    if needed > 4 * held + 2**26:  # a head and a pooler may be drawn
        raise ValueError(f"config.json: expected weights as in its files, got {needed >> 20} MiB")
    return encoder, model


def plain_tokenizer(theirs: Any) -> Tokenizer:
    """Return the tokenizer within one of transformers, which neither pads nor truncates.

    That of BertJapaneseTokenizer with MeCab is made of its vocabulary. ValueError for any other
    that is written in Python.
    """
    tokenizer: Tokenizer | None = getattr(theirs, "backend_tokenizer", None)
    if tokenizer is None:
        tokenizer = _mecab_tokenizer(theirs)
    check_growth(write_tokenizer_json(tokenizer))
    return without_padding(tokenizer)


def _mecab_tokenizer(theirs: Any) -> Tokenizer:
    """Return a BertJapaneseTokenizer that cuts by MeCab as a tokenizer in Rust, with places."""
    pre_tokenizer = _mecab_settings(theirs)
    unknown = theirs.unk_token
    if pre_tokenizer["characters"]:
        model: Any = models.WordLevel(vocab=dict(theirs.vocab), unk_token=unknown)
    else:
        model = models.WordPiece(vocab=dict(theirs.vocab), unk_token=unknown)
    made = Tokenizer(model)
    made.normalizer = normalizers.NFKC()
    start = theirs.cls_token
    end = theirs.sep_token
    made.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(token, theirs.vocab[token]) for token in (start, end)],
    )
    tokenizer = cut_by_mecab(made, **pre_tokenizer)
    if tokenizer.encode(SAMPLE, SAMPLE).ids != theirs(SAMPLE, SAMPLE)["input_ids"]:
        raise ValueError(f"{type(theirs).__name__}: its ids are not those of MeCab and vocab.txt")
    return tokenizer


def _mecab_settings(theirs: Any) -> dict[str, Any]:
    """Return how a BertJapaneseTokenizer cuts texts; ValueError if not by MeCab alone."""
    from transformers import BertJapaneseTokenizer

    name = type(theirs).__name__
    if not isinstance(theirs, BertJapaneseTokenizer):
        raise ValueError(f"expected a tokenizer with a tokenizer.json, got {name}, in Python")
    kinds = {
        "word_tokenizer_type": theirs.do_word_tokenize and theirs.word_tokenizer_type,
        "subword_tokenizer_type": theirs.do_subword_tokenize and theirs.subword_tokenizer_type,
    }
    if kinds["word_tokenizer_type"] != "mecab" or (
        kinds["subword_tokenizer_type"] not in ("wordpiece", "character")
    ):
        raise ValueError(f"{name}: expected mecab, and wordpiece or character, got {kinds}")
    options = inspect.signature(type(theirs.word_tokenizer)).parameters
    used = {key: option.default for key, option in options.items()} | (theirs.mecab_kwargs or {})
    added = {*theirs.get_added_vocab()} - {*theirs.vocab}
    if not used["normalize_text"] or used["mecab_option"] or theirs.never_split or added:
        raise ValueError(
            f"{name}: expected normalize_text, no mecab_option, no never_split, and no tokens added"
        )
    return {
        "dictionary": used["mecab_dic"],
        "lowercase": bool(theirs.do_lower_case),
        "characters": kinds["subword_tokenizer_type"] == "character",
    }
