"""Tokenizers that read the words of MeCab, as BERT in Japanese does: fugashi cuts, Rust encodes.

    text -> NFKC -> words of MeCab -> WordPiece or characters

A pre-tokenizer in Python cuts the text, so a token's place in the text is known; but `tokenizers`
writes none. In our tokenizer.json it is a part of its own, which no other reader takes for a
tokenizer that it can run:

    "pre_tokenizer": {"type": "MeCab", "dictionary": "unidic_lite", "lowercase": false,
                      "characters": false}
"""

import importlib
import json
from functools import cache
from threading import Lock
from typing import Any

from tokenizers import NormalizedString, PreTokenizedString, Tokenizer, pre_tokenizers

KIND = "MeCab"
DICTIONARIES = ("unidic_lite", "unidic", "ipadic")  # packages, each with the folder DICDIR
WRITTEN = "headscope_mecab"  # where a tokenizer keeps its tokenizer.json
_parsing = Lock()  # MeCab's words stay in the memory of the parse, until the next one


@cache
def _tagger(dictionary: str) -> Any:
    """Return fugashi's MeCab; a ValueError that names the packages if they are missing."""
    if dictionary not in DICTIONARIES:
        raise ValueError(f"MeCab: expected a dictionary of {DICTIONARIES}, got {dictionary!r}")
    try:
        fugashi = importlib.import_module("fugashi")
        folder = importlib.import_module(dictionary).DICDIR
    except ImportError as error:
        packages = f"fugashi {dictionary.replace('_', '-')}"
        raise ValueError(f"MeCab: expected its packages; pip install {packages}") from error
    return fugashi.GenericTagger(f'-d "{folder}" -r "{folder}/mecabrc"')


class Cutter:
    """Cuts at MeCab's words, or at the characters in them; spaces are in none."""

    def __init__(self, dictionary: str, lowercase: bool = False, characters: bool = False) -> None:
        self.tagger = _tagger(dictionary)
        self.lowercase = lowercase
        self.characters = characters

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        """Cut a text, for `tokenizers`."""
        text.split(self._cut)
        if self.lowercase:
            text.normalize(lambda word: word.lowercase())

    def _cut(self, _: int, normalized: NormalizedString) -> list[NormalizedString]:
        text = normalized.normalized
        pieces: list[NormalizedString] = []
        end = 0
        for word in self._words(text):
            start = text.index(word, end)
            end = start + len(word)
            width = 1 if self.characters else len(word)
            places = range(start, end, width)
            cut = (normalized[place : place + width] for place in places)
            pieces.extend(piece for piece in cut if piece is not None)
        return pieces

    def _words(self, text: str) -> list[str]:
        with _parsing:
            return [word.surface for word in self.tagger(text)]


def cut_by_mecab(tokenizer: Tokenizer, **options: Any) -> Tokenizer:
    """Return the same tokenizer with MeCab as its pre-tokenizer; `options` are those of Cutter."""
    tokenizer.pre_tokenizer = None
    parts = json.loads(tokenizer.to_str()) | {"pre_tokenizer": {"type": KIND} | options}
    return read_tokenizer_json(json.dumps(parts))


def read_tokenizer_json(content: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, also of one that calls MeCab."""
    parts = json.loads(content)
    part = parts.get("pre_tokenizer") or {}
    if part.get("type") != KIND:
        return Tokenizer.from_str(content)
    tokenizer = Tokenizer.from_str(json.dumps(parts | {"pre_tokenizer": None}))
    cutter = Cutter(part["dictionary"], part["lowercase"] is True, part["characters"] is True)
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(cutter)
    vars(tokenizer)[WRITTEN] = content
    return tokenizer


def write_tokenizer_json(tokenizer: Tokenizer, pretty: bool = False) -> str:
    """Return a tokenizer.json, also of a tokenizer of `read_tokenizer_json` that calls MeCab."""
    if not calls_mecab(tokenizer):
        return tokenizer.to_str(pretty=pretty)
    parts = json.loads(vars(tokenizer)[WRITTEN])
    plain = Tokenizer.from_str(json.dumps(parts | {"pre_tokenizer": None}))
    plain.no_padding()
    plain.no_truncation()
    if tokenizer.truncation is not None:
        plain.enable_truncation(**tokenizer.truncation)
    written = json.loads(plain.to_str()) | {"pre_tokenizer": parts["pre_tokenizer"]}
    return json.dumps(written, ensure_ascii=False, indent=2 if pretty else None)


def calls_mecab(tokenizer: Tokenizer) -> bool:
    """Tell whether a tokenizer of `read_tokenizer_json` calls MeCab."""
    return WRITTEN in vars(tokenizer)
